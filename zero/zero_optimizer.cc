#include "brigade/zero/zero_optimizer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/node_groups.h"
#include "brigade/collectives/host_threads.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/optim/step_controller.h"
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

absl::Status CheckWorld(const ZeroOptions& options, const collectives::Communicator& group,
                        int shard_groups, const collectives::Communicator& world) {
  if (options.shard_ranks > 0 && group.size() != options.shard_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("ZeRO: shard_ranks is ", options.shard_ranks,
                                                   ", but the group that shares a state has ",
                                                   group.size(), " ranks"));
  }
  if (options.shard_ranks == 0 && shard_groups > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("ZeRO: shard_ranks is 0, but OuterGroups::between has ", shard_groups,
                     " ranks, one of each group that shares a state"));
  }
  if (int64_t{group.size()} * shard_groups * options.model_ranks == world.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("ZeRO: model_ranks is ", options.model_ranks, ", but ",
                   shard_groups > 1 ? absl::StrCat(shard_groups, " times ") : "", "groups of ",
                   group.size(), " ranks are parts of a world of ", world.size()));
}

absl::Status CheckNear(const ZeroOptions& options, const collectives::Communicator& group,
                       const OuterGroups& outer) {
  const int near = outer.near == nullptr ? 0 : outer.near->size();
  if (near != options.hpz_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("ZeRO: hpz_ranks is ", options.hpz_ranks,
                                                   ", but OuterGroups::near has ", near, " ranks"));
  }
  if (near == 0 || group.size() % near == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ZeRO: hpz_ranks is ", options.hpz_ranks,
                                                 ", which does not divide the ", group.size(),
                                                 " ranks that share a state"));
}

absl::Status CheckNodes(const ZeroOptions& options, const collectives::Communicator& group,
                        const OuterGroups& outer) {
  if (options.node_ranks > 0 && group.size() % options.node_ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat("ZeRO: node_ranks is ", options.node_ranks,
                                                   ", which does not divide the ", group.size(),
                                                   " ranks that share a state"));
  }
  const bool has_two_hops = options.node_ranks > 1 && options.node_ranks < group.size();
  const int node = outer.node == nullptr ? 0 : outer.node->size();
  if (node != options.node_ranks && (has_two_hops || node != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("ZeRO: node_ranks is ", options.node_ranks,
                                                   ", but OuterGroups::node has ", node, " ranks"));
  }
  return collectives::CheckNodes("ZeRO", group, {outer.node, outer.nodes});
}

// That those near this rank follow each other in its group, each at its place.
absl::Status AgreeOnNear(const collectives::Communicator& group, int shard_group,
                         collectives::Communicator& near) {
  return collectives::AgreeOnLines({absl::StrCat("ranks from ", group.rank() - near.rank(),
                                                 " on of group ", shard_group, " near it")},
                                   near);
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
  if (mine.ok()) mine = CheckWorld(options, communicator, shard_groups, all);
  if (mine.ok()) mine = CheckNear(options, communicator, outer);
  if (mine.ok()) mine = CheckNodes(options, communicator, outer);
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
    mine.Update(AgreeOnNear(communicator, shard_group, *outer.near));
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

absl::Status ZeroOptimizer::CheckBetweenSteps(const char* call) const {
  bool is_between = !in_backward_ && parameters_->acquired_units() == 0 &&
                    parameters_->finished_runs() == 0 && !parameters_->in_run();
  for (int chunk = 0; chunk < internal::ChunkCount(options_); ++chunk) {
    is_between = is_between && gradients_->finished_micro_batches(chunk) == 0;
  }
  if (is_between) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("stage ", options_.stage, ", ", call,
                   ": in the middle of a step; call it after Step or CancelStep"));
}

// Whether this rank may change the state now; the communication stream then waits for its readers.
absl::Status ZeroOptimizer::PrepareToChangeState(const char* call) {
  BRIGADE_RETURN_IF_ERROR(CheckBetweenSteps(call));
  BRIGADE_RETURN_IF_ERROR(update_->Await());
  if (!loan_->is_lent()) return loan_->AwaitReader();
  return absl::FailedPreconditionError(
      absl::StrCat("stage ", options_.stage, ", ", call, ": the state is lent"));
}

