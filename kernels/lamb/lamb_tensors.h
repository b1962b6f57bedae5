#ifndef BRIGADE_KERNELS_LAMB_LAMB_TENSORS_H_
#define BRIGADE_KERNELS_LAMB_LAMB_TENSORS_H_

// Calls over whole tensors, whose tiles have their sums where ranks have put them: those of LAMB
// and of 1-bit LAMB.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/lamb/lamb_math.h"
#include "brigade/kernels/value_range.h"

namespace brigade::kernels {

// Whether no sum of these numbers, and no place of a tile, is beyond what twice as many doubles can
// be counted by.
inline bool LambTensorIsValid(const LambTensor& t) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  if (t.first < 0 || t.count < 0 || t.offset < 0 || t.part < 1) return false;
  if (t.count > kMost || t.first > kMost - t.count) return false;
  const int64_t end = t.first + t.count;
  if (end <= t.part) return t.offset <= kMost - end;
  if (t.stride < t.part || t.stride - t.part < t.offset) return false;
  return (end - 1) / t.part < kMost / t.stride;
}

// How many tiles' sums an array must have for them. Without `groups` these are not looked at.
inline absl::StatusOr<int64_t> LambTilesNeeded(const char* name,
                                               absl::Span<const LambTensor> tensors,
                                               size_t groups) {
  int64_t needed = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const LambTensor& t = tensors[i];
    if (groups > 0) BRIGADE_RETURN_IF_ERROR(CheckGroupIndex(name, i, t.group, groups));
    if (!LambTensorIsValid(t)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": tensor ", i, " has ", t.count, " tiles from ", t.first, " on, parts of ", t.part,
          " from ", t.offset, " on, at distances of ", t.stride));
    }
    if (t.count > 0) needed = std::max(needed, LambTileAt(t, t.count - 1) + 1);
  }
  return needed;
}

// Calls on_cuda(stream) on a GPU's stream, else enqueues on_cpu(list).
template <typename OnCpu, typename OnCuda>
absl::Status EnqueueLambTensors(const device::Operation& operation,
                                absl::Span<const LambTensor> tensors, device::Stream& stream,
                                const OnCpu& on_cpu, [[maybe_unused]] const OnCuda& on_cuda) {
  if (tensors.empty()) return absl::OkStatus();
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(on_cuda(static_cast<cudaStream_t>(cuda_stream)), operation.name);
    });
  }
#endif
  return stream.Enqueue(operation, tensors,
                        [on_cpu](absl::Span<const LambTensor> list, device::ThreadPool&) {
                          on_cpu(list);
                          return absl::OkStatus();
                        });
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LAMB_LAMB_TENSORS_H_
