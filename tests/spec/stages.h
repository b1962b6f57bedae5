#ifndef BRIGADE_TESTS_SPEC_STAGES_H_
#define BRIGADE_TESTS_SPEC_STAGES_H_

// The executable specification, 6 of 6: training steps on several ranks in the four ZeRO stages.
//
// Parameters live in buckets whose padded size every rank count divides; rank r owns slice r of
// each. With groups of fewer ranks each group has all slices: rank r is in group r / shard_ranks,
// and owns slice r mod shard_ranks; a group's ranks sum in each micro-batch, and the groups, in
// their order, add these sums once in a step. Each rank stores what its stage lets it store, and
// nothing is computed from what a rank does not have without a gather.
// Source: Rajbhandari et al. 2020 (arXiv 1910.02054).

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "brigade/tests/spec/exchanges.h"
#include "brigade/tests/spec/formats.h"
#include "brigade/tests/spec/optimizers.h"
#include "brigade/tests/spec/step_control.h"
#include "brigade/tests/spec/sums.h"
#include "brigade/tests/spec/wire.h"

namespace brigade::spec {

using Buckets = std::vector<std::vector<float>>;  // [bucket][element]

struct TrainingRule {
  int stage = 0;
  size_t ranks = 1;
  // In each group that has a whole state; 0: all.
  size_t shard_ranks = 0;
  int micro_batches = 1;
  bool reduce_at_boundary = false;        // else after every micro-batch
  Format format = Format::kBFloat16;      // of parameters and gradients
  Format accumulator = Format::kFloat32;  // of gradients summed over micro-batches
  // Of gradients between ranks; none: their own. wire.h has the sum.
  std::optional<Format> wire = {};
  SumOrder sum_order = {};
  enum class Optimizer : uint8_t { kAdam, kSgd, kLion };
  Optimizer optimizer = Optimizer::kAdam;
  // Of the codes (exchanges.h) as which weights of 16 bits are gathered, in stages 1 to 3, and
  // gradients summed in a group: 8, 4, or 0, not at all. A rank alone has none of either.
  int weight_bits = 0, gradient_bits = 0;
  // Of a node, in two hops of gradient_bits; 0, 1 and all of a group: one hop.
  size_t node_ranks = 0;
  // With gradient_bits: error feedback of LoCo, with this beta, which the first sum of each bucket
  // in every such step forgets. Errors of a step that is skipped stay as they were. 0: none.
  float loco_beta = 0;
  int64_t loco_reset_steps = 1024;
  AdamRule adam_rule = {};
  SgdRule sgd_rule = {};
  LionRule lion_rule = {};
  StepRule step = {};
  std::vector<float> learning_rates = {1e-3f};
  // Gradients may have more arrays than there are buckets: parts of the gradients of these buckets,
  // which are summed over micro-batches and ranks by themselves, and then added one by one.
  std::vector<size_t> parts = {};
  // From this step on (-1: never) weights are those that the update before the last one left:
  // w(t + 1) = U(w(t), g(t - 1)). The one-step delay of ZeRO-Offload (Ren et al. 2021, arXiv
  // 2101.06840).
  int64_t delay_from = -1;
};

// The gradient of (loss * loss_scale) by the parameters, as computed by one rank on one
// micro-batch.
using Backward = std::function<Buckets(size_t rank, int micro_batch, const Buckets& parameters,
                                       float loss_scale)>;

class Training {
 public:
  Training(const TrainingRule& rule, const Buckets& master)
      : rule_(rule), ranks_(rule.ranks), state_{} {
    state_.hysteresis = rule.step.loss_scale.hysteresis;
    for (size_t r = 0; r < rule.ranks; ++r) {
      ranks_[r].group = r / Sharers(), ranks_[r].place = r % Sharers();
      ranks_[r].master = rule.stage == 0 ? master : Slice(master, r);
      ranks_[r].m = ranks_[r].v = Zeros(ranks_[r].master);
      ranks_[r].parameters = rule.stage == 3 ? Slice(master, r) : master;
      for (auto& bucket : ranks_[r].parameters) RoundAll(rule.format, bucket);
      if (rule.stage == 1 || rule.stage == 2) KeepCodes(ranks_[r].parameters, Sharers());
    }
  }

