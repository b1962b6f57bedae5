#ifndef BRIGADE_ZERO_PLAN_LAYOUT_H_
#define BRIGADE_ZERO_PLAN_LAYOUT_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_math.h"
#include "brigade/optim/lamb_update.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/step_controller.h"
#include "brigade/optim/step_executor.h"
#include "brigade/optim/zero_one_schedule.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// Whether the whole bucket's weights are always in memory.
inline bool StaysWhole(const Plan& plan, const ZeroOptions& options, const Bucket& bucket) {
  const Unit& unit = plan.unit(bucket.unit);
  return options.traits().whole_parameters || unit.size <= options.persistence_threshold;
}

// Whether the ranks near this one have second slices of the bucket's weights.
inline bool HasSecondSlice(const Plan& plan, const ZeroOptions& options, const Bucket& bucket) {
  return options.hpz_ranks > 0 && !StaysWhole(plan, options, bucket);
}
inline int64_t SecondSlice(const ZeroOptions& options, const Bucket& bucket) {
  return bucket.size / options.hpz_ranks;
}

// The units as their gradients are made.
inline std::vector<int> GradientUnits(const Plan& plan) {
  std::vector<int> units(plan.units().size());
  std::iota(units.rbegin(), units.rend(), 0);
  return units;
}

// How many chunks there are, and which one a unit is in.
inline int ChunkCount(const ZeroOptions& options) {
  return std::max(1, static_cast<int>(options.chunks.size()));
}
inline int ChunkOf(const ZeroOptions& options, int unit) {
  const auto after = std::upper_bound(options.chunks.begin(), options.chunks.end(), unit);
  return std::max(0, static_cast<int>(after - options.chunks.begin()) - 1);
}

// Whether a unit of the chunk uses the bucket.
inline bool IsInChunk(const ZeroOptions& options, const Bucket& bucket, int chunk) {
  return std::any_of(bucket.users.begin(), bucket.users.end(),
                     [&](int unit) { return ChunkOf(options, unit) == chunk; });
}

// The units as the backward pass acquires them, and as a micro-batch does.
inline std::vector<int> BackwardUnits(const Plan& plan, const ZeroOptions& options) {
  return options.backward_units.empty() ? GradientUnits(plan) : options.backward_units;
}
inline std::vector<int> UnitsOfMicroBatch(const Plan& plan, const ZeroOptions& options) {
  std::vector<int> units = GradientUnits(plan);
  std::reverse(units.begin(), units.end());
  const std::vector<int> backward = BackwardUnits(plan, options);
  units.insert(units.end(), backward.begin(), backward.end());
  return units;
}

// The number of buffers of each size, in bytes, that hold weights which do not stay in memory:
// those of consecutive units, and of any two runs that follow each other in a step.
inline std::map<int64_t, int> WeightBuffers(const Plan& plan, const ZeroOptions& options) {
  const auto moves = [&](const Bucket& bucket) { return !StaysWhole(plan, options, bucket); };
  std::map<int64_t, int> needed = PooledBuffersNeeded(
      plan.buckets(), UnitsOfMicroBatch(plan, options), options.live_units, moves);
  for (size_t run = 0; run < options.runs.size(); ++run) {
    const size_t next = std::min(run + 1, options.runs.size() - 1);
    std::map<int64_t, int> live;
    for (const Bucket& bucket : plan.buckets()) {
      const bool is_live = IsInChunk(options, bucket, options.runs[run]) ||
                           IsInChunk(options, bucket, options.runs[next]);
      if (is_live && moves(bucket)) ++live[bucket.bytes()];
    }
    for (const auto& [bytes, count] : live) needed[bytes] = std::max(needed[bytes], count);
  }
  return needed;
}

