#include "brigade/zero/zero_optimizer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/host_threads.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/step_controller.h"
#include "brigade/zero/internal/communicator_check.h"
#include "brigade/zero/internal/consistency_check.h"
#include "brigade/zero/internal/gradient_store.h"
#include "brigade/zero/internal/loco_errors.h"
#include "brigade/zero/internal/parameter_store.h"
#include "brigade/zero/internal/rank_file.h"
#include "brigade/zero/internal/saved_errors.h"
#include "brigade/zero/internal/sharded_update.h"
#include "brigade/zero/internal/state_loan.h"
#include "brigade/zero/internal/state_transfer.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero {
namespace {

absl::Status MustLoad() {
  return absl::FailedPreconditionError(
      "a step was not written and is taken back, but not from the weights; LoadState comes first");
}

}  // namespace

ZeroOptimizer::ZeroOptimizer(Plan plan, const ZeroOptions& options)
    : plan_(std::move(plan)), options_(options) {}

ZeroOptimizer::~ZeroOptimizer() { Free(); }

optim::StepController& ZeroOptimizer::controller() { return update_->controller(); }
device::Stream& ZeroOptimizer::step_stream() { return streams_->comm(); }
int ZeroOptimizer::rank() const { return streams_->rank(); }
int ZeroOptimizer::shard_group() const { return streams_->shard_group(); }
const Traffic& ZeroOptimizer::traffic() const { return streams_->traffic; }
const Movement& ZeroOptimizer::movement() const { return streams_->movement; }
const device::FileStore* ZeroOptimizer::file() const {
  return file_ == nullptr ? nullptr : &file_->store();
}

absl::StatusOr<std::unique_ptr<ZeroOptimizer>> ZeroOptimizer::Create(
    const ModelSpec& model, const ZeroOptions& options, collectives::Communicator& communicator,
    device::Context& context, device::Stream& compute, const OuterGroups& outer) {
  collectives::Communicator& all = outer.world == nullptr ? communicator : *outer.world;
  // A rank that finds a mistake of its own tells the other ranks, which would wait for it
  // otherwise.
  absl::Status mine = Validate(options);
  const int shard_groups = outer.between == nullptr ? 1 : outer.between->size();
  if (mine.ok()) mine = internal::CheckCommunicators(options, communicator, outer);
  absl::StatusOr<Plan> plan = Plan::Create(
      model,
      {communicator.size(), options.dtype, options.bucket_elements, options.tied_apart,
       shard_groups, optim::TensorTile(options.optimizer.kind), optim::CodesOf(options.optimizer)});
  mine.Update(plan.status());
  if (mine.ok()) mine = internal::CheckGroups(*plan, options);
  if (mine.ok()) mine = internal::CheckBackwardUnits(*plan, options);
  if (mine.ok()) mine = internal::CheckChunks(*plan, options);
  if (mine.ok()) mine = internal::CheckTied(*plan, outer);
  if (mine.ok()) mine = internal::CheckExchanges(*plan, options);
  auto streams = internal::StepStreams::Create(options, communicator, outer, context, compute);
  mine.Update(streams.status());
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(mine, all));
  if (outer.world != nullptr) {
    BRIGADE_RETURN_IF_ERROR(internal::AgreeOnPartners(*plan, all));
  }
  mine = internal::AgreeOnPlan(*plan, options, communicator);
  // If ranks disagree, some may not have it.
  const bool agrees_on_near = mine.ok() && outer.near != nullptr;
  if (agrees_on_near) {
    const int shard_group = outer.between == nullptr ? 0 : outer.between->rank();
    mine.Update(internal::AgreeOnNear(communicator, shard_group, *outer.near));
  }
  if (shard_groups > 1) {
    mine.Update(internal::AgreeOnPlanBetween(*plan, options, communicator.rank(), *outer.between));
  }
  if (outer.tied != nullptr) {
    mine.Update(internal::AgreeOnTied(*plan, communicator.rank(), *outer.tied));
  }
  if (outer.world != nullptr || agrees_on_near) {
    // Groups have other models.
    BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(mine, all));
    mine = internal::AgreeOnOptions(*plan, options, all);
  }
  BRIGADE_RETURN_IF_ERROR(mine);
  int host_threads = options.offload.host_threads;
  if (options.offload.enabled()) {
    // Of all ranks, whatever each one's options say of threads.
    BRIGADE_ASSIGN_OR_RETURN(const int share, collectives::ThreadsOfRank(all));
    if (host_threads == 0) host_threads = share;
  }
  std::unique_ptr<ZeroOptimizer> self(new ZeroOptimizer(*std::move(plan), options));
  self->streams_ = *std::move(streams);
  // So does a rank that runs out of memory, after it has freed what it has allocated.
  absl::Status allocated = self->streams_->CreateForOffload(host_threads);
  if (allocated.ok()) allocated = self->Allocate();
  if (!allocated.ok()) self->Free();
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(allocated, all));
  return self;
}

