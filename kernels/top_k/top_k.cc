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
constexpr int64_t kShared = 4 * kTopKChunk;

template <typename T>
void SelectShared(const TopKSegment& s, bool clear, device::ThreadPool& pool) {
  const int64_t chunks = CeilDiv(s.size, kTopKChunk);
  const auto in_ranges = [&](int64_t grain, const auto& run) {
    pool.ParallelRanges(chunks, grain, [&](int64_t begin, int64_t end) {
      run(begin * kTopKChunk, std::min(s.size, end * kTopKChunk));
    });
  };
  const auto collect = [&](uint32_t least) {
    std::atomic<int64_t> count = 0;
    std::atomic<uint32_t> greatest = 0;
    in_ranges(1, [&](int64_t begin, int64_t end) {
      const TopKFound found = TopKCollectRange<T>(s, least, begin, end);
      count += found.count;
      uint32_t before = greatest;
      while (before < found.greatest && !greatest.compare_exchange_weak(before, found.greatest)) {
      }
    });
    return TopKFound{count, greatest};
  };
  uint32_t least = TopKGuess<T>(s);
  TopKFound found = collect(least);
  if (found.count < s.k) found = collect(least = 0);
  const int64_t grain = CeilDiv(chunks, int64_t{4} * pool.threads());
  TopKSearch search = TopKSearchFrom(least, found, s.k);
  while (!search.done) {
    std::fill(s.workspace, s.workspace + kTopKBins, 0u);
    in_ranges(grain,
              [&](int64_t begin, int64_t end) { TopKCountBinsRange<T>(s, search, begin, end); });
    search = TopKPick<T>(s, search);
  }
  const TopKSelection selection = {search.from, search.left};
  in_ranges(grain, [&](int64_t begin, int64_t end) {
    TopKCountChunksRange<T>(s, selection.key, begin, end);
  });
  TopKPlaceChunks(s);
  in_ranges(grain, [&](int64_t begin, int64_t end) {
    TopKWriteRange<T>(s, selection, clear, begin, end);
  });
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
