# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  precision_host_device
  HEADERS precision/host_device.h
)

brigade_library(
  precision_rounding
  HEADERS precision/rounding.h
  DEPS precision_host_device
)

brigade_library(
  precision_float16
  HEADERS precision/float16.h
  DEPS precision_host_device
)

brigade_library(
  precision_dtype
  HEADERS precision/dtype.h
  SOURCES precision/dtype.cc
  DEPS precision_float16
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  precision_dtype_names
  HEADERS precision/dtype_names.h
  SOURCES precision/dtype_names.cc
  DEPS precision_dtype
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  precision
  DEPS precision_dtype precision_dtype_names precision_float16 precision_host_device
    precision_rounding
)
