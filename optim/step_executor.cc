#include "brigade/optim/step_executor.h"

#include <algorithm>

#include "brigade/device/status_macros.h"
#include "brigade/kernels/grad_check/grad_check.h"

namespace brigade::optim {
namespace {

int64_t WorkspaceBytes(const std::vector<GradientList>& gradients) {
  int64_t elements = 0;
  for (const GradientList& list : gradients) {
    elements = std::max(elements, kernels::GradCheckWorkspaceSize(list.segments));
  }
  return elements * static_cast<int64_t>(sizeof(double));
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

absl::Status StepExecutor::Enqueue(GatherStats gather, device::Stream& stream) {
  const absl::Span<kernels::GradStats> all = controller_->stats();
  const absl::Span<kernels::GradStats> own =
      all.subspan(static_cast<size_t>(rank_) * gradients_.size(), gradients_.size());
  for (size_t i = 0; i < gradients_.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(kernels::GradCheck(gradients_[i].segments, gradients_[i].dtype,
                                               workspace_.as<double>(), &own[i], stream));
  }
  BRIGADE_RETURN_IF_ERROR(gather(own, all));
  BRIGADE_RETURN_IF_ERROR(controller_->Decide(stream));
  for (const FusedUpdate& update : updates_) {
    BRIGADE_RETURN_IF_ERROR(update.Enqueue(*controller_, stream));
  }
  return absl::OkStatus();
}

absl::Status StepExecutor::Enqueue(device::Stream& stream) {
  return Enqueue([](auto, auto) { return absl::OkStatus(); }, stream);
}

}  // namespace brigade::optim
