# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  zero_offload
  HEADERS zero/offload.h
  DEPS device_memory_stats device_file_options
)

brigade_library(
  zero_options
  HEADERS zero/options.h
  SOURCES zero/options.cc
  DEPS zero_offload collectives_options collectives_compressed_power_sgd_all_reduce
    device_memory_stats device_status_macros kernels_value_range kernels_block_quant
    kernels_block_quant_math kernels_orthogonalize_math optim_loss_scaler optim_parameter_group
    precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::algorithm_container absl::strings
)

brigade_library(
  zero_plan
  HEADERS zero/plan/plan.h
  SOURCES zero/plan/plan.cc
  DEPS optim_parameter_group precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::algorithm_container absl::strings
)

brigade_library(
  zero_step
  HEADERS zero/step.h
  SOURCES zero/step.cc
  DEPS precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_step_observer
  HEADERS zero/step_observer.h
  DEPS device_stream precision_dtype zero_plan
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  zero_internal_communicator_check
  HEADERS zero/internal/communicator_check.h
  SOURCES zero/internal/communicator_check.cc
  DEPS collectives_agree collectives_communicator collectives_compressed_node_groups
    device_status_macros zero_options
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_plan_layout
  HEADERS zero/plan/layout.h
  DEPS zero_plan kernels_block_quant_math kernels_grad_check kernels_one_bit_lamb_math
    kernels_step_control_step_state kernels_zero_one_adam_math optim_lamb_update
    optim_parameter_group optim_step_controller optim_step_executor optim_zero_one_schedule
    precision_dtype zero_options
)

brigade_library(
  zero_internal_consistency_check
  HEADERS zero/internal/consistency_check.h
  SOURCES zero/internal/consistency_check.cc
  DEPS collectives_agree collectives_communicator device_status_macros
    kernels_step_control_step_state optim_schedule precision_dtype_names zero_options zero_plan
    zero_plan_layout
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::str_format absl::strings
)

brigade_library(
  zero_internal_buffer_pool
  HEADERS zero/internal/buffer_pool.h
  SOURCES zero/internal/buffer_pool.cc
  DEPS device_buffer device_context device_event device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_internal_saved_errors
  HEADERS zero/internal/saved_errors.h
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  zero_plan_file_layout
  HEADERS zero/plan/file_layout.h
  SOURCES zero/plan/file_layout.cc
  DEPS zero_plan_layout zero_plan device_file_options optim_parameter_group zero_options
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_plan_exchange_layout
  HEADERS zero/plan/exchange_layout.h
  SOURCES zero/plan/exchange_layout.cc
  DEPS zero_plan_layout zero_plan collectives_compressed_one_bit_all_reduce
    collectives_compressed_power_sgd_all_reduce collectives_compressed_top_k_all_reduce zero_options
)

brigade_library(
  zero_plan_matrix_layout
  HEADERS zero/plan/matrix_layout.h
  SOURCES zero/plan/matrix_layout.cc
  DEPS zero_plan_layout zero_plan kernels_muon_math zero_options
)

brigade_library(
  zero_plan_factor_layout
  HEADERS zero/plan/factor_layout.h
  SOURCES zero/plan/factor_layout.cc
  DEPS zero_plan_layout zero_plan_matrix_layout zero_plan kernels_adafactor_math zero_options
)

brigade_library(
  zero_plan_traffic
  HEADERS zero/plan/step_collectives.h zero/plan/traffic.h
  SOURCES zero/plan/step_collectives.cc zero/plan/traffic.cc
  DEPS zero_plan_exchange_layout zero_plan_layout zero_plan_factor_layout zero_plan_matrix_layout
    zero_plan collectives_collective collectives_communicator collectives_algorithms_wire_elements
    collectives_compressed_reduction collectives_compressed_one_bit_all_reduce
    collectives_compressed_power_sgd_all_reduce collectives_compressed_quantized_reduce_scatter
    collectives_compressed_top_k_all_reduce device_status_macros kernels_one_bit_lamb_math
    kernels_step_control_step_state optim_parameter_group precision_dtype zero_options
  PUBLIC_LIBRARIES absl::inlined_vector absl::statusor
  PRIVATE_LIBRARIES absl::algorithm_container
)

brigade_library(
  zero_plan_movement
  HEADERS zero/plan/movement.h
  SOURCES zero/plan/movement.cc
  DEPS zero_plan_file_layout zero_plan_layout zero_plan zero_plan_traffic device_memory_stats
    precision_dtype zero_options
  PRIVATE_LIBRARIES absl::str_format
)

