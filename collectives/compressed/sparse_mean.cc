#include "brigade/collectives/compressed/sparse_mean.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/precision/rounding.h"

#if BRIGADE_CUDA
#include "brigade/collectives/compressed/sparse_mean_cuda.h"
#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::collectives {
namespace {

// 16 KiB of sums stay in a core's first cache. Untuned.
constexpr int64_t kTile = 4096;

// The elements [begin, end) of the output, at most a tile. Returns whether all are finite.
template <typename T>
bool AddTile(const SparseMessages& messages, float factor, int64_t begin, int64_t end, T* output) {
  std::array<float, kTile> sums;
  std::fill_n(sums.begin(), end - begin, 0.0f);
  for (int rank = 0; rank < messages.ranks; ++rank) {
    const int32_t* const indices = messages.indices(rank);
    const float* const values = messages.values(rank);
    for (int64_t i = FirstIndexFrom(indices, messages.k, begin); i < messages.k && indices[i] < end;
         ++i) {
      // Of a message that did not come they are any numbers.
      if (indices[i] < begin) continue;
      float& sum = sums[static_cast<size_t>(indices[i] - begin)];
      sum = precision::Add(sum, values[i]);
    }
  }
  bool all_finite = true;
  for (int64_t i = begin; i < end; ++i) {
    const float mean = precision::Mul(sums[static_cast<size_t>(i - begin)], factor);
    all_finite = all_finite && std::isfinite(mean);
    output[i] = static_cast<T>(mean);
  }
  return all_finite;
}

}  // namespace

absl::Status SparseMean(const SparseMessages& messages, float factor, void* output, int64_t size,
                        precision::DType dtype, int32_t* non_finite, device::Stream& stream) {
  constexpr char kName[] = "sparse_mean";
  BRIGADE_RETURN_IF_ERROR(kernels::CheckFloatType(kName, "output", dtype));
  if (messages.k < 0 || messages.k > size || messages.ranks < 0) {
    return absl::InvalidArgumentError(absl::StrCat(kName, ": ", messages.ranks, " messages of ",
                                                   messages.k, " of ", size, " elements"));
  }
  kernels::ListArguments arguments(kName, {}, stream);
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand("messages", messages.data, 2 * messages.k * messages.ranks));
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand({"output", precision::SizeOf(dtype), true}, output, size));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("non_finite", non_finite, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  if (size == 0) return absl::OkStatus();

  const device::Operation operation = {kName, arguments.accesses()};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      cudaError_t error = cudaErrorInvalidValue;
      precision::VisitFloat(dtype, [&](auto tag) {
        error = LaunchSparseMean(messages, factor, static_cast<decltype(tag)*>(output), size,
                                 non_finite, static_cast<cudaStream_t>(cuda_stream));
      });
      return device::CudaStatus(error, kName);
    });
  }
#endif
  return stream.Enqueue(operation, [=](device::ThreadPool& pool) {
    precision::VisitFloat(dtype, [&](auto tag) {
      using T = decltype(tag);
      pool.ParallelRanges(size, kTile, [&](int64_t begin, int64_t end) {
        if (AddTile(messages, factor, begin, end, static_cast<T*>(output))) return;
        std::atomic_ref<int32_t>(*non_finite).store(1, std::memory_order_relaxed);
      });
    });
    return absl::OkStatus();
  });
}

}  // namespace brigade::collectives
