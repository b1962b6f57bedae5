#include "brigade/benchmarks/offload/one_rank.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {

absl::StatusOr<std::unique_ptr<OneRank>> OneRank::Create(const UnitModel& model,
                                                         const zero::OffloadOptions& offload,
                                                         double link_bytes_per_second) {
  auto self = std::make_unique<OneRank>();
  device::ContextOptions options;
  options.checks = false;
  options.link_bytes_per_second = link_bytes_per_second;
  BRIGADE_ASSIGN_OR_RETURN(self->context_, device::Context::Create(options));
  BRIGADE_ASSIGN_OR_RETURN(self->compute_, self->context_->CreateStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(self->reader_, self->context_->CreateStream("reader"));
  BRIGADE_ASSIGN_OR_RETURN(auto group, collectives::ThreadGroup::Create({.size = 1}));
  BRIGADE_ASSIGN_OR_RETURN(auto engine, group->Join(0, *self->context_));
  BRIGADE_ASSIGN_OR_RETURN(self->communicator_,
                           collectives::Communicator::Create(std::move(engine), *self->context_));
  zero::ModelSpec spec;
  for (int unit = 0; unit < model.units; ++unit) {
    spec.push_back(
        {absl::StrCat("layer", unit), {{absl::StrCat("w", unit), model.elements / model.units}}});
  }
  self->unit_bytes_ = model.elements / model.units * 2;
  zero::ZeroOptions zero;
  zero.stage = 2;
  zero.dtype = precision::DType::kBFloat16;
  zero.bucket_elements = model.elements / model.units;
  zero.offload = offload;
  BRIGADE_ASSIGN_OR_RETURN(
      self->zero_, zero::ZeroOptimizer::Create(spec, zero, *self->communicator_, *self->context_,
                                               *self->compute_));
  return self;
}

absl::Status OneRank::Update() {
  BRIGADE_RETURN_IF_ERROR(zero_->FinishBackward());
  return zero_->Step();
}

absl::Status OneRank::Step(double passes_seconds) {
  const auto units = static_cast<int>(zero_->plan().units().size());
  const double forward = passes_seconds / (3 * units);
  for (int unit = 0; unit < units; ++unit) {
    zero::UnitScope scope(*zero_, unit, zero::Pass::kForward);
    BRIGADE_RETURN_IF_ERROR(EnqueuePass(forward, *compute_));
    BRIGADE_RETURN_IF_ERROR(scope.Release());
  }
  for (int unit = units - 1; unit >= 0; --unit) {
    zero::UnitScope scope(*zero_, unit, zero::Pass::kBackward);
    const zero::GradientTarget gradient = scope.gradient(unit);
    BRIGADE_RETURN_IF_ERROR(scope.status());
    BRIGADE_RETURN_IF_ERROR(EnqueuePass(2 * forward, *compute_));
    // That stays so: a GPU's gradients cost the host's memory no time.
    if (steps_ < 3) BRIGADE_RETURN_IF_ERROR(compute_->FillBytes(gradient.data, 0, unit_bytes_));
    BRIGADE_RETURN_IF_ERROR(scope.Release());
    BRIGADE_RETURN_IF_ERROR(zero_->GradientsReady(unit));
  }
  ++steps_;
  return Update();
}

absl::Status OneRank::Finish() {
  BRIGADE_RETURN_IF_ERROR(zero_->LendState(*reader_));
  BRIGADE_RETURN_IF_ERROR(zero_->ReturnState());
  return reader_->Synchronize();
}

absl::Status EnqueuePass(double seconds, device::Stream& stream) {
  return stream.Enqueue({"pass", {}}, [seconds](device::ThreadPool&) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return absl::OkStatus();
  });
}

}  // namespace brigade::benchmarks