// Who exchanges: with several groups that share a state each these groups, each of which has summed
// its ranks' gradients first, and of every bucket the ranks that have the same slice. Else all
// ranks, of whole buckets of their own gradients.
inline bool ExchangesBetween(const Plan& plan, const ZeroOptions& options) {
  return options.exchanges() && plan.shard_groups() > 1;
}
inline bool ExchangesAlone(const Plan& plan, const ZeroOptions& options) {
  return options.exchanges() && plan.shard_groups() == 1;
}
inline int ExchangingRanks(const Plan& plan) {
  return plan.shard_groups() > 1 ? plan.shard_groups() : plan.ranks();
}

// Whether sums over micro-batches are made on each rank, and reduced, or exchanged, once.
inline bool ReducesOnce(const Plan& plan, const ZeroOptions& options) {
  return options.accumulates() &&
         (options.accumulation == Accumulation::kAtBoundary || ExchangesAlone(plan, options));
}

// Whether gradients, between the backward pass and the update, are whole buckets: as the stage has
// them, or until an exchange. Sums over micro-batches may take their place.
inline bool HasWholeGradients(const Plan& plan, const ZeroOptions& options) {
  return options.traits().whole_gradients ||
         (ExchangesAlone(plan, options) && !options.accumulates());
}

// The same of gradients that the backward pass writes. Between chunks, whose micro-batches take
// turns, a unit's gradients are reported before those of the next unit are asked for.
inline std::map<int64_t, int> GradientBuffers(const Plan& plan, const ZeroOptions& options) {
  return PooledBuffersNeeded(plan.gradients(), GradientUnits(plan), options.live_units,
                             [&](const Bucket& gradient) {
                               return gradient.trainable && !HasWholeGradients(plan, options);
                             });
}

// Whether the weights are a rounded copy of the fp32 master.
inline bool IsRounded(const Bucket& bucket) { return bucket.dtype != precision::DType::kFloat32; }

// Whether the update on the host writes the slice of the weights itself; otherwise they are copied
// there, from the device's memory apart or later.
inline bool UpdatesInPlace(const OffloadOptions& offload) {
  return offload.host_parameters() && !offload.delay_update;
}

// Whether the master has memory of its own: the weights are rounded, or elsewhere.
inline bool HasMaster(const ZeroOptions& options, const Bucket& bucket, bool offloaded) {
  const OffloadOptions& offload = options.offload;
  return IsRounded(bucket) || (offloaded && (offload.file_state() || !UpdatesInPlace(offload)));
}

// How many steps' gradients and decisions the host has at a time.
inline int HostTurns(const ZeroOptions& options) { return options.offload.delay_update ? 2 : 1; }

// Of an offloaded bucket: the host's memory for a copy of the weights, from which they go where
// they are used. Weights that are not rounded go there from the master, if that is in memory.
inline int64_t HostWeightBytes(const Plan& plan, const ZeroOptions& options, const Bucket& bucket) {
  const OffloadOptions& offload = options.offload;
  if (UpdatesInPlace(offload) || offload.file_parameters()) return 0;
  if (!IsRounded(bucket) && !offload.file_state()) return 0;
  return bucket.bytes() / plan.ranks();
}

// The decision of a step, as the host's update reads it.
inline int64_t DecisionBytes(const ZeroOptions& options) {
  return static_cast<int64_t>(sizeof(kernels::StepState) +
                              options.optimizer.groups.size() * sizeof(kernels::GroupStep));
}

// The type of the gradient that is checked and that the update reads.
inline precision::DType FinalGradientType(const ZeroOptions& options, const Bucket& bucket) {
  return options.accumulates() ? options.accumulator : bucket.dtype;
}

// The type of the arrays that are summed over ranks: gradients, or sums over micro-batches.
inline precision::DType ReducedType(const Plan& plan, const ZeroOptions& options,
                                    const Bucket& bucket) {
  return ReducesOnce(plan, options) ? options.accumulator : bucket.dtype;
}

