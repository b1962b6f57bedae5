#include "brigade/replicas/outer_optimizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/sgd/sgd.h"
#include "brigade/precision/dtype.h"
#include "brigade/replicas/round_plan.h"

namespace brigade::replicas {
namespace {

using device::Purpose;
using precision::DType;

constexpr int64_t kFloat = sizeof(float);

// param = param - lr grad, and the like: kernels/sgd with numbers of the host's.
absl::Status Apply(absl::Span<const kernels::SgdSegment> segments, const kernels::SgdGroup& group,
                   kernels::WeightDecayMode mode, double lr, double multiplier,
                   device::Stream& stream) {
  const auto rate = static_cast<float>(lr);
  kernels::SgdOptions options;
  options.weight_decay_mode = mode;
  options.groups = {&group, 1};
  options.one_step = {.step = 1, .lr = &rate, .grad_multiplier = static_cast<float>(multiplier)};
  return kernels::Sgd(segments, options, stream);
}

}  // namespace

OuterOptimizer::OuterOptimizer(zero::ZeroOptimizer& zero, const OuterOptions& options,
                               collectives::Communicator& inside, device::Context& context)
    : zero_(zero), options_(options), inside_(inside), context_(context) {}

absl::StatusOr<std::unique_ptr<OuterOptimizer>> OuterOptimizer::Create(
    zero::ZeroOptimizer& zero, const OuterOptions& options, collectives::Communicator& inside,
    device::Context& context) {
  std::unique_ptr<OuterOptimizer> outer(new OuterOptimizer(zero, options, inside, context));
  absl::Status mine = Validate(options);
  if (mine.ok()) mine = zero.AttachState({});
  if (mine.ok()) {
    auto fragments = FragmentsOf(zero.plan(), options.fragments);
    mine = fragments.status();
    if (mine.ok()) outer->fragments_ = *std::move(fragments);
  }
  if (mine.ok()) mine = outer->Allocate();
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(mine, inside));
  BRIGADE_RETURN_IF_ERROR(
      collectives::AgreeOnLines({absl::StrCat("replicas of ", Describe(options))}, inside));
  const auto arrays = [&](Array array) {
    std::vector<float*> by_bucket;
    for (size_t b = 0; b < zero.plan().buckets().size(); ++b) {
      by_bucket.push_back(outer->Part(array, static_cast<int>(b)).data());
    }
    return by_bucket;
  };
  std::vector<std::vector<float*>> attached = {arrays(kWeights)};
  if (options.momentum > 0) attached.push_back(arrays(kMomentum));
  BRIGADE_RETURN_IF_ERROR(zero.AttachState(std::move(attached)));
  return outer;
}

absl::Status OuterOptimizer::Allocate() {
  const zero::Plan& plan = zero_.plan();
  begin_.assign(plan.buckets().size(), -1);
  int64_t begin = 0;
  for (const std::vector<int>& fragment : fragments_) {
    for (const int b : fragment) {
      begin_[static_cast<size_t>(b)] = begin;
      begin += UpdatedElements(plan, zero_.options(), plan.bucket(b));
    }
  }
  const auto [all, largest, largest_bucket, most_tiles] =
      internal::SizesOf(fragments_, plan, zero_.options());
  constexpr auto kState = Purpose::kOptimizerState;
  BRIGADE_ASSIGN_OR_RETURN(weights_, context_.Allocate(all * kFloat, kState, "outer weights"));
  if (options_.momentum > 0) {
    BRIGADE_ASSIGN_OR_RETURN(momentum_, context_.Allocate(all * kFloat, kState, "outer momentum"));
  }
  BRIGADE_ASSIGN_OR_RETURN(deltas_,
                           context_.Allocate(largest * kFloat, Purpose::kCommunication, "deltas"));
  constexpr auto kScratch = Purpose::kScratch;
  BRIGADE_ASSIGN_OR_RETURN(
      workspace_, context_.Allocate(most_tiles * static_cast<int64_t>(sizeof(double)), kScratch,
                                    "check of deltas"));
  constexpr auto kStats = static_cast<int64_t>(sizeof(kernels::GradStats));
  BRIGADE_ASSIGN_OR_RETURN(stats_, context_.Allocate(kStats, kScratch, "statistics of deltas"));
  BRIGADE_ASSIGN_OR_RETURN(host_stats_,
                           context_.AllocateHost(kStats, kScratch, "statistics of deltas"));
  BRIGADE_ASSIGN_OR_RETURN(exchange_, context_.CreateStream("between replicas"));
  BRIGADE_ASSIGN_OR_RETURN(made_, context_.CreateEvent("made for replicas"));
  BRIGADE_ASSIGN_OR_RETURN(came_, context_.CreateEvent("come from replicas"));
  BRIGADE_RETURN_IF_ERROR(stream().FillBytes(weights_.data(), 0, weights_.bytes()));
  if (options_.momentum > 0) {
    BRIGADE_RETURN_IF_ERROR(stream().FillBytes(momentum_.data(), 0, momentum_.bytes()));
  }
  return stream().Synchronize();
}

