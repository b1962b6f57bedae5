#include "brigade/kernels/orthogonalize/orthogonalize.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/orthogonalize/orthogonalize_cpu.h"
#include "brigade/kernels/value_range.h"

#if BRIGADE_CUDA
#include "brigade/kernels/orthogonalize/orthogonalize_cuda.h"
#endif

namespace brigade::kernels {
namespace {

constexpr const char* kOrthogonalize = "orthogonalize";

// What a stream's queue holds of a matrix: `size` counts what threads share, rows or columns.
template <typename Segment>
struct Work {
  Segment matrix;
  int64_t size;
};

// Valid until this thread's next call.
template <typename Segment, typename SizeOf>
absl::Span<const Work<Segment>> WorkOf(absl::Span<const Segment> segments, const SizeOf& size_of) {
  thread_local std::vector<Work<Segment>> list;
  list.clear();
  for (const Segment& s : segments) list.push_back({s, size_of(s)});
  return list;
}

absl::Status CheckExtent(const char* operation, const char* name, int64_t index, int64_t value,
                         int64_t most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": ", name, " of segment ", index,
                                                 " is ", value, ", must be 0 to ", most));
}

constexpr int64_t kMaxExtent = int64_t{1} << 40;

absl::Status CheckShape(const char* operation, int64_t index, const LowRankSegment& s) {
  BRIGADE_RETURN_IF_ERROR(CheckExtent(operation, "rows", index, s.rows, kMaxExtent));
  BRIGADE_RETURN_IF_ERROR(CheckExtent(operation, "columns", index, s.columns, kMaxExtent));
  BRIGADE_RETURN_IF_ERROR(CheckExtent(operation, "rank", index, s.rank, kMaxLowRank));
  if (s.columns != 0 && s.rows > kMaxExtent / s.columns) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": segment ", index,
                                                   " is a matrix of ", s.rows, " x ", s.columns,
                                                   ", larger than any memory"));
  }
  return absl::OkStatus();
}

bool IsEmpty(const LowRankSegment& s) { return s.rows == 0 || s.columns == 0 || s.rank == 0; }

int64_t Rows(const LowRankSegment& s) { return IsEmpty(s) ? 0 : s.rows; }

// Which of a call's arrays are written, and which of the last two it has.
struct Roles {
  bool writes_matrix = false, writes_p = false, writes_q = false;
  bool has_product = false, has_workspace = false;
};

// Checks a list and enqueues it; on_cpu(plan, pool), on_cuda(cudaStream_t).
template <typename OnCpu, typename OnCuda>
absl::Status EnqueueLowRank(const char* operation, const Roles& roles,
                            absl::Span<const LowRankSegment> segments, int64_t tile,
                            device::Stream& stream, const OnCpu& on_cpu, const OnCuda& on_cuda) {
  constexpr int64_t kBytes = sizeof(float);
  const ArrayRole arrays[] = {{"matrix", kBytes, roles.writes_matrix},
                              {"p", kBytes, roles.writes_p},
                              {"q", kBytes, roles.writes_q},
                              {roles.has_product ? "product" : "workspace", kBytes, true}};
  const bool has_fourth = roles.has_product || roles.has_workspace;
  ListArguments arguments(operation, absl::MakeConstSpan(arrays, has_fourth ? 4 : 3), stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const LowRankSegment& s = segments[i];
    const auto index = static_cast<int64_t>(i);
    BRIGADE_RETURN_IF_ERROR(CheckShape(operation, index, s));
    if (IsEmpty(s)) continue;
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, index, s.matrix, s.rows * s.columns));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, index, s.p, s.rows * s.rank));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(2, index, s.q, s.columns * s.rank));
    if (roles.has_product) {
      BRIGADE_RETURN_IF_ERROR(arguments.AddArray(3, index, s.product, s.rows * s.columns));
    }
    const int64_t workspace = LowRankWorkspaceSize(s.rows, s.columns, s.rank);
    if (roles.has_workspace && workspace != 0) {
      BRIGADE_RETURN_IF_ERROR(arguments.AddArray(3, index, s.workspace, workspace));
    }
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  return EnqueueList({operation, arguments.accesses()}, WorkOf(segments, Rows), tile, stream,
                     on_cpu, on_cuda);
}

using LowRankPlan = absl::Span<const PlannedSegment<Work<LowRankSegment>>>;

// Rows of a thread's smallest piece of work: 16 KiB of the widest matrix and more, so that those of
// narrow ones, up to 64 at a time, are not over before the next one's segment is found.
int64_t RowsOfTile(absl::Span<const LowRankSegment> segments) {
  constexpr int64_t kFewest = 8;
  int64_t widest = 1;
  for (const LowRankSegment& s : segments) widest = std::max(widest, s.columns);
  return std::max(kFewest, kCpuTile / widest);
}

