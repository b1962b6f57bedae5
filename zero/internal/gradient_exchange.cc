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
#include "brigade/kernels/zero_one_adam/zero_one_adam.h"
#include "brigade/optim/freeze_moment.h"
#include "brigade/optim/lamb_update.h"
#include "brigade/optim/limit_stats.h"
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
                                  [&](int bucket) {
                                    return ExchangesBetween(plan, options)
                                               ? gradients.FinalSlice(bucket)
                                               : gradients.FinalWhole(bucket);
                                  })),
      memory_(plan.buckets().size()),
      lamb_groups_(optim::LambGroupsOf(options.optimizer)) {}

absl::StatusOr<std::unique_ptr<GradientExchange>> GradientExchange::Create(
    const Plan& plan, const ZeroOptions& options, const GradientStore& gradients,
    StepStreams& streams) {
  std::unique_ptr<GradientExchange> self(new GradientExchange(plan, options, gradients, streams));
  device::Context& context = streams.context();
  for (size_t b = 0; b < self->memory_.size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (!bucket.trainable) continue;
    BucketMemory& memory = self->memory_[b];
    const int64_t count = ExchangedElements(plan, options, bucket, streams.rank());
    const auto allocate = [&](const char* what, int64_t elements, device::Purpose purpose) {
      return context.Allocate(elements * kFloatBytes, purpose, absl::StrCat(what, b));
    };
    using device::Purpose;
    BRIGADE_ASSIGN_OR_RETURN(
        memory.mean, allocate("exchanged gradients of bucket ", MeanElements(plan, options, bucket),
                              Purpose::kGradients));
    if (HasWholeMoments(plan, options)) {
      BRIGADE_ASSIGN_OR_RETURN(
          memory.momentum, allocate("first moments of bucket ", count, Purpose::kOptimizerState));
    }
    if (options.has_local_steps()) {
      BRIGADE_ASSIGN_OR_RETURN(memory.moved,
                               allocate("moves of bucket ", count, Purpose::kOptimizerState));
      BRIGADE_ASSIGN_OR_RETURN(memory.agreed, allocate("agreed weights of bucket ", bucket.size,
                                                       Purpose::kOptimizerState));
    }
    if (!HasErrors(plan, options)) continue;
    memory.layout = ErrorLayoutOf(plan, options, bucket, streams.rank());
    memory.calls = ExchangeOf(plan, options, bucket, streams.rank());
    memory.elements = count;
    BRIGADE_ASSIGN_OR_RETURN(
        memory.slices, allocate("slices of errors of bucket ", kErrorArrays * plan.slice(bucket),
                                Purpose::kOptimizerState));
    BRIGADE_ASSIGN_OR_RETURN(
        memory.own_errors,
        allocate("errors of bucket ", memory.layout.own.size, Purpose::kOptimizerState));
    BRIGADE_ASSIGN_OR_RETURN(
        memory.second_errors,
        allocate("second errors of bucket ", memory.layout.second.size, Purpose::kOptimizerState));
  }
  if (HasErrors(plan, options)) BRIGADE_RETURN_IF_ERROR(self->CreateExchanges());
  const auto scratch = [&](int64_t bytes, const char* name) {
    return context.Allocate(bytes, device::Purpose::kScratch, name);
  };
  const int64_t sums = ExchangeSums(plan, options, streams.rank());
  BRIGADE_ASSIGN_OR_RETURN(self->tile_sums_, scratch(sums * static_cast<int64_t>(sizeof(double)),
                                                     "tile sums of own gradients"));
  if (HasErrors(plan, options)) {
    BRIGADE_ASSIGN_OR_RETURN(self->added_stats_,
                             scratch(sizeof(kernels::GradStats), "statistics of errors"));
  }
  BRIGADE_ASSIGN_OR_RETURN(self->state_, scratch(sizeof(kernels::StepState), "exchange's step"));
  BRIGADE_ASSIGN_OR_RETURN(
      self->group_steps_,
      scratch(static_cast<int64_t>(options.optimizer.groups.size() * sizeof(kernels::GroupStep)),
              "exchange's group steps"));
  BRIGADE_ASSIGN_OR_RETURN(self->factors_of_means_, scratch(2 * kFloatBytes, "factors of means"));
  float* const of_means = self->factors_of_means_.as<float>().data();
  BRIGADE_RETURN_IF_ERROR(
      kernels::Fill({{of_means, 1}}, kFloat, 1.0 / ExchangingRanks(plan), streams.comm()));
  const int summed = ExchangesInTwoHops(plan, options) ? options.node_ranks : 1;
  BRIGADE_RETURN_IF_ERROR(kernels::Fill({{of_means + 1, 1}}, kFloat, summed, streams.comm()));
  const int64_t groups = static_cast<int64_t>(options.optimizer.groups.size());
  BRIGADE_ASSIGN_OR_RETURN(self->betas_, scratch(3 * groups * kFloatBytes, "factors of moments"));
  float* factor = self->betas_.as<float>().data();
  for (const optim::ParameterGroup& group : options.optimizer.groups) {
    BRIGADE_RETURN_IF_ERROR(kernels::Fill({{factor, 1}}, kFloat, group.beta1, streams.comm()));
    BRIGADE_RETURN_IF_ERROR(
        kernels::Fill({{factor + groups, 1}}, kFloat, 1.0 - group.beta1, streams.comm()));
    ++factor;
  }
  if (const int64_t bytes = ZeroOneBytes(options); bytes > 0) {
    BRIGADE_ASSIGN_OR_RETURN(self->rates_, scratch(bytes, "rates since the last meeting"));
    BRIGADE_RETURN_IF_ERROR(streams.comm().FillBytes(self->rates_.data(), 0, bytes));
  }
  for (size_t b = 0; b < self->memory_.size(); ++b) {
    if (plan.buckets()[b].trainable) self->ListCopies(static_cast<int>(b));
  }
  BRIGADE_RETURN_IF_ERROR(self->ClearErrors());
  return self;
}

