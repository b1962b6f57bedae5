# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  replicas_options
  HEADERS replicas/options.h
  SOURCES replicas/options.cc
  DEPS precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  replicas_round_plan
  HEADERS replicas/round_plan.h
  SOURCES replicas/round_plan.cc
  DEPS replicas_options collectives_collective collectives_communicator
    collectives_algorithms_wire_elements collectives_algorithms_workspace
    collectives_compressed_reduction device_memory_stats device_status_macros kernels_grad_check
    kernels_step_control_step_state precision_dtype zero_options zero_plan
    zero_plan_memory_model_lib zero_plan_traffic
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  replicas_outer_optimizer
  HEADERS replicas/outer_optimizer.h
  SOURCES replicas/join.cc replicas/outer_optimizer.cc
  DEPS replicas_options replicas_round_plan collectives_agree collectives_communicator
    collectives_algorithms_wire_elements collectives_compressed_reduction device_buffer
    device_context device_event device_memory_stats device_status_macros device_stream
    kernels_grad_check kernels_sgd kernels_step_control_step_state optim_step_controller
    precision_dtype zero_optimizer zero_plan
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  replicas_replica_groups
  HEADERS replicas/replica_groups.h
  SOURCES replicas/replica_groups.cc
  DEPS collectives_agree collectives_communicator device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  replicas
  DEPS replicas_options replicas_outer_optimizer replicas_replica_groups replicas_round_plan
)
