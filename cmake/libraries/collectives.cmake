# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  collectives_tuning_topology
  HEADERS collectives/tuning/topology.h
  SOURCES collectives/tuning/topology.cc
  DEPS device_status_macros
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES nlohmann_json::nlohmann_json
)

brigade_library(
  collectives_options
  HEADERS collectives/options.h
  SOURCES collectives/options.cc
  DEPS collectives_tuning_topology kernels_reduce_math
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  collectives_collective
  HEADERS collectives/collective.h
  SOURCES collectives/collective.cc
  DEPS collectives_options device_requirements kernels_reduce_math precision_dtype
    precision_dtype_names
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  collectives_algorithms_program
  HEADERS collectives/algorithms/program.h collectives/algorithms/algorithms.h
    collectives/algorithms/builder.h
  SOURCES collectives/algorithms/bidirectional_ring.cc collectives/algorithms/direct.cc
    collectives/algorithms/double_tree.cc collectives/algorithms/fp32_partials.cc
    collectives/algorithms/halving_doubling.cc collectives/algorithms/hierarchical.cc
    collectives/algorithms/parameter_server.cc collectives/algorithms/program.cc
    collectives/algorithms/ring.cc
  DEPS collectives_collective
  PUBLIC_LIBRARIES absl::function_ref absl::inlined_vector absl::span
)

brigade_library(
  collectives_algorithms_wire_elements
  HEADERS collectives/algorithms/wire_elements.h
  SOURCES collectives/algorithms/wire_elements.cc
  DEPS collectives_algorithms_program collectives_collective
  PUBLIC_LIBRARIES absl::function_ref
  PRIVATE_LIBRARIES absl::inlined_vector absl::span
)

brigade_library(
  collectives_call_marks
  HEADERS collectives/call_marks.h
  SOURCES collectives/call_marks.cc
  DEPS collectives_collective collectives_algorithms_wire_elements device_context device_operation
    device_stream device_threads_mutex device_threads_thread_pool
  PUBLIC_LIBRARIES absl::status absl::strings
  PRIVATE_LIBRARIES absl::core_headers absl::span
)

brigade_library(
  collectives_check_collective
  HEADERS collectives/check_collective.h
  SOURCES collectives/check_collective.cc
  DEPS collectives_collective device device_status_macros device_stream kernels_list_arguments
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_engines_call_order
  HEADERS collectives/engines/call_order.h
  DEPS device device_event device_status_macros device_stream
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  collectives_engines_registration
  HEADERS collectives/engines/registration.h
)

brigade_library(
  collectives_algorithms_workspace
  HEADERS collectives/algorithms/workspace.h
  SOURCES collectives/algorithms/workspace.cc
  DEPS collectives_algorithms_program collectives_collective kernels_reduce
)

brigade_library(
  collectives_engines_engine
  HEADERS collectives/engines/engine.h
  DEPS collectives_engines_registration collectives_collective collectives_algorithms_workspace
    device_context device_stream
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
)

brigade_library(
  collectives_tuning_cost_model
  HEADERS collectives/tuning/cost_model.h
  SOURCES collectives/tuning/cost_model.cc
  DEPS collectives_tuning_topology collectives_collective device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  collectives_tuning_select
  HEADERS collectives/tuning/select.h
  SOURCES collectives/tuning/select.cc
  DEPS collectives_tuning_cost_model
  PUBLIC_LIBRARIES absl::span absl::statusor
  PRIVATE_LIBRARIES absl::status absl::str_format absl::strings
)

brigade_library(
  collectives_tuning_auto_algorithm
  HEADERS collectives/tuning/auto_algorithm.h
  SOURCES collectives/tuning/auto_algorithm.cc
  DEPS collectives_tuning_select collectives_tuning_topology collectives_collective
)

brigade_library(
  collectives_communicator
  HEADERS collectives/communicator.h
  SOURCES collectives/communicator.cc
  DEPS collectives_call_marks collectives_check_collective collectives_collective
    collectives_options collectives_engines_call_order collectives_engines_engine
    collectives_engines_registration collectives_tuning_auto_algorithm device_context
    device_status_macros device_stream precision_dtype_names
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_compressed_codec_call
  HEADERS collectives/compressed/codec_call.h
  SOURCES collectives/compressed/codec_call.cc
  DEPS collectives_collective collectives_communicator collectives_engines_registration
    device_buffer device_context device_status_macros device_stream kernels_list_arguments
    precision_dtype
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  collectives_compressed_restore_errors_math
  HEADERS collectives/compressed/restore_errors_math.h
  DEPS kernels_sign_pack_math precision_host_device
)