absl::Status GradientExchange::CreateExchanges() {
  collectives::Communicator& ranks =
      streams_.has_shard_groups() ? streams_.groups() : streams_.communicator();
  device::Context& context = streams_.context();
  const int64_t largest = LargestExchange(plan_, options_, streams_.rank());
  // This place has padding alone in all groups.
  if (largest == 0) return absl::OkStatus();
  switch (MethodOf(options_)) {
    case GradientCompression::kOneBit: {
      const collectives::NodeCommunicators nodes =
          ExchangesInTwoHops(plan_, options_) ? streams_.nodes() : collectives::NodeCommunicators();
      BRIGADE_ASSIGN_OR_RETURN(
          signs_, collectives::OneBitAllReduce::Create(ranks, context, largest, nodes));
      break;
    }
    case GradientCompression::kTopK: {
      BRIGADE_ASSIGN_OR_RETURN(greatest_, collectives::TopKAllReduce::Create(
                                              ranks, context, largest, TopKOf(options_, largest)));
      for (BucketMemory& of : memory_) {
        if (of.elements > 0) of.top_k = TopKOf(options_, of.elements);
      }
      break;
    }
    case GradientCompression::kPowerSgd: {
      factors_.resize(memory_.size());
      for (size_t b = 0; b < memory_.size(); ++b) {
        const int index = static_cast<int>(b);
        const Bucket& bucket = plan_.bucket(index);
        if (!bucket.trainable || memory_[b].elements == 0) continue;
        const int first = FirstOfTheseTensors(plan_, options_, index, streams_.rank());
        auto& factors = factors_[static_cast<size_t>(first)];
        if (factors == nullptr) {
          const auto tensors = PowerSgdTensorsOf(plan_, options_, bucket, streams_.rank());
          BRIGADE_ASSIGN_OR_RETURN(
              factors, collectives::PowerSgdAllReduce::Create(ranks, context, tensors,
                                                              PowerSgdOptionsOf(options_)));
        }
        memory_[b].factors = factors.get();
      }
      break;
    }
  }
  return absl::OkStatus();
}

