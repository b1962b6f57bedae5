#include "brigade/kernels/top_k/top_k.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/top_k/top_k_cpu.h"

#if BRIGADE_CUDA
#include "brigade/kernels/top_k/top_k_cuda.h"
#endif

namespace brigade::kernels {
namespace {

constexpr const char* kName = "top_k";

// An array that threads share: below, each array has one thread.
constexpr int64_t kShared = int64_t{1} << 18;
// The elements of a share, in whole units.
constexpr int64_t kShare = 32 * kTopKUnit;

template <typename T>
void SelectShared(const TopKSegment& s, bool clear, device::ThreadPool& pool) {
  const auto in_ranges = [&](const auto& run) {
    pool.ParallelRanges(CeilDiv(s.size, kShare), 1, [&](int64_t begin, int64_t end) {
      run(begin * kShare, std::min(s.size, end * kShare));
    });
  };
  const auto collect = [&](uint32_t least) {
    std::atomic<int64_t> found = 0;
    in_ranges(
        [&](int64_t begin, int64_t end) { found += TopKCollectRange<T>(s, least, begin, end); });
    return found.load();
  };
  if (collect(TopKGuess<T>(s)) < s.k) collect(0);
  TopKSelection selection = {0, static_cast<uint32_t>(s.k)};
  for (int pass = 0; pass < kTopKPasses; ++pass) {
    std::fill(s.workspace, s.workspace + kTopKBins, 0u);
    in_ranges([&](int64_t begin, int64_t end) {
      TopKCountBinsRange<T>(s, pass, selection.key, begin, end);
    });
    selection = TopKPick(s, pass, selection);
  }
  in_ranges(
      [&](int64_t begin, int64_t end) { TopKCountUnitsRange<T>(s, selection.key, begin, end); });
  TopKPlaceUnits(s);
  in_ranges(
      [&](int64_t begin, int64_t end) { TopKWriteRange<T>(s, selection, clear, begin, end); });
}

template <typename T>
void SelectOnPool(absl::Span<const PlannedSegment<TopKSegment>> plan, bool clear,
                  device::ThreadPool& pool) {
  const auto is_shared = [&](const TopKSegment& s) {
    return s.size >= kShared && pool.threads() > 1;
  };
  pool.ParallelRanges(static_cast<int64_t>(plan.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const TopKSegment& s = plan[i].segment;
      if (s.k > 0 && !is_shared(s)) TopKArray<T>(s, clear);
    }
  });
  for (const auto& planned : plan) {
    const TopKSegment& s = planned.segment;
    if (s.k > 0 && is_shared(s)) SelectShared<T>(s, clear, pool);
  }
}

}  // namespace

absl::Status TopK(absl::Span<const TopKSegment> segments, const TopKOptions& options,
                  device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(kName, "array", options.dtype));
  const int64_t bytes = precision::SizeOf(options.dtype);
  ListArguments arguments(kName,
                          {{"array", bytes, options.clear},
                           {"values", bytes, true},
                           {"indices", sizeof(int32_t), true},
                           {"workspace", sizeof(uint32_t), true}},
                          stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const TopKSegment& s = segments[i];
    const auto index = static_cast<int64_t>(i);
    if (s.size > kMaxTopKSize) {
      return absl::InvalidArgumentError(absl::StrCat(kName, ": size of segment ", i, " is ", s.size,
                                                     ", must be at most ", kMaxTopKSize));
    }
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, index, s.array, s.size));
    if (s.k < 0 || s.k > s.size) {
      return absl::InvalidArgumentError(absl::StrCat(kName, ": k of segment ", i, " is ", s.k,
                                                     ", must be 0 to its size, ", s.size));
    }
    if (s.k == 0) continue;
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, index, s.values, s.k));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(2, index, s.indices, s.k));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(3, index, s.workspace, TopKWorkspaceSize(s.size)));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  absl::Status status;
  precision::VisitFloat(options.dtype, [&](auto tag) {
    using T = decltype(tag);
    status = EnqueueList(
        {kName, arguments.accesses()}, segments, kTopKUnit, stream,
        [clear = options.clear](auto plan, auto& pool) { SelectOnPool<T>(plan, clear, pool); },
        [&](auto cuda_stream) {
          return LaunchTopK<T>(segments.data(), segments.size(), options.clear, cuda_stream);
        });
  });
  return status;
}

}  // namespace brigade::kernels
