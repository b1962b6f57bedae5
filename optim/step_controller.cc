#include "brigade/optim/step_controller.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/value_range.h"

namespace brigade::optim {
namespace {

using kernels::CheckInRange;
using kernels::GradStats;
using kernels::GroupStep;
using kernels::StepState;

constexpr char kName[] = "step_controller";

int64_t TableSize(const OptimizerOptions& optimizer, const StepControllerOptions& options) {
  int64_t size = options.lr_table_size;
  for (const ParameterGroup& group : optimizer.groups) {
    size = std::max(size, LearningRateCount(group.schedule));
  }
  return size;
}

// A state that a controller with these options can have.
absl::Status CheckStepState(const StepState& state, const kernels::LossScaleOptions& scale) {
  const auto check = [](const char* field, double value, kernels::ValueRange range) {
    return CheckInRange(kName, field, -1, value, range);
  };
  BRIGADE_RETURN_IF_ERROR(
      check("iteration", static_cast<double>(state.iteration), {0.0, 0x1p62, "0 or more"}));
  const double iteration = static_cast<double>(state.iteration);
  BRIGADE_RETURN_IF_ERROR(
      check("step", static_cast<double>(state.step), {0.0, iteration, "in [0, iteration]"}));
  BRIGADE_RETURN_IF_ERROR(check("last_overflow", static_cast<double>(state.last_overflow),
                                {-1.0, iteration - 1.0, "-1 to below iteration"}));
  BRIGADE_RETURN_IF_ERROR(check("grad_norm", state.grad_norm,
                                {0.0, std::numeric_limits<double>::infinity(), "0 or more"}));
  BRIGADE_RETURN_IF_ERROR(check("skip", state.skip, {0.0, 1.0, "0 or 1"}));
  BRIGADE_RETURN_IF_ERROR(check("stuck_at_minimum", state.stuck_at_minimum, {0.0, 1.0, "0 or 1"}));
  BRIGADE_RETURN_IF_ERROR(check("reserved", state.reserved, {0.0, 0.0, "0"}));
  if (!scale.dynamic) {
    BRIGADE_RETURN_IF_ERROR(check("hysteresis", state.hysteresis, {0.0, 0x1p31, "0 or more"}));
    return check(
        "loss_scale", state.loss_scale,
        {scale.initial_scale, scale.initial_scale, "the static loss_scale of the options"});
  }
  BRIGADE_RETURN_IF_ERROR(
      check("hysteresis", state.hysteresis,
            {1.0, static_cast<double>(scale.hysteresis), "1 to the hysteresis of the options"}));
  return check("loss_scale", state.loss_scale,
               {scale.min_scale, scale.max_scale, "min_loss_scale to max_loss_scale"});
}

}  // namespace

absl::Status Validate(const StepControllerOptions& options) {
  BRIGADE_RETURN_IF_ERROR(Validate(options.loss_scaler));
  BRIGADE_RETURN_IF_ERROR(CheckInRange(
      kName, "max_grad_norm", -1, options.max_grad_norm,
      {0x1p-149, std::numeric_limits<double>::infinity(), "positive; infinity for none"}));
  BRIGADE_RETURN_IF_ERROR(CheckInRange(kName, "grad_divisor", -1, options.grad_divisor,
                                       {0x1p-60, 0x1p60, "in [2^-60, 2^60]"}));
  BRIGADE_RETURN_IF_ERROR(
      CheckInRange(kName, "ranks", -1, options.ranks, {1.0, 0x1p31, "1 or more"}));
  return CheckInRange(kName, "lr_table_size", -1, static_cast<double>(options.lr_table_size),
                      {1.0, kMaxLearningRates, "in [1, 2^26]"});
}

int64_t StepController::Bytes(const OptimizerOptions& optimizer,
                              const StepControllerOptions& options) {
  const int64_t groups = static_cast<int64_t>(optimizer.groups.size());
  return options.ranks * static_cast<int64_t>(sizeof(GradStats)) +
         static_cast<int64_t>(sizeof(StepState)) +
         groups * static_cast<int64_t>(sizeof(GroupStep)) +
         groups * TableSize(optimizer, options) * static_cast<int64_t>(sizeof(float));
}

int64_t StepController::HostBytes(const OptimizerOptions& optimizer,
                                  const StepControllerOptions& options) {
  return 2 * TableSize(optimizer, options) * static_cast<int64_t>(sizeof(float)) +
         (kReads + 1) * static_cast<int64_t>(sizeof(StepState));
}

absl::StatusOr<std::unique_ptr<StepController>> StepController::Create(
    const OptimizerOptions& optimizer, const StepControllerOptions& options,
    device::Context& context, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Validate(optimizer));
  BRIGADE_RETURN_IF_ERROR(Validate(options));
  std::unique_ptr<StepController> controller(new StepController(optimizer, options));
  BRIGADE_RETURN_IF_ERROR(controller->Allocate(context));
  for (size_t i = 0; i < optimizer.groups.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(
        controller->CopyTable(static_cast<int>(i), optimizer.groups[i], stream));
  }
  const StepState initial = kernels::InitialStepState(controller->control_.loss_scale);
  BRIGADE_RETURN_IF_ERROR(controller->LoadState(initial, stream));
  return controller;
}