void GradientExchange::ListCopies(int index) {
  BucketMemory& of = memory_[static_cast<size_t>(index)];
  const Bucket& bucket = plan_.bucket(index);
  const precision::DType dtype = FinalGradientType(options_, bucket);
  const int rank = streams_.rank();
  const ElementRange range = ExchangedRange(plan_, options_, bucket, rank);
  const auto* const own =
      static_cast<const char*>(ExchangesBetween(plan_, options_) ? gradients_.FinalSlice(index)
                                                                 : gradients_.FinalWhole(index));
  const int64_t first_updated = UpdatedRange(plan_, options_, bucket, rank).begin;
  float* const mean = of.mean.as<float>().data();
  float* const exchanged = Exchanged(index);
  added_to_moments_.clear();
  of.terms.clear();
  of.messages.clear();
  of.moments.clear();
  of.plain.clear();
  of.plain_sent.clear();
  const auto first_tensor = static_cast<int32_t>(FirstTensorOf(plan_, index));
  for (const ExchangedPiece& piece : ExchangedPieces(plan_, options_, bucket, rank)) {
    const int group = plan_.parameter(bucket.entries[piece.entry].parameter).spec.group;
    auto terms = std::find_if(of.terms.begin(), of.terms.end(),
                              [&](const Terms& each) { return each.group == group; });
    if (terms == of.terms.end()) terms = of.terms.insert(terms, Terms{.group = group});
    terms->gradient.push_back({own + (piece.in_bucket - range.begin) * precision::SizeOf(dtype),
                               exchanged + piece.at, piece.size});
    if (of.first == nullptr) continue;
    const float* const momentum = of.momentum.bytes() == 0
                                      ? of.first + piece.in_bucket - first_updated
                                      : of.momentum.as<float>().data() + piece.at;
    terms->momentum.push_back({momentum, exchanged + piece.at, piece.size});
    if (of.moved.bytes() > 0) {
      terms->moves.push_back({momentum, of.moved.as<float>().data() + piece.at, piece.size});
    }
    of.messages.push_back({momentum, terms->gradient.back().source, exchanged + piece.at,
                           piece.size, group, first_tensor + static_cast<int32_t>(piece.entry)});
  }
  for (const ExchangedPiece& piece : MeanPieces(plan_, options_, bucket, rank)) {
    if (of.first == nullptr) break;
    const int group = plan_.parameter(bucket.entries[piece.entry].parameter).spec.group;
    of.moments.push_back({mean + piece.at, piece.size, group});
  }
  for (const ErrorPiece& piece : of.layout.plain) {
    float* const errors = Slice(index, 0) + piece.in_bucket - range.begin;
    of.plain.push_back({errors, exchanged + piece.at, piece.size});
    of.plain_sent.push_back({nullptr, errors, piece.size});
  }
  const auto list = [&](const float* errors, const ErrorArray& array, int slice) {
    std::vector<kernels::CastSegment>& shared = of.shared[static_cast<size_t>(slice)];
    shared.clear();
    // Of parts all are gathered where the mean is.
    const float* const whole = array.parts == 1 ? errors : mean;
    for (const ErrorPiece& each : InSlice(index, array.pieces)) {
      shared.push_back({whole + each.at, Slice(index, slice) + each.in_bucket, each.size});
    }
  };
  list(ErrorsOf(index).own, of.layout.own, 0);
  list(ErrorsOf(index).second, of.layout.second, 1);
}