brigade_library(
  zero_internal_step_streams
  HEADERS zero/internal/step_streams.h
  SOURCES zero/internal/step_streams.cc
  DEPS collectives_agree collectives_collective collectives_communicator
    collectives_algorithms_wire_elements collectives_compressed_node_groups
    collectives_engines_registration device_buffer device_context device_event device_status_macros
    device_stream precision_dtype zero_options zero_plan_movement zero_plan_traffic
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::algorithm_container
)

brigade_library(
  zero_internal_loco_errors
  HEADERS zero/internal/loco_errors.h
  SOURCES zero/internal/loco_errors.cc
  DEPS zero_internal_saved_errors zero_internal_step_streams collectives_communicator
    collectives_compressed_quantized_reduce_scatter collectives_compressed_restore_errors
    device_buffer device_context device_status_macros kernels_block_quant kernels_block_quant_math
    kernels_cast kernels_cast_math kernels_fill kernels_loco_quant_math kernels_step_control
    kernels_step_control_step_state zero_options zero_plan zero_plan_layout zero_plan_traffic
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_internal_gradient_store
  HEADERS zero/internal/gradient_store.h
  SOURCES zero/internal/gradient_store.cc
  DEPS zero_internal_buffer_pool zero_internal_loco_errors zero_internal_step_streams
    collectives_collective collectives_compressed_reduction
    collectives_compressed_quantized_reduce_scatter collectives_engines_registration device_buffer
    device_event device_status_macros kernels_cast kernels_fill kernels_fill_math zero_options
    zero_step zero_plan zero_plan_layout zero_plan_traffic
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_internal_rank_file
  HEADERS zero/internal/rank_file.h
  SOURCES zero/internal/rank_file.cc
  DEPS zero_internal_step_streams device_buffer device_context device_event device_status_macros
    device_stream device_file_store device_threads_mutex kernels_step_control_step_state
    precision_dtype zero_options zero_plan zero_plan_file_layout
  PUBLIC_LIBRARIES absl::function_ref absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_internal_parameter_store
  HEADERS zero/internal/parameter_store.h
  SOURCES zero/internal/parameter_store.cc
  DEPS zero_internal_buffer_pool zero_internal_rank_file zero_internal_step_streams
    collectives_compressed_quantized_all_gather collectives_engines_registration device_buffer
    device_event device_status_macros zero_options zero_step zero_step_observer zero_plan
    zero_plan_layout zero_plan_traffic
  PUBLIC_LIBRARIES absl::function_ref absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_internal_move_piece
  HEADERS zero/internal/move_piece.h
  SOURCES zero/internal/move_piece.cc
  DEPS zero_internal_step_streams collectives_communicator device_stream precision_dtype
    zero_plan_matrix_layout
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  zero_internal_factored_update
  HEADERS zero/internal/factored_update.h
  SOURCES zero/internal/factored_update.cc
  DEPS zero_internal_move_piece zero_internal_step_streams device_buffer device_context
    device_status_macros device_stream kernels_adafactor optim_step_controller precision_dtype
    zero_options zero_plan zero_plan_factor_layout zero_plan_layout
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor
)

brigade_library(
  zero_internal_matrix_update
  HEADERS zero/internal/matrix_update.h
  SOURCES zero/internal/matrix_update.cc
  DEPS zero_internal_move_piece zero_internal_step_streams device_buffer device_context
    device_status_macros device_stream kernels_muon optim_step_controller precision_dtype
    zero_options zero_plan zero_plan_layout zero_plan_matrix_layout
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor
)