void ZeroOptimizer::Free() {
  // Memory waits for its own context's streams alone, and the host's are another one's.
  if (streams_ != nullptr) {
    for (device::Stream* const each : streams_->Own()) each->Synchronize().IgnoreError();
  }
  loan_.reset();
  transfer_.reset();
  update_.reset();
  gradients_.reset();
  parameters_.reset();
  file_.reset();
}

// Whether the tiers' limits leave what the memory model says. The communicator's workspace, which
// others may have needed before, is there by now.
absl::Status ZeroOptimizer::CheckLimits() const {
  const device::Context& context = streams_->context();
  const std::vector<MemoryTerm> terms = MemoryOf(plan_, options_, streams_->rank());
  // The file is this optimizer's own.
  const device::MemoryStats no_books;
  const std::pair<device::Tier, const device::MemoryStats*> tiers[] = {
      {device::Tier::kDevice, &context.memory_stats()},
      {device::Tier::kHost, &context.host_memory_stats()},
      {device::Tier::kFile, &no_books}};
  for (const auto& [tier, books] : tiers) {
    const int64_t limit = tier == device::Tier::kFile ? options_.offload.file_limit_bytes
                                                      : context.memory_limit_bytes(tier);
    const int64_t needed = Total(terms, tier);
    if (limit == 0 || needed <= limit - books->current_bytes()) continue;
    std::string what;
    for (const MemoryTerm& term : terms) {
      if (term.tier != tier || term.bytes == 0) continue;
      absl::StrAppend(&what, what.empty() ? "" : ", ", term.name, " ", term.bytes);
    }
    return absl::ResourceExhaustedError(
        absl::StrCat("stage ", options_.stage, ": \"", context.name(), "\" needs ", needed,
                     " bytes of the ", device::ToString(tier), " (", what, "); in use ",
                     books->current_bytes(), " bytes (", books->ToString(), "), limit ", limit));
  }
  return absl::OkStatus();
}

absl::Status ZeroOptimizer::Allocate() {
  BRIGADE_RETURN_IF_ERROR(
      streams_->Prepare(internal::CollectivesOfStep(plan_, options_, streams_->rank())));
  BRIGADE_RETURN_IF_ERROR(CheckLimits());
  if (options_.offload.file_state()) {
    BRIGADE_ASSIGN_OR_RETURN(file_, internal::RankFile::Create(plan_, options_, *streams_));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      parameters_, internal::ParameterStore::Create(plan_, options_, file_.get(), *streams_));
  BRIGADE_ASSIGN_OR_RETURN(gradients_, internal::GradientStore::Create(plan_, options_, *streams_));
  BRIGADE_ASSIGN_OR_RETURN(
      update_, internal::ShardedUpdate::Create(plan_, options_, file_.get(), *gradients_,
                                               *parameters_, *streams_));
  errors_ = update_->exchange();
  if (gradients_->loco() != nullptr) {
    gradients_->loco()->SetState(controller().state());
    errors_ = gradients_->loco();
  }
  transfer_ = std::make_unique<internal::StateTransfer>(plan_, options_, file_.get(), *streams_,
                                                        *parameters_, *update_, errors_);
  BRIGADE_ASSIGN_OR_RETURN(loan_, internal::StateLoan::Create(*streams_));
  BRIGADE_ASSIGN_OR_RETURN(backward_finished_,
                           streams_->context().CreateEvent("backward finished"));
  BRIGADE_ASSIGN_OR_RETURN(step_decided_, streams_->context().CreateEvent("step decided"));
  BRIGADE_RETURN_IF_ERROR(streams_->comm().Record(*step_decided_));
  return streams_->Synchronize();
}

