# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  collectives_engines_nccl_api
  HEADERS collectives/engines/nccl/api.h
  SOURCES collectives/engines/nccl/api.cc
  DEPS device device_stream
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
  CUDA_LIBRARIES CUDA::cudart_static
  LINKS_DL
)

brigade_library(
  collectives_engines_nccl_status
  HEADERS collectives/engines/nccl/status.h
  SOURCES collectives/engines/nccl/status.cc
  DEPS collectives_engines_nccl_api
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  collectives_engines_nccl_engine
  HEADERS collectives/engines/nccl/nccl_engine.h collectives/engines/nccl/communicator.h
    collectives/engines/nccl/dispatcher.h collectives/engines/nccl/executor.h
    collectives/engines/nccl/in_flight_monitor.h collectives/engines/nccl/verifier.h
  SOURCES collectives/engines/nccl/verifier.cc collectives/engines/nccl/dispatcher.cc
    collectives/engines/nccl/communicator.cc collectives/engines/nccl/nccl_engine.cc
    collectives/engines/nccl/in_flight_monitor.cc collectives/engines/nccl/executor.cc
  DEPS collectives_engines_nccl_api collectives_engines_nccl_status collectives_algorithms_program
    collectives_algorithms_wire_elements collectives_algorithms_workspace
    collectives_engines_combine collectives_engines_engine collectives_engines_grow_buffer device
    device_status_macros device_threads_deadline device_threads_mutex device_threads_periodic_thread
  CUDA_DEPS device_cuda_device_guard device_cuda_status kernels_launch_kernel
  PUBLIC_LIBRARIES absl::core_headers absl::function_ref absl::span absl::status absl::statusor
    absl::time
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_nccl
  DEPS collectives collectives_bootstrap_launch_info collectives_engines_nccl_api
    collectives_engines_nccl_engine
)