absl::Span<float> OuterOptimizer::Part(Array array, int bucket) const {
  const int64_t begin = begin_[static_cast<size_t>(bucket)];
  const device::Buffer& all = array == kWeights ? weights_ : momentum_;
  if (begin < 0 || all.data() == nullptr) return {};
  const zero::Plan& plan = zero_.plan();
  const int64_t size = UpdatedElements(plan, zero_.options(), plan.bucket(bucket));
  return {static_cast<float*>(all.data()) + begin, static_cast<size_t>(size)};
}

float* OuterOptimizer::Delta(int fragment, size_t index) const {
  const std::vector<int>& buckets = fragments_[static_cast<size_t>(fragment)];
  const int64_t begin = begin_[static_cast<size_t>(buckets[index])];
  return static_cast<float*>(deltas_.data()) + begin - begin_[static_cast<size_t>(buckets[0])];
}

absl::Status OuterOptimizer::Step() {
  if (between_ == nullptr) {
    return absl::FailedPreconditionError(
        failed_ ? "replicas: the last round has failed; Join comes first"
                : "replicas: Join comes before the first step");
  }
  ++steps_;
  if (steps_ <= options_.start_step) {
    for (int f = 0; f < options_.fragments; ++f) {
      BRIGADE_RETURN_IF_ERROR(Send(f));
      BRIGADE_RETURN_IF_ERROR(Use(f, {.lr = 1.0, .momentum = 0.0, .mix = 0.0}));
    }
    return absl::OkStatus();
  }
  const Round round = {options_.lr, options_.momentum, options_.mix};
  if (in_flight_ >= 0 && steps_ == use_at_) BRIGADE_RETURN_IF_ERROR(Use(in_flight_, round));
  const int due = DueFragment(options_, steps_);
  if (due < 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(Send(due));
  if (options_.delay == 0) return Use(due, round);
  use_at_ = steps_ + options_.delay;
  return absl::OkStatus();
}

absl::Status OuterOptimizer::AwaitMade(WaitPoint point) {
  return omitted_ == point ? absl::OkStatus() : exchange_->Wait(*made_);
}

// With an event too: threads of other ranks, which have not waited, may enqueue the step stream's
// part of a collective.
absl::Status OuterOptimizer::AwaitExchange(WaitPoint point) {
  if (omitted_ == point) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(between_->Synchronize(*exchange_));
  BRIGADE_RETURN_IF_ERROR(exchange_->Record(*came_));
  return stream().Wait(*came_);
}

// Of the replica; of all; and of the replica again, whose places may have heard of others.
absl::Status OuterOptimizer::AgreeWithAll(const absl::Status& mine,
                                          collectives::Communicator& between) {
  absl::Status all = collectives::AgreeOnStatus(mine, inside_);
  all = collectives::AgreeOnStatus(all, between);
  return collectives::AgreeOnStatus(all, inside_);
}

absl::Status OuterOptimizer::Send(int fragment) {
  const std::vector<int>& buckets = fragments_[static_cast<size_t>(fragment)];
  std::vector<kernels::SgdSegment> segments;
  std::vector<kernels::GradSegment> checked;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const absl::Span<float> outer = Part(kWeights, buckets[i]);
    const auto size = static_cast<int64_t>(outer.size());
    BRIGADE_ASSIGN_OR_RETURN(const absl::Span<float> own, zero_.StateArray(buckets[i], 0));
    BRIGADE_RETURN_IF_ERROR(stream().Copy(Delta(fragment, i), outer.data(), size * kFloat));
    segments.push_back({.param = Delta(fragment, i),
                        .momentum = nullptr,
                        .grad = own.data(),
                        .param_copy = nullptr,
                        .size = size,
                        .group = 0});
    checked.push_back({Delta(fragment, i), size});
  }
  // w0 - 1 * w.
  BRIGADE_RETURN_IF_ERROR(
      Apply(segments, {}, kernels::WeightDecayMode::kCoupled, 1.0, 1.0, stream()));
  BRIGADE_RETURN_IF_ERROR(stream().Record(*made_));
  in_flight_ = fragment;
  // What goes wrong from here on is known to all when the sum is used.
  const auto exchange = [&]() -> absl::Status {
    BRIGADE_RETURN_IF_ERROR(AwaitMade(WaitPoint::kDeltasMade));
    for (size_t i = 0; i < buckets.size(); ++i) {
      const int64_t size = checked[i].size;
      float* const delta = Delta(fragment, i);
      sent_ += sum_bytes_[static_cast<size_t>(buckets[i])];
      if (wire_ != nullptr) {
        const auto scaling = options_.wire == DType::kFloat16 ? collectives::WireScaling::kDynamic
                                                              : collectives::WireScaling::kNone;
        BRIGADE_RETURN_IF_ERROR(wire_->AllReduce(
            delta, delta, size, {.wire = options_.wire, .scaling = scaling}, *exchange_));
      } else {
        BRIGADE_RETURN_IF_ERROR(
            between_->AllReduce(delta, delta, size, DType::kFloat32, {}, *exchange_));
      }
    }
    BRIGADE_RETURN_IF_ERROR(kernels::GradCheck(checked, DType::kFloat32, workspace_.as<double>(),
                                               stats_.as<kernels::GradStats>().data(), *exchange_));
    return exchange_->Copy(host_stats_.data(), stats_.data(), sizeof(kernels::GradStats));
  };
  if (const absl::Status status = exchange(); !status.ok()) between_->Abort(status);
  return absl::OkStatus();
}

