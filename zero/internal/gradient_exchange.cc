#include "brigade/zero/internal/gradient_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/compressed/restore_errors.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/optim/freeze_moment.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero::internal {
namespace {

constexpr auto kFloat = precision::DType::kFloat32;
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

}  // namespace

GradientExchange::GradientExchange(const Plan& plan, const ZeroOptions& options,
                                   const GradientStore& gradients, StepStreams& streams)
    : plan_(plan),
      options_(options),
      gradients_(gradients),
      streams_(streams),
      divisors_(ExchangeDivisors(plan, options)),
      checked_(LocalGradientLists(plan, options,
                                  [&](int bucket) { return gradients.FinalWhole(bucket); })),
      memory_(plan.buckets().size()) {}

absl::StatusOr<std::unique_ptr<GradientExchange>> GradientExchange::Create(
    const Plan& plan, const ZeroOptions& options, const GradientStore& gradients,
    StepStreams& streams) {
  std::unique_ptr<GradientExchange> self(new GradientExchange(plan, options, gradients, streams));
  device::Context& context = streams.context();
  for (size_t b = 0; b < self->memory_.size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (!bucket.trainable) continue;
    BucketMemory& memory = self->memory_[b];
    const int64_t count = ExchangedElements(bucket);
    const auto allocate = [&](const char* what, int64_t elements, device::Purpose purpose) {
      return context.Allocate(elements * kFloatBytes, purpose, absl::StrCat(what, b));
    };
    using device::Purpose;
    BRIGADE_ASSIGN_OR_RETURN(
        memory.mean, allocate("exchanged gradients of bucket ", bucket.size, Purpose::kGradients));
    if (HasWholeMoments(plan, options)) {
      BRIGADE_ASSIGN_OR_RETURN(
          memory.momentum, allocate("first moments of bucket ", count, Purpose::kOptimizerState));
    }
    if (!HasErrors(plan, options)) continue;
    BRIGADE_ASSIGN_OR_RETURN(
        memory.slices, allocate("slices of errors of bucket ", kErrorArrays * plan.slice(bucket),
                                Purpose::kOptimizerState));
    BRIGADE_ASSIGN_OR_RETURN(memory.local,
                             allocate("errors of bucket ", count, Purpose::kOptimizerState));
    BRIGADE_ASSIGN_OR_RETURN(memory.sum, allocate("errors of sums of bucket ",
                                                  collectives::OneBitPart(count, plan.ranks()),
                                                  Purpose::kOptimizerState));
  }
  if (HasErrors(plan, options)) {
    BRIGADE_ASSIGN_OR_RETURN(self->signs_,
                             collectives::OneBitAllReduce::Create(streams.communicator(), context,
                                                                  LargestExchange(plan, options)));
  }
  const auto scratch = [&](int64_t bytes, const char* name) {
    return context.Allocate(bytes, device::Purpose::kScratch, name);
  };
  BRIGADE_ASSIGN_OR_RETURN(
      self->tile_sums_, scratch(ExchangeTiles(plan, options) * static_cast<int64_t>(sizeof(double)),
                                "tile sums of own gradients"));
  BRIGADE_ASSIGN_OR_RETURN(self->state_, scratch(sizeof(kernels::StepState), "exchange's step"));
  BRIGADE_ASSIGN_OR_RETURN(
      self->group_steps_,
      scratch(static_cast<int64_t>(options.optimizer.groups.size() * sizeof(kernels::GroupStep)),
              "exchange's group steps"));
  BRIGADE_ASSIGN_OR_RETURN(self->inverse_ranks_, scratch(kFloatBytes, "1 / ranks"));
  BRIGADE_RETURN_IF_ERROR(kernels::Fill({{self->inverse_ranks_.data(), 1}}, kFloat,
                                        1.0 / plan.ranks(), streams.comm()));
  const int64_t groups = static_cast<int64_t>(options.optimizer.groups.size());
  BRIGADE_ASSIGN_OR_RETURN(self->betas_, scratch(3 * groups * kFloatBytes, "factors of moments"));
  float* factor = self->betas_.as<float>().data();
  for (const optim::ParameterGroup& group : options.optimizer.groups) {
    BRIGADE_RETURN_IF_ERROR(kernels::Fill({{factor, 1}}, kFloat, group.beta1, streams.comm()));
    BRIGADE_RETURN_IF_ERROR(
        kernels::Fill({{factor + groups, 1}}, kFloat, 1.0 - group.beta1, streams.comm()));
    ++factor;
  }
  for (size_t b = 0; b < self->memory_.size(); ++b) {
    if (plan.buckets()[b].trainable) self->ListCopies(static_cast<int>(b));
  }
  BRIGADE_RETURN_IF_ERROR(self->ClearErrors());
  return self;
}