// Whether they are summed inside a group as codes. A rank alone sends nothing.
inline bool HasGradientCodes(const Plan& plan, const ZeroOptions& options) {
  return options.quantized_gradients.has_value() && plan.ranks() > 1;
}
// Whether what crosses the wire as codes inside a group, or as signs, does so in two hops; and
// between how many nodes. One hop: of a single one.
inline bool HasTwoHops(const Plan& plan, const ZeroOptions& options) {
  return options.node_ranks > 1 && options.node_ranks < plan.ranks();
}
inline int NodesOf(const Plan& plan, const ZeroOptions& options) {
  return HasTwoHops(plan, options) ? plan.ranks() / options.node_ranks : 1;
}
// The same of exchanges: between groups there is one hop.
inline bool ExchangesInTwoHops(const Plan& plan, const ZeroOptions& options) {
  return HasTwoHops(plan, options) && ExchangesAlone(plan, options);
}
inline int ExchangingNodes(const Plan& plan, const ZeroOptions& options) {
  return ExchangesInTwoHops(plan, options) ? NodesOf(plan, options) : 1;
}
// Whether what sums of codes leave out enters the next ones.
inline bool HasLoco(const Plan& plan, const ZeroOptions& options) {
  return options.loco.has_value() && HasGradientCodes(plan, options);
}
// The elements of the largest slice that is summed so; 0: there is none.
inline int64_t LargestGradientOfCodes(const Plan& plan, const ZeroOptions& options) {
  int64_t largest = 0;
  for (const Bucket& gradient : plan.gradients()) {
    const bool has_codes = gradient.trainable && HasGradientCodes(plan, options);
    if (has_codes) largest = std::max(largest, plan.slice(gradient));
  }
  return largest;
}

// As which codes the bucket's weights are gathered; none: as they are.
inline std::optional<kernels::QuantFormat> WeightCodes(const Plan& plan, const ZeroOptions& options,
                                                       const Bucket& bucket) {
  if (!IsRounded(bucket) || plan.ranks() == 1) return std::nullopt;
  return bucket.trainable ? options.quantized_weights : options.quantized_frozen_weights;
}
// The elements of the largest slice of weights, trained or not, that is gathered so; 0: there is
// none.
inline int64_t LargestWeightsOfCodes(const Plan& plan, const ZeroOptions& options, bool trainable) {
  int64_t largest = 0;
  for (const Bucket& bucket : plan.buckets()) {
    if (bucket.trainable != trainable || !WeightCodes(plan, options, bucket).has_value()) continue;
    largest = std::max(largest, plan.slice(bucket));
  }
  return largest;
}

// How the gradients of a step become those of all ranks.
enum class StepPhase : uint8_t {
  // Reduced, each bucket as it is complete.
  kReduced,
  // Exchanged in Step.
  kGradients,
  // They are not; in Step first moments are.
  kMoments,
  // They stay this rank's own.
  kLocal,
};

