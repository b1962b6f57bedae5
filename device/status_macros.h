#ifndef BRIGADE_DEVICE_STATUS_MACROS_H_
#define BRIGADE_DEVICE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define BRIGADE_RETURN_IF_ERROR(expression)                                 \
  do {                                                                      \
    if (absl::Status brigade_status = (expression); !brigade_status.ok()) { \
      return brigade_status;                                                \
    }                                                                       \
  } while (false)

// BRIGADE_ASSIGN_OR_RETURN(name, expression): declares `name` with the StatusOr's value, or returns its error.
#define BRIGADE_ASSIGN_OR_RETURN(name, expression)           \
  auto name##_or = (expression);                             \
  if (!name##_or.ok()) return std::move(name##_or).status(); \
  auto name = *std::move(name##_or)

#endif  // BRIGADE_DEVICE_STATUS_MACROS_H_