brigade_library(
  collectives_compressed_restore_errors_cuda CUDA_ONLY
  HEADERS collectives/compressed/restore_errors_cuda.h
  CUDA_SOURCES collectives/compressed/restore_errors_cuda.cu
  DEPS collectives_compressed_restore_errors_math kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  collectives_compressed_restore_errors
  HEADERS collectives/compressed/restore_errors.h
  SOURCES collectives/compressed/restore_errors.cc
  DEPS collectives_compressed_restore_errors_math device_stream kernels_list_arguments
  CUDA_DEPS collectives_compressed_restore_errors_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_compressed_seed_columns_math
  HEADERS collectives/compressed/seed_columns_math.h
  DEPS precision_host_device precision_rounding
)

brigade_library(
  collectives_compressed_seed_columns_cuda CUDA_ONLY
  HEADERS collectives/compressed/seed_columns_cuda.h
  CUDA_SOURCES collectives/compressed/seed_columns_cuda.cu
  DEPS collectives_compressed_seed_columns_math kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  collectives_compressed_seed_columns
  HEADERS collectives/compressed/seed_columns.h
  SOURCES collectives/compressed/seed_columns.cc
  DEPS collectives_compressed_seed_columns_math device_status_macros device_stream
    kernels_list_arguments
  CUDA_DEPS collectives_compressed_seed_columns_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  collectives_compressed_power_sgd_all_reduce
  HEADERS collectives/compressed/power_sgd_all_reduce.h
  SOURCES collectives/compressed/power_sgd_all_reduce.cc
  DEPS collectives_compressed_codec_call collectives_compressed_restore_errors
    collectives_compressed_seed_columns collectives_collective collectives_communicator
    collectives_options collectives_engines_call_order device_buffer device_context
    device_status_macros device_stream kernels_list_arguments kernels_amax kernels_amax_math
    kernels_cast kernels_cast_math kernels_orthogonalize kernels_orthogonalize_math
    kernels_step_control_step_state precision_dtype
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_bootstrap_fields
  HEADERS collectives/bootstrap/fields.h
  SOURCES collectives/bootstrap/fields.cc
  DEPS device_printable device_requirements
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  collectives_agree
  HEADERS collectives/agree.h
  SOURCES collectives/agree.cc
  DEPS collectives_communicator collectives_bootstrap_fields device_printable device_status_macros
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  collectives_host_threads
  HEADERS collectives/host_threads.h
  SOURCES collectives/host_threads.cc
  DEPS collectives_agree collectives_communicator device_status_macros
  PUBLIC_LIBRARIES absl::statusor
)

brigade_library(
  collectives_compressed_node_groups
  HEADERS collectives/compressed/node_groups.h
  SOURCES collectives/compressed/node_groups.cc
  DEPS collectives_collective collectives_communicator device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_compressed_one_bit_all_reduce
  HEADERS collectives/compressed/one_bit_all_reduce.h
  SOURCES collectives/compressed/one_bit_all_reduce.cc
  DEPS collectives_compressed_codec_call collectives_compressed_node_groups
    collectives_compressed_restore_errors collectives_collective collectives_communicator
    collectives_options collectives_engines_call_order device_buffer device_context
    device_status_macros device_stream kernels_list_arguments kernels_sign_pack
    kernels_sign_pack_math kernels_step_control_step_state precision_dtype
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
)

brigade_library(
  collectives_compressed_sparse_mean_math
  HEADERS collectives/compressed/sparse_mean_math.h
  DEPS precision_host_device
)

brigade_library(
  collectives_compressed_sparse_mean_cuda CUDA_ONLY
  HEADERS collectives/compressed/sparse_mean_cuda.h
  CUDA_SOURCES collectives/compressed/sparse_mean_cuda.cu
  DEPS collectives_compressed_sparse_mean_math kernels_launch_kernel precision_float16
    precision_rounding
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  collectives_compressed_sparse_mean
  HEADERS collectives/compressed/sparse_mean.h
  SOURCES collectives/compressed/sparse_mean.cc
  DEPS collectives_compressed_sparse_mean_math device_status_macros device_stream
    kernels_list_arguments precision_dtype precision_rounding
  CUDA_DEPS collectives_compressed_sparse_mean_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_compressed_top_k_all_reduce
  HEADERS collectives/compressed/top_k_all_reduce.h
  SOURCES collectives/compressed/top_k_all_reduce.cc
  DEPS collectives_compressed_codec_call collectives_compressed_restore_errors
    collectives_compressed_sparse_mean collectives_collective collectives_communicator
    collectives_options collectives_engines_call_order device_buffer device_context
    device_status_macros device_stream kernels_list_arguments kernels_cast kernels_fill
    kernels_step_control_step_state kernels_top_k precision_dtype
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_compressed_amax_scale_math
  HEADERS collectives/compressed/amax_scale_math.h
  DEPS precision_host_device precision_rounding
)

