# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  parallel_shard
  HEADERS parallel/shard.h
  SOURCES parallel/shard.cc
  DEPS device_requirements device_status_macros
  PUBLIC_LIBRARIES absl::function_ref absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_grid
  HEADERS parallel/grid.h
  SOURCES parallel/grid.cc
  DEPS collectives_communicator device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  parallel_pass_collective
  HEADERS parallel/pass_collective.h
  DEPS parallel_grid collectives_collective
)

brigade_library(
  parallel_pipeline_stage_range
  HEADERS parallel/pipeline/stage_range.h
  DEPS device_requirements
)

brigade_library(
  parallel_tensor_exchange
  HEADERS parallel/tensor/exchange.h
  SOURCES parallel/tensor/exchange.cc
  DEPS device_context device_event device_status_macros device_stream
  PUBLIC_LIBRARIES absl::status absl::statusor
)

brigade_library(
  parallel_tensor_row_pieces
  HEADERS parallel/tensor/row_pieces.h
  DEPS parallel_shard
)

brigade_library(
  parallel_tensor_shard_sums
  HEADERS parallel/tensor/shard_sums.h
  SOURCES parallel/tensor/shard_sums.cc
  DEPS parallel_tensor_exchange parallel_tensor_row_pieces collectives_communicator device_buffer
    device_context device_status_macros device_stream kernels_cast kernels_reduce parallel_shard
    precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_context_zigzag
  HEADERS parallel/context/zigzag.h
  SOURCES parallel/context/zigzag.cc
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_context_ranks
  HEADERS parallel/context/context_ranks.h
  SOURCES parallel/context/context_ranks.cc
  DEPS parallel_context_zigzag collectives_communicator
  PUBLIC_LIBRARIES absl::inlined_vector absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_context_check_texts
  HEADERS parallel/context/check_texts.h
  DEPS device_requirements
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  parallel_context_formulas
  HEADERS parallel/context/columns_math.h parallel/context/head_exchange_math.h
  DEPS nn_functions nn_rows
)

brigade_library(
  parallel_context_formulas_cuda CUDA_ONLY
  CUDA_SOURCES parallel/context/formulas_cuda.cu
  DEPS parallel_context_formulas nn_rows_cuda precision_float16
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  parallel_context_ring_attention
  HEADERS parallel/context/ring_attention.h
  SOURCES parallel/context/ring_attention.cc
  DEPS parallel_context_check_texts parallel_context_formulas parallel_context_zigzag
    collectives_communicator device_buffer device_context device_event device_status_macros
    device_stream nn_arrays nn_attention nn_enqueue
  CUDA_DEPS parallel_context_formulas_cuda
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_context_ulysses
  HEADERS parallel/context/ulysses.h
  SOURCES parallel/context/ulysses.cc
  DEPS parallel_context_check_texts parallel_context_formulas collectives_communicator device_buffer
    device_context device_status_macros device_stream nn_arrays nn_attention nn_enqueue
  CUDA_DEPS parallel_context_formulas_cuda
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_tensor_formulas
  HEADERS parallel/tensor/cross_entropy_math.h
  DEPS nn_functions nn_rows nn_token_ids
)

brigade_library(
  parallel_tensor_formulas_cuda CUDA_ONLY
  CUDA_SOURCES parallel/tensor/formulas_cuda.cu
  DEPS parallel_tensor_formulas nn_rows_cuda
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  parallel_tensor_cross_entropy
  HEADERS parallel/tensor/cross_entropy.h
  SOURCES parallel/tensor/cross_entropy.cc
  DEPS parallel_tensor_formulas parallel_tensor_shard_sums collectives_communicator device_buffer
    device_context device_status_macros device_stream nn_arrays nn_enqueue nn_token_ids
    parallel_shard precision_dtype
  CUDA_DEPS parallel_tensor_formulas_cuda
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_tensor_embedding
  HEADERS parallel/tensor/embedding.h
  SOURCES parallel/tensor/embedding.cc
  DEPS parallel_tensor_row_pieces parallel_tensor_shard_sums device_stream nn_embedding nn_token_ids
    parallel_shard precision_dtype
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_pipeline_schedule_kind
  HEADERS parallel/pipeline/schedule_kind.h
  SOURCES parallel/pipeline/schedule_kind.cc
  DEPS device_requirements
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  parallel_pipeline_item
  HEADERS parallel/pipeline/item.h
  SOURCES parallel/pipeline/item.cc
  DEPS parallel_pipeline_schedule_kind device_status_macros
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_pipeline_list_index
  HEADERS parallel/pipeline/list_index.h
  SOURCES parallel/pipeline/list_index.cc
  DEPS parallel_pipeline_item parallel_pipeline_schedule_kind device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_pipeline_buffers
  HEADERS parallel/pipeline/buffers.h
  SOURCES parallel/pipeline/buffers.cc
  DEPS parallel_pipeline_item parallel_pipeline_list_index parallel_pipeline_schedule_kind
)