  StepState& state() { return state_; }
  Buckets FullParameters() const { return GatherIfSharded(0, &Rank::parameters); }
  Buckets FullMaster() const { return GatherIfSharded(0, &Rank::master); }

  // Where a saved state is loaded.
  void ForgetErrors() { loco_.clear(); }

  void Step(const Backward& backward) {
    const std::vector<std::vector<LocoState>> errors = loco_;
    forgets_ = state_.iteration > 0 && state_.iteration % rule_.loco_reset_steps == 0;
    std::vector<Buckets> reduced(rule_.ranks);  // own slices of each rank, summed over ranks
    std::vector<Buckets> local(rule_.ranks);    // whole gradients of each rank
    for (int micro = 0; micro < rule_.micro_batches; ++micro) {
      std::vector<Buckets> fresh;
      for (size_t r = 0; r < rule_.ranks; ++r) {
        const Buckets parameters = GatherIfSharded(r, &Rank::parameters);
        fresh.push_back(backward(r, micro, parameters, state_.loss_scale));
        for (auto& bucket : fresh[r]) RoundAll(rule_.format, bucket);
      }
      std::vector<Buckets> sums;
      if (!rule_.reduce_at_boundary) sums = ReduceInGroups(fresh, rule_.format);
      for (size_t r = 0; r < rule_.ranks; ++r) {
        rule_.reduce_at_boundary ? Accumulate(fresh[r], local[r]) : Accumulate(sums[r], reduced[r]);
      }
    }
    if (rule_.reduce_at_boundary) {
      reduced = ReduceInGroups(local, rule_.accumulator);
      for (size_t r = 0; r < rule_.ranks; ++r) {
        for (auto& bucket : reduced[r]) RoundAll(rule_.accumulator, bucket);
      }
    }
    const std::vector<Buckets> of_groups = reduced;
    for (size_t r = 0; r < rule_.ranks && Groups() > 1; ++r) {
      reduced[r] = AddGroups(of_groups, ranks_[r].place);
    }
    for (Buckets& slices : reduced) AddParts(slices);

    std::vector<GradStats> stats;
    for (size_t r = 0; r < rule_.ranks; ++r) stats.push_back(SumOfSquares(PartOf(reduced[r], r)));
    const bool delays = rule_.delay_from >= 0 && state_.iteration >= rule_.delay_from;
    ControlStep(stats, rule_.step, state_);
    if (delays) Publish();
    if (state_.skip) loco_ = errors;
    if (state_.skip) return;

    for (size_t r = 0; r < rule_.ranks; ++r) {
      // Stage 0 gathers gradients and updates everything everywhere; the others update their
      // slices.
      Update(rule_.stage == 0 ? Gather(InGroup(reduced, r)) : reduced[r], ranks_[r]);
    }
    if (!delays) Publish();
  }

  // The weights become those of the master: after a step, or a step later; and where a saved state
  // is loaded.
  void Publish() {
    std::vector<Buckets> updated;
    for (const Rank& rank : ranks_) updated.push_back(rank.master);
    for (size_t r = 0; r < rule_.ranks; ++r) {
      const bool gathers = rule_.stage == 1 || rule_.stage == 2;
      ranks_[r].parameters = gathers ? Gather(InGroup(updated, r)) : ranks_[r].master;
      for (auto& bucket : ranks_[r].parameters) RoundAll(rule_.format, bucket);
      if (gathers) KeepCodes(ranks_[r].parameters, Sharers());
    }
  }

 private:
  struct Rank {
    size_t group, place;
    // Stage 0: everything; 1 to 3: own slices.
    Buckets master, m, v;
    // Stages 0 to 2: everything; 3: own slices.
    Buckets parameters;
  };

  static void RoundAll(Format format, std::vector<float>& values) {
    for (float& value : values) value = Round(format, value);
  }

  static Buckets Zeros(Buckets like) {
    for (auto& bucket : like) bucket.assign(bucket.size(), 0.0f);
    return like;
  }

  size_t Sharers() const { return rule_.shard_ranks == 0 ? rule_.ranks : rule_.shard_ranks; }
  size_t Groups() const { return rule_.ranks / Sharers(); }

  // Of what all ranks have, what those of a rank's group have.
  std::vector<Buckets> InGroup(const std::vector<Buckets>& of_all, size_t rank) const {
    const auto first = of_all.begin() + static_cast<long>(ranks_[rank].group * Sharers());
    return {first, first + static_cast<long>(Sharers())};
  }