StepController::StepController(const OptimizerOptions& optimizer,
                               const StepControllerOptions& options)
    : optimizer_(optimizer), ranks_(options.ranks) {
  for (const ParameterGroup& group : optimizer.groups) {
    // The others correct no bias.
    const bool corrects = IsAdam(optimizer.kind) || optimizer.kind == OptimizerKind::kLamb;
    betas_.push_back(corrects ? kernels::StepBetas{group.beta1, group.beta2}
                              : kernels::StepBetas{0.0, 0.0});
  }
  control_.loss_scale = options.loss_scaler.ToKernelOptions();
  control_.grad_divisor = options.grad_divisor;
  control_.max_grad_norm = options.max_grad_norm;
  control_.failure_flags = options.failure_flags;
  control_.check_overflow = options.loss_scaler.check_overflow;
  control_.betas = betas_;
  control_.lr_table_size = TableSize(optimizer, options);
}

absl::StatusOr<StepController::Staging> StepController::CreateStaging(int64_t bytes,
                                                                      absl::string_view name,
                                                                      device::Context& context) {
  BRIGADE_ASSIGN_OR_RETURN(auto buffer,
                           context.AllocateHost(bytes, device::Purpose::kScratch, name));
  BRIGADE_ASSIGN_OR_RETURN(auto done, context.CreateEvent(name));
  return Staging{std::move(buffer), std::move(done)};
}

absl::Status StepController::Allocate(device::Context& context) {
  const auto allocate = [&](device::Buffer& buffer, size_t bytes, absl::string_view name) {
    auto allocated = context.Allocate(static_cast<int64_t>(bytes), device::Purpose::kScratch, name);
    if (allocated.ok()) buffer = *std::move(allocated);
    return allocated.status();
  };
  const size_t groups = betas_.size();
  const int64_t row_bytes = control_.lr_table_size * static_cast<int64_t>(sizeof(float));
  BRIGADE_RETURN_IF_ERROR(allocate(stats_, ranks_ * sizeof(GradStats), "grad stats"));
  BRIGADE_RETURN_IF_ERROR(allocate(state_, sizeof(StepState), "step state"));
  BRIGADE_RETURN_IF_ERROR(allocate(group_steps_, groups * sizeof(GroupStep), "group steps"));
  BRIGADE_RETURN_IF_ERROR(allocate(lr_table_, groups * row_bytes, "learning rates"));
  control_.lr_table = lr_table_.as<float>().data();
  for (Staging& table : tables_) {
    BRIGADE_ASSIGN_OR_RETURN(table, CreateStaging(row_bytes, "new learning rates", context));
  }
  for (Staging& read : reads_) {
    BRIGADE_ASSIGN_OR_RETURN(read, CreateStaging(sizeof(StepState), "state read", context));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      checkpoint_, context.AllocateHost(sizeof(StepState), device::Purpose::kScratch, "state"));
  return absl::OkStatus();
}

absl::Status StepController::Decide(device::Stream& stream) {
  return kernels::StepControl(stats_.as<const GradStats>(), control_, state_.as<StepState>().data(),
                              group_steps_.as<GroupStep>().data(), stream);
}