absl::Status ZeroOptimizer::InitializeParameters(
    absl::FunctionRef<absl::Status(int parameter, absl::Span<float> values)> write) {
  const kernels::StepState first =
      kernels::InitialStepState(options_.loss_scaler.ToKernelOptions());
  BRIGADE_RETURN_IF_ERROR(
      transfer_->InitializeParameters(PrepareToChangeState("InitializeParameters"), first, write));
  return StateLoaded(first);
}

absl::Status ZeroOptimizer::ExportParameters(
    absl::FunctionRef<absl::Status(int parameter, absl::Span<const float> values)> read) {
  absl::Status ready = CheckBetweenSteps("ExportParameters");
  if (ready.ok()) ready = update_->Await();
  return transfer_->ExportParameters(ready, read);
}

absl::Status ZeroOptimizer::CopyState(int bucket, int array, ElementRange range, void* to,
                                      device::Stream& reader) {
  return transfer_->Copy(bucket, array, range, to, reader);
}

int ZeroOptimizer::state_arrays() const { return update_->saved_arrays(); }
optim::MomentArray ZeroOptimizer::StateArrayType(int bucket, int array) const {
  return internal::StateArrayOf(options_, plan_.bucket(bucket), array);
}
int ZeroOptimizer::error_arrays() const { return internal::ErrorArraysOf(plan_, options_); }

absl::Status ZeroOptimizer::ShareErrors() {
  if (errors_shared_) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckBetweenSteps("ShareErrors"));
  BRIGADE_RETURN_IF_ERROR(loan_->AwaitReader());
  if (has_moves()) {
    BRIGADE_RETURN_IF_ERROR(BeginStateChange());
    BRIGADE_RETURN_IF_ERROR(update_->Meet());
    BRIGADE_RETURN_IF_ERROR(parameters_->GatherUpdated());
  }
  BRIGADE_RETURN_IF_ERROR(errors_->Share());
  errors_shared_ = true;
  errors_forgotten_ = false;
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<float>> ZeroOptimizer::StateArray(int bucket, int array) const {
  if (options_.offload.enabled()) {
    return absl::FailedPreconditionError(
        absl::StrCat("stage ", options_.stage, ": the optimizer state is on the ",
                     device::ToString(options_.offload.optimizer_state), ", not on the device"));
  }
  const Bucket& of = plan_.bucket(bucket);
  const optim::MomentArray type = StateArrayType(bucket, array);
  if (of.trainable && (type.dtype != precision::DType::kFloat32 || type.block != 1)) {
    return absl::FailedPreconditionError(
        absl::StrCat("stage ", options_.stage, ": array ", array, " of bucket ", bucket,
                     type.block == 0 ? " is none" : " is of codes or their scales"));
  }
  const int64_t size = internal::UpdatedRange(plan_, options_, of, streams_->rank()).size;
  return absl::MakeSpan(update_->Array(bucket, array), static_cast<size_t>(size));
}

absl::StatusOr<absl::Span<std::byte>> ZeroOptimizer::FrozenWeights(int bucket) const {
  if (options_.offload.enabled()) return StateArray(bucket, 0).status();
  const Bucket& of = plan_.bucket(bucket);
  void* const weights = options_.traits().whole_optimizer_state ? parameters_->Whole(bucket)
                                                                : parameters_->Slice(bucket);
  const int64_t size = internal::UpdatedRange(plan_, options_, of, streams_->rank()).size;
  return absl::MakeSpan(static_cast<std::byte*>(weights),
                        static_cast<size_t>(size * precision::SizeOf(of.dtype)));
}

absl::Status ZeroOptimizer::AttachState(std::vector<std::vector<float*>> arrays) {
  if (options_.offload.enabled()) return StateArray(0, 0).status();
  if (options_.has_local_steps()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "AttachState: local_step_clipper is ", options_.optimizer.zero_one.local_step_clipper,
        "; between meetings ranks have masters of their own, and what is attached is made of one "
        "for all (with local_step_clipper 1 they meet in each step)"));
  }
  if (options_.optimizer.kind == optim::OptimizerKind::kMuon) {
    return absl::FailedPreconditionError(
        "AttachState: the optimizer is Muon, whose matrices have one moment, others two; AdamW has "
        "two of all");
  }
  if (options_.optimizer.kind == optim::OptimizerKind::kAdafactor) {
    return absl::FailedPreconditionError(
        "AttachState: the optimizer is Adafactor, whose factors are of whole tensors; AdamW's "
        "moments are of elements, as what is attached is");
  }
  if (optim::HasCodes(options_.optimizer.kind)) {
    return absl::FailedPreconditionError(
        "AttachState: the optimizer's moments are codes; AdamW's are fp32, as what is attached is");
  }
  update_->Attach(std::move(arrays));
  return absl::OkStatus();
}