// Whether there are steps with exchanges.
inline bool HasExchanges(const Plan& plan, const ZeroOptions& options) {
  return options.exchanges() && (ExchangingRanks(plan) > 1 || options.averages_moments());
}
// Whether these send anything, and leave errors: a rank alone has what it gives.
inline bool HasErrors(const Plan& plan, const ZeroOptions& options) {
  return HasExchanges(plan, options) && ExchangingRanks(plan) > 1;
}
// Whether first moments of all ranks have memory of their own, beside the slice that a rank
// updates.
inline bool HasWholeMoments(const Plan& plan, const ZeroOptions& options) {
  return HasExchanges(plan, options) && ExchangesAlone(plan, options) &&
         options.averages_moments() && !options.traits().whole_optimizer_state;
}
// That of a step, by the number of those tried before.
inline StepPhase PhaseOf(const Plan& plan, const ZeroOptions& options, int64_t tried) {
  if (!HasExchanges(plan, options)) return StepPhase::kReduced;
  if (options.is_zero_one_adam()) {
    switch (optim::StepOf(options.optimizer.zero_one, tried)) {
      case optim::ZeroOneStep::kVariance:
        return StepPhase::kReduced;
      case optim::ZeroOneStep::kSigns:
        return StepPhase::kGradients;
      case optim::ZeroOneStep::kMeeting:
        return StepPhase::kMoments;
      case optim::ZeroOneStep::kLocal:
        return StepPhase::kLocal;
    }
  }
  if (tried < options.exchanges_from()) return StepPhase::kReduced;
  return options.averages_moments() ? StepPhase::kMoments : StepPhase::kGradients;
}
inline bool IsExchange(StepPhase phase) {
  return phase == StepPhase::kGradients || phase == StepPhase::kMoments;
}
// The elements of all parameters of a bucket.
inline int64_t ExchangedElements(const Bucket& bucket) {
  int64_t elements = 0;
  for (const BucketEntry& entry : bucket.entries) elements += entry.range.size;
  return elements;
}
// What ranks with this one's place in their group exchange of a bucket: the elements of its
// parameters, one after another, between groups those in this rank's slice.
inline ElementRange ExchangedRange(const Plan& plan, const ZeroOptions& options,
                                   const Bucket& bucket, int rank) {
  if (!ExchangesBetween(plan, options)) return {0, bucket.size};
  const int64_t slice = plan.slice(bucket);
  return {rank * slice, slice};
}
struct ExchangedPiece {
  // Of the bucket.
  size_t entry = 0;
  int64_t in_bucket = 0;
  // In what is exchanged.
  int64_t at = 0;
  int64_t size = 0;
};
inline std::vector<ExchangedPiece> ExchangedPieces(const Plan& plan, const ZeroOptions& options,
                                                   const Bucket& bucket, int rank) {
  const ElementRange range = ExchangedRange(plan, options, bucket, rank);
  std::vector<ExchangedPiece> pieces;
  int64_t at = 0;
  for (size_t e = 0; e < bucket.entries.size(); ++e) {
    const ElementRange& entry = bucket.entries[e].range;
    const int64_t begin = std::max(entry.begin, range.begin);
    const int64_t end = std::min(entry.begin + entry.size, range.begin + range.size);
    if (begin >= end) continue;
    pieces.push_back({e, begin, at, end - begin});
    at += end - begin;
  }
  return pieces;
}
inline int64_t ExchangedElements(const Plan& plan, const ZeroOptions& options, const Bucket& bucket,
                                 int rank) {
  const auto pieces = ExchangedPieces(plan, options, bucket, rank);
  return pieces.empty() ? 0 : pieces.back().at + pieces.back().size;
}
// Of the largest bucket; 0: there are no exchanges.
inline int64_t LargestExchange(const Plan& plan, const ZeroOptions& options, int rank) {
  int64_t largest = 0;
  for (const Bucket& bucket : plan.buckets()) {
    if (!bucket.trainable || !HasErrors(plan, options)) continue;
    largest = std::max(largest, ExchangedElements(plan, options, bucket, rank));
  }
  return largest;
}

// The elements of memory for a bucket's mean: of what a rank updates, with padding.
inline int64_t MeanElements(const Plan& plan, const ZeroOptions& options, const Bucket& bucket) {
  const bool of_slice = ExchangesBetween(plan, options) && !options.traits().whole_optimizer_state;
  return of_slice ? plan.slice(bucket) : bucket.size;
}
// Whether each rank gathers in its group what the others' slices have exchanged.
inline bool GathersMeans(const Plan& plan, const ZeroOptions& options) {
  return ExchangesBetween(plan, options) && options.traits().whole_optimizer_state;
}
// Where this rank's exchange is in that memory, and all that the update finds there: of each rank
// of a group whose means are gathered a slice.
inline int64_t MeanBegin(const Plan& plan, const ZeroOptions& options, const Bucket& bucket,
                         int rank) {
  return GathersMeans(plan, options) ? rank * plan.slice(bucket) : 0;
}
inline std::vector<ExchangedPiece> MeanPieces(const Plan& plan, const ZeroOptions& options,
                                              const Bucket& bucket, int rank) {
  if (!GathersMeans(plan, options)) return ExchangedPieces(plan, options, bucket, rank);
  std::vector<ExchangedPiece> all;
  for (int r = 0; r < plan.ranks(); ++r) {
    for (ExchangedPiece piece : ExchangedPieces(plan, options, bucket, r)) {
      piece.at += MeanBegin(plan, options, bucket, r);
      all.push_back(piece);
    }
  }
  return all;
}

