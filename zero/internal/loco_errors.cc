#include "brigade/zero/internal/loco_errors.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/restore_errors.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/loco_quant/loco_quant_math.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero::internal {
namespace {

constexpr auto kFloat = precision::DType::kFloat32;
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

}  // namespace

absl::StatusOr<std::unique_ptr<LocoErrors>> LocoErrors::Create(const Plan& plan,
                                                               const ZeroOptions& options,
                                                               StepStreams& streams) {
  if (!options.loco.has_value()) return nullptr;
  std::unique_ptr<LocoErrors> self(new LocoErrors(plan, options, streams));
  BRIGADE_RETURN_IF_ERROR(self->Allocate());
  if (self->has_codes()) BRIGADE_RETURN_IF_ERROR(self->FillControl());
  BRIGADE_RETURN_IF_ERROR(self->ClearErrors());
  return self;
}

absl::Status LocoErrors::Allocate() {
  using device::Purpose;
  device::Context& context = streams_.context();
  slices_.resize(plan_.buckets().size());
  for (size_t b = 0; b < slices_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    if (!bucket.trainable) continue;
    order_.push_back(static_cast<int>(b));
    BRIGADE_ASSIGN_OR_RETURN(
        slices_[b], context.Allocate(plan_.slice(bucket) * kFloatBytes, Purpose::kOptimizerState,
                                     absl::StrCat("slices of errors of bucket ", b)));
  }
  const auto outside = std::stable_partition(order_.begin(), order_.end(),
                                             [&](int b) { return !plan_.bucket(b).tied_outside; });
  const auto name = [&](int b) {
    return plan_.parameter(plan_.bucket(b).entries.front().parameter).spec.name;
  };
  std::sort(outside, order_.end(), [&](int a, int b) { return name(a) < name(b); });
  const int64_t largest = LargestGradientOfCodes(plan_, options_);
  if (largest == 0) return absl::OkStatus();
  for (const Bucket& gradient : plan_.gradients()) {
    const auto [local, sum] = LocoErrorBytesOf(plan_, options_, gradient);
    places_.push_back({messages_bytes_, local, sum, plan_.slice(gradient), {}});
    messages_bytes_ += local + sum;
  }
  const auto allocate = [&](int64_t bytes, Purpose purpose, const char* name) {
    return context.Allocate(bytes, purpose, name);
  };
  const int64_t bytes = messages_bytes_ + kLocoScaleBytes;
  BRIGADE_ASSIGN_OR_RETURN(errors_,
                           allocate(bytes, Purpose::kOptimizerState, "errors of gradients"));
  BRIGADE_ASSIGN_OR_RETURN(before_, allocate(bytes, Purpose::kScratch, "errors before the step"));
  const int64_t part = largest * kFloatBytes;
  BRIGADE_ASSIGN_OR_RETURN(
      whole_, allocate(plan_.ranks() * part, Purpose::kScratch, "errors of a bucket in fp32"));
  BRIGADE_ASSIGN_OR_RETURN(part_, allocate(part, Purpose::kScratch, "errors of a message in fp32"));
  static_assert(sizeof(Control) <= kLocoControlBytes);
  BRIGADE_ASSIGN_OR_RETURN(control_,
                           allocate(kLocoControlBytes, Purpose::kScratch, "scale of errors"));
  decoded_.resize(static_cast<size_t>(plan_.ranks()));
  encoded_.resize(decoded_.size());
  for (Place& at : places_) {
    const int64_t message = kernels::QuantBytes(at.count, kernels::kLocoErrors);
    const int64_t blocks = kernels::QuantBlocks(at.count);
    for (int64_t begin = at.begin; begin < at.begin + at.local + at.sum; begin += message) {
      at.maxima.push_back({At(before_, begin), At(errors_, begin), blocks});
    }
  }
  return absl::OkStatus();
}

absl::Status LocoErrors::FillControl() {
  device::Stream& stream = streams_.comm();
  BRIGADE_RETURN_IF_ERROR(stream.FillBytes(control_.data(), 0, control_.bytes()));
  BRIGADE_RETURN_IF_ERROR(
      kernels::Fill({{&control()->stats.all_finite, 1}}, precision::DType::kInt64, 1.0, stream));
  const double divisor = ControllerOptions(plan_, options_).grad_divisor;
  BRIGADE_RETURN_IF_ERROR(
      kernels::Fill({{&control()->unscaled, 1}}, kFloat, 1.0 / divisor, stream));
  const double ranks = plan_.ranks() * plan_.shard_groups();
  BRIGADE_RETURN_IF_ERROR(
      kernels::Fill({{&control()->from_saved_of_two, 1}}, kFloat, divisor / ranks / 2, stream));
  return kernels::Fill({{&control()->from_saved, 1}}, kFloat, divisor / ranks, stream);
}

