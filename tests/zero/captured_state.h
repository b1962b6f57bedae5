#ifndef BRIGADE_TESTS_ZERO_CAPTURED_STATE_H_
#define BRIGADE_TESTS_ZERO_CAPTURED_STATE_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
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

// The bytes of an element of a bucket's state, whose moments are no codes.
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
    std::vector<std::string>& arrays = to.arrays.emplace_back();
    const int count = bucket.trainable ? zero.state_arrays() : 1;
    // Which stay where they are while they are copied.
    for (int array = 0; array < count; ++array) {
      arrays.emplace_back(static_cast<size_t>(zero.StateArrayType(b, array).Bytes(slice)), '\0');
    }
    for (int array = 0; array < count; ++array) {
      std::string& bytes = arrays[static_cast<size_t>(array)];
      if (bytes.empty()) continue;
      const int64_t elements = zero.StateArrayType(b, array).Elements(slice);
      BRIGADE_RETURN_IF_ERROR(zero.CopyState(b, array, {0, elements}, bytes.data(), reader));
    }
  }
  return reader.Copy(&to.step, zero.controller().state(), sizeof(to.step));
}

// The state as this rank can lend it without the others: also after the communicator has failed and
// CancelStep. Waits.
inline absl::StatusOr<CapturedState> CaptureAlone(ZeroOptimizer& zero, collectives::Rank& self) {
  CapturedState state;
  BRIGADE_ASSIGN_OR_RETURN(auto reader, self.context->CreateStream("reader"));
  BRIGADE_RETURN_IF_ERROR(zero.LendState(*reader));
  absl::Status status = EnqueueCapture(zero, *reader, state);
  status.Update(zero.ReturnState());
  status.Update(reader->Synchronize());
  if (!status.ok()) return status;
  return state;
}

// The state now; waits. A call of all ranks where gradients are exchanged.
inline absl::StatusOr<CapturedState> Capture(ZeroOptimizer& zero, collectives::Rank& self) {
  BRIGADE_RETURN_IF_ERROR(zero.ShareErrors());
  return CaptureAlone(zero, self);
}

// Whether second moments are `wanted`, or what a freeze makes of some of them: infinity of 0.
inline bool AreSecondMoments(const std::string& bytes, const std::string& wanted) {
  for (size_t at = 0; at < wanted.size(); at += sizeof(float)) {
    float is, was;
    std::memcpy(&is, bytes.data() + at, sizeof(float));
    std::memcpy(&was, wanted.data() + at, sizeof(float));
    if (is != was && !(was == 0 && std::isinf(is))) return false;
  }
  return bytes.size() == wanted.size();
}

// Of what a rank lends alone, behind an error of the communicator and CancelStep: masters and
// moments are those of `wanted`, and errors those that were shared last, those of codes zeros. The
// step may have frozen second moments, before it was known to fail: 0 is infinity then, and LAMB's
// fresh ones, which a freeze makes, are anything. Internal naming what is not so.
inline absl::Status CompareLent(const ZeroOptions& options, const CapturedState& lent,
                                const CapturedState& wanted, const CapturedState& shared) {
  const size_t errors = options.loco.has_value() ? 1 : options.exchanges() ? 2 : 0;
  const bool freezes = lent.step.iteration == options.optimizer.freeze_step;
  for (size_t b = 0; b < lent.arrays.size(); ++b) {
    const size_t arrays = lent.arrays[b].size();
    for (size_t array = 0; array < arrays; ++array) {
      const std::string& bytes = lent.arrays[b][array];
      const bool is_error = arrays > 1 && array >= arrays - errors;
      if (freezes && array == 2 && AreSecondMoments(bytes, wanted.arrays[b][array])) continue;
      if (freezes && array == 3 && optim::IsLamb(options.optimizer.kind)) continue;
      const bool same = !is_error                  ? bytes == wanted.arrays[b][array]
                        : options.loco.has_value() ? bytes == std::string(bytes.size(), '\0')
                                                   : bytes == shared.arrays[b][array];
      if (!same) {
        return absl::InternalError(
            absl::StrCat("bucket ", b, ", array ", array, " is not what it should be"));
      }
    }
  }
  return absl::OkStatus();
}

// A call of all ranks: LoadState from a state that this rank has captured, in any stage.
inline absl::Status LoadCaptured(ZeroOptimizer& zero, const CapturedState& state,
                                 int64_t chunk_bytes = int64_t{4} << 20) {
  return zero.LoadState(
      state.step,
      [&](int bucket, int array, ElementRange range, void* values) {
        const int64_t width = precision::SizeOf(zero.StateArrayType(bucket, array).dtype);
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