void GradientExchange::ListCopies(int index) {
  BucketMemory& of = memory_[static_cast<size_t>(index)];
  const Bucket& bucket = plan_.bucket(index);
  const precision::DType dtype = FinalGradientType(options_, bucket);
  const char* const own = static_cast<const char*>(gradients_.FinalWhole(index));
  float* const mean = of.mean.as<float>().data();
  of.terms.clear();
  int64_t at = 0;
  for (const BucketEntry& entry : bucket.entries) {
    const int group = plan_.parameter(entry.parameter).spec.group;
    auto terms = std::find_if(of.terms.begin(), of.terms.end(),
                              [&](const Terms& each) { return each.group == group; });
    if (terms == of.terms.end()) terms = of.terms.insert(terms, Terms{.group = group});
    terms->gradient.push_back(
        {own + entry.range.begin * precision::SizeOf(dtype), mean + at, entry.range.size});
    if (of.first != nullptr) {
      const float* const momentum = of.momentum.bytes() == 0 ? of.first + entry.range.begin
                                                             : of.momentum.as<float>().data() + at;
      terms->momentum.push_back({momentum, mean + at, entry.range.size});
    }
    at += entry.range.size;
  }
  of.shared.clear();
  if (!HasErrors(plan_, options_)) return;
  for (const Overlap& each : InSlice(index)) {
    of.shared.push_back(
        {Errors(index).local + each.in_exchange, Slice(index, 0) + each.in_bucket, each.size});
    of.shared.push_back({mean + each.in_exchange, Slice(index, 1) + each.in_bucket, each.size});
  }
}

