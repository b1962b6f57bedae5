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

absl::Status GradCheck(absl::Span<const GradSegment> segments, precision::DType dtype,
                       absl::Span<double> workspace, GradStats* stats, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType("grad_check", "grad", dtype));
  ListArguments arguments("grad_check", {{"grad", precision::SizeOf(dtype), false}}, stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(arguments.Add(i, segments[i].size, {segments[i].grad}));
  }
  const int64_t tiles = GradCheckWorkspaceSize(segments);
  if (static_cast<int64_t>(workspace.size()) < tiles) {
    return absl::InvalidArgumentError(absl::StrCat("grad_check: workspace has ", workspace.size(),
                                                   " doubles, the list needs ", tiles));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("workspace", workspace.data(), tiles));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("stats", stats, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {"grad_check", arguments.accesses()};
  absl::Status status;
  precision::VisitFloat(dtype, [&](auto grad) {
    using Grad = decltype(grad);
    status = EnqueueList(
        operation, segments, kGradTile, stream,
        [workspace = workspace.data(), stats](auto plan, auto& pool) {
          *stats = GradCheckCpu<Grad>(plan, workspace, pool);
        },
        [&](auto cuda_stream) {
          return LaunchGradCheck<Grad>(segments.data(), segments.size(), workspace.data(), stats,
                                       cuda_stream);
        });
  });
  return status;
}

}  // namespace brigade::kernels