brigade_library(
  collectives_compressed_amax_scale_cuda CUDA_ONLY
  HEADERS collectives/compressed/amax_scale_cuda.h
  CUDA_SOURCES collectives/compressed/amax_scale_cuda.cu
  DEPS collectives_compressed_amax_scale_math kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  collectives_compressed_amax_scale
  HEADERS collectives/compressed/amax_scale.h
  SOURCES collectives/compressed/amax_scale.cc
  DEPS collectives_compressed_amax_scale_math device_stream kernels_list_arguments precision_dtype
    precision_dtype_names
  CUDA_DEPS collectives_compressed_amax_scale_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_compressed_reduction
  HEADERS collectives/compressed/compressed_reduction.h
  SOURCES collectives/compressed/compressed_reduction.cc
  DEPS collectives_compressed_amax_scale collectives_compressed_amax_scale_math
    collectives_compressed_codec_call collectives_collective collectives_communicator
    collectives_engines_call_order device_buffer device_context device_event device_status_macros
    device_stream kernels_list_arguments kernels_value_range kernels_amax kernels_amax_math
    kernels_cast kernels_fill kernels_reduce_math precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::span absl::strings
)

brigade_library(
  collectives_compressed_quantized_reduce_scatter
  HEADERS collectives/compressed/quantized_reduce_scatter.h
  SOURCES collectives/compressed/quantized_reduce_scatter.cc
  DEPS collectives_compressed_codec_call collectives_compressed_node_groups collectives_collective
    collectives_communicator collectives_engines_call_order device_buffer device_context
    device_status_macros device_stream kernels_list_arguments kernels_value_range
    kernels_block_quant kernels_block_quant_math kernels_dequant_reduce kernels_dequant_reduce_math
    kernels_loco_quant kernels_loco_quant_math precision_dtype
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::span absl::strings
)

brigade_library(
  collectives_compressed_quantized_all_gather
  HEADERS collectives/compressed/quantized_all_gather.h
  SOURCES collectives/compressed/quantized_all_gather.cc
  DEPS collectives_compressed_codec_call collectives_collective collectives_communicator
    collectives_options collectives_engines_call_order device_context device_status_macros
    device_stream kernels_block_quant kernels_block_quant_math precision_dtype
  PUBLIC_LIBRARIES absl::status absl::statusor
)

brigade_library(
  collectives_bootstrap_job
  HEADERS collectives/bootstrap/job.h collectives/bootstrap/job_secret.h
  SOURCES collectives/bootstrap/job.cc collectives/bootstrap/job_secret.cc
  DEPS collectives_bootstrap_fields device_requirements
  PUBLIC_LIBRARIES absl::statusor absl::strings
  PRIVATE_LIBRARIES Brigade::system_sodium absl::cleanup absl::status
)

brigade_library(
  collectives_bootstrap_error_file
  HEADERS collectives/bootstrap/error_file.h
  SOURCES collectives/bootstrap/error_file.cc
  DEPS collectives_bootstrap_job device_files
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings absl::time nlohmann_json::nlohmann_json
)

brigade_library(
  collectives_bootstrap_launch_info
  HEADERS collectives/bootstrap/launch_info.h
  SOURCES collectives/bootstrap/launch_info.cc
  DEPS collectives_bootstrap_job device_printable
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  collectives_internal_connections
  HEADERS collectives/internal/frame_buffer.h collectives/internal/handshake.h
    collectives/internal/socket.h collectives/internal/stranger_log.h
  SOURCES collectives/internal/frame_buffer.cc collectives/internal/handshake.cc
    collectives/internal/socket.cc collectives/internal/stranger_log.cc
  DEPS collectives_bootstrap_fields collectives_bootstrap_job device_requirements
    device_threads_steady_time
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings absl::time
  PRIVATE_LIBRARIES absl::str_format
)

brigade_library(
  collectives_bootstrap_store_server
  HEADERS collectives/bootstrap/internal/host_secret.h
    collectives/bootstrap/internal/store_protocol.h collectives/bootstrap/internal/store_server.h
    collectives/bootstrap/internal/torch_store.h
  SOURCES collectives/bootstrap/internal/host_secret.cc
    collectives/bootstrap/internal/store_protocol.cc collectives/bootstrap/internal/store_server.cc
    collectives/bootstrap/internal/torch_store.cc
  DEPS collectives_bootstrap_fields collectives_bootstrap_job collectives_internal_connections
    device_files device_printable device_threads_mutex device_threads_steady_time
  PUBLIC_LIBRARIES absl::core_headers absl::status absl::statusor absl::strings absl::time
)

