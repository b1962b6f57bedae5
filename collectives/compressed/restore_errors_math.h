#ifndef BRIGADE_COLLECTIVES_COMPRESSED_RESTORE_ERRORS_MATH_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_RESTORE_ERRORS_MATH_H_

#include <cstdint>

#include "brigade/kernels/sign_pack/sign_pack_math.h"
#include "brigade/precision/host_device.h"

namespace brigade::collectives {

// What became of an exchange with error feedback. Device memory.
struct ErrorExchange {
  // The messages of signs (kernels/sign_pack) that all ranks have got, the first of `count`; the
  // others follow at a distance of `stride` bytes each, a multiple of 64.
  const void* messages = nullptr;
  int64_t count = 0;
  int64_t stride = 0;
  // StepState::skip of the step that it belongs to; null: there is none.
  const int32_t* skip = nullptr;
  // Of other messages: not 0 if something in them is infinite or NaN. Null: there are none.
  const int32_t* non_finite = nullptr;
};

// Whether it counts for nothing: the step is skipped, a message of signs has a scale that is not a
// number, or another one has something that is not finite.
BRIGADE_HOST_DEVICE inline bool IsVoid(const ErrorExchange& exchange) {
  if (exchange.skip != nullptr && *exchange.skip != 0) return true;
  if (exchange.non_finite != nullptr && *exchange.non_finite != 0) return true;
  const auto* const messages = static_cast<const char*>(exchange.messages);
  for (int64_t i = 0; i < exchange.count; ++i) {
    const auto* const scale = reinterpret_cast<const float*>(messages + i * exchange.stride);
    if (!kernels::IsNumber(*scale)) return true;
  }
  return false;
}

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_RESTORE_ERRORS_MATH_H_