absl::StatusOr<bool> OuterOptimizer::Agree() {
  const absl::Status mine = AwaitExchange(WaitPoint::kDeltasSummed);
  const int64_t is_finite = mine.ok() ? host_stats_.as<kernels::GradStats>().data()->all_finite : 0;
  BRIGADE_RETURN_IF_ERROR(AgreeWithAll(mine, *between_));
  // Places have other elements; the same place of another replica has the same.
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, inside_.AllGatherHost({is_finite}));
  return std::all_of(all.begin(), all.end(), [](int64_t each) { return each == 1; });
}

absl::Status OuterOptimizer::Use(int fragment, const Round& round) {
  in_flight_ = -1;
  const absl::StatusOr<bool> is_finite = Agree();
  if (!is_finite.ok()) {
    // So that no rank waits for this one, whichever of the two groups has failed.
    between_->Abort(is_finite.status());
    exchange_->Reset().IgnoreError();
    between_ = nullptr;
    failed_ = true;
    return is_finite.status();
  }
  BRIGADE_RETURN_IF_ERROR(zero_.BeginStateChange());
  ++rounds_;
  if (*is_finite) {
    BRIGADE_RETURN_IF_ERROR(Update(fragment, round));
    last_round_ = steps_;
  } else {
    ++not_finite_;
  }
  return Mix(fragment, *is_finite ? round.mix : 0.0);
}

absl::Status OuterOptimizer::Update(int fragment, const Round& round) {
  const std::vector<int>& buckets = fragments_[static_cast<size_t>(fragment)];
  std::vector<kernels::SgdSegment> segments;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const absl::Span<float> outer = Part(kWeights, buckets[i]);
    segments.push_back(
        {.param = outer.data(),
         .momentum = round.has_momentum() ? Part(kMomentum, buckets[i]).data() : nullptr,
         .grad = Delta(fragment, i),
         .param_copy = nullptr,
         .size = static_cast<int64_t>(outer.size()),
         .group = 0});
  }
  const kernels::SgdGroup group = {.momentum = round.momentum,
                                   .nesterov = round.has_momentum() && options_.nesterov};
  return Apply(segments, group, kernels::WeightDecayMode::kCoupled, round.lr,
               1.0 / between_->size(), stream());
}

// w = (1 - mix) w0 + mix w, and what follows from the masters.
absl::Status OuterOptimizer::Mix(int fragment, double mix) {
  const std::vector<int>& buckets = fragments_[static_cast<size_t>(fragment)];
  std::vector<kernels::SgdSegment> segments;
  for (const int b : buckets) {
    const absl::Span<float> outer = Part(kWeights, b);
    const auto size = static_cast<int64_t>(outer.size());
    BRIGADE_ASSIGN_OR_RETURN(const absl::Span<float> own, zero_.StateArray(b, 0));
    if (mix == 0.0) {
      BRIGADE_RETURN_IF_ERROR(stream().Copy(own.data(), outer.data(), size * kFloat));
      continue;
    }
    segments.push_back({.param = own.data(),
                        .momentum = nullptr,
                        .grad = outer.data(),
                        .param_copy = nullptr,
                        .size = size,
                        .group = 0});
  }
  if (mix != 0.0) {
    // A decay by 1 - mix, and a step of that rate along -w0.
    BRIGADE_RETURN_IF_ERROR(Apply(segments, {.weight_decay = 1.0},
                                  kernels::WeightDecayMode::kDecoupled, 1.0 - mix, -1.0, stream()));
  }
  return zero_.MastersChanged(buckets);
}

}  // namespace brigade::replicas