bool ZeroOptimizer::has_moves() const {
  return update_->exchange() != nullptr && update_->exchange()->has_moves();
}

absl::Status ZeroOptimizer::CheckUnit(const char* call, int unit) const {
  if (unit >= 0 && unit < static_cast<int>(plan_.units().size())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(call, ": unit ", unit, " of ", plan_.units().size()));
}

absl::Status ZeroOptimizer::CheckParameter(const char* call, int parameter) const {
  if (parameter >= 0 && parameter < static_cast<int>(plan_.parameters().size())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(call, ": parameter ", parameter, " of ", plan_.parameters().size()));
}

// The status, with stage, call and unit in front of its message.
absl::Status ZeroOptimizer::WithUnit(const char* call, int unit, const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("stage ", options_.stage, ", ", call, " of unit \"",
                                   plan_.unit(unit).name, "\": ", status.message()));
}

absl::Status ZeroOptimizer::Acquire(int unit, Pass pass) {
  BRIGADE_RETURN_IF_ERROR(CheckUnit("Acquire", unit));
  if (must_load_) return WithUnit("Acquire", unit, MustLoad());
  if (parameters_->acquired(unit)) {
    return WithUnit("Acquire", unit, absl::FailedPreconditionError("it is acquired"));
  }
  return WithUnit("Acquire", unit, parameters_->Acquire(unit, pass));
}

absl::Status ZeroOptimizer::Release(int unit) {
  BRIGADE_RETURN_IF_ERROR(CheckUnit("Release", unit));
  if (!parameters_->acquired(unit)) {
    return WithUnit("Release", unit, absl::FailedPreconditionError("it is not acquired"));
  }
  return WithUnit("Release", unit, parameters_->Release(unit));
}

absl::StatusOr<const void*> ZeroOptimizer::Weights(int parameter) const {
  BRIGADE_RETURN_IF_ERROR(CheckParameter("Weights", parameter));
  const Parameter& p = plan_.parameter(parameter);
  const void* const data = parameters_->Data(parameter);
  if (data != nullptr || p.spec.size == 0) return data;
  return WithUnit(
      "Weights", p.unit,
      absl::FailedPreconditionError(absl::StrCat(
          "parameter \"", p.spec.name, "\" is read while no unit that uses it is acquired")));
}

precision::DType ZeroOptimizer::TypeOf(int parameter) const {
  return *plan_.parameter(parameter).spec.dtype;
}

absl::Status ZeroOptimizer::ScaleLoss(const void* loss, void* scaled, int64_t count,
                                      precision::DType dtype) {
  BRIGADE_RETURN_IF_ERROR(
      streams_->Wait(internal::WaitPoint::kStepDecided, *step_decided_, streams_->compute()));
  return controller().ScaleLoss(loss, scaled, count, dtype, streams_->compute());
}

