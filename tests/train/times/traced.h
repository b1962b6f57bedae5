#ifndef BRIGADE_TESTS_TRAIN_TIMES_TRACED_H_
#define BRIGADE_TESTS_TRAIN_TIMES_TRACED_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "brigade/device/tracing/tracer.h"

namespace brigade::train {

constexpr int64_t kSecond = 1'000'000'000;

// As a stream has traced it, in seconds.
inline device::TracedOperation Work(absl::string_view name, int64_t begin, int64_t end) {
  return {device::TracedOperation::Kind::kWork, name, begin * kSecond, end * kSecond};
}

}  // namespace brigade::train

#endif  // BRIGADE_TESTS_TRAIN_TIMES_TRACED_H_
