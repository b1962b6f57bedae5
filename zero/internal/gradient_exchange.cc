#include "brigade/zero/internal/gradient_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/zero/plan/layout.h"
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
        memory.mean, allocate("exchanged gradients of bucket ", count, Purpose::kGradients));
    BRIGADE_ASSIGN_OR_RETURN(memory.local,
                             allocate("errors of bucket ", count, Purpose::kOptimizerState));
    BRIGADE_ASSIGN_OR_RETURN(
        memory.sum,
        allocate("errors of sums of bucket ", collectives::OneBitPart(count, plan.ranks()),
                 Purpose::kOptimizerState));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      self->signs_, collectives::OneBitAllReduce::Create(streams.communicator(), context,
                                                         LargestExchange(plan, options)));
  const auto scratch = [&](int64_t bytes, const char* name) {
    return context.Allocate(bytes, device::Purpose::kScratch, name);
  };
  BRIGADE_ASSIGN_OR_RETURN(self->tile_sums_, scratch(ExchangeTiles(plan, options) *
                                                         static_cast<int64_t>(sizeof(double)),
                                                     "tile sums of own gradients"));
  BRIGADE_ASSIGN_OR_RETURN(self->state_, scratch(sizeof(kernels::StepState), "exchange's step"));
  BRIGADE_ASSIGN_OR_RETURN(
      self->group_steps_,
      scratch(static_cast<int64_t>(options.optimizer.groups.size() * sizeof(kernels::GroupStep)),
              "exchange's group steps"));
  BRIGADE_RETURN_IF_ERROR(self->ClearErrors());
  return self;
}

absl::Status GradientExchange::ClearErrors() {
  for (const BucketMemory& memory : memory_) {
    for (const device::Buffer* const errors : {&memory.local, &memory.sum}) {
      if (errors->bytes() == 0) continue;
      BRIGADE_RETURN_IF_ERROR(streams_.comm().FillBytes(errors->data(), 0, errors->bytes()));
    }
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::Enqueue(optim::StepController& controller) {
  device::Stream& stream = streams_.comm();
  BRIGADE_RETURN_IF_ERROR(Check(controller));
  BRIGADE_RETURN_IF_ERROR(controller.Foresee(
      divisors_, state(), group_steps_.as<kernels::GroupStep>().data(), stream));
  for (size_t b = 0; b < memory_.size(); ++b) {
    if (!plan_.buckets()[b].trainable) continue;
    const int bucket = static_cast<int>(b);
    BRIGADE_RETURN_IF_ERROR(Unscale(bucket));
    BRIGADE_RETURN_IF_ERROR(ExchangeBucket(bucket));
  }
  BRIGADE_RETURN_IF_ERROR(controller.Decide(divisors_, stream));
  BRIGADE_RETURN_IF_ERROR(stream.Copy(state(), controller.state(), sizeof(kernels::StepState)));
  return kernels::Fill({{&state()->grad_multiplier, 1}}, kFloat, 1.0, stream);
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
    const optim::GradientList list = checked_.empty() ? optim::GradientList() : checked_[i];
    const auto tiles = static_cast<size_t>(kernels::GradCheckWorkspaceSize(list.segments));
    BRIGADE_RETURN_IF_ERROR(
        kernels::GradCheck(list.segments, list.dtype, left.subspan(0, tiles), &own[i], stream));
    left.remove_prefix(tiles);
  }
  return streams_.GatherStatistics(own.data(), all.data(),
                                   static_cast<int64_t>(own.size() * sizeof(kernels::GradStats)));
}

// This rank's gradients of a bucket in fp32, where the mean is to be.
absl::Status GradientExchange::Unscale(int index) {
  const Bucket& bucket = plan_.bucket(index);
  const precision::DType dtype = FinalGradientType(options_, bucket);
  const char* const own = static_cast<const char*>(gradients_.FinalWhole(index));
  float* target = memory(index).mean.as<float>().data();
  std::vector<kernels::CastSegment> segments;
  for (const BucketEntry& entry : bucket.entries) {
    segments.push_back(
        {own + entry.range.begin * precision::SizeOf(dtype), target, entry.range.size});
    target += entry.range.size;
  }
  return kernels::Cast(
      segments,
      {.source_dtype = dtype, .target_dtype = kFloat, .scale = &state()->grad_multiplier},
      streams_.comm());
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

}  // namespace brigade::zero::internal