absl::StatusOr<GradientTarget> ZeroOptimizer::Gradient(int unit, int parameter) {
  BRIGADE_RETURN_IF_ERROR(CheckUnit("Gradient", unit));
  BRIGADE_RETURN_IF_ERROR(CheckParameter("Gradient", parameter));
  const Parameter& p = plan_.parameter(parameter);
  const auto wrong = [&](const absl::Status& status) {
    return WithUnit("Gradient", unit,
                    absl::Status(status.code(), absl::StrCat("parameter \"", p.spec.name,
                                                             "\": ", status.message())));
  };
  const std::vector<int>& uses = plan_.unit(unit).parameters;
  if (std::find(uses.begin(), uses.end(), parameter) == uses.end()) {
    return wrong(absl::InvalidArgumentError("the unit does not use it"));
  }
  if (!p.spec.trainable) return wrong(absl::InvalidArgumentError("it is frozen"));
  if (IsFinished(internal::ChunkOf(options_, unit))) {
    return wrong(absl::FailedPreconditionError("all micro-batches are done; Step comes first"));
  }
  absl::StatusOr<GradientTarget> target = gradients_->Target(unit, parameter);
  if (!target.ok()) return wrong(target.status());
  in_backward_ = true;
  return target;
}

absl::Status ZeroOptimizer::GradientsReady(int unit) {
  BRIGADE_RETURN_IF_ERROR(CheckUnit("GradientsReady", unit));
  if (IsFinished(internal::ChunkOf(options_, unit))) {
    return WithUnit("GradientsReady", unit,
                    absl::FailedPreconditionError("all micro-batches are done; Step comes first"));
  }
  BRIGADE_RETURN_IF_ERROR(WithUnit("GradientsReady", unit, gradients_->Ready(unit)));
  in_backward_ = true;
  return absl::OkStatus();
}

bool ZeroOptimizer::IsFinished(int chunk) const {
  return gradients_->finished_micro_batches(chunk) == options_.micro_batches;
}

// "stage 2, FinishBackward: ", with the chunk where there are several.
std::string ZeroOptimizer::Place(const char* call, int chunk) const {
  return absl::StrCat("stage ", options_.stage, ", ", call,
                      internal::ChunkCount(options_) == 1 ? "" : absl::StrCat(" of chunk ", chunk),
                      ": ");
}

absl::Status ZeroOptimizer::FinishBackward(int chunk) {
  if (chunk < 0 || chunk >= internal::ChunkCount(options_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("FinishBackward: chunk ", chunk, " of ", internal::ChunkCount(options_)));
  }
  if (IsFinished(chunk)) {
    return absl::FailedPreconditionError(absl::StrCat(Place("FinishBackward", chunk), "all ",
                                                      options_.micro_batches,
                                                      " micro-batches are done; Step comes first"));
  }
  absl::Status status = parameters_->CheckBackwardUses();
  if (status.ok()) status = gradients_->FinishMicroBatch(chunk);
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(Place("FinishBackward", chunk), status.message()));
  }
  parameters_->FinishBackward();
  in_backward_ = false;
  return absl::OkStatus();
}

absl::Status ZeroOptimizer::BeginRun(int chunk) {
  absl::Status status;
  if (must_load_) {
    status = MustLoad();
  } else if (options_.runs.empty()) {
    status = absl::FailedPreconditionError("there are no runs (ZeroOptions::runs)");
  } else {
    status = parameters_->BeginRun(chunk);
  }
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("stage ", options_.stage, ", BeginRun of chunk ",
                                                  chunk, ": ", status.message()));
}

absl::Status ZeroOptimizer::EndRun() {
  const absl::Status status = parameters_->EndRun();
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("stage ", options_.stage, ", EndRun: ", status.message()));
}

absl::Status ZeroOptimizer::CheckStep() const {
  const int acquired = parameters_->acquired_units();
  for (int chunk = 0; chunk < internal::ChunkCount(options_); ++chunk) {
    if (IsFinished(chunk) && acquired == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(Place("Step", chunk), gradients_->finished_micro_batches(chunk), " of ",
                     options_.micro_batches, " micro-batches have finished backward, ", acquired,
                     " units are acquired"));
  }
  const int runs = static_cast<int>(options_.runs.size());
  if (parameters_->finished_runs() == runs) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("stage ", options_.stage,
                                                    ", Step: ", parameters_->finished_runs(),
                                                    " of ", runs, " runs are made"));
}