  static Buckets Cut(const Buckets& whole, size_t index, size_t parts) {
    Buckets cut;
    for (const auto& bucket : whole) {
      const size_t size = bucket.size() / parts;
      cut.emplace_back(bucket.begin() + index * size, bucket.begin() + (index + 1) * size);
    }
    return cut;
  }
  Buckets Slice(const Buckets& full, size_t rank) const {
    return Cut(full, ranks_[rank].place, Sharers());
  }
  // All groups have a slice; each of them checks a part of it.
  Buckets PartOf(const Buckets& slices, size_t rank) const {
    return Cut(slices, ranks_[rank].group, Groups());
  }

  static Buckets Gather(const std::vector<Buckets>& slices) {
    Buckets full(slices[0].size());
    for (const Buckets& rank : slices) {
      for (size_t b = 0; b < full.size(); ++b) {
        full[b].insert(full[b].end(), rank[b].begin(), rank[b].end());
      }
    }
    return full;
  }

  Buckets GatherIfSharded(size_t rank, Buckets Rank::*member) const {
    const bool sharded = member == &Rank::parameters ? rule_.stage == 3 : rule_.stage >= 1;
    if (!sharded) return ranks_[rank].*member;
    std::vector<Buckets> slices;
    for (const Rank& other : ranks_) slices.push_back(other.*member);
    Buckets all = Gather(InGroup(slices, rank));
    if (member == &Rank::parameters) KeepCodes(all, Sharers());
    return all;
  }

  // What codes of each of so many parts keep of them.
  void KeepCodes(Buckets& buckets, size_t parts) const {
    if (rule_.weight_bits == 0 || parts == 1 || rule_.format == Format::kFloat32) return;
    for (std::vector<float>& bucket : buckets) {
      std::vector<std::vector<float>> slices;
      for (size_t i = 0; i < parts; ++i) slices.push_back(Cut({bucket}, i, parts)[0]);
      bucket = QuantizedGather(slices, rule_.weight_bits, rule_.format);
    }
  }

  // The rank's slice of its group's sum. A single rank beside other groups sends nothing, and
  // rounds nothing for a wire.
  Buckets ReduceInGroup(const std::vector<Buckets>& contributions, size_t rank,
                        Format format) const {
    const std::vector<Buckets> mine = InGroup(contributions, rank);
    if (Sharers() == 1 && Groups() > 1) return mine[0];
    if (rule_.gradient_bits > 0 && Sharers() > 1) {
      return ReduceAsCodes(mine, ranks_[rank].place, format);
    }
    return ReduceSlice(mine, ranks_[rank].place, Sharers(), format);
  }

  bool HasLoco() const { return rule_.loco_beta > 0 && rule_.gradient_bits > 0 && Sharers() > 1; }

  // The slices of all ranks.
  std::vector<Buckets> ReduceInGroups(const std::vector<Buckets>& contributions, Format format) {
    std::vector<Buckets> sums;
    for (size_t r = 0; r < rule_.ranks && !HasLoco(); ++r) {
      sums.push_back(ReduceInGroup(contributions, r, format));
    }
    if (!HasLoco()) return sums;
    const size_t of_node = TwoHops() ? rule_.node_ranks : 0;
    if (loco_.empty()) {
      loco_.resize(Groups());
      for (std::vector<LocoState>& of_group : loco_) {
        for (const auto& bucket : contributions[0]) {
          of_group.emplace_back(Sharers(), bucket.size() / Sharers(), of_node);
        }
      }
    }
    sums.resize(rule_.ranks);
    for (size_t group = 0; group < Groups(); ++group) {
      for (size_t b = 0; b < contributions[0].size(); ++b) {
        std::vector<std::vector<float>> of_rank;
        for (const Buckets& each : InGroup(contributions, group * Sharers())) {
          of_rank.push_back(each[b]);
        }
        const auto parts = LocoReduce(of_rank, rule_.gradient_bits, 1.0f, format, rule_.loco_beta,
                                      forgets_, loco_[group][b], of_node);
        for (size_t r = 0; r < Sharers(); ++r) sums[group * Sharers() + r].push_back(parts[r]);
      }
    }
    forgets_ = false;
    return sums;
  }