// Of all segments' arrays of floats, of size_of(segment) elements.
template <typename SizeOf>
int64_t BytesOf(LowRankPlan plan, const SizeOf& size_of) {
  int64_t elements = 0;
  for (const auto& planned : plan) elements += size_of(planned.segment.matrix);
  return elements * static_cast<int64_t>(sizeof(float));
}

}  // namespace

absl::Status Orthogonalize(absl::Span<const OrthogonalizeSegment> segments,
                           const OrthogonalizeOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckInRange(kOrthogonalize, "epsilon", -1, options.epsilon, kPositive));
  ListArguments arguments(kOrthogonalize, {{"matrix", sizeof(float), true}}, stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const OrthogonalizeSegment& s = segments[i];
    const auto index = static_cast<int64_t>(i);
    BRIGADE_RETURN_IF_ERROR(CheckExtent(kOrthogonalize, "rows", index, s.rows, kMaxExtent));
    BRIGADE_RETURN_IF_ERROR(CheckExtent(kOrthogonalize, "columns", index, s.columns, kMaxLowRank));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, index, s.matrix, s.rows * s.columns));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const auto size_of = [](const OrthogonalizeSegment& s) {
    return s.rows == 0 ? int64_t{0} : int64_t{s.columns};
  };
  // A matrix is one tile: its columns follow each other.
  return EnqueueList(
      {kOrthogonalize, arguments.accesses()}, WorkOf(segments, size_of), kMaxLowRank, stream,
      [epsilon = options.epsilon](auto plan, auto& pool) {
        ForEachRange(plan, kMaxLowRank, pool, [&](const auto& work, int64_t, int64_t, int64_t) {
          OrthogonalizeMatrix(work.matrix, epsilon);
        });
      },
      [&](auto cuda_stream) {
        return LaunchOrthogonalize(segments.data(), segments.size(), options.epsilon, cuda_stream);
      });
}

absl::Status LowRankRows(absl::Span<const LowRankSegment> segments, device::Stream& stream) {
  const int64_t tile = RowsOfTile(segments);
  return EnqueueLowRank(
      "low_rank_rows", {.writes_p = true}, segments, tile, stream,
      [tile](LowRankPlan plan, device::ThreadPool& pool) {
        const bool past_caches = BytesOf(plan, [](const LowRankSegment& s) {
                                   return s.rows * s.rank;
                                 }) >= kMinNontemporalBytes;
        ForEachRange(plan, tile, pool, [&](const auto& work, int64_t begin, int64_t end, int64_t) {
          LowRankRowsRange(work.matrix, past_caches, begin, end);
        });
      },
      [&](auto cuda_stream) {
        return LaunchLowRankRows(segments.data(), segments.size(), cuda_stream);
      });
}

absl::Status LowRankColumns(absl::Span<const LowRankSegment> segments, device::Stream& stream) {
  return EnqueueLowRank(
      "low_rank_columns", {.writes_q = true, .has_workspace = true}, segments, kRowTile, stream,
      [](LowRankPlan plan, device::ThreadPool& pool) {
        const bool past_caches = BytesOf(plan, [](const LowRankSegment& s) {
                                   return s.columns * s.rank;
                                 }) >= kMinNontemporalBytes;
        ForEachRange(plan, kRowTile, pool,
                     [&](const auto& work, int64_t begin, int64_t end, int64_t) {
                       LowRankTilesRange(work.matrix, past_caches, begin, end);
                     });
        pool.ParallelRanges(static_cast<int64_t>(plan.size()), 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) LowRankColumnsFinish(plan[i].segment.matrix);
        });
      },
      [&](auto cuda_stream) {
        return LaunchLowRankColumns(segments.data(), segments.size(), cuda_stream);
      });
}

absl::Status LowRankRestore(absl::Span<const LowRankSegment> segments, device::Stream& stream) {
  const int64_t tile = RowsOfTile(segments);
  return EnqueueLowRank(
      "low_rank_restore", {.writes_matrix = true, .has_product = true}, segments, tile, stream,
      [tile](LowRankPlan plan, device::ThreadPool& pool) {
        const bool past_caches = BytesOf(plan, [](const LowRankSegment& s) {
                                   return s.rows * s.columns;
                                 }) >= kMinNontemporalBytes;
        ForEachRange(plan, tile, pool, [&](const auto& work, int64_t begin, int64_t end, int64_t) {
          LowRankRestoreRange(work.matrix, past_caches, begin, end);
        });
      },
      [&](auto cuda_stream) {
        return LaunchLowRankRestore(segments.data(), segments.size(), cuda_stream);
      });
}

}  // namespace brigade::kernels
