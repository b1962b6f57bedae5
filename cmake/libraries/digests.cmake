# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  digests_tensor_map
  HEADERS digests/tensor_map.h
  SOURCES digests/tensor_map.cc
  DEPS checkpoint_model_part device_status_macros parallel_shard precision_dtype zero_step_observer
    zero_plan
  PUBLIC_LIBRARIES absl::function_ref absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  digests_step_digests
  HEADERS digests/step_digests.h
  SOURCES digests/step_digests.cc
  DEPS digests_tensor_map checkpoint_model_part collectives_collective collectives_communicator
    collectives_options device_buffer device_context device_status_macros kernels_digest
    kernels_digest_math precision_dtype zero_step_observer zero_optimizer
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
)

brigade_library(
  digests_copies
  HEADERS digests/copies.h
  SOURCES digests/copies.cc
  DEPS digests_step_digests digests_tensor_map
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::str_format absl::strings
)

brigade_library(
  digests_digest_file
  HEADERS digests/digest_file.h
  SOURCES digests/digest_file.cc
  DEPS digests_copies digests_tensor_map checkpoint_strict_json device_append_file device_files
    device_status_macros kernels_digest_cpu kernels_digest_math
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings nlohmann_json::nlohmann_json
)

brigade_library(
  digests_tensor_dump
  HEADERS digests/tensor_dump.h
  SOURCES digests/tensor_dump.cc
  DEPS digests_tensor_map device_buffer device_context device_files device_memory_stats
    device_status_macros precision_dtype precision_dtype_names zero_step_observer
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  digests_first_difference_lib
  HEADERS digests/first_difference.h
  SOURCES digests/first_difference.cc
  DEPS digests_copies digests_digest_file digests_tensor_dump digests_tensor_map
    device_status_macros kernels_digest_cpu precision_dtype precision_dtype_names precision_float16
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  digests
  DEPS digests_copies digests_digest_file digests_first_difference_lib digests_step_digests
    digests_tensor_dump digests_tensor_map
)