// The type in which they cross the wire inside a group, where they are no codes. In one of a single
// rank, beside others, nothing does.
inline precision::DType WireType(const Plan& plan, const ZeroOptions& options,
                                 const Bucket& bucket) {
  const precision::DType own = ReducedType(plan, options, bucket);
  if (HasGradientCodes(plan, options)) return own;
  if (plan.ranks() == 1 && plan.shard_groups() > 1) return own;
  return options.communication_dtype.value_or(own);
}

// Whether that is another type.
inline bool IsConverted(const Plan& plan, const ZeroOptions& options, const Bucket& bucket) {
  return WireType(plan, options, bucket) != ReducedType(plan, options, bucket);
}

// The type in which the sums of groups, of FinalGradientType, cross the wire between them.
inline precision::DType WireTypeBetween(const ZeroOptions& options, const Bucket& bucket) {
  return options.communication_dtype.value_or(FinalGradientType(options, bucket));
}
inline bool IsConvertedBetween(const Plan& plan, const ZeroOptions& options, const Bucket& bucket) {
  return plan.shard_groups() > 1 &&
         WireTypeBetween(options, bucket) != FinalGradientType(options, bucket);
}

// The bytes of the largest bucket in the type of the wire, where that is another type; and of the
// largest slice that crosses between groups so.
inline int64_t WireBufferBytes(const Plan& plan, const ZeroOptions& options) {
  int64_t bytes = 0;
  for (const Bucket& bucket : plan.buckets()) {
    if (!bucket.trainable || !IsConverted(plan, options, bucket)) continue;
    bytes = std::max(bytes, bucket.size * precision::SizeOf(WireType(plan, options, bucket)));
  }
  return bytes;
}
inline int64_t WireBufferBytesBetween(const Plan& plan, const ZeroOptions& options) {
  int64_t bytes = 0;
  for (const Bucket& bucket : plan.buckets()) {
    if (!bucket.trainable || !IsConvertedBetween(plan, options, bucket)) continue;
    bytes =
        std::max(bytes, plan.slice(bucket) * precision::SizeOf(WireTypeBetween(options, bucket)));
  }
  return bytes;
}

// By bucket: whether its optimizer state, and with it the update, is on the host.
inline std::vector<char> OffloadedBuckets(const Plan& plan, const ZeroOptions& options) {
  std::vector<char> offloaded(plan.buckets().size());
  if (!options.offload.enabled()) return offloaded;
  int64_t total = 0;
  for (const Bucket& bucket : plan.buckets()) total += bucket.trainable ? bucket.size : 0;
  const double wanted = options.offload.host_share * static_cast<double>(total);
  // Buckets come in the order in which their gradients are complete. The one in which the share
  // ends is the host's.
  int64_t before = 0;
  for (size_t b = 0; b < offloaded.size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (!bucket.trainable) continue;
    offloaded[b] = static_cast<double>(before) < wanted;
    before += bucket.size;
  }
  return offloaded;
}

// Whether gradients stay on the device until the update, as whole buckets, sums over micro-batches,
// or slices. Otherwise the slices of offloaded buckets are there only on their way to the host.
inline bool KeepsGradients(const Plan& plan, const ZeroOptions& options) {
  return HasWholeGradients(plan, options) || options.accumulates();
}