brigade_library(
  zero_internal_gradient_exchange
  HEADERS zero/internal/gradient_exchange.h
  SOURCES zero/internal/gradient_exchange.cc
  DEPS zero_internal_gradient_store zero_internal_saved_errors zero_internal_step_streams
    collectives_compressed_one_bit_all_reduce collectives_compressed_power_sgd_all_reduce
    collectives_compressed_restore_errors collectives_compressed_top_k_all_reduce device_buffer
    device_context device_status_macros kernels_cast kernels_cast_math kernels_fill
    kernels_grad_check kernels_one_bit_lamb kernels_step_control_step_state kernels_zero_one_adam
    kernels_zero_one_adam_math optim_freeze_moment optim_lamb_update optim_limit_stats
    optim_step_controller optim_step_executor zero_options zero_plan zero_plan_exchange_layout
    zero_plan_layout zero_plan_traffic
  PUBLIC_LIBRARIES absl::function_ref absl::inlined_vector absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_internal_host_lane
  HEADERS zero/internal/host_lane.h
  SOURCES zero/internal/host_lane.cc
  DEPS zero_internal_rank_file zero_internal_step_streams device_buffer device_context device_event
    device_operation device_status_macros kernels_step_control_step_state optim_fused_update
    optim_step_controller zero_options zero_plan zero_plan_layout
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_internal_sharded_update
  HEADERS zero/internal/sharded_update.h
  SOURCES zero/internal/sharded_update.cc zero/internal/sharded_update_lists.cc
  DEPS zero_internal_factored_update zero_internal_matrix_update zero_internal_gradient_exchange
    zero_internal_gradient_store zero_internal_host_lane zero_internal_parameter_store
    zero_internal_rank_file zero_internal_step_streams device_buffer device_context device_event
    device_status_macros kernels_cast kernels_cast_math kernels_one_bit_lamb
    kernels_step_control_step_state kernels_zero_one_adam kernels_zero_one_adam_math
    optim_fused_update optim_lamb_update optim_one_bit_lamb_update optim_parameter_group
    optim_step_controller optim_step_executor zero_options zero_step_observer zero_plan
    zero_plan_layout
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_internal_state_loan
  HEADERS zero/internal/state_loan.h
  SOURCES zero/internal/state_loan.cc
  DEPS zero_internal_step_streams device_context device_event device_status_macros device_stream
    device_threads_mutex
  PUBLIC_LIBRARIES absl::core_headers absl::status absl::statusor
)

brigade_library(
  zero_internal_state_transfer
  HEADERS zero/internal/state_transfer.h
  SOURCES zero/internal/state_transfer.cc
  DEPS zero_internal_consistency_check zero_internal_parameter_store zero_internal_rank_file
    zero_internal_saved_errors zero_internal_sharded_update zero_internal_step_streams
    collectives_agree device_buffer device_context device_event device_status_macros device_stream
    kernels_cast kernels_step_control_step_state optim_step_controller zero_options zero_plan
    zero_plan_layout
  PUBLIC_LIBRARIES absl::function_ref absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_plan_memory_model_lib
  HEADERS zero/plan/memory_model.h
  SOURCES zero/plan/memory_model.cc
  DEPS zero_plan_exchange_layout zero_plan_file_layout zero_plan_layout zero_plan_matrix_layout
    zero_plan zero_plan_traffic collectives_communicator collectives_algorithms_workspace
    collectives_compressed_reduction collectives_compressed_quantized_all_gather
    collectives_compressed_quantized_reduce_scatter device_memory_stats device_status_macros
    device_file_options optim_lamb_update optim_one_bit_lamb_update optim_parameter_group
    optim_step_controller optim_step_executor zero_options
  PUBLIC_LIBRARIES absl::statusor
)

brigade_library(
  zero_optimizer
  HEADERS zero/zero_optimizer.h
  SOURCES zero/zero_optimizer.cc zero/zero_optimizer_state.cc
  DEPS zero_options zero_step zero_step_observer collectives_agree collectives_communicator
    collectives_host_threads device_context device_event device_memory_stats device_status_macros
    device_stream kernels_step_control kernels_step_control_step_state optim_step_controller
    precision_dtype zero_internal_communicator_check zero_internal_consistency_check
    zero_internal_gradient_store zero_internal_loco_errors zero_internal_parameter_store
    zero_internal_rank_file zero_internal_saved_errors zero_internal_sharded_update
    zero_internal_state_loan zero_internal_state_transfer zero_internal_step_streams zero_plan
    zero_plan_memory_model_lib zero_plan_movement zero_plan_traffic
  PUBLIC_LIBRARIES absl::function_ref absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_plan_batch_sizes
  HEADERS zero/plan/batch_sizes.h
  SOURCES zero/plan/batch_sizes.cc
  DEPS device_requirements
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  zero_shard_groups
  HEADERS zero/shard_groups.h
  SOURCES zero/shard_groups.cc
  DEPS zero_options collectives_agree collectives_communicator device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  zero
  DEPS zero_offload zero_options zero_shard_groups zero_step zero_step_observer zero_optimizer
    zero_plan zero_plan_batch_sizes zero_plan_memory_model_lib zero_plan_movement zero_plan_traffic
)
