// The state of a ZeroOptimizer between its steps: how it is initialized, exported, lent and loaded.

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/optim/step_controller.h"
#include "brigade/zero/internal/gradient_store.h"
#include "brigade/zero/internal/parameter_store.h"
#include "brigade/zero/internal/saved_errors.h"
#include "brigade/zero/internal/sharded_update.h"
#include "brigade/zero/internal/state_loan.h"
#include "brigade/zero/internal/state_transfer.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::zero {

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