// Whether this rank's slice of a reduced gradient has memory of its own on the device: where it is
// not a part of another array, and is not on its way to the host at once.
inline bool HasGradientSlice(const Plan& plan, const ZeroOptions& options, const Bucket& gradient,
                             bool offloaded) {
  return !KeepsGradients(plan, options) && (!offloaded || plan.IsAddedUp(gradient));
}

// The number of slices of each size, in bytes, that are on their way to the host at a time: one is
// copied while the next one is reduced.
inline std::map<int64_t, int> SlicesOnTheirWay(const Plan& plan, const ZeroOptions& options) {
  std::map<int64_t, int> slices;
  if (KeepsGradients(plan, options)) return slices;
  const std::vector<char> offloaded = OffloadedBuckets(plan, options);
  for (size_t b = 0; b < offloaded.size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (!offloaded[b] || plan.IsAddedUp(bucket)) continue;
    int& count = slices[bucket.bytes() / plan.ranks()];
    count = std::min(count + 1, 2);
  }
  return slices;
}

// Whether gradients over several micro-batches are added up for the whole bucket, or for this
// rank's slice.
inline bool AccumulatesWhole(const Plan& plan, const ZeroOptions& options) {
  return options.accumulation == Accumulation::kAtBoundary || ExchangesAlone(plan, options) ||
         options.traits().whole_optimizer_state;
}

// The elements of a bucket that this rank updates: all of it, or its slice.
inline ElementRange UpdatedRange(const Plan& plan, const ZeroOptions& options, const Bucket& bucket,
                                 int rank) {
  if (options.traits().whole_optimizer_state) return {0, bucket.size};
  const int64_t slice = plan.slice(bucket);
  return {rank * slice, slice};
}

// What this rank checks of the final gradients that it counts, by type; `data` gives the place of
// Plan::checked elements of a bucket. Types are those of all gradients, so that ranks with others
// to count have as many lists.
template <typename DataOfBucket>
std::vector<optim::GradientList> GradientLists(const Plan& plan, const ZeroOptions& options,
                                               DataOfBucket data) {
  std::vector<optim::GradientList> lists;
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (!bucket.trainable) continue;
    const precision::DType dtype = FinalGradientType(options, bucket);
    auto list = std::find_if(lists.begin(), lists.end(),
                             [&](const auto& each) { return each.dtype == dtype; });
    if (list == lists.end()) list = lists.insert(list, optim::GradientList{.dtype = dtype});
    if (!bucket.counted) continue;
    list->segments.push_back({data(static_cast<int>(b)), plan.checked(bucket)});
  }
  return lists;
}

// What a rank checks before an exchange, its own gradients whole, or its slice of its group's sum:
// by type, in the order of GradientLists.
template <typename DataOfBucket>
std::vector<optim::GradientList> LocalGradientLists(const Plan& plan, const ZeroOptions& options,
                                                    DataOfBucket data) {
  std::vector<optim::GradientList> lists = GradientLists(plan, options, data);
  for (optim::GradientList& list : lists) list.segments.clear();
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (!bucket.trainable || !bucket.counted) continue;
    const precision::DType dtype = FinalGradientType(options, bucket);
    const auto list = std::find_if(lists.begin(), lists.end(),
                                   [&](const auto& each) { return each.dtype == dtype; });
    const int64_t size = ExchangedRange(plan, options, bucket, 0).size;
    list->segments.push_back({data(static_cast<int>(b)), size});
  }
  return lists;
}