absl::Status LocoErrors::Copy(const float* from, float* to, int64_t count, const float* scale,
                              bool accumulate) {
  return kernels::Cast(
      {{from, to, count}},
      {.source_dtype = kFloat, .target_dtype = kFloat, .scale = scale, .accumulate = accumulate},
      streams_.comm());
}

absl::Status LocoErrors::ForgetMessages() {
  in_step_ = false;
  if (!has_codes()) return absl::OkStatus();
  return streams_.comm().FillBytes(errors_.data(), 0, errors_.bytes());
}

absl::Status LocoErrors::ClearErrors() {
  BRIGADE_RETURN_IF_ERROR(ForgetMessages());
  for (const device::Buffer& slice : slices_) {
    if (slice.bytes() == 0) continue;
    BRIGADE_RETURN_IF_ERROR(streams_.comm().FillBytes(slice.data(), 0, slice.bytes()));
  }
  return absl::OkStatus();
}

// The scale of the gradients that come, and what brings errors to it.
absl::Status LocoErrors::BeginStep() {
  device::Stream& stream = streams_.comm();
  float* const before = InverseScale(before_);
  BRIGADE_RETURN_IF_ERROR(stream.Copy(before, InverseScale(errors_), kLocoScaleBytes));
  BRIGADE_RETURN_IF_ERROR(Copy(&state_->loss_scale, &control()->ratio, 1, before));
  // Of gradients of zero, which are neither clipped nor divided, StepControl gives 1 / scale.
  static constexpr kernels::StepBetas kNoBetas = {0.0, 0.0};
  kernels::StepControlOptions inverse;
  inverse.loss_scale.dynamic = false;
  inverse.betas = {&kNoBetas, 1};
  inverse.lr_table = &control()->lr;
  inverse.lr_table_size = 1;
  BRIGADE_RETURN_IF_ERROR(stream.Copy(&control()->state, state_, sizeof(kernels::StepState)));
  BRIGADE_RETURN_IF_ERROR(kernels::StepControl({&control()->stats, 1}, inverse, &control()->state,
                                               &control()->group, stream));
  in_step_ = true;
  return stream.Copy(InverseScale(errors_), &control()->state.grad_multiplier, kFloatBytes);
}

absl::StatusOr<collectives::QuantizedFeedback> LocoErrors::Begin(int gradient, bool is_first,
                                                                 bool forget) {
  const Place& at = places_[static_cast<size_t>(gradient)];
  char* const errors = At(errors_, at.begin);
  if (is_first) {
    if (!in_step_) BRIGADE_RETURN_IF_ERROR(BeginStep());
    device::Stream& stream = streams_.comm();
    BRIGADE_RETURN_IF_ERROR(stream.Copy(At(before_, at.begin), errors, at.local + at.sum));
    BRIGADE_RETURN_IF_ERROR(kernels::Cast(
        at.maxima, {.source_dtype = kFloat, .target_dtype = kFloat, .scale = &control()->ratio},
        stream));
  }
  return collectives::QuantizedFeedback{
      .local = errors,
      .sum = errors + at.local,
      .parameters = {.beta = static_cast<float>(options_.loco->err_beta), .forget = forget}};
}

absl::Status LocoErrors::Keep() {
  in_step_ = false;
  if (!has_codes()) return absl::OkStatus();
  return collectives::RestoreErrors({.skip = &state_->skip}, before_.as<float>().data(),
                                    errors_.as<float>().data(), errors_.bytes() / kFloatBytes,
                                    streams_.comm());
}

float* LocoErrors::Slice(int bucket, int) const {
  return slices_[static_cast<size_t>(bucket)].as<float>().data();
}

absl::Status LocoErrors::AddMessage(const char* message, int64_t count, float* to) {
  float* const values = part_.as<float>().data();
  BRIGADE_RETURN_IF_ERROR(
      kernels::BlockDequantize({{message, values, count}},
                               {.dtype = kFloat, .format = kernels::kLocoErrors}, streams_.comm()));
  return Copy(values, to, count, nullptr, /*accumulate=*/true);
}

