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

// BRIGADE_ASSIGN_OR_RETURN(target, expression): returns the error of a StatusOr, or assigns its
// value to `target`: a declaration (`auto batch`) or an lvalue (`member_`). `target` must hold no
// comma outside of parentheses.
#define BRIGADE_ASSIGN_OR_RETURN(target, expression)                                       \
  BRIGADE_ASSIGN_OR_RETURN_FROM(BRIGADE_CONCATENATE(brigade_status_or_, __LINE__), target, \
                                expression)

#define BRIGADE_ASSIGN_OR_RETURN_FROM(status_or, target, expression) \
  auto status_or = (expression);                                     \
  if (!status_or.ok()) return std::move(status_or).status();         \
  target = *std::move(status_or)

#define BRIGADE_CONCATENATE_INNER(a, b) a##b
#define BRIGADE_CONCATENATE(a, b) BRIGADE_CONCATENATE_INNER(a, b)

#endif  // BRIGADE_DEVICE_STATUS_MACROS_H_
