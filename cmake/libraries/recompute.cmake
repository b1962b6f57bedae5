# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  recompute_chain
  HEADERS recompute/chain.h
  SOURCES recompute/chain.cc
  DEPS device_status_macros
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  recompute_operation
  HEADERS recompute/operation.h
  SOURCES recompute/operation.cc
  DEPS device_requirements
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  recompute_internal_nested
  HEADERS recompute/internal/nested.h
  SOURCES recompute/internal/nested.cc
  DEPS recompute_operation
  PUBLIC_LIBRARIES absl::function_ref absl::span
)

brigade_library(
  recompute_internal_reads
  HEADERS recompute/internal/reads.h
  SOURCES recompute/internal/reads.cc
  DEPS recompute_operation
  PUBLIC_LIBRARIES absl::function_ref absl::span
)

brigade_library(
  recompute_internal_tables
  HEADERS recompute/internal/tables.h
  SOURCES recompute/internal/tables.cc
  DEPS recompute_internal_nested recompute_chain
  PUBLIC_LIBRARIES absl::span
)

brigade_library(
  recompute_planner
  HEADERS recompute/planner.h
  SOURCES recompute/planner.cc
  DEPS recompute_chain recompute_operation device_status_macros recompute_internal_nested
    recompute_internal_reads recompute_internal_tables
  PUBLIC_LIBRARIES absl::span absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  recompute_policy
  HEADERS recompute/policy.h
  SOURCES recompute/policy.cc
  DEPS recompute_chain recompute_planner device_byte_count device_status_macros
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  recompute_curve
  HEADERS recompute/curve.h
  SOURCES recompute/curve.cc
  DEPS recompute_chain recompute_planner recompute_policy device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  recompute_revolve
  HEADERS recompute/revolve.h
  SOURCES recompute/revolve.cc
  DEPS recompute_chain recompute_operation device_status_macros recompute_internal_nested
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  recompute_schedule
  HEADERS recompute/schedule.h
  SOURCES recompute/schedule.cc
  DEPS recompute_chain recompute_operation recompute_planner device_status_macros
    recompute_internal_reads
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::span absl::status absl::strings
)

brigade_library(
  recompute_stash
  HEADERS recompute/stash.h
  SOURCES recompute/stash.cc
  DEPS recompute_chain device_context device_status_macros device_stream device_file_options
    device_file_store
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::algorithm_container absl::strings
)

brigade_library(
  recompute
  DEPS recompute_chain recompute_curve recompute_operation recompute_planner recompute_policy
    recompute_revolve recompute_schedule recompute_stash
)