absl::Status GradientExchange::ClearErrors() {
  if (!numbers_.empty()) {
    BRIGADE_RETURN_IF_ERROR(streams_.comm().FillBytes(
        numbers_.data(), 0,
        static_cast<int64_t>(numbers_.size() * sizeof(kernels::OneBitLambNumbers))));
  }
  for (const BucketMemory& memory : memory_) {
    for (const device::Buffer* const errors :
         {&memory.own_errors, &memory.second_errors, &memory.slices}) {
      if (errors->bytes() == 0) continue;
      BRIGADE_RETURN_IF_ERROR(streams_.comm().FillBytes(errors->data(), 0, errors->bytes()));
    }
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::Enqueue(optim::StepController& controller, StepPhase phase,
                                       int64_t tried, absl::FunctionRef<absl::Status()> freeze) {
  device::Stream& stream = streams_.comm();
  const bool is_zero_one = options_.is_zero_one_adam();
  if (is_zero_one && tried == options_.optimizer.zero_one.var_freeze_step) {
    BRIGADE_RETURN_IF_ERROR(ClearErrors());
  }
  const bool of_moments = phase != StepPhase::kGradients;
  const bool takes_moments = of_moments && !has_moments_;
  for (size_t b = 0; takes_moments && b < memory_.size(); ++b) {
    if (!plan_.buckets()[b].trainable) continue;
    BRIGADE_RETURN_IF_ERROR(TakeMoments(static_cast<int>(b)));
  }
  if (takes_moments) {
    BRIGADE_RETURN_IF_ERROR(freeze());
    moments_taken_in_ = tried;
  }
  has_moments_ = of_moments;
  BRIGADE_RETURN_IF_ERROR(Check(controller, phase));
  decision_ = {state(), controller.group_steps()};
  if (phase == StepPhase::kLocal) {
    BRIGADE_RETURN_IF_ERROR(controller.Decide(divisors_, stream));
    return stream.Copy(state(), controller.state(), sizeof(kernels::StepState));
  }
  kernels::GroupStep* const foreseen = group_steps_.as<kernels::GroupStep>().data();
  BRIGADE_RETURN_IF_ERROR(controller.Foresee(divisors_, state(), foreseen, stream));
  const bool meets = is_zero_one && phase == StepPhase::kMoments;
  if (meets) BRIGADE_RETURN_IF_ERROR(CountRates(kernels::ZeroOneCall::kSend, foreseen));
  for (size_t b = 0; b < memory_.size(); ++b) {
    if (!plan_.buckets()[b].trainable) continue;
    const int bucket = static_cast<int>(b);
    if (phase == StepPhase::kGradients) {
      BRIGADE_RETURN_IF_ERROR(Unscale(bucket));
    } else {
      BRIGADE_RETURN_IF_ERROR(numbers_.empty() ? AddToMomentum(bucket) : SendMomentum(bucket));
    }
    BRIGADE_RETURN_IF_ERROR(ExchangeBucket(bucket));
  }
  BRIGADE_RETURN_IF_ERROR(controller.Decide(divisors_, stream));
  BRIGADE_RETURN_IF_ERROR(stream.Copy(state(), controller.state(), sizeof(kernels::StepState)));
  for (const BucketMemory& of : memory_) {
    if (of.plain_sent.empty()) continue;
    BRIGADE_RETURN_IF_ERROR(kernels::ZeroOneAdamTake(of.plain_sent, state(), stream));
  }
  if (meets) {
    BRIGADE_RETURN_IF_ERROR(ReceiveMoments(kernels::ZeroOneCall::kMeet, controller.group_steps()));
  }
  for (size_t b = 0; b < memory_.size() && of_moments; ++b) {
    if (memory_[b].momentum.bytes() == 0) continue;
    BRIGADE_RETURN_IF_ERROR(KeepMomentum(static_cast<int>(b)));
  }
  return kernels::Fill({{&state()->grad_multiplier, 1}}, kFloat, 1.0, stream);
}

absl::Status GradientExchange::CountRates(kernels::ZeroOneCall call,
                                          const kernels::GroupStep* group_steps) {
  return kernels::ZeroOneAdamRates(
      {.call = call,
       .groups = static_cast<int32_t>(options_.optimizer.groups.size()),
       .state = state(),
       .group_steps = group_steps,
       .betas = betas_.as<float>().data(),
       .numbers = rates(),
       .meeting = meeting()},
      streams_.comm());
}

absl::Status GradientExchange::ReceiveMoments(kernels::ZeroOneCall call,
                                              const kernels::GroupStep* group_steps) {
  BRIGADE_RETURN_IF_ERROR(CountRates(call, group_steps));
  decision_ = {state(), meeting()};
  const absl::Span<const kernels::ZeroOneNumbers> numbers(rates(),
                                                          options_.optimizer.groups.size());
  for (size_t b = 0; b < memory_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    if (!bucket.trainable) continue;
    const BucketMemory& of = memory_[b];
    BRIGADE_RETURN_IF_ERROR(kernels::ZeroOneAdamReceive(of.moments, numbers, streams_.comm()));
    if (!options_.has_local_steps()) continue;
    BRIGADE_RETURN_IF_ERROR(kernels::ZeroOneAdamTake(
        {{of.agreed.as<float>().data(), of.param, bucket.size}}, state(), streams_.comm()));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::Finish(StepPhase phase) {
  if (!options_.has_local_steps() || phase == StepPhase::kGradients) return absl::OkStatus();
  const bool is_local = phase == StepPhase::kLocal;
  if (is_local) {
    BRIGADE_RETURN_IF_ERROR(CountRates(kernels::ZeroOneCall::kLocal, decision_.group_steps));
  }
  for (size_t b = 0; b < memory_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    if (!bucket.trainable) continue;
    const BucketMemory& of = memory_[b];
    if (!is_local) {
      BRIGADE_RETURN_IF_ERROR(kernels::ZeroOneAdamTake(
          {{of.param, of.agreed.as<float>().data(), bucket.size},
           {nullptr, of.moved.as<float>().data(), ExchangedElements(bucket)}},
          state(), streams_.comm()));
      continue;
    }
    for (const Terms& terms : of.terms) {
      BRIGADE_RETURN_IF_ERROR(kernels::Cast(terms.moves,
                                            {.source_dtype = kFloat,
                                             .target_dtype = kFloat,
                                             .scale = &rates()[terms.group].moved,
                                             .accumulate = true},
                                            streams_.comm()));
    }
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::MeetExactly() {
  device::Stream& stream = streams_.comm();
  for (size_t b = 0; b < memory_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    if (!bucket.trainable) continue;
    float* const moved = memory_[b].moved.as<float>().data();
    float* const mean = memory_[b].mean.as<float>().data();
    const int64_t count = ExchangedElements(bucket);
    if (HasErrors(plan_, options_)) {
      BRIGADE_RETURN_IF_ERROR(streams_.AddUp(moved, mean, count, streams_.traffic.setup));
      BRIGADE_RETURN_IF_ERROR(Copy({{mean, moved, count}}, factors_of_means_.as<float>().data()));
    }
    BRIGADE_RETURN_IF_ERROR(stream.Copy(mean, moved, count * kFloatBytes));
  }
  return ReceiveMoments(kernels::ZeroOneCall::kSave, group_steps_.as<kernels::GroupStep>().data());
}

absl::Status GradientExchange::ForgetMoves() {
  for (size_t b = 0; b < memory_.size(); ++b) {
    if (!plan_.buckets()[b].trainable) continue;
    const BucketMemory& of = memory_[b];
    BRIGADE_RETURN_IF_ERROR(streams_.comm().Copy(of.param, of.agreed.data(), of.agreed.bytes()));
    BRIGADE_RETURN_IF_ERROR(ClearMoves(static_cast<int>(b)));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::ClearMoves(int index) {
  device::Stream& stream = streams_.comm();
  const device::Buffer& moved = memory(index).moved;
  BRIGADE_RETURN_IF_ERROR(stream.FillBytes(moved.data(), 0, moved.bytes()));
  return stream.FillBytes(rates_.data(), 0, rates_.bytes());
}

// The moments as the steps before have left them, of all ranks.
absl::Status GradientExchange::TakeMoments(int index) {
  const BucketMemory& of = memory(index);
  const Bucket& bucket = plan_.bucket(index);
  const int64_t updated = UpdatedRange(plan_, options_, bucket, streams_.rank()).size;
  BRIGADE_RETURN_IF_ERROR(optim::FreezeMoment(of.second, updated, streams_.comm()));
  if (options_.has_local_steps()) {
    BRIGADE_RETURN_IF_ERROR(streams_.comm().Copy(of.agreed.data(), of.param, of.agreed.bytes()));
    BRIGADE_RETURN_IF_ERROR(ClearMoves(index));
  }
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
  const bool is_zero_one = options_.is_zero_one_adam();
  if (!is_zero_one) {
    BRIGADE_RETURN_IF_ERROR(
        Copy({{betas + groups, betas + 2 * groups, groups}}, &state()->grad_multiplier));
  }
  const BucketMemory& of = memory(index);
  const bool has_moves = of.moved.bytes() > 0;
  if (has_moves) {
    BRIGADE_RETURN_IF_ERROR(
        streams_.comm().Copy(of.mean.data(), of.moved.data(), of.moved.bytes()));
  }
  const precision::DType dtype = FinalGradientType(options_, plan_.bucket(index));
  for (const Terms& terms : of.terms) {
    const kernels::ZeroOneNumbers* const numbers = rates() + terms.group;
    const float* const of_moment = is_zero_one ? &numbers->of_moment : betas + terms.group;
    const float* const of_gradient =
        is_zero_one ? &numbers->of_gradient : betas + 2 * groups + terms.group;
    BRIGADE_RETURN_IF_ERROR(kernels::Cast(terms.momentum,
                                          {.source_dtype = kFloat,
                                           .target_dtype = kFloat,
                                           .scale = of_moment,
                                           .accumulate = has_moves},
                                          streams_.comm()));
    BRIGADE_RETURN_IF_ERROR(kernels::Cast(
        terms.gradient,
        {.source_dtype = dtype, .target_dtype = kFloat, .scale = of_gradient, .accumulate = true},
        streams_.comm()));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::SendMomentum(int index) {
  if (memory(index).messages.empty()) return absl::OkStatus();
  kernels::LambOptions options;
  options.grad_dtype = FinalGradientType(options_, plan_.bucket(index));
  options.groups = lamb_groups_;
  options.state = state();
  options.group_steps = group_steps_.as<kernels::GroupStep>().data();
  return kernels::OneBitLambSend(memory(index).messages, options, numbers_, streams_.comm());
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

absl::Status GradientExchange::Check(optim::StepController& controller, StepPhase phase) {
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
  if (HasErrors(plan_, options_) && IsExchange(phase)) {
    BRIGADE_RETURN_IF_ERROR(Limit(own, controller.state(), phase));
  }
  return streams_.GatherStatistics(own.data(), all.data(),
                                   static_cast<int64_t>(own.size() * sizeof(kernels::GradStats)));
}

absl::Status GradientExchange::Limit(absl::Span<kernels::GradStats> own,
                                     const kernels::StepState* state, StepPhase phase) {
  const bool of_moments = phase == StepPhase::kMoments;
  auto& added = of_moments ? added_to_moments_ : added_to_gradients_;
  const bool is_listed = !added.empty();
  for (size_t b = 0; !is_listed && b < memory_.size(); ++b) {
    const int bucket = static_cast<int>(b);
    if (!plan_.bucket(bucket).trainable) continue;
    const BucketMemory& of = memory_[b];
    const AddedElements sizes =
        AddedElementsOf(plan_, options_, plan_.bucket(bucket), streams_.rank());
    added.push_back({of.own_errors.data(), sizes.own});
    added.push_back({of.second_errors.data(), sizes.second});
    for (const kernels::CastSegment& plain : of.plain) added.push_back({plain.source, plain.size});
    if (!of_moments) continue;
    added.push_back({of.momentum.bytes() > 0 ? of.momentum.data() : of.first, sizes.first});
    added.push_back({of.moved.data(), sizes.moved});
  }
  kernels::GradStats* const stats = added_stats_.as<kernels::GradStats>().data();
  BRIGADE_RETURN_IF_ERROR(
      kernels::GradCheck(added, kFloat, tile_sums_.as<double>(), stats, streams_.comm()));
  return optim::LimitStats(own, stats, state, divisors_.gradients, kExchangeLimit, streams_.comm());
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
  const BucketMemory& of = memory(index);
  // A rank alone, or a slice that is padding alone, has what it gives.
  if (of.elements > 0) BRIGADE_RETURN_IF_ERROR(ExchangeOwn(index));
  if (!numbers_.empty() && !of.messages.empty()) {
    BRIGADE_RETURN_IF_ERROR(kernels::OneBitLambReceive(of.messages, numbers_, streams_.comm()));
  }
  if (!GathersMeans(plan_, options_)) return absl::OkStatus();
  return streams_.AllGather(Exchanged(index), of.mean.data(), plan_.slice(plan_.bucket(index)),
                            kFloat, streams_.traffic.gradients);
}

absl::Status GradientExchange::ExchangeOwn(int index) {
  const BucketMemory& of = memory(index);
  BRIGADE_RETURN_IF_ERROR(
      kernels::Cast(of.plain, {.source_dtype = kFloat, .target_dtype = kFloat, .accumulate = true},
                    streams_.comm()));
  collectives::GatherOptions options;
  for (const StepCollective& each : of.calls) {
    int64_t& sent = streams_.traffic.*each.traffic;
    BRIGADE_ASSIGN_OR_RETURN(options.algorithm, streams_.Count(each.signature, sent, each.group));
  }
  float* const mean = Exchanged(index);
  const Errors errors = ErrorsOf(index);
  device::Stream& stream = streams_.comm();
  if (signs_ != nullptr) {
    return signs_->AllReduce(mean, mean, of.elements, kFloat, {errors.own, errors.second}, state(),
                             options, stream);
  }
  if (greatest_ != nullptr) {
    return greatest_->AllReduce(mean, mean, of.elements, of.top_k, kFloat, errors.own, state(),
                                options, stream);
  }
  return of.factors->AllReduce(mean, mean, {errors.own, errors.second}, state(), stream);
}

absl::Status GradientExchange::Copy(absl::Span<const kernels::CastSegment> segments,
                                    const float* scale) {
  return kernels::Cast(segments, {.source_dtype = kFloat, .target_dtype = kFloat, .scale = scale},
                       streams_.comm());
}

std::vector<ErrorPiece> GradientExchange::InSlice(int index,
                                                  const std::vector<ErrorPiece>& pieces) const {
  const int64_t slice = plan_.slice(plan_.bucket(index)), first = streams_.rank() * slice;
  std::vector<ErrorPiece> inside;
  for (const ErrorPiece& piece : pieces) {
    const int64_t begin = std::max(piece.in_bucket, first);
    const int64_t end = std::min(piece.in_bucket + piece.size, first + slice);
    if (begin >= end) continue;
    inside.push_back({begin - first, piece.at + begin - piece.in_bucket, end - begin});
  }
  return inside;
}

absl::Status GradientExchange::Share() {
  if (!HasErrors(plan_, options_)) return absl::OkStatus();
  for (size_t b = 0; b < memory_.size(); ++b) {
    const int index = static_cast<int>(b);
    if (!plan_.bucket(index).trainable) continue;
    const ErrorArray& second = memory(index).layout.second;
    BRIGADE_RETURN_IF_ERROR(ShareOwn(index));
    if (second.parts > 1) {
      BRIGADE_RETURN_IF_ERROR(streams_.AllGather(ErrorsOf(index).second, memory(index).mean.data(),
                                                 second.size, kFloat, streams_.traffic.setup,
                                                 exchanging()));
    }
    BRIGADE_RETURN_IF_ERROR(Copy(memory(index).shared[1]));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::ShareOwn(int index) {
  const ErrorArray& own = memory(index).layout.own;
  if (own.size == 0) return absl::OkStatus();
  const bool in_parts = own.parts > 1;
  int64_t& sent = streams_.traffic.setup;
  float* const errors = ErrorsOf(index).own;
  // Between steps nobody reads the mean of gradients.
  float* const whole = memory(index).mean.as<float>().data();
  float* const part = whole + streams_.rank() % own.parts * own.size;
  const StepGroup role = in_parts ? StepGroup::kNodes : exchanging();
  BRIGADE_RETURN_IF_ERROR(streams_.AddUp(errors, part, own.size, sent, role));
  const float* const inverse_ranks = factors_of_means_.as<float>().data();
  BRIGADE_RETURN_IF_ERROR(Copy({{part, errors, own.size}}, inverse_ranks));
  if (!in_parts) return Copy(memory(index).shared[0]);
  BRIGADE_RETURN_IF_ERROR(
      streams_.AllGather(errors, whole, own.size, kFloat, sent, StepGroup::kNode));
  BRIGADE_RETURN_IF_ERROR(Copy(memory(index).shared[0]));
  // What one rank of each node has is the error of the node's sum.
  return Copy({{part, errors, own.size}}, inverse_ranks + 1);
}

absl::Status GradientExchange::TakeShared(int index) {
  if (!HasErrors(plan_, options_)) return absl::OkStatus();
  const ErrorLayout& layout = memory(index).layout;
  const Bucket& bucket = plan_.bucket(index);
  const bool of_slice = ExchangesBetween(plan_, options_);
  const auto take = [&](int slice, const ErrorArray& array, float* errors, const float* factor) {
    // Between groups a rank has errors of its slice alone.
    const float* values = Slice(index, slice);
    if (!of_slice) {
      BRIGADE_RETURN_IF_ERROR(streams_.AllGather(
          values, memory(index).mean.data(), plan_.slice(bucket), kFloat, streams_.traffic.setup));
      values = memory(index).mean.as<float>().data();
    }
    const int64_t first = ExchangedRange(plan_, options_, bucket, streams_.rank()).begin;
    std::vector<kernels::CastSegment> copies;
    for (const ErrorPiece& each : PiecesOf(array, exchanging_rank())) {
      copies.push_back({values + each.in_bucket - first, errors + each.at, each.size});
    }
    return Copy(copies, factor);
  };
  const Errors errors = ErrorsOf(index);
  if (layout.own.size > 0) {
    const float* const of_node = factors_of_means_.as<float>().data() + 1;
    BRIGADE_RETURN_IF_ERROR(
        take(0, layout.own, errors.own, layout.own.parts > 1 ? of_node : nullptr));
  }
  return layout.second.size > 0 ? take(1, layout.second, errors.second, nullptr) : absl::OkStatus();
}

}  // namespace brigade::zero::internal