absl::Status ZeroOptimizer::Step() {
  BRIGADE_RETURN_IF_ERROR(CheckStep());
  BRIGADE_RETURN_IF_ERROR(streams_->compute().Record(*backward_finished_));
  BRIGADE_RETURN_IF_ERROR(streams_->Wait(internal::WaitPoint::kBackwardFinished,
                                         *backward_finished_, streams_->comm()));
  BRIGADE_RETURN_IF_ERROR(ShowWeights());
  BRIGADE_RETURN_IF_ERROR(gradients_->Complete());
  BRIGADE_RETURN_IF_ERROR(loan_->AwaitReader());
  if (gradients_->phase() != internal::StepPhase::kReduced) {
    errors_shared_ = !internal::HasErrors(plan_, options_) && !options_.has_local_steps();
    lends_old_errors_ = false;
  }
  if (gradients_->has_errors()) errors_shared_ = lends_old_errors_ = false;
  BRIGADE_RETURN_IF_ERROR(update_->Enqueue());
  if (gradients_->has_errors()) BRIGADE_RETURN_IF_ERROR(gradients_->loco()->Keep());
  BRIGADE_RETURN_IF_ERROR(streams_->comm().Record(*step_decided_));
  BRIGADE_RETURN_IF_ERROR(gradients_->FinishStep());
  parameters_->FinishRuns();
  BRIGADE_RETURN_IF_ERROR(parameters_->GatherUpdated());
  return ShowUpdated();
}

absl::Status ZeroOptimizer::Observe(StepObserver* observer) {
  BRIGADE_RETURN_IF_ERROR(CheckBetweenSteps("Observe"));
  observer_ = observer;
  update_->Observe(observer);
  return absl::OkStatus();
}

absl::Status ZeroOptimizer::ShowWeights() {
  if (observer_ == nullptr) return absl::OkStatus();
  return parameters_->Show(/*slices=*/false, [this](absl::Span<const ObservedArray> arrays) {
    return observer_->OnWeights(arrays, streams_->comm());
  });
}

absl::Status ZeroOptimizer::ShowUpdated() {
  StepObserver* const observer = std::exchange(observer_, nullptr);
  update_->Observe(nullptr);
  if (observer == nullptr) return absl::OkStatus();
  return parameters_->Show(/*slices=*/true, [&](absl::Span<const ObservedArray> arrays) {
    return observer->OnUpdated(arrays, streams_->comm());
  });
}

absl::Status ZeroOptimizer::CancelStep() {
  observer_ = nullptr;
  update_->Observe(nullptr);
  streams_->Reset();
  loan_->Forget();
  in_backward_ = false;
  lends_old_errors_ = true;
  gradients_->Reset();
  BRIGADE_RETURN_IF_ERROR(parameters_->Reset());
  BRIGADE_RETURN_IF_ERROR(update_->Reset());
  if (file_ != nullptr) {
    BRIGADE_RETURN_IF_ERROR(file_->Reset());
    BRIGADE_ASSIGN_OR_RETURN(const kernels::StepState state,
                             controller().SaveState(streams_->comm()));
    // Of a step that was decided and could not be written nothing has happened, but to the weights.
    if (std::memcmp(&state, &file_->state(), sizeof(state)) != 0) {
      must_load_ = true;
      BRIGADE_RETURN_IF_ERROR(controller().LoadState(file_->state(), streams_->comm()));
    }
  }
  if (options_.offload.delay_update || update_->exchange() != nullptr || gradients_->has_errors()) {
    // Whether the step was still counted decides whether the next one is delayed, exchanges, or
    // forgets errors.
    BRIGADE_ASSIGN_OR_RETURN(const kernels::StepState state,
                             controller().SaveState(streams_->comm()));
    update_->SetSteps(state.iteration);
    if (update_->exchange() != nullptr) update_->exchange()->Cancelled(state.iteration);
    gradients_->SetTried(state.iteration);
  }
  if (gradients_->has_errors()) {
    BRIGADE_RETURN_IF_ERROR(gradients_->loco()->ForgetMessages());
    errors_shared_ = errors_forgotten_ = true;
  }
  return streams_->comm().Record(*step_decided_);
}

}  // namespace brigade::zero