// With LAMB, what a rank sums and keeps of tensors, and the ranks whose sums these need.
inline optim::LambSizes LambSizesOf(const Plan& plan, const ZeroOptions& options) {
  optim::LambSizes sizes;
  if (!optim::IsLamb(options.optimizer.kind)) return sizes;
  for (const Bucket& bucket : plan.buckets()) {
    if (!bucket.trainable) continue;
    sizes.tiles +=
        UpdatedRange(plan, options, bucket, 0).size / optim::TensorTile(options.optimizer.kind);
    sizes.tensors += static_cast<int64_t>(bucket.entries.size());
  }
  return sizes;
}
// The number of a bucket's first tensor among all that are trained.
inline int64_t FirstTensorOf(const Plan& plan, int bucket) {
  int64_t tensors = 0;
  for (int b = 0; b < bucket; ++b) {
    if (plan.bucket(b).trainable) tensors += static_cast<int64_t>(plan.bucket(b).entries.size());
  }
  return tensors;
}
inline int LambRanksOf(const Plan& plan, const ZeroOptions& options) {
  return options.traits().whole_optimizer_state ? 1 : plan.ranks();
}

// An array of a bucket's state, counted from the master on: that of weights where they are frozen,
// the moments, and what is behind them, which is fp32.
inline optim::MomentArray StateArrayOf(const ZeroOptions& options, const Bucket& bucket,
                                       int array) {
  if (!bucket.trainable) return {bucket.dtype, 1};
  if (array == 0 || array > optim::Moments(options.optimizer)) return {};
  return optim::MomentArrayOf(options.optimizer.kind, bucket.coded, array - 1);
}
// The bytes of the arrays [first, last) for `size` elements of the bucket, one after the other.
inline int64_t StateBytes(const ZeroOptions& options, const Bucket& bucket, int first, int last,
                          int64_t size) {
  int64_t bytes = 0;
  for (int array = first; array < last; ++array) {
    bytes += StateArrayOf(options, bucket, array).Bytes(size);
  }
  return bytes;
}

// The array of state, counted from the master on, whose elements hold the numbers of 1-bit LAMB's
// tensors, each at the begin of its tensor; and that of fresh second moments.
inline constexpr int kFreshArray = 3;
inline constexpr int kNumbersArray = 4;
inline constexpr int64_t kTensorNumbers =
    static_cast<int64_t>(sizeof(kernels::OneBitLambNumbers) / sizeof(float));

inline optim::StepControllerOptions ControllerOptions(const Plan& plan,
                                                      const ZeroOptions& options) {
  optim::StepControllerOptions controller;
  controller.loss_scaler = options.loss_scaler;
  controller.max_grad_norm = options.max_grad_norm;
  const int replicas = plan.ranks() * plan.shard_groups();
  if (options.average_gradients) controller.grad_divisor = replicas * options.micro_batches;
  controller.ranks = replicas * options.model_ranks;
  return controller;
}

// Arrays of state, as slices, in which errors are saved: the mean over ranks of their own, and
// those of sums.
inline constexpr int kErrorArrays = 2;
// Of codes, the sum of all ranks' errors, on any number of ranks: one that has no codes keeps what
// it has loaded.
inline constexpr int kLocoErrorArrays = 1;
inline int ErrorArraysOf(const Plan& plan, const ZeroOptions& options) {
  if (options.loco.has_value()) return kLocoErrorArrays;
  return HasErrors(plan, options) ? kErrorArrays : 0;
}
// Of errors of codes the loss scale that they have, and with what it is followed.
inline constexpr int64_t kLocoScaleBytes = 64;
inline constexpr int64_t kLocoControlBytes = 128;

// Of 0/1 Adam: numbers of the groups, and what a meeting's update reads.
inline int64_t ZeroOneBytes(const ZeroOptions& options) {
  if (!options.is_zero_one_adam()) return 0;
  return static_cast<int64_t>(options.optimizer.groups.size() *
                              (sizeof(kernels::ZeroOneNumbers) + sizeof(kernels::GroupStep)));
}
// The divisors of a step that exchanges its gradients' mean over ranks, or groups. The norm is that
// of the mean of gradients that are orthogonal to each other.
inline optim::StepDivisors ExchangeDivisors(const Plan& plan, const ZeroOptions& options) {
  const double all = ControllerOptions(plan, options).grad_divisor;
  return {.gradients = all / ExchangingRanks(plan), .norm = all};
}

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_PLAN_LAYOUT_H_