brigade_library(
  parallel_pipeline_simulation
  HEADERS parallel/pipeline/simulate.h
  SOURCES parallel/pipeline/simulate.cc
  DEPS parallel_pipeline_item parallel_pipeline_list_index parallel_pipeline_schedule_kind
    device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_pipeline_channels
  HEADERS parallel/pipeline/channels.h
  SOURCES parallel/pipeline/channels.cc
  DEPS parallel_pipeline_item parallel_pipeline_schedule_kind parallel_pipeline_simulation
    collectives_communicator device_context device_status_macros device_stream parallel_grid
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_pipeline_check
  HEADERS parallel/pipeline/check.h
  SOURCES parallel/pipeline/check.cc
  DEPS parallel_pipeline_buffers parallel_pipeline_item parallel_pipeline_list_index
    parallel_pipeline_schedule_kind device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  parallel_pipeline_stage_module
  HEADERS parallel/pipeline/stage_module.h
  DEPS device_stream
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  parallel_pipeline_executor
  HEADERS parallel/pipeline/executor.h
  SOURCES parallel/pipeline/executor.cc
  DEPS parallel_pipeline_buffers parallel_pipeline_channels parallel_pipeline_check
    parallel_pipeline_item parallel_pipeline_list_index parallel_pipeline_schedule_kind
    parallel_pipeline_stage_module collectives_agree collectives_communicator
    collectives_bootstrap_job collectives_engines_registration device_buffer device_context
    device_event device_status_macros device_stream parallel_grid precision_dtype
    precision_dtype_names
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_pipeline_partition
  HEADERS parallel/pipeline/partition.h
  SOURCES parallel/pipeline/partition.cc
  DEPS parallel_pipeline_schedule_kind device_status_macros
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  parallel_pipeline_picture
  HEADERS parallel/pipeline/picture.h
  SOURCES parallel/pipeline/picture.cc
  DEPS parallel_pipeline_item parallel_pipeline_simulation parallel_pipeline_schedule_kind
  PRIVATE_LIBRARIES absl::str_format absl::strings
)

brigade_library(
  parallel_pipeline_transfers
  HEADERS parallel/pipeline/transfers.h
  SOURCES parallel/pipeline/transfers.cc
  DEPS parallel_pipeline_item parallel_pipeline_schedule_kind parallel_pipeline_simulation
    device_status_macros
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  parallel_pipeline_schedule
  HEADERS parallel/pipeline/schedule.h
  SOURCES parallel/pipeline/schedule.cc
  DEPS parallel_pipeline_item parallel_pipeline_schedule_kind parallel_pipeline_transfers
    device_status_macros
  PUBLIC_LIBRARIES absl::statusor
)

brigade_library(
  parallel_plan_transformer
  HEADERS parallel/plan/transformer.h
  SOURCES parallel/plan/transformer.cc
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  parallel_plan_configuration
  HEADERS parallel/plan/configuration.h
  SOURCES parallel/plan/configuration.cc
  DEPS parallel_plan_transformer device_status_macros parallel_grid parallel_pipeline_schedule_kind
    zero_options
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  parallel_plan_machine
  HEADERS parallel/plan/machine.h
  SOURCES parallel/plan/machine.cc
  DEPS collectives_tuning_topology
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  parallel_plan_group_cost
  HEADERS parallel/plan/group_cost.h
  SOURCES parallel/plan/group_cost.cc
  DEPS parallel_plan_machine collectives_collective collectives_tuning_cost_model
    collectives_tuning_topology
)

brigade_library(
  parallel_plan_memory
  HEADERS parallel/plan/memory.h
  SOURCES parallel/plan/memory.cc
  DEPS parallel_plan_configuration parallel_plan_transformer device_memory_stats
    device_status_macros parallel_grid parallel_pipeline_schedule_kind precision_dtype
    replicas_options replicas_round_plan zero_options zero_plan zero_plan_memory_model_lib
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_plan_pipeline_time
  HEADERS parallel/plan/pipeline_time.h
  SOURCES parallel/plan/pipeline_time.cc
  DEPS parallel_pipeline_schedule_kind
)

brigade_library(
  parallel_plan_cost
  HEADERS parallel/plan/cost.h
  SOURCES parallel/plan/cost.cc
  DEPS parallel_plan_configuration parallel_plan_group_cost parallel_plan_machine
    parallel_plan_memory parallel_plan_pipeline_time parallel_plan_transformer
    collectives_collective parallel_grid parallel_pipeline_schedule_kind zero_options
)

brigade_library(
  parallel_plan_search
  HEADERS parallel/plan/search.h
  SOURCES parallel/plan/search.cc
  DEPS parallel_plan_configuration parallel_plan_cost parallel_plan_machine parallel_plan_memory
    parallel_plan_transformer device_status_macros parallel_grid zero_options
    zero_plan_memory_model_lib
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_plan_frontier_svg
  HEADERS parallel/plan/frontier_svg.h
  SOURCES parallel/plan/frontier_svg.cc
  DEPS parallel_plan_configuration parallel_plan_search
  PUBLIC_LIBRARIES absl::strings
  PRIVATE_LIBRARIES absl::str_format
)

brigade_library(
  parallel_plan_published
  HEADERS parallel/plan/published.h
  SOURCES parallel/plan/published.cc
  DEPS parallel_plan_configuration parallel_plan_machine parallel_plan_search
    parallel_plan_transformer device_status_macros parallel_pipeline_schedule_kind
  PUBLIC_LIBRARIES absl::span absl::statusor
)

brigade_library(
  parallel_tensor_linear
  HEADERS parallel/tensor/linear.h
  SOURCES parallel/tensor/linear.cc
  DEPS parallel_tensor_row_pieces parallel_tensor_shard_sums device_status_macros device_stream
    nn_blas nn_gradient nn_linear nn_workspace precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  parallel_tensor_row_gradients
  HEADERS parallel/tensor/row_gradients.h
  SOURCES parallel/tensor/row_gradients.cc
  DEPS parallel_tensor_row_pieces parallel_tensor_shard_sums collectives_communicator device_buffer
    device_context device_status_macros device_stream kernels_cast nn_gradient parallel_shard
    precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::inlined_vector absl::strings
)

brigade_library(
  parallel
  DEPS parallel_grid parallel_pass_collective parallel_shard parallel_context_ring_attention
    parallel_context_ulysses parallel_context_zigzag parallel_pipeline_executor
    parallel_tensor_cross_entropy parallel_tensor_embedding parallel_tensor_linear
)
