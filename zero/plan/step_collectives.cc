#include "brigade/zero/plan/step_collectives.h"

#include "absl/algorithm/container.h"
#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/collectives/compressed/power_sgd_all_reduce.h"
#include "brigade/collectives/compressed/top_k_all_reduce.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/plan/exchange_layout.h"

namespace brigade::zero::internal {

using collectives::CollectiveKind;

collectives::CollectiveSignature GradientSumOf(const Plan& plan, const ZeroOptions& options,
                                               const Bucket& bucket) {
  const bool whole = collectives::HasAllReducesAlone(options.algorithm);
  return {.kind = whole ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter,
          .algorithm = options.algorithm,
          .dtype = WireType(plan, options, bucket),
          .count = whole ? bucket.size : plan.slice(bucket),
          .reduction = options.reduction};
}

absl::InlinedVector<StepCollective, 2> GradientExchangesOf(const Plan& plan,
                                                           const ZeroOptions& options,
                                                           const Bucket& bucket) {
  const collectives::QuantizedScatterCalls calls = collectives::QuantizedScatterCallsOf(
      plan.slice(bucket), *options.quantized_gradients, NodesOf(plan, options));
  if (!HasTwoHops(plan, options))
    return {{calls.inside, 1, &Traffic::gradients, StepGroup::kShards}};
  return {{calls.inside, 1, &Traffic::gradients, StepGroup::kNode},
          {calls.between, 1, &Traffic::nodes, StepGroup::kNodes}};
}

collectives::QuantizedErrorBytes LocoErrorBytesOf(const Plan& plan, const ZeroOptions& options,
                                                  const Bucket& bucket) {
  if (!bucket.trainable || !HasLoco(plan, options)) return {};
  return collectives::QuantizedErrorBytesOf(plan.slice(bucket), plan.ranks(),
                                            NodesOf(plan, options));
}

collectives::CollectiveSignature BetweenSumOf(const Plan& plan, const ZeroOptions& options,
                                              const Bucket& bucket) {
  return {.kind = CollectiveKind::kAllReduce,
          .algorithm = options.algorithm,
          .dtype = WireTypeBetween(options, bucket),
          .count = plan.slice(bucket),
          .reduction = options.reduction};
}

collectives::CollectiveSignature TiedSumOf(const Plan& plan, const ZeroOptions& options,
                                           const Bucket& bucket) {
  return {.kind = CollectiveKind::kAllReduce,
          .algorithm = collectives::Algorithm::kDirect,
          .dtype = FinalGradientType(options, bucket),
          .count = options.traits().whole_optimizer_state ? bucket.size : plan.slice(bucket),
          .reduction = collectives::Reduction::kRoundedOnce};
}

collectives::WireOptions WireOptionsOf(const ZeroOptions& options, precision::DType wire) {
  return {.wire = wire,
          .scaling = wire == precision::DType::kFloat16 ? collectives::WireScaling::kDynamic
                                                        : collectives::WireScaling::kNone,
          .reduction = options.reduction,
          .algorithm = options.algorithm};
}

std::optional<precision::DType> GatheredGradientType(const Plan& plan, const ZeroOptions& options,
                                                     const Bucket& bucket) {
  if (!options.traits().whole_optimizer_state) return std::nullopt;
  const precision::DType final = FinalGradientType(options, bucket);
  if (plan.shard_groups() > 1) return final;
  if (options.accumulates() && !ReducesOnce(plan, options)) return final;
  if (HasGradientCodes(plan, options)) return final;
  if (collectives::HasAllReducesAlone(options.algorithm)) return std::nullopt;
  const precision::DType wire = WireType(plan, options, bucket);
  return precision::SizeOf(wire) < precision::SizeOf(final) ? wire : final;
}

collectives::CollectiveSignature AllGatherOf(const ZeroOptions& options, int64_t count,
                                             precision::DType dtype) {
  return {.kind = CollectiveKind::kAllGather,
          .algorithm = collectives::HasAllReducesAlone(options.algorithm)
                           ? collectives::Algorithm::kAuto
                           : options.algorithm,
          .dtype = dtype,
          .count = count};
}

collectives::CollectiveSignature WeightGatherOf(const Plan& plan, const ZeroOptions& options,
                                                const Bucket& bucket) {
  const int64_t slice = plan.slice(bucket);
  const auto codes = WeightCodes(plan, options, bucket);
  return codes.has_value()
             ? AllGatherOf(options, kernels::QuantBytes(slice, *codes), precision::DType::kUint8)
             : AllGatherOf(options, slice, bucket.dtype);
}

int64_t WeightGathersOf(const Plan& plan, const ZeroOptions& options, const Bucket& bucket) {
  if (!StaysWhole(plan, options, bucket)) {
    if (!options.runs.empty()) {
      return absl::c_count_if(options.runs,
                              [&](int chunk) { return IsInChunk(options, bucket, chunk); });
    }
    const int64_t uses = absl::c_count_if(UnitsOfMicroBatch(plan, options), [&](int unit) {
      return absl::c_linear_search(bucket.users, unit);
    });
    return uses * options.micro_batches;
  }
  return bucket.trainable && !options.traits().whole_optimizer_state ? 1 : 0;
}

int64_t NearGathersOf(const Plan& plan, const ZeroOptions& options, const Bucket& bucket) {
  if (!HasSecondSlice(plan, options, bucket)) return 0;
  if (!options.runs.empty()) {
    int64_t chunks = 0;
    for (int chunk = 0; chunk < ChunkCount(options); ++chunk) {
      chunks += IsInChunk(options, bucket, chunk) ? 1 : 0;
    }
    return WeightGathersOf(plan, options, bucket) - chunks;
  }
  const int64_t uses = absl::c_count_if(BackwardUnits(plan, options), [&](int unit) {
    return absl::c_linear_search(bucket.users, unit);
  });
  return uses * options.micro_batches;
}

absl::InlinedVector<StepCollective, 4> ExchangeOf(const Plan& plan, const ZeroOptions& options,
                                                  const Bucket& bucket, int rank) {
  const int64_t count = ExchangedElements(plan, options, bucket, rank);
  const bool between = ExchangesBetween(plan, options);
  const auto algorithm = AllGatherOf(options, 0, precision::DType::kUint8).algorithm;
  absl::InlinedVector<StepCollective, 4> all;
  const StepGroup exchanging = between ? StepGroup::kBetween : StepGroup::kShards;
  const auto add_in = [&](StepGroup group, const collectives::CollectiveSignature& call) {
    all.push_back({call, 1,
                   group == StepGroup::kNodes     ? &Traffic::nodes
                   : group == StepGroup::kBetween ? &Traffic::between
                                                  : &Traffic::gradients,
                   group});
  };
  const auto add = [&](const collectives::CollectiveSignature& call) { add_in(exchanging, call); };
  // A slice that is padding alone.
  if (count == 0) return all;
  switch (MethodOf(options)) {
    case GradientCompression::kOneBit: {
      const bool has_nodes = ExchangesInTwoHops(plan, options);
      const auto calls = collectives::OneBitCallsOf(count, ExchangingRanks(plan), algorithm,
                                                    ExchangingNodes(plan, options));
      if (has_nodes) {
        add_in(StepGroup::kNode, calls.sum_inside);
        add_in(StepGroup::kNode, calls.gather_inside);
      }
      add_in(has_nodes ? StepGroup::kNodes : exchanging, calls.exchange);
      add_in(has_nodes ? StepGroup::kNodes : exchanging, calls.gather);
      break;
    }
    case GradientCompression::kPowerSgd: {
      const auto calls = collectives::PowerSgdCallsOf(collectives::PowerSgdSizesOf(
          PowerSgdTensorsOf(plan, options, bucket, rank), options.gradient_compression->rank));
      if (calls.first.count > 0) add(calls.first);
      if (calls.second.count > 0) add(calls.second);
      for (int32_t i = 1; i < options.gradient_compression->iterations; ++i) {
        if (calls.again.count > 0) add(calls.again);
        if (calls.second.count > 0) add(calls.second);
      }
      break;
    }
    case GradientCompression::kTopK:
      add(collectives::TopKCallOf(TopKOf(options, count), algorithm));
      break;
  }
  return all;
}

std::vector<StepCollective> CollectivesOfStep(const Plan& plan, const ZeroOptions& options,
                                              int rank) {
  std::vector<StepCollective> all = CollectivesOfStep(plan, options, StepPhase::kReduced, rank);
  if (!HasExchanges(plan, options)) return all;
  // Of 0/1 Adam gradients are exchanged as moments are.
  const StepPhase phase = options.averages_moments() ? StepPhase::kMoments : StepPhase::kGradients;
  for (StepCollective& each : CollectivesOfStep(plan, options, phase, rank)) {
    all.push_back(each);
  }
  return all;
}

std::vector<StepCollective> CollectivesOfStep(const Plan& plan, const ZeroOptions& options,
                                              StepPhase phase, int rank) {
  std::vector<StepCollective> all;
  const bool once = ReducesOnce(plan, options);
  // Groups sum, whatever these do between them.
  const bool reduces = phase == StepPhase::kReduced || ExchangesBetween(plan, options);
  const auto gathers = [&](const Bucket& bucket, precision::DType dtype, int64_t times,
                           int64_t Traffic::*traffic) {
    all.push_back({AllGatherOf(options, plan.slice(bucket), dtype), times, traffic});
  };
  const auto is_scaled = [&](precision::DType wire) {
    return WireOptionsOf(options, wire).scaling == collectives::WireScaling::kDynamic;
  };
  for (const Bucket& bucket : plan.buckets()) {
    if (!IsExchange(phase) || !bucket.trainable) continue;
    if (HasErrors(plan, options)) {
      for (const StepCollective& each : ExchangeOf(plan, options, bucket, rank)) {
        all.push_back(each);
      }
    }
    if (GathersMeans(plan, options)) {
      gathers(bucket, precision::DType::kFloat32, 1, &Traffic::gradients);
    }
    // In the first such step alone.
    if (phase == StepPhase::kMoments && HasWholeMoments(plan, options)) {
      gathers(bucket, precision::DType::kFloat32, 0, &Traffic::setup);
    }
  }
  const bool gathers_sums =
      optim::IsLamb(options.optimizer.kind) && !options.traits().whole_optimizer_state;
  const bool has_quotients =
      options.optimizer.kind == optim::OptimizerKind::kOneBitLamb && phase == StepPhase::kMoments;
  const int64_t sums = LambSizesOf(plan, options).tiles *
                       static_cast<int64_t>(has_quotients ? sizeof(kernels::OneBitLambSums)
                                                          : sizeof(kernels::LambSums));
  if (gathers_sums && has_quotients) {
    // When moments are frozen.
    all.push_back({AllGatherOf(options, sums, precision::DType::kUint8), 0, &Traffic::setup});
  }
  for (const Bucket& gradient : plan.gradients()) {
    if (!gradient.trainable || !reduces) continue;
    const int64_t times = once ? 1 : options.micro_batches;
    if (!HasGradientCodes(plan, options)) {
      all.push_back({GradientSumOf(plan, options, gradient), times, &Traffic::gradients});
    } else {
      for (StepCollective exchange : GradientExchangesOf(plan, options, gradient)) {
        exchange.times = times;
        all.push_back(exchange);
      }
    }
    if (IsConverted(plan, options, gradient) && is_scaled(WireType(plan, options, gradient))) {
      all.push_back({collectives::kAmaxExchange, times, &Traffic::gradients});
    }
    if (phase != StepPhase::kReduced) continue;
    if (plan.shard_groups() > 1) {
      all.push_back(
          {BetweenSumOf(plan, options, gradient), 1, &Traffic::between, StepGroup::kBetween});
    }
    if (IsConvertedBetween(plan, options, gradient) &&
        is_scaled(WireTypeBetween(options, gradient))) {
      all.push_back({collectives::kAmaxExchange, 1, &Traffic::between, StepGroup::kBetween});
    }
    if (const auto dtype = GatheredGradientType(plan, options, gradient); dtype.has_value()) {
      gathers(gradient, *dtype, 1, &Traffic::gradients);
    }
  }
  for (const Bucket& bucket : plan.buckets()) {
    if (bucket.tied_outside && bucket.trainable) {
      all.push_back({TiedSumOf(plan, options, bucket), 1, &Traffic::tied, StepGroup::kTied});
    }
    const int64_t near = NearGathersOf(plan, options, bucket);
    if (const int64_t times = WeightGathersOf(plan, options, bucket) - near; times > 0) {
      all.push_back({WeightGatherOf(plan, options, bucket), times, &Traffic::parameters});
    }
    if (near > 0) {
      all.push_back({AllGatherOf(options, SecondSlice(options, bucket), bucket.dtype), near,
                     &Traffic::near, StepGroup::kNear});
    }
  }
  const auto lists = GradientLists(plan, options, [](int) { return nullptr; }).size();
  const auto bytes = static_cast<int64_t>(std::max<size_t>(1, lists) * sizeof(kernels::GradStats));
  all.push_back({AllGatherOf(options, bytes, precision::DType::kUint8), 1, &Traffic::scalars,
                 StepGroup::kWorld});
  if (gathers_sums) {
    all.push_back({AllGatherOf(options, sums, precision::DType::kUint8), 1, &Traffic::scalars});
  }
  return all;
}

}  // namespace brigade::zero::internal