brigade_library(
  collectives_engines_transport
  HEADERS collectives/engines/transport/transport.h
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  collectives_engines_transport_checked_transport
  HEADERS collectives/engines/transport/checked_transport.h
  SOURCES collectives/engines/transport/checked_transport.cc
  DEPS collectives_engines_transport collectives_collective device_status_macros device_file_crc32c
    device_threads_mutex
  PUBLIC_LIBRARIES absl::core_headers absl::status absl::strings
)

brigade_library(
  collectives_engines_combine
  HEADERS collectives/engines/combine.h
  SOURCES collectives/engines/combine.cc
  DEPS collectives_collective collectives_algorithms_program device_stream
    device_threads_thread_pool kernels_cast kernels_cast_pool kernels_reduce kernels_reduce_pool
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  collectives_engines_grow_buffer
  HEADERS collectives/engines/grow_buffer.h
  DEPS device_context device_status_macros
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  collectives_engines_transport_executor
  HEADERS collectives/engines/transport/executor.h
  SOURCES collectives/engines/transport/executor.cc
  DEPS collectives_engines_transport collectives_algorithms_program collectives_algorithms_workspace
    collectives_engines_combine collectives_engines_grow_buffer device_context device_status_macros
    device_threads_thread_pool
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  collectives_engines_transport_engine
  HEADERS collectives/engines/transport/transport_engine.h
  SOURCES collectives/engines/transport/transport_engine.cc
  DEPS collectives_engines_transport_checked_transport collectives_engines_transport_executor
    collectives_engines_transport collectives_engines_engine collectives_engines_grow_buffer
    device_context device_status_macros device_threads_mutex
  PUBLIC_LIBRARIES absl::span absl::statusor
  PRIVATE_LIBRARIES absl::core_headers absl::strings
)

brigade_library(
  collectives_engines_threads_rendezvous
  HEADERS collectives/engines/threads/rendezvous.h
  SOURCES collectives/engines/threads/rendezvous.cc
  DEPS collectives_collective device_stream device_threads_deadline device_threads_mutex
    device_threads_spin
  PUBLIC_LIBRARIES absl::core_headers absl::function_ref absl::span absl::status absl::time
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_engines_threads_stream_monitor
  HEADERS collectives/engines/threads/stream_monitor.h
  SOURCES collectives/engines/threads/stream_monitor.cc
  DEPS collectives_call_marks collectives_collective device_context device_event
    device_status_macros device_threads_deadline device_threads_mutex
  PUBLIC_LIBRARIES absl::core_headers absl::status absl::statusor absl::time
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_engines_threads_thread_group
  HEADERS collectives/engines/threads/group_state.h collectives/engines/threads/thread_group.h
  SOURCES collectives/engines/threads/group_state.cc collectives/engines/threads/thread_group.cc
  DEPS collectives_engines_threads_rendezvous collectives_engines_threads_stream_monitor
    collectives_algorithms_program collectives_algorithms_workspace collectives_engines_combine
    collectives_engines_engine collectives_engines_grow_buffer device_context device_status_macros
    device_threads_mutex device_threads_periodic_thread kernels_reduce
  PUBLIC_LIBRARIES absl::core_headers absl::span absl::status absl::statusor absl::time
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives
  DEPS collectives_agree collectives_collective collectives_communicator collectives_host_threads
    collectives_options collectives_engines_threads_thread_group
)

brigade_library(
  collectives_measurement_nodes
  HEADERS collectives/measurement/nodes.h
  SOURCES collectives/measurement/nodes.cc
  DEPS collectives_communicator device_status_macros
  PUBLIC_LIBRARIES absl::statusor
)

brigade_library(
  collectives_measurement_measure
  HEADERS collectives/measurement/measure.h
  SOURCES collectives/measurement/measure.cc
  DEPS collectives_measurement_nodes collectives_communicator collectives_tuning_cost_model
    collectives_tuning_topology device_buffer device_context device_status_macros device_stream
    kernels_block_quant kernels_reduce
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_tuning_codec_cost
  HEADERS collectives/tuning/codec_cost.h
  SOURCES collectives/tuning/codec_cost.cc
  DEPS collectives_tuning_cost_model collectives_tuning_select collectives_tuning_topology
    collectives_collective device_status_macros kernels_block_quant_math kernels_orthogonalize_math
    kernels_sign_pack_math precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::span absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::status
)
