#include "brigade/kernels/grad_check/grad_check.h"

#include "absl/strings/str_cat.h"
#include "brigade/kernels/grad_check/grad_check_cpu.h"
#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/kernels/grad_check/grad_check_cuda.h"
#endif

namespace brigade::kernels {

int64_t GradCheckWorkspaceSize(absl::Span<const GradSegment> segments) {
  int64_t tiles = 0;
  for (const GradSegment& segment : segments) tiles += CeilDiv(segment.size, kGradTile);
  return tiles;
}

namespace {

// Adds the gradients, and their workspace of `tiles` doubles, to the call's arguments.
absl::Status AddList(absl::Span<const GradSegment> segments, absl::Span<double> workspace,
                     int64_t tiles, ListArguments& arguments) {
  for (size_t i = 0; i < segments.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(arguments.Add(i, segments[i].size, {segments[i].grad}));
  }
  if (static_cast<int64_t>(workspace.size()) < tiles) {
    return absl::InvalidArgumentError(absl::StrCat("grad_check: workspace has ", workspace.size(),
                                                   " doubles, the list needs ", tiles));
  }
  return arguments.AddOperand("workspace", workspace.data(), tiles);
}

// The sum of each tile, in the calling thread and the pool's.
template <typename Grad>
void SumTilesOnPool(absl::Span<const PlannedSegment<GradSegment>> plan, double* tile_sums,
                    device::ThreadPool& pool) {
  ForEachRange(plan, kGradTile, pool,
               [&](const GradSegment& segment, int64_t begin, int64_t end, int64_t first_tile) {
                 GradTileSumsRange<Grad>(segment, begin, end,
                                         tile_sums + first_tile - begin / kGradTile);
               });
}

}  // namespace

absl::Status GradCheck(absl::Span<const GradSegment> segments, precision::DType dtype,
                       absl::Span<double> workspace, GradStats* stats, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType("grad_check", "grad", dtype));
  ListArguments arguments("grad_check", {{"grad", precision::SizeOf(dtype), false}}, stream);
  const int64_t tiles = GradCheckWorkspaceSize(segments);
  BRIGADE_RETURN_IF_ERROR(AddList(segments, workspace, tiles, arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("stats", stats, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {"grad_check", arguments.accesses()};
  absl::Status status;
  precision::VisitFloat(dtype, [&](auto grad) {
    using Grad = decltype(grad);
    status = EnqueueList(
        operation, segments, kGradTile, stream,
        [workspace = workspace.data(), tiles, stats](auto plan, auto& pool) {
          SumTilesOnPool<Grad>(plan, workspace, pool);
          *stats = GradCheckFinishCpu(workspace, tiles);
        },
        [&](auto cuda_stream) {
          return LaunchGradCheck<Grad>(segments.data(), segments.size(), workspace.data(), stats,
                                       cuda_stream);
        });
  });
  return status;
}

absl::Status GradTileSums(absl::Span<const GradSegment> segments, precision::DType dtype,
                          absl::Span<double> tile_sums, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType("grad_check", "grad", dtype));
  ListArguments arguments("grad_check", {{"grad", precision::SizeOf(dtype), false}}, stream);
  BRIGADE_RETURN_IF_ERROR(
      AddList(segments, tile_sums, GradCheckWorkspaceSize(segments), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {"grad_check", arguments.accesses()};
  absl::Status status;
  precision::VisitFloat(dtype, [&](auto grad) {
    using Grad = decltype(grad);
    status = EnqueueList(
        operation, segments, kGradTile, stream,
        [tile_sums = tile_sums.data()](auto plan, auto& pool) {
          SumTilesOnPool<Grad>(plan, tile_sums, pool);
        },
        [&](auto cuda_stream) {
          return LaunchGradTileSums<Grad>(segments.data(), segments.size(), tile_sums.data(),
                                          cuda_stream);
        });
  });
  return status;
}

absl::Status GradCheckFinish(absl::Span<double> tile_sums, GradStats* stats,
                             device::Stream& stream) {
  ListArguments arguments("grad_check", {}, stream);
  const auto tiles = static_cast<int64_t>(tile_sums.size());
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("workspace", tile_sums.data(), tiles));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("stats", stats, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  return EnqueueList(
      {"grad_check", arguments.accesses()}, absl::Span<const GradSegment>(), kGradTile, stream,
      [tile_sums = tile_sums.data(), tiles, stats](auto, auto&) {
        *stats = GradCheckFinishCpu(tile_sums, tiles);
      },
      [&](auto cuda_stream) {
        return LaunchGradCheckFinish(tile_sums.data(), tiles, stats, cuda_stream);
      });
}

}  // namespace brigade::kernels
