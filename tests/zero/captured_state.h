#ifndef BRIGADE_TESTS_ZERO_CAPTURED_STATE_H_
#define BRIGADE_TESTS_ZERO_CAPTURED_STATE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/step_controller.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::zero {

// What a rank owns of a training run, in host memory; equal if all bits are.
struct CapturedState {
  kernels::StepState step = {};
  // [bucket][array]: the bytes of the rank's slice.
  std::vector<std::vector<std::string>> arrays;

  bool operator==(const CapturedState& other) const {
    return std::memcmp(&step, &other.step, sizeof(step)) == 0 && arrays == other.arrays;
  }
};

// The bytes of an element of a bucket's state.
inline int64_t StateWidth(const Bucket& bucket) {
  return precision::SizeOf(bucket.trainable ? precision::DType::kFloat32 : bucket.dtype);
}

// Enqueues copies of a state that is lent to `reader` into `to`, which stays until they have ended.
inline absl::Status EnqueueCapture(ZeroOptimizer& zero, device::Stream& reader, CapturedState& to) {
  const int buckets = static_cast<int>(zero.plan().buckets().size());
  to.arrays.clear();
  for (int b = 0; b < buckets; ++b) {
    const Bucket& bucket = zero.plan().bucket(b);
    const int64_t slice = zero.plan().slice(bucket);
    to.arrays.emplace_back(bucket.trainable ? zero.state_arrays() : 1,
                           std::string(static_cast<size_t>(slice * StateWidth(bucket)), '\0'));
    for (size_t array = 0; array < to.arrays.back().size(); ++array) {
      BRIGADE_RETURN_IF_ERROR(zero.CopyState(b, static_cast<int>(array), {0, slice},
                                             to.arrays.back()[array].data(), reader));
    }
  }
  return reader.Copy(&to.step, zero.controller().state(), sizeof(to.step));
}

// The state now; waits. A call of all ranks where gradients are exchanged.
inline absl::StatusOr<CapturedState> Capture(ZeroOptimizer& zero, collectives::Rank& self) {
  CapturedState state;
  BRIGADE_ASSIGN_OR_RETURN(auto reader, self.context->CreateStream("reader"));
  BRIGADE_RETURN_IF_ERROR(zero.ShareErrors());
  BRIGADE_RETURN_IF_ERROR(zero.LendState(*reader));
  absl::Status status = EnqueueCapture(zero, *reader, state);
  status.Update(zero.ReturnState());
  status.Update(reader->Synchronize());
  if (!status.ok()) return status;
  return state;
}

// A call of all ranks: LoadState from a state that this rank has captured, in any stage.
inline absl::Status LoadCaptured(ZeroOptimizer& zero, const CapturedState& state,
                                 int64_t chunk_bytes = int64_t{4} << 20) {
  return zero.LoadState(
      state.step,
      [&](int bucket, int array, ElementRange range, void* values) {
        const int64_t width = StateWidth(zero.plan().bucket(bucket));
        const std::string& bytes =
            state.arrays[static_cast<size_t>(bucket)][static_cast<size_t>(array)];
        std::memcpy(values, bytes.data() + range.begin * width,
                    static_cast<size_t>(range.size * width));
        return absl::OkStatus();
      },
      chunk_bytes);
}

}  // namespace brigade::zero

#endif  // BRIGADE_TESTS_ZERO_CAPTURED_STATE_H_