absl::Status GradientExchange::ClearErrors() {
  for (const BucketMemory& memory : memory_) {
    for (const device::Buffer* const errors : {&memory.local, &memory.sum, &memory.slices}) {
      if (errors->bytes() == 0) continue;
      BRIGADE_RETURN_IF_ERROR(streams_.comm().FillBytes(errors->data(), 0, errors->bytes()));
    }
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::Enqueue(optim::StepController& controller) {
  device::Stream& stream = streams_.comm();
  BRIGADE_RETURN_IF_ERROR(Check(controller));
  BRIGADE_RETURN_IF_ERROR(
      controller.Foresee(divisors_, state(), group_steps_.as<kernels::GroupStep>().data(), stream));
  for (size_t b = 0; b < memory_.size(); ++b) {
    if (!plan_.buckets()[b].trainable) continue;
    const int bucket = static_cast<int>(b);
    if (options_.averages_moments()) {
      if (!has_moments_) BRIGADE_RETURN_IF_ERROR(TakeMoments(bucket));
      BRIGADE_RETURN_IF_ERROR(AddToMomentum(bucket));
    } else {
      BRIGADE_RETURN_IF_ERROR(Unscale(bucket));
    }
    if (signs_ != nullptr) BRIGADE_RETURN_IF_ERROR(ExchangeBucket(bucket));
  }
  has_moments_ = options_.averages_moments();
  BRIGADE_RETURN_IF_ERROR(controller.Decide(divisors_, stream));
  BRIGADE_RETURN_IF_ERROR(stream.Copy(state(), controller.state(), sizeof(kernels::StepState)));
  for (size_t b = 0; b < memory_.size(); ++b) {
    if (memory_[b].momentum.bytes() == 0) continue;
    BRIGADE_RETURN_IF_ERROR(KeepMomentum(static_cast<int>(b)));
  }
  return kernels::Fill({{&state()->grad_multiplier, 1}}, kFloat, 1.0, stream);
}

// The moments as the steps before have left them, of all ranks.
absl::Status GradientExchange::TakeMoments(int index) {
  const BucketMemory& of = memory(index);
  const Bucket& bucket = plan_.bucket(index);
  const int64_t updated = UpdatedRange(plan_, options_, bucket, streams_.rank()).size;
  BRIGADE_RETURN_IF_ERROR(optim::FreezeMoment(of.second, updated, streams_.comm()));
  if (of.momentum.bytes() == 0) return absl::OkStatus();
  float* const whole = of.mean.as<float>().data();
  BRIGADE_RETURN_IF_ERROR(
      streams_.AllGather(of.first, whole, updated, kFloat, streams_.traffic.setup));
  std::vector<kernels::CastSegment> copies;
  float* target = of.momentum.as<float>().data();
  for (const BucketEntry& entry : bucket.entries) {
    copies.push_back({whole + entry.range.begin, target, entry.range.size});
    target += entry.range.size;
  }
  return Copy(copies);
}

absl::Status GradientExchange::AddToMomentum(int index) {
  const auto groups = static_cast<int64_t>(options_.optimizer.groups.size());
  float* const betas = betas_.as<float>().data();
  BRIGADE_RETURN_IF_ERROR(
      Copy({{betas + groups, betas + 2 * groups, groups}}, &state()->grad_multiplier));
  const precision::DType dtype = FinalGradientType(options_, plan_.bucket(index));
  for (const Terms& terms : memory(index).terms) {
    BRIGADE_RETURN_IF_ERROR(Copy(terms.momentum, betas + terms.group));
    BRIGADE_RETURN_IF_ERROR(kernels::Cast(terms.gradient,
                                          {.source_dtype = dtype,
                                           .target_dtype = kFloat,
                                           .scale = betas + 2 * groups + terms.group,
                                           .accumulate = true},
                                          streams_.comm()));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::KeepMomentum(int index) {
  const BucketMemory& of = memory(index);
  const int64_t count = ExchangedElements(plan_.bucket(index));
  float* const mean = of.mean.as<float>().data();
  float* const momentum = of.momentum.as<float>().data();
  // Of a skipped step the mean is what there was before.
  BRIGADE_RETURN_IF_ERROR(
      collectives::RestoreErrors({.skip = &state()->skip}, momentum, mean, count, streams_.comm()));
  return streams_.comm().Copy(momentum, mean, count * kFloatBytes);
}

absl::Status GradientExchange::Check(optim::StepController& controller) {
  device::Stream& stream = streams_.comm();
  // A step decides even if there is nothing to train.
  const size_t lists = std::max<size_t>(1, checked_.size());
  const absl::Span<kernels::GradStats> all = controller.stats();
  const absl::Span<kernels::GradStats> own =
      all.subspan(static_cast<size_t>(streams_.world().rank()) * lists, lists);
  absl::Span<double> left = tile_sums_.as<double>();
  for (size_t i = 0; i < lists; ++i) {
    const absl::Span<const kernels::GradSegment> segments =
        checked_.empty() ? absl::Span<const kernels::GradSegment>() : checked_[i].segments;
    const precision::DType dtype = checked_.empty() ? kFloat : checked_[i].dtype;
    const auto tiles = static_cast<size_t>(kernels::GradCheckWorkspaceSize(segments));
    BRIGADE_RETURN_IF_ERROR(
        kernels::GradCheck(segments, dtype, left.subspan(0, tiles), &own[i], stream));
    left.remove_prefix(tiles);
  }
  return streams_.GatherStatistics(own.data(), all.data(),
                                   static_cast<int64_t>(own.size() * sizeof(kernels::GradStats)));
}

// This rank's gradients of a bucket in fp32, where the mean is to be.
absl::Status GradientExchange::Unscale(int index) {
  for (const Terms& terms : memory(index).terms) {
    BRIGADE_RETURN_IF_ERROR(
        kernels::Cast(terms.gradient,
                      {.source_dtype = FinalGradientType(options_, plan_.bucket(index)),
                       .target_dtype = kFloat,
                       .scale = &state()->grad_multiplier},
                      streams_.comm()));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::ExchangeBucket(int index) {
  const Bucket& bucket = plan_.bucket(index);
  collectives::GatherOptions options;
  for (const StepCollective& each : ExchangeOf(plan_, options_, bucket)) {
    int64_t& sent = streams_.traffic.*each.traffic;
    BRIGADE_ASSIGN_OR_RETURN(options.algorithm, streams_.Count(each.signature, sent));
  }
  float* const mean = memory(index).mean.as<float>().data();
  return signs_->AllReduce(mean, mean, ExchangedElements(bucket), kFloat, Errors(index), state(),
                           options, streams_.comm());
}

absl::Status GradientExchange::Copy(absl::Span<const kernels::CastSegment> segments,
                                    const float* scale) {
  return kernels::Cast(segments, {.source_dtype = kFloat, .target_dtype = kFloat, .scale = scale},
                       streams_.comm());
}

std::vector<GradientExchange::Overlap> GradientExchange::InSlice(int index) const {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t slice = plan_.slice(bucket), first = streams_.rank() * slice;
  std::vector<Overlap> overlaps;
  int64_t exchanged = 0;
  for (const BucketEntry& entry : bucket.entries) {
    const int64_t begin = std::max(entry.range.begin, first);
    const int64_t end = std::min(entry.range.begin + entry.range.size, first + slice);
    if (begin < end) {
      overlaps.push_back({begin - first, exchanged + begin - entry.range.begin, end - begin});
    }
    exchanged += entry.range.size;
  }
  return overlaps;
}

std::vector<GradientExchange::Overlap> GradientExchange::InPart(int index) const {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t part = collectives::OneBitPart(ExchangedElements(bucket), plan_.ranks());
  const int64_t first = streams_.rank() * part;
  std::vector<Overlap> overlaps;
  int64_t exchanged = 0;
  for (const BucketEntry& entry : bucket.entries) {
    const int64_t begin = std::max(exchanged, first);
    const int64_t end = std::min(exchanged + entry.range.size, first + part);
    if (begin < end) {
      overlaps.push_back({entry.range.begin + begin - exchanged, begin - first, end - begin});
    }
    exchanged += entry.range.size;
  }
  return overlaps;
}

absl::Status GradientExchange::Share() {
  if (signs_ == nullptr) return absl::OkStatus();
  int64_t& sent = streams_.traffic.setup;
  for (size_t b = 0; b < memory_.size(); ++b) {
    const int index = static_cast<int>(b);
    const Bucket& bucket = plan_.bucket(index);
    if (!bucket.trainable) continue;
    const int64_t count = ExchangedElements(bucket);
    // Between steps nobody reads the mean of gradients.
    float* const whole = memory(index).mean.as<float>().data();
    const collectives::OneBitErrors errors = Errors(index);
    const collectives::CollectiveSignature sum = {
        .kind = collectives::CollectiveKind::kAllReduce,
        .algorithm = collectives::Algorithm::kDirect,
        .dtype = kFloat,
        .count = count,
        .reduction = collectives::Reduction::kRoundedOnce};
    BRIGADE_RETURN_IF_ERROR(streams_.Count(sum, sent).status());
    BRIGADE_RETURN_IF_ERROR(
        streams_.communicator().AllReduce(errors.local, whole, count, kFloat,
                                          {sum.op, sum.reduction, sum.algorithm}, streams_.comm()));
    BRIGADE_RETURN_IF_ERROR(
        Copy({{whole, errors.local, count}}, inverse_ranks_.as<float>().data()));
    const int64_t part = collectives::OneBitPart(count, plan_.ranks());
    BRIGADE_RETURN_IF_ERROR(streams_.AllGather(errors.sum, whole, part, kFloat, sent));
    BRIGADE_RETURN_IF_ERROR(Copy(memory(index).shared));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::TakeShared(int index) {
  if (signs_ == nullptr) return absl::OkStatus();
  const Bucket& bucket = plan_.bucket(index);
  float* const whole = memory(index).mean.as<float>().data();
  const collectives::OneBitErrors errors = Errors(index);
  const auto gather = [&](int array) {
    return streams_.AllGather(Slice(index, array), whole, plan_.slice(bucket), kFloat,
                              streams_.traffic.setup);
  };
  BRIGADE_RETURN_IF_ERROR(gather(0));
  std::vector<kernels::CastSegment> copies;
  float* target = errors.local;
  for (const BucketEntry& entry : bucket.entries) {
    copies.push_back({whole + entry.range.begin, target, entry.range.size});
    target += entry.range.size;
  }
  BRIGADE_RETURN_IF_ERROR(Copy(copies));
  BRIGADE_RETURN_IF_ERROR(gather(1));
  copies.clear();
  for (const Overlap& each : InPart(index)) {
    copies.push_back({whole + each.in_bucket, errors.sum + each.in_exchange, each.size});
  }
  return Copy(copies);
}

}  // namespace brigade::zero::internal
