#include "brigade/optim/step_executor.h"

#include <algorithm>

#include "brigade/device/status_macros.h"
#include "brigade/kernels/grad_check/grad_check.h"

namespace brigade::optim {
namespace {

int64_t WorkspaceBytes(const std::vector<GradientList>& gradients) {
  int64_t tiles = 0;
  for (const GradientList& list : gradients) {
    tiles += kernels::GradCheckWorkspaceSize(list.segments);
  }
  return tiles * static_cast<int64_t>(sizeof(double));
}

// With statistics of each list of each rank.
StepControllerOptions ForLists(StepControllerOptions control, size_t lists) {
  control.ranks *= static_cast<int>(lists);
  return control;
}

// With nothing to train a step still decides, on the sum of no gradients.
std::vector<GradientList> OneAtLeast(std::vector<GradientList> gradients) {
  if (gradients.empty()) gradients.emplace_back();
  return gradients;
}

}  // namespace

StepExecutor::StepExecutor(int rank, std::vector<GradientList> gradients)
    : rank_(rank), gradients_(std::move(gradients)), tiles_before_(gradients_.size()) {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    int64_t tiles = 0;
    for (const kernels::GradSegment& segment : gradients_[i].segments) {
      tiles_before_[i].push_back(tiles);
      tiles += kernels::GradCheckWorkspaceSize({&segment, 1});
    }
    // Behind the last segment.
    tiles_before_[i].push_back(tiles);
  }
}

absl::Span<double> StepExecutor::TileSums(size_t list) const {
  int64_t begin = 0;
  for (size_t i = 0; i < list; ++i) begin += tiles_before_[i].back();
  return workspace_.as<double>().subspan(static_cast<size_t>(begin),
                                         static_cast<size_t>(tiles_before_[list].back()));
}

int64_t StepExecutor::Bytes(const OptimizerOptions& optimizer, const StepControllerOptions& control,
                            const std::vector<GradientList>& gradients) {
  const size_t lists = std::max<size_t>(1, gradients.size());
  return WorkspaceBytes(gradients) + StepController::Bytes(optimizer, ForLists(control, lists));
}

absl::StatusOr<std::unique_ptr<StepExecutor>> StepExecutor::Create(
    const OptimizerOptions& optimizer, const StepControllerOptions& control, int rank,
    StepLists lists, device::Context& context, device::Stream& stream) {
  std::unique_ptr<StepExecutor> executor(
      new StepExecutor(rank, OneAtLeast(std::move(lists.gradients))));
  if (IsLamb(optimizer.kind)) {
    BRIGADE_ASSIGN_OR_RETURN(executor->lamb_,
                             LambUpdate::Create(optimizer, lists.updates, lists.lamb, context));
    lists.updates.clear();
  }
  for (const UpdateList& list : lists.updates) {
    executor->updates_.emplace_back(optimizer, list.segments, list.types);
  }
  BRIGADE_ASSIGN_OR_RETURN(executor->workspace_,
                           context.Allocate(WorkspaceBytes(executor->gradients_),
                                            device::Purpose::kScratch, "grad_check workspace"));
  BRIGADE_ASSIGN_OR_RETURN(
      executor->controller_,
      StepController::Create(optimizer, ForLists(control, executor->gradients_.size()), context,
                             stream));
  return executor;
}

absl::Status StepExecutor::CheckSegment(size_t list, size_t segment, const void* grad,
                                        device::Stream& stream) {
  const kernels::GradSegment at = {grad, gradients_[list].segments[segment].size};
  const auto begin = static_cast<size_t>(tiles_before_[list][segment]);
  const auto end = static_cast<size_t>(tiles_before_[list][segment + 1]);
  return kernels::GradTileSums({&at, 1}, gradients_[list].dtype,
                               TileSums(list).subspan(begin, end - begin), stream);
}

absl::Status StepExecutor::Decide(GatherStats gather, device::Stream& stream) {
  const absl::Span<kernels::GradStats> all = controller_->stats();
  const absl::Span<kernels::GradStats> own =
      all.subspan(static_cast<size_t>(rank_) * gradients_.size(), gradients_.size());
  for (size_t i = 0; i < gradients_.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(kernels::GradCheckFinish(TileSums(i), &own[i], stream));
  }
  BRIGADE_RETURN_IF_ERROR(gather(own, all));
  return controller_->Decide(stream);
}

absl::Status StepExecutor::Update(GatherSums gather_sums, device::Stream& stream) {
  if (lamb_ != nullptr) return lamb_->Enqueue(controller_->decision(), gather_sums, stream);
  for (const FusedUpdate& update : updates_) {
    BRIGADE_RETURN_IF_ERROR(update.Enqueue(controller_->decision(), stream));
  }
  return absl::OkStatus();
}

absl::Status StepExecutor::Enqueue(GatherStats gather, GatherSums gather_sums,
                                   device::Stream& stream) {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(
        kernels::GradTileSums(gradients_[i].segments, gradients_[i].dtype, TileSums(i), stream));
  }
  BRIGADE_RETURN_IF_ERROR(Decide(gather, stream));
  return Update(gather_sums, stream);
}

absl::Status StepExecutor::Enqueue(device::Stream& stream) {
  const auto nothing = [](auto, auto) { return absl::OkStatus(); };
  return Enqueue(nothing, nothing, stream);
}

}  // namespace brigade::optim
