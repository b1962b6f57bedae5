# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  profile_roofline
  HEADERS profile/roofline.h
  SOURCES profile/roofline.cc
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  profile_trace_rows
  HEADERS profile/trace_rows.h
  SOURCES profile/trace_rows.cc
  DEPS profile_roofline device_requirements device_tracing_tracer
  PUBLIC_LIBRARIES absl::span absl::strings
  PRIVATE_LIBRARIES absl::flat_hash_map
)

brigade_library(
  profile_collective_calls
  HEADERS profile/collective_calls.h
  SOURCES profile/collective_calls.cc
  DEPS profile_trace_rows collectives_call_marks device_tracing_tracer
  PUBLIC_LIBRARIES absl::span
)

brigade_library(
  profile_flops
  HEADERS profile/flops.h
  SOURCES profile/flops.cc
)

brigade_library(
  profile_step_profile
  HEADERS profile/step_profile.h
  SOURCES profile/step_bytes.cc profile/step_profile.cc
  DEPS profile_collective_calls profile_flops profile_roofline profile_trace_rows
  PUBLIC_LIBRARIES absl::span absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::status
)

brigade_library(
  profile_ceilings
  HEADERS profile/ceilings.h
  SOURCES profile/ceilings.cc
  DEPS profile_roofline collectives_agree collectives_collective collectives_communicator
    collectives_options collectives_algorithms_wire_elements device_buffer device_context
    device_files device_status_macros device_stream nn_blas precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::status absl::str_format nlohmann_json::nlohmann_json
)

brigade_library(
  profile_options
  HEADERS profile/options.h
)

brigade_library(
  profile_text
  HEADERS profile/profile_text.h
  SOURCES profile/profile_text.cc
  DEPS profile_collective_calls profile_options profile_roofline profile_step_profile
  PRIVATE_LIBRARIES absl::str_format absl::strings
)

brigade_library(
  profile
  DEPS profile_ceilings profile_collective_calls profile_flops profile_options profile_text
    profile_roofline profile_step_profile profile_trace_rows
)