  bool TwoHops() const { return rule_.node_ranks > 1 && rule_.node_ranks < Sharers(); }

  Buckets ReduceAsCodes(const std::vector<Buckets>& contributions, size_t place,
                        Format format) const {
    Buckets sum;
    for (size_t b = 0; b < contributions[0].size(); ++b) {
      std::vector<std::vector<float>> of_rank;
      for (const Buckets& buckets : contributions) of_rank.push_back(buckets[b]);
      sum.push_back(QuantizedReduce(of_rank, place, rule_.gradient_bits, 1.0f, format,
                                    TwoHops() ? rule_.node_ranks : 0));
    }
    return sum;
  }

  // The sum of what the groups have of a slice.
  Buckets AddGroups(const std::vector<Buckets>& slices, size_t place) const {
    std::vector<Buckets> of_groups;
    for (size_t group = 0; group < Groups(); ++group) {
      of_groups.push_back(slices[group * Sharers() + place]);
    }
    Buckets sum = ReduceSlice(of_groups, 0, 1, rule_.accumulator);
    for (auto& bucket : sum) RoundAll(rule_.accumulator, bucket);
    return sum;
  }

  // Part `index` of so many of the sum; `format` is that of the contributions.
  Buckets ReduceSlice(const std::vector<Buckets>& contributions, size_t index, size_t parts,
                      Format format) const {
    const Format wire = rule_.wire.value_or(format);
    Buckets sum;
    for (size_t b = 0; b < contributions[0].size(); ++b) {
      std::vector<std::vector<float>> of_rank;
      for (const Buckets& buckets : contributions) of_rank.push_back(buckets[b]);
      const float scale = ScaleForWire(of_rank, format, wire);
      const size_t size = of_rank[0].size() / parts;
      sum.push_back(
          SumOverWire(of_rank, wire, scale, index * size, (index + 1) * size, rule_.sum_order));
    }
    return sum;
  }

  void Accumulate(const Buckets& gradients, Buckets& sum) const {
    const bool first = sum.empty();
    if (first) sum = gradients;
    for (size_t b = 0; b < sum.size(); ++b) {
      for (size_t i = 0; i < sum[b].size(); ++i) {
        const float x = first ? gradients[b][i] : sum[b][i] + gradients[b][i];
        sum[b][i] = Round(rule_.accumulator, x);
      }
    }
  }

  void AddParts(Buckets& gradients) const {
    const size_t buckets = gradients.size() - rule_.parts.size();
    for (size_t p = 0; p < rule_.parts.size(); ++p) {
      std::vector<float>& sum = gradients[rule_.parts[p]];
      const std::vector<float>& part = gradients[buckets + p];
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = Round(rule_.accumulator, sum[i] + part[i]);
    }
    gradients.resize(buckets);
  }

  void Update(const Buckets& gradients, Rank& rank) const {
    const float lr = LearningRate(rule_.learning_rates, state_);
    const GroupStep group =
        MakeGroupStep(rule_.adam_rule.beta1, rule_.adam_rule.beta2, lr, state_.step);
    for (size_t b = 0; b < gradients.size(); ++b) {
      for (size_t i = 0; i < gradients[b].size(); ++i) {
        const float gradient = gradients[b][i];
        float& p = rank.master[b][i];
        float& m = rank.m[b][i];
        if (rule_.optimizer == TrainingRule::Optimizer::kLion) {
          const LionElement x =
              LionUpdate({p, m}, gradient, state_.multiplier, rule_.lion_rule, lr);
          p = x.param, m = x.m;
        } else if (rule_.optimizer == TrainingRule::Optimizer::kAdam) {
          float& v = rank.v[b][i];
          const AdamElement x =
              AdamUpdate({p, m, v}, gradient, state_.multiplier, rule_.adam_rule, group);
          p = x.param, m = x.m, v = x.v;
        } else {
          const SgdElement x =
              SgdUpdate({p, m}, gradient, state_.multiplier, rule_.sgd_rule, lr, state_.step);
          p = x.param, m = x.momentum;
        }
      }
    }
  }

  TrainingRule rule_;
  std::vector<Rank> ranks_;
  StepState state_;
  // [group][bucket]; empty: none yet.
  std::vector<std::vector<LocoState>> loco_;
  bool forgets_ = false;
};

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_STAGES_H_