// The bucket's own messages, then those of its sums; then of its other users likewise.
absl::Status LocoErrors::AddUp(int bucket) {
  float* const whole = whole_.as<float>().data();
  const int64_t count = plan_.slice(plan_.bucket(bucket));
  const int64_t bytes = kernels::QuantBytes(count, kernels::kLocoErrors);
  const int places = plan_.ranks() / NodesOf(plan_, options_);
  for (size_t g = 0; g < places_.size(); ++g) {
    const Bucket& gradient = plan_.gradients()[g];
    if (!gradient.trainable || plan_.BucketOf(gradient) != bucket) continue;
    const char* const local = At(errors_, places_[g].begin);
    const char* const sums = local + places_[g].local;
    const bool is_own = static_cast<int>(g) == bucket;
    for (int64_t part = 0; part < plan_.ranks(); ++part) {
      float* const to = whole + part * count;
      decoded_[static_cast<size_t>(part)] = {local + part * bytes, to, count};
      if (!is_own) BRIGADE_RETURN_IF_ERROR(AddMessage(local + part * bytes, count, to));
    }
    if (is_own) {
      BRIGADE_RETURN_IF_ERROR(kernels::BlockDequantize(
          decoded_, {.dtype = kFloat, .format = kernels::kLocoErrors}, streams_.comm()));
    }
    for (int64_t node = 0; node * bytes < places_[g].sum; ++node) {
      const int64_t part = node * places + streams_.rank() % places;
      BRIGADE_RETURN_IF_ERROR(AddMessage(sums + node * bytes, count, whole + part * count));
    }
  }
  return absl::OkStatus();
}

absl::Status LocoErrors::Share() {
  if (!has_codes()) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(
      Copy(&control()->unscaled, &control()->to_saved, 1, InverseScale(errors_)));
  float* const part = part_.as<float>().data();
  int64_t& sent = streams_.traffic.setup;
  for (const int index : order_) {
    const int64_t count = plan_.slice(plan_.bucket(index));
    if (count == 0) continue;
    BRIGADE_RETURN_IF_ERROR(AddUp(index));
    collectives::CollectiveSignature sum = {.kind = collectives::CollectiveKind::kReduceScatter,
                                            .algorithm = collectives::Algorithm::kDirect,
                                            .dtype = kFloat,
                                            .count = count,
                                            .reduction = collectives::Reduction::kRoundedOnce};
    const collectives::ReduceOptions in_order = {sum.op, sum.reduction, sum.algorithm};
    BRIGADE_RETURN_IF_ERROR(streams_.Count(sum, sent).status());
    BRIGADE_RETURN_IF_ERROR(streams_.communicator().ReduceScatter(
        whole_.data(), part, count, kFloat, in_order, streams_.comm()));
    if (streams_.has_shard_groups()) {
      sum.kind = collectives::CollectiveKind::kAllReduce;
      BRIGADE_RETURN_IF_ERROR(streams_.Count(sum, sent, StepGroup::kBetween).status());
      BRIGADE_RETURN_IF_ERROR(
          streams_.groups().AllReduce(part, part, count, kFloat, in_order, streams_.comm()));
    }
    if (plan_.bucket(index).tied_outside) {
      sum.kind = collectives::CollectiveKind::kAllReduce;
      BRIGADE_RETURN_IF_ERROR(streams_.SumTied(sum, part, sent));
    }
    BRIGADE_RETURN_IF_ERROR(Copy(part, Slice(index, 0), count, &control()->to_saved));
    BRIGADE_RETURN_IF_ERROR(TakeShared(index));
  }
  return absl::OkStatus();
}

absl::Status LocoErrors::TakeShared(int index) {
  const int64_t count = plan_.slice(plan_.bucket(index));
  if (!has_codes() || count == 0) return absl::OkStatus();
  device::Stream& stream = streams_.comm();
  float* const part = part_.as<float>().data();
  float* const whole = whole_.as<float>().data();
  const float* const share =
      plan_.bucket(index).tied_outside ? &control()->from_saved_of_two : &control()->from_saved;
  BRIGADE_RETURN_IF_ERROR(Copy(Slice(index, 0), part, count, share));
  BRIGADE_RETURN_IF_ERROR(streams_.AllGather(part, whole, count, kFloat, streams_.traffic.setup));
  for (size_t g = 0; g < places_.size(); ++g) {
    const Bucket& gradient = plan_.gradients()[g];
    if (!gradient.trainable || plan_.BucketOf(gradient) != index) continue;
    BRIGADE_RETURN_IF_ERROR(
        stream.FillBytes(At(errors_, places_[g].begin), 0, places_[g].local + places_[g].sum));
  }
  const int64_t bytes = kernels::QuantBytes(count, kernels::kLocoErrors);
  char* const local = At(errors_, places_[static_cast<size_t>(index)].begin);
  for (int64_t rank = 0; rank < plan_.ranks(); ++rank) {
    encoded_[static_cast<size_t>(rank)] = {whole + rank * count, local + rank * bytes, count};
  }
  BRIGADE_RETURN_IF_ERROR(
      kernels::BlockQuantize(encoded_, {.dtype = kFloat, .format = kernels::kLocoErrors}, stream));
  return kernels::Fill({{InverseScale(errors_), 1}}, kFloat, 1.0, stream);
}

}  // namespace brigade::zero::internal