absl::Status StepController::ScaleLoss(const void* loss, void* scaled, int64_t count,
                                       precision::DType dtype, device::Stream& stream) {
  const kernels::CastSegment segment = {loss, scaled, count};
  kernels::CastOptions options;
  options.source_dtype = options.target_dtype = dtype;
  options.scale = &state()->loss_scale;
  return kernels::Cast({&segment, 1}, options, stream);
}

absl::Status StepController::CheckGroup(int group) const {
  if (group >= 0 && group < static_cast<int>(betas_.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kName, ": group is ", group, ", must be 0 to ", betas_.size() - 1));
}

absl::Status StepController::SetLearningRate(int group, double lr, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckGroup(group));
  const Schedule& schedule = optimizer_.groups[group].schedule;
  if (!UsesGroupRate(schedule)) {
    return absl::FailedPreconditionError(absl::StrCat(
        kName, ": the schedule of group ", group, " names its own learning rates, so that lr ", lr,
        " would change nothing; use SetSchedule"));
  }
  return SetSchedule(group, lr, schedule, stream);
}

absl::Status StepController::SetSchedule(int group, double lr, const Schedule& schedule,
                                         device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckGroup(group));
  BRIGADE_RETURN_IF_ERROR(ValidateRate(group, lr, schedule));
  if (const int64_t count = LearningRateCount(schedule); count > control_.lr_table_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": the schedule for group ", group, " has ", count,
                     " learning rates, but lr_table_size is ", control_.lr_table_size));
  }
  ParameterGroup changed = optimizer_.groups[group];
  changed.lr = lr;
  changed.schedule = schedule;
  BRIGADE_RETURN_IF_ERROR(CopyTable(group, changed, stream));
  optimizer_.groups[group] = changed;
  return absl::OkStatus();
}

absl::Status StepController::CopyTable(int group, const ParameterGroup& rates,
                                       device::Stream& stream) {
  Staging& staging = tables_[table_changes_ % tables_.size()];
  if (table_changes_ >= static_cast<int64_t>(tables_.size())) {
    const absl::StatusOr<bool> done = staging.done->Query();
    // An error is that of a stream which failed and has told its owner: the copy is over as well.
    if (done.ok() && !*done) staging.done->Synchronize().IgnoreError();
  }
  const absl::Span<float> row = staging.buffer.as<float>();
  FillLearningRates(rates.schedule, rates.lr, row);
  BRIGADE_RETURN_IF_ERROR(stream.Copy(lr_table_.as<float>().data() + group * row.size(), row.data(),
                                      staging.buffer.bytes()));
  ++table_changes_;
  return stream.Record(*staging.done);
}

absl::Status StepController::RequestState(device::Stream& stream) {
  if (requested_ - taken_ == kReads) {
    return absl::ResourceExhaustedError(absl::StrCat(
        kName, ": ", kReads, " requested states wait to be taken, no more can be requested"));
  }
  Staging& read = reads_[requested_ % kReads];
  BRIGADE_RETURN_IF_ERROR(stream.Copy(read.buffer.data(), state_.data(), sizeof(StepState)));
  BRIGADE_RETURN_IF_ERROR(stream.Record(*read.done));
  ++requested_;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<StepState>> StepController::TakeState() {
  if (taken_ == requested_) return std::nullopt;
  const Staging& read = reads_[taken_ % kReads];
  const absl::StatusOr<bool> arrived = read.done->Query();
  if (arrived.ok() && !*arrived) return std::nullopt;
  ++taken_;
  if (!arrived.ok()) return arrived.status();
  return read.buffer.as<const StepState>()[0];
}

absl::StatusOr<StepState> StepController::SaveState(device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(stream.Copy(checkpoint_.data(), state_.data(), sizeof(StepState)));
  BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
  return checkpoint_.as<const StepState>()[0];
}

absl::Status StepController::CheckState(const StepState& state) const {
  return CheckStepState(state, control_.loss_scale);
}

absl::Status StepController::LoadState(const StepState& state, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckState(state));
  StepState& copy = checkpoint_.as<StepState>()[0];
  copy = state;
  copy.stuck_at_minimum = 0;
  BRIGADE_RETURN_IF_ERROR(stream.Copy(state_.data(), checkpoint_.data(), sizeof(StepState)));
  return stream.Synchronize();
}

}  // namespace brigade::optim