absl::Status ZeroOptimizer::BeginStateChange() {
  BRIGADE_RETURN_IF_ERROR(CheckBetweenSteps("BeginStateChange"));
  BRIGADE_RETURN_IF_ERROR(streams_->compute().Record(*backward_finished_));
  BRIGADE_RETURN_IF_ERROR(streams_->Wait(internal::WaitPoint::kBackwardFinished,
                                         *backward_finished_, streams_->comm()));
  return loan_->AwaitReader();
}

absl::Status ZeroOptimizer::MastersChanged(absl::Span<const int> buckets) {
  for (const int bucket : buckets) {
    if (plan_.bucket(bucket).trainable) {
      BRIGADE_RETURN_IF_ERROR(update_->RoundMasterOnDevice(bucket));
    }
  }
  return parameters_->GatherUpdated(buckets);
}

absl::Status ZeroOptimizer::MomentsChanged() {
  BRIGADE_RETURN_IF_ERROR(CheckBetweenSteps("MomentsChanged"));
  if (update_->exchange() == nullptr) return absl::OkStatus();
  update_->exchange()->StateChanged();
  for (int b = 0; b < static_cast<int>(plan_.buckets().size()); ++b) {
    if (plan_.bucket(b).trainable) BRIGADE_RETURN_IF_ERROR(update_->TakeNumbers(b));
  }
  return absl::OkStatus();
}

absl::Status ZeroOptimizer::LendState(device::Stream& reader) {
  BRIGADE_RETURN_IF_ERROR(CheckBetweenSteps("LendState"));
  if (!errors_shared_ && !lends_old_errors_) {
    return absl::FailedPreconditionError(
        absl::StrCat("stage ", options_.stage,
                     ", LendState: a step has changed the errors of exchanges; ShareErrors comes "
                     "first, on all ranks"));
  }
  if (!errors_shared_ && has_moves() && !loan_->is_lent()) {
    BRIGADE_RETURN_IF_ERROR(BeginStateChange());
    BRIGADE_RETURN_IF_ERROR(update_->exchange()->ForgetMoves());
    for (int b = 0; b < static_cast<int>(plan_.buckets().size()); ++b) {
      if (!plan_.bucket(b).trainable) continue;
      BRIGADE_RETURN_IF_ERROR(update_->RoundMasterOnDevice(b));
    }
    BRIGADE_RETURN_IF_ERROR(parameters_->GatherUpdated());
  }
  BRIGADE_RETURN_IF_ERROR(update_->Await());
  if (errors_forgotten_ && !loan_->is_lent()) {
    BRIGADE_RETURN_IF_ERROR(loan_->AwaitReader());
    BRIGADE_RETURN_IF_ERROR(errors_->ClearErrors());
    errors_forgotten_ = false;
  }
  return loan_->Lend(reader);
}

absl::Status ZeroOptimizer::ReturnState() { return loan_->Return(); }

int64_t ZeroOptimizer::state_wait_ns() const { return loan_->wait_ns(); }

absl::Status ZeroOptimizer::LoadState(
    const kernels::StepState& state,
    absl::FunctionRef<absl::Status(int bucket, int array, ElementRange range, void* values)> read,
    int64_t chunk_bytes) {
  BRIGADE_RETURN_IF_ERROR(
      transfer_->Load(PrepareToChangeState("LoadState"), state, chunk_bytes, read));
  return StateLoaded(state);
}

absl::Status ZeroOptimizer::StateLoaded(const kernels::StepState& state) {
  BRIGADE_RETURN_IF_ERROR(LoadStepState(state));
  must_load_ = errors_forgotten_ = false;
  errors_shared_ = true;
  return absl::OkStatus();
}

absl::Status ZeroOptimizer::LoadStepState(const kernels::StepState& state) {
  BRIGADE_RETURN_IF_ERROR(CheckBetweenSteps("LoadStepState"));
  BRIGADE_RETURN_IF_ERROR(controller().LoadState(state, streams_->comm()));
  update_->SetSteps(state.iteration);
  if (update_->exchange() != nullptr) update_->exchange()->StateChanged();
  gradients_->SetTried(state.iteration);
  return absl::OkStatus();
}

}  // namespace brigade::zero
