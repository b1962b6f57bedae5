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

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "brigade/tests/spec/adafactor.h"
#include "brigade/tests/spec/adam8.h"
#include "brigade/tests/spec/exchanges.h"
#include "brigade/tests/spec/formats.h"
#include "brigade/tests/spec/lamb.h"
#include "brigade/tests/spec/muon.h"
#include "brigade/tests/spec/one_bit_lamb.h"
#include "brigade/tests/spec/optimizers.h"
#include "brigade/tests/spec/power_sgd.h"
#include "brigade/tests/spec/step_control.h"
#include "brigade/tests/spec/sums.h"
#include "brigade/tests/spec/top_k_mean.h"
#include "brigade/tests/spec/wire.h"

namespace brigade::spec {

using Buckets = std::vector<std::vector<float>>;  // [bucket][element]

struct Range {
  size_t begin = 0, size = 0;
};

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
  enum class Optimizer : uint8_t { kAdam, kSgd, kLion, kLamb };
  Optimizer optimizer = Optimizer::kAdam;
  // Of the codes (exchanges.h) as which weights of 16 bits are gathered, in stages 1 to 3, and
  // gradients summed in a group: 8, 4, or 0, not at all. A rank alone has none of either.
  int weight_bits = 0, gradient_bits = 0;
  // Of a node, in two hops of gradient_bits or of kOneBit; 0, 1 and all of a group: one hop.
  size_t node_ranks = 0;
  // From this step tried on (-1: never) ranks keep their own gradients, which is what is checked,
  // and an exchange of each bucket's, unscaled and clipped, gives their mean: of signs, of factors
  // of `factor_rank`, or of the greatest elements, a share of `density` rounded up. A rank alone
  // does not. The norm is the root of the sum of the ranks' squared norms, divided by ranks.
  //
  // Several groups sum first, as in all steps, and then exchange: those that have the same slice,
  // each what its group's sum has in it. Squared norms are those of the slices, and divided by all
  // ranks. A matrix is cut into the whole rows of a slice, and what it has of others.
  int64_t exchange_from = -1;
  enum class Exchange : uint8_t { kOneBit, kPowerSgd, kTopK };
  Exchange exchange = Exchange::kOneBit;
  size_t factor_rank = 1;
  int power_iterations = 1;
  double density = 1;
  // Where the elements of parameters are in each bucket: what is exchanged, one after another.
  std::vector<std::vector<Range>> entries = {};
  // The same as matrices, for kPowerSgd: by their place in what is exchanged.
  std::vector<std::vector<TensorPlace>> places = {};
  // Of Adam, whose bias is corrected all along: what is exchanged are first moments: beta1 times
  // that of all ranks plus (1 - beta1) times each one's gradient. The second moment stays.
  bool is_one_bit_adam = false;
  // 0/1 Adam: Adam without correction of bias. So many steps tried update the second moment, as
  // many of every second step follow, and so on; in the others ranks exchange gradients as above,
  // and the second moment stays. 0: it is another optimizer.
  int64_t var_update_scaler = 0;
  // From this step tried on the second moment stays for good, and errors begin with zero. The
  // interval in which ranks meet doubles behind each so many steps, up to the last number. What is
  // exchanged then is the sum of rate times first moment since the last meeting.
  int64_t var_freeze_step = 0, local_step_scaler = 1, local_step_clipper = 1;
  // The same of 1-bit LAMB, in stage 0: buckets have an exchange each.
  bool is_one_bit_lamb = false;
  // With gradient_bits: error feedback of LoCo, with this beta, which the first sum of each bucket
  // in every such step forgets. Errors of a step that is skipped stay as they were. Where the loss
  // scale has changed, errors change with it before that sum. 0: none.
  float loco_beta = 0;
  int64_t loco_reset_steps = 1024;
  AdamRule adam_rule = {};
  SgdRule sgd_rule = {};
  LionRule lion_rule = {};
  // Where each rank has whole tensors: in stage 0. Of kAdam, in stage 0: whether the moments of a
  // bucket's tensors are codes of 8 bits; empty: none are.
  std::vector<bool> coded = {};
  // Of kAdam, in stage 0: these buckets' tensors, by `entries` and `places`, are Muon's matrices
  // instead.
  bool is_muon = false;
  MuonRule muon_rule = {};
  // In stage 0, of all tensors by `entries` and `places`: their factors are in the first elements
  // of what is v of others.
  bool is_adafactor = false;
  AdafactorRule adafactor_rule = {};
  LambRule lamb_rule = {};
  OneBitLambRule one_bit_lamb_rule = {};
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

  void Step(const Backward& backward) {
    const std::vector<std::vector<LocoState>> errors = loco_;
    const float inverse_scale = loco_inverse_scale_;
    for (std::vector<LocoState>& of_group : loco_) {
      for (LocoState& each : of_group) ScaleErrors(each, state_.loss_scale * inverse_scale);
    }
    loco_inverse_scale_ = static_cast<float>(1.0 / static_cast<double>(state_.loss_scale));
    forgets_ = state_.iteration > 0 && state_.iteration % rule_.loco_reset_steps == 0;
    std::vector<Buckets> reduced(rule_.ranks);  // own slices of each rank, summed over ranks
    std::vector<Buckets> local(rule_.ranks);    // whole gradients of each rank
    const bool has_moments = rule_.is_one_bit_adam || rule_.is_one_bit_lamb;
    const bool exchanges = rule_.var_update_scaler > 0
                               ? state_.iteration >= rule_.var_freeze_step || !IsVarianceStep()
                               : rule_.exchange_from >= 0 && (rule_.ranks > 1 || has_moments) &&
                                     state_.iteration >= rule_.exchange_from;
    const bool stays_local = rule_.reduce_at_boundary || (exchanges && Groups() == 1);
    for (int micro = 0; micro < rule_.micro_batches; ++micro) {
      std::vector<Buckets> fresh;
      for (size_t r = 0; r < rule_.ranks; ++r) {
        const Buckets parameters = GatherIfSharded(r, &Rank::parameters);
        fresh.push_back(backward(r, micro, parameters, state_.loss_scale));
        for (auto& bucket : fresh[r]) RoundAll(rule_.format, bucket);
      }
      std::vector<Buckets> sums;
      if (!stays_local) sums = ReduceInGroups(fresh, rule_.format);
      for (size_t r = 0; r < rule_.ranks; ++r) {
        stays_local ? Accumulate(fresh[r], local[r]) : Accumulate(sums[r], reduced[r]);
      }
    }
    if (exchanges && Groups() == 1) {
      for (Buckets& gradients : local) AddParts(gradients);
      return ExchangeAndUpdate(local, StatsOf(local));
    }
    if (rule_.reduce_at_boundary) {
      reduced = ReduceInGroups(local, rule_.accumulator);
      for (size_t r = 0; r < rule_.ranks; ++r) {
        for (auto& bucket : reduced[r]) RoundAll(rule_.accumulator, bucket);
      }
    }
    if (exchanges) {
      for (Buckets& slices : reduced) AddParts(slices);
      std::vector<Buckets> whole;
      for (size_t group = 0; group < Groups(); ++group) {
        whole.push_back(Gather(InGroup(reduced, group * Sharers())));
      }
      return ExchangeAndUpdate(whole, StatsOf(reduced));
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
    if (state_.skip) loco_ = errors, loco_inverse_scale_ = inverse_scale;
    if (state_.skip) return;

    if (rule_.is_one_bit_lamb) return WarmUpTensors(Gather(InGroup(reduced, 0)));
    for (size_t r = 0; r < rule_.ranks; ++r) {
      // Stage 0 gathers gradients and updates everything everywhere; the others update their
      // slices.
      Update(rule_.stage == 0 ? Gather(InGroup(reduced, r)) : reduced[r], ranks_[r]);
    }
    if (!delays) Publish();
  }

  // Before a save: of each rank's own errors there is the mean from now on. Of LoCo's it is that of
  // all errors, by bucket, over the loss scale: sums of ranks, then of groups.
  void ShareErrors() {
    ShareLocoErrors();
    MeetExactly();
    for (std::vector<ExchangeErrors>& of_bucket : errors_) {
      for (ExchangeErrors& errors : of_bucket) ShareErrorsOf(errors);
    }
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
  // Of 0/1 Adam, once a step: as DeepSpeed counts.
  bool IsVarianceStep() {
    if ((state_.iteration + 1) % var_interval_ != 0) return false;
    if (++var_counter_ == rule_.var_update_scaler) var_counter_ = 0, var_interval_ *= 2;
    return true;
  }

  struct Rank {
    size_t group, place;
    // Stage 0: everything; 1 to 3: own slices.
    Buckets master, m, v;
    // Of buckets whose moments are codes, by tensor: with these, and a copy of the master's part.
    std::vector<std::vector<Adam8Tensor>> coded = {};
    // Stages 0 to 2: everything; 3: own slices.
    Buckets parameters;
  };

  // What exchanges of a bucket between so many have left out, by the method that there is; of
  // groups, those of one slice.
  struct ExchangeErrors {
    ExchangeErrors(const TrainingRule& rule, std::vector<TensorPlace> matrices, size_t count,
                   size_t ranks, bool two_hops)
        : one_bit(ranks, rule.exchange == TrainingRule::Exchange::kOneBit && !two_hops ? count : 0),
          tensors(std::move(matrices)) {
      if (two_hops) places = OneBitPlaces(ranks, count, rule.node_ranks);
      if (rule.exchange == TrainingRule::Exchange::kPowerSgd) {
        power_sgd = InitialPowerSgdState(tensors, rule.factor_rank, ranks);
      }
      if (rule.exchange == TrainingRule::Exchange::kTopK) {
        top_k.assign(ranks, std::vector<float>(count));
      }
    }

    OneBitState one_bit;
    std::vector<OneBitState> places;  // in two hops, of nodes
    std::vector<TensorPlace> tensors;
    PowerSgdState power_sgd;
    std::vector<std::vector<float>> top_k;  // [rank]
  };

  void ShareErrorsOf(ExchangeErrors& errors) const {
    ShareMean(errors.one_bit.local);
    for (OneBitState& place : errors.places) ShareMean(place.local);
    ShareMean(errors.top_k);
    auto& matrices = errors.power_sgd.left_out;
    for (size_t t = 0; !matrices.empty() && t < matrices[0].size(); ++t) {
      std::vector<std::vector<float>> of_rank;
      for (auto& each : matrices) of_rank.push_back(each[t].values);
      ShareMean(of_rank);
      for (size_t r = 0; r < matrices.size(); ++r) matrices[r][t].values = of_rank[r];
    }
  }

  void ShareLocoErrors() {
    const float to_saved = static_cast<float>(1.0 / rule_.step.divisor) * loco_inverse_scale_;
    const auto from_saved =
        static_cast<float>(rule_.step.divisor / static_cast<double>(rule_.ranks));
    const size_t buckets = loco_.empty() ? 0 : loco_[0].size() - rule_.parts.size();
    for (size_t b = 0; b < buckets; ++b) {
      std::vector<std::vector<float>> of_groups;
      for (const std::vector<LocoState>& of_group : loco_) {
        std::vector<std::vector<float>> of_ranks;
        for (size_t rank = 0; rank < Sharers(); ++rank) {
          of_ranks.emplace_back(Sharers() * of_group[b].part);
          AddErrors(of_group[b], rank, of_ranks.back());
          for (size_t p = 0; p < rule_.parts.size(); ++p) {
            if (rule_.parts[p] == b) AddErrors(of_group[buckets + p], rank, of_ranks.back());
          }
        }
        of_groups.push_back(AddUp(of_ranks));
      }
      std::vector<float> values = AddUp(of_groups);
      for (float& x : values) x = x * to_saved * from_saved;
      for (std::vector<LocoState>& of_group : loco_) {
        const auto none = [](const LocoState& of) {
          return LocoState(of.local.size(), of.part, of.ranks_per_node);
        };
        of_group[b] = none(of_group[b]);
        for (size_t p = 0; p < rule_.parts.size(); ++p) {
          if (rule_.parts[p] == b) of_group[buckets + p] = none(of_group[buckets + p]);
        }
        for (auto& messages : of_group[b].local) {
          for (size_t part = 0; part < messages.size(); ++part) {
            const auto first =
                values.begin() + static_cast<std::ptrdiff_t>(part * of_group[b].part);
            messages[part] =
                Quantize({first, first + static_cast<std::ptrdiff_t>(of_group[b].part)}, 8);
          }
        }
      }
    }
    loco_inverse_scale_ = 1;
  }

  // In order.
  static std::vector<float> AddUp(const std::vector<std::vector<float>>& terms) {
    std::vector<float> sum = terms[0];
    for (size_t t = 1; t < terms.size(); ++t) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += terms[t][i];
    }
    return sum;
  }

  // Of all that exchange; or of nodes, each of which has the sum of its ranks' errors.
  void ShareMean(std::vector<std::vector<float>>& of_rank) const {
    if (of_rank.empty()) return;
    std::vector<float> mean = of_rank[0];
    for (size_t i = 0; i < mean.size(); ++i) {
      for (size_t r = 1; r < of_rank.size(); ++r) mean[i] += of_rank[r][i];
      mean[i] *= static_cast<float>(1.0 / static_cast<double>(Exchanging()));
      mean[i] *= static_cast<float>(Exchanging() / of_rank.size());
    }
    for (auto& each : of_rank) each = mean;
  }

  std::vector<float> Exchanged(const std::vector<std::vector<float>>& of_rank,
                               ExchangeErrors& errors) const {
    constexpr bool kSkip = false;
    if (of_rank[0].empty()) return {};
    switch (rule_.exchange) {
      case TrainingRule::Exchange::kOneBit:
        return ExchangesInTwoHops()
                   ? OneBitMeanOfNodes(of_rank, kSkip, Format::kFloat32, errors.places)
                   : OneBitMean(of_rank, kSkip, Format::kFloat32, errors.one_bit);
      case TrainingRule::Exchange::kPowerSgd:
        return PowerSgdMean(of_rank, errors.tensors, rule_.factor_rank, kEpsilon, kSkip,
                            Format::kFloat32, errors.power_sgd, rule_.power_iterations);
      case TrainingRule::Exchange::kTopK:
        break;
    }
    const auto count = static_cast<double>(of_rank[0].size());
    const auto k = static_cast<size_t>(std::max(1.0, std::ceil(rule_.density * count)));
    return TopKMean(of_rank, std::min(k, of_rank[0].size()), kSkip, Format::kFloat32, errors.top_k);
  }

  static std::vector<GradStats> StatsOf(const std::vector<Buckets>& gradients) {
    std::vector<GradStats> stats;
    for (const Buckets& each : gradients) stats.push_back(SumOfSquares(each));
    return stats;
  }

  // `local`: of each that exchanges, a rank or a group.
  void ExchangeAndUpdate(const std::vector<Buckets>& local, const std::vector<GradStats>& stats) {
    const bool is_frozen = rule_.var_update_scaler > 0 && state_.iteration >= rule_.var_freeze_step;
    const bool meets = is_frozen && IsMeeting();
    StepRule rule = rule_.step;
    rule.norm_divisor = rule.divisor;
    rule.divisor /= static_cast<double>(Exchanging());
    ControlStep(stats, rule, state_);
    if (state_.skip) return;
    if (rule_.is_one_bit_lamb) return ExchangeAndUpdateTensors(local);
    if (meets) return Meet(local);
    if (is_frozen) return UpdateAlone(local);
    Buckets mean = local[0];
    const Buckets momentum = rule_.is_one_bit_adam ? GatherIfSharded(0, &Rank::m) : Buckets();
    const auto beta1 = static_cast<float>(rule_.adam_rule.beta1);
    const float added = static_cast<float>(1.0 - rule_.adam_rule.beta1) * state_.multiplier;
    for (size_t b = 0; b < rule_.entries.size(); ++b) {
      std::vector<std::vector<float>> of_rank;
      for (const Buckets& gradients : local) {
        std::vector<float>& own = of_rank.emplace_back();
        for (const Range& entry : rule_.entries[b]) {
          for (size_t i = 0; i < entry.size; ++i) {
            const float gradient = gradients[b][entry.begin + i];
            if (rule_.is_one_bit_adam) {
              const float decayed = momentum[b][entry.begin + i] * beta1;
              const float part = gradient * added;
              own.push_back(decayed + part);
            } else {
              own.push_back(gradient * state_.multiplier);
            }
          }
        }
      }
      const auto exchanged = ExchangedOfBucket(of_rank, b);
      auto next = exchanged.begin();
      for (const Range& entry : rule_.entries[b]) {
        for (size_t i = 0; i < entry.size; ++i) mean[b][entry.begin + i] = *next++;
      }
    }
    const float multiplier = std::exchange(state_.multiplier, 1.0f);
    for (size_t r = 0; r < rule_.ranks; ++r) {
      const Buckets own = rule_.stage == 0 ? mean : Slice(mean, r);
      if (rule_.var_update_scaler > 0) {
        UpdateKept(own, ranks_[r]);
        continue;
      }
      rule_.is_one_bit_adam ? UpdateFrozen(own, ranks_[r]) : Update(own, ranks_[r]);
    }
    state_.multiplier = multiplier;
    Publish();
  }

  std::vector<float> ExchangedOfBucket(const std::vector<std::vector<float>>& of_rank, size_t b) {
    const size_t places = Groups() > 1 ? Sharers() : 1;
    const size_t size = ranks_[0].master[b].size() * (rule_.stage == 0 ? 1 : Sharers());
    if (errors_.size() == b) errors_.emplace_back();
    std::vector<float> mean;
    for (size_t place = 0; place < places; ++place) {
      // What slice `place` has of the bucket's elements that are exchanged.
      const size_t first = ExchangedBefore(b, place * size / places);
      const size_t last = ExchangedBefore(b, (place + 1) * size / places);
      std::vector<std::vector<float>> parts;
      for (const std::vector<float>& values : of_rank) {
        parts.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(first),
                           values.begin() + static_cast<std::ptrdiff_t>(last));
      }
      if (errors_[b].size() == place) {
        errors_[b].emplace_back(rule_, MatricesIn(b, first, last), last - first, parts.size(),
                                ExchangesInTwoHops());
      }
      const auto exchanged = rule_.ranks == 1 ? parts[0] : Exchanged(parts, errors_[b][place]);
      mean.insert(mean.end(), exchanged.begin(), exchanged.end());
    }
    return mean;
  }

  // How many of the exchanged elements lie before this one of the bucket.
  size_t ExchangedBefore(size_t bucket, size_t element) const {
    size_t before = 0;
    for (const Range& entry : rule_.entries[bucket]) {
      if (element > entry.begin) before += std::min(entry.size, element - entry.begin);
    }
    return before;
  }

  // What [first, last) of the exchanged elements has of the matrices.
  std::vector<TensorPlace> MatricesIn(size_t bucket, size_t first, size_t last) const {
    std::vector<TensorPlace> cut;
    if (rule_.places.empty()) return cut;
    for (const TensorPlace& whole : rule_.places[bucket]) {
      // Rows that are there as a whole are a matrix; what there is of each run of others is a row.
      size_t rows_begin = 0, rows_end = 0, vector_size = 0;
      const auto add_vector = [&](size_t end) {
        if (vector_size > 0) cut.push_back({end - vector_size - first, 1, vector_size});
        vector_size = 0;
      };
      const auto add_rows = [&] {
        if (rows_end > rows_begin) {
          cut.push_back(
              {rows_begin - first, (rows_end - rows_begin) / whole.columns, whole.columns});
        }
        rows_begin = rows_end = 0;
      };
      for (size_t row = 0; row < whole.rows; ++row) {
        const size_t begin = std::clamp(whole.offset + row * whole.columns, first, last);
        const size_t end = std::clamp(whole.offset + (row + 1) * whole.columns, first, last);
        if (end - begin == whole.columns) {
          add_vector(begin);
          if (rows_end == rows_begin) rows_begin = begin;
          rows_end = end;
        } else if (end > begin) {
          add_rows();
          vector_size += end - begin;
        }
        if (row + 1 == whole.rows) add_rows(), add_vector(end);
      }
    }
    return cut;
  }

  // Ranks, or groups.
  size_t Exchanging() const { return Groups() > 1 ? Groups() : rule_.ranks; }
  bool ExchangesInTwoHops() const {
    return rule_.exchange == TrainingRule::Exchange::kOneBit && Groups() == 1 && TwoHops();
  }

  // Of 0/1 Adam, once a step: as DeepSpeed counts. The first such step forgets errors.
  bool IsMeeting() {
    if (state_.iteration == rule_.var_freeze_step) errors_.clear();
    if (agreed_.empty()) {
      agreed_ = ranks_[0].master;
      moved_.assign(rule_.ranks, Zeros(agreed_));
    }
    const bool meets = (state_.iteration + 1) % local_interval_ == 0;
    if (++local_counter_ == rule_.local_step_scaler) {
      local_counter_ = 0;
      local_interval_ = std::min(2 * local_interval_, rule_.local_step_clipper);
    }
    return meets;
  }

  void UpdateAlone(const std::vector<Buckets>& local) {
    const AdamRule& rule = rule_.adam_rule;
    const float lr = LearningRate(rule_.learning_rates, state_);
    for (size_t r = 0; r < rule_.ranks; ++r) {
      Rank& rank = ranks_[r];
      for (size_t b = 0; b < agreed_.size(); ++b) {
        for (size_t i = 0; i < agreed_[b].size(); ++i) {
          const float gradient = local[r][b][i] * state_.multiplier;
          float& m = rank.m[b][i];
          m = std::fma(static_cast<float>(rule.beta1), m,
                       static_cast<float>(1.0 - rule.beta1) * gradient);
          rank.master[b][i] =
              FrozenAdamUpdate(rank.master[b][i], m, rank.v[b][i], rule, {lr, lr, 1.0f});
          const float move = m * lr;
          moved_[r][b][i] += move;
        }
      }
    }
    rates_ += lr;
    Publish();
  }

  void Meet(const std::vector<Buckets>& local) {
    const AdamRule& rule = rule_.adam_rule;
    const float lr = LearningRate(rule_.learning_rates, state_);
    const float of_moment = lr * static_cast<float>(rule.beta1);
    const float of_gradient = lr * static_cast<float>(1.0 - rule.beta1) * state_.multiplier;
    Buckets mean = Zeros(agreed_);
    for (size_t b = 0; b < rule_.entries.size(); ++b) {
      std::vector<std::vector<float>> of_rank;
      // Groups meet in each step: what a group has moved before is 0, its moments are all ranks'.
      for (size_t r = 0; r < local.size(); ++r) {
        std::vector<float>& own = of_rank.emplace_back();
        for (const Range& entry : rule_.entries[b]) {
          for (size_t i = entry.begin; i < entry.begin + entry.size; ++i) {
            const float decayed = ranks_[r].m[b][i] * of_moment;
            const float added = local[r][b][i] * of_gradient;
            float sum = moved_[r][b][i] + decayed;
            sum += added;
            own.push_back(sum);
          }
        }
      }
      const auto exchanged = ExchangedOfBucket(of_rank, b);
      auto next = exchanged.begin();
      for (const Range& entry : rule_.entries[b]) {
        for (size_t i = 0; i < entry.size; ++i) mean[b][entry.begin + i] = *next++;
      }
    }
    rates_ += lr;
    TakeMean(mean);
  }

  // By the mean of what ranks have moved: a step from the weights of the last meeting.
  void TakeMean(const Buckets& mean) {
    const float inverse = rates_ > 0 ? 1.0f / rates_ : 0.0f;
    for (size_t b = 0; b < mean.size(); ++b) {
      for (size_t i = 0; i < mean[b].size(); ++i) {
        const float m = mean[b][i] * inverse;
        agreed_[b][i] = FrozenAdamUpdate(agreed_[b][i], m, ranks_[0].v[b][i], rule_.adam_rule,
                                         {rates_, rates_, 1.0f});
        for (Rank& rank : ranks_) rank.m[b][i] = m;
      }
    }
    for (Rank& rank : ranks_) rank.master = agreed_;
    for (Buckets& moved : moved_) moved = Zeros(moved);
    rates_ = 0;
    Publish();
  }

  // Between steps, if there have been rates since the last meeting.
  void MeetExactly() {
    if (rates_ == 0) return;
    Buckets mean = Zeros(agreed_);
    for (size_t b = 0; b < mean.size(); ++b) {
      std::vector<std::vector<float>> of_rank;
      for (const Buckets& moved : moved_) of_rank.push_back(moved[b]);
      if (rule_.ranks > 1) {
        mean[b] = AddUp(of_rank);
        for (float& x : mean[b]) x *= static_cast<float>(1.0 / static_cast<double>(rule_.ranks));
      } else {
        mean[b] = of_rank[0];
      }
    }
    TakeMean(mean);
  }

  // What a bucket has of a parameter.
  static std::vector<float> PartOf(const std::vector<float>& bucket, const Range& entry) {
    const auto first = bucket.begin() + static_cast<std::ptrdiff_t>(entry.begin);
    return {first, first + static_cast<std::ptrdiff_t>(entry.size)};
  }

  // Of 1-bit LAMB: all tensors, by bucket, of any rank; and back to all ranks.
  void TakeTensors() {
    if (!tensors_.empty()) return;
    for (size_t b = 0; b < rule_.entries.size(); ++b) {
      tensors_.emplace_back();
      for (const Range& entry : rule_.entries[b]) {
        LambTensor x = {PartOf(ranks_[0].master[b], entry), std::vector<float>(entry.size),
                        std::vector<float>(entry.size)};
        tensors_.back().push_back({.x = x});
      }
    }
  }
  void PutTensors() {
    for (Rank& rank : ranks_) {
      for (size_t b = 0; b < tensors_.size(); ++b) {
        for (size_t t = 0; t < tensors_[b].size(); ++t) {
          const std::vector<float>& param = tensors_[b][t].x.param;
          std::copy(
              param.begin(), param.end(),
              rank.master[b].begin() + static_cast<std::ptrdiff_t>(rule_.entries[b][t].begin));
        }
      }
    }
    Publish();
  }

  void WarmUpTensors(const Buckets& gradients) {
    TakeTensors();
    const float lr = LearningRate(rule_.learning_rates, state_);
    for (size_t b = 0; b < tensors_.size(); ++b) {
      for (size_t t = 0; t < tensors_[b].size(); ++t) {
        OneBitLambWarmUp(tensors_[b][t], PartOf(gradients[b], rule_.entries[b][t]),
                         state_.multiplier, lr, rule_.one_bit_lamb_rule);
      }
    }
    PutTensors();
  }

  void ExchangeAndUpdateTensors(const std::vector<Buckets>& local) {
    TakeTensors();
    if (!is_frozen_) {
      std::vector<OneBitLambTensor> all;
      for (const auto& bucket : tensors_) all.insert(all.end(), bucket.begin(), bucket.end());
      OneBitLambFreeze(all);
      auto next = all.begin();
      for (auto& bucket : tensors_) {
        for (OneBitLambTensor& tensor : bucket) tensor = *next++;
      }
      is_frozen_ = true;
    }
    constexpr bool kSkip = false;
    for (size_t b = 0; b < tensors_.size(); ++b) {
      std::vector<std::vector<std::vector<float>>> gradients;
      for (const Buckets& of_rank : local) {
        gradients.emplace_back();
        for (const Range& entry : rule_.entries[b]) {
          gradients.back().push_back(PartOf(of_rank[b], entry));
        }
      }
      OneBitLambStep(tensors_[b], gradients, state_.multiplier,
                     LearningRate(rule_.learning_rates, state_), rule_.one_bit_lamb_rule, kSkip,
                     [&](const auto& sent) { return ExchangedOfBucket(sent, b); });
    }
    PutTensors();
  }

  void UpdateFrozen(const Buckets& momentum, Rank& rank) const {
    const GroupStep group = MakeGroupStep(rule_.adam_rule.beta1, rule_.adam_rule.beta2,
                                          LearningRate(rule_.learning_rates, state_), state_.step);
    for (size_t b = 0; b < momentum.size(); ++b) {
      for (size_t i = 0; i < momentum[b].size(); ++i) {
        float& p = rank.master[b][i];
        p = FrozenAdamUpdate(p, momentum[b][i], rank.v[b][i], rule_.adam_rule, group);
      }
    }
    rank.m = momentum;
  }

  void UpdateKept(const Buckets& gradients, Rank& rank) const {
    const float lr = LearningRate(rule_.learning_rates, state_);
    for (size_t b = 0; b < gradients.size(); ++b) {
      for (size_t i = 0; i < gradients[b].size(); ++i) {
        const float v = rank.v[b][i];
        const AdamElement x = KeptVarianceUpdate({rank.master[b][i], rank.m[b][i], v},
                                                 gradients[b][i], rule_.adam_rule, lr);
        rank.master[b][i] = x.param, rank.m[b][i] = x.m;
      }
    }
  }

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

  void UpdateMatrices(const std::vector<float>& gradients, size_t bucket, float lr,
                      Rank& rank) const {
    for (size_t t = 0; t < rule_.entries[bucket].size(); ++t) {
      const Range& entry = rule_.entries[bucket][t];
      std::vector<float> param = PartOf(rank.master[bucket], entry);
      std::vector<float> momentum = PartOf(rank.m[bucket], entry);
      MuonStep(param, momentum, PartOf(gradients, entry), rule_.places[bucket][t].rows,
               state_.multiplier, rule_.muon_rule, lr);
      const auto at = static_cast<std::ptrdiff_t>(entry.begin);
      std::copy(param.begin(), param.end(), rank.master[bucket].begin() + at);
      std::copy(momentum.begin(), momentum.end(), rank.m[bucket].begin() + at);
    }
  }

  void UpdateFactored(const std::vector<float>& gradients, size_t bucket, float lr,
                      Rank& rank) const {
    for (size_t t = 0; t < rule_.entries[bucket].size(); ++t) {
      const Range& entry = rule_.entries[bucket][t];
      if (entry.size == 0) continue;
      const TensorPlace& place = rule_.places[bucket][t];
      std::vector<float> param = PartOf(rank.master[bucket], entry);
      std::vector<float> m = PartOf(rank.m[bucket], entry);
      std::vector<float> factors =
          PartOf(rank.v[bucket], {entry.begin, AdafactorFactors(place.rows, place.columns)});
      AdafactorStep(param, factors, m, PartOf(gradients, entry), place.rows, place.columns,
                    state_.multiplier, rule_.adafactor_rule, lr, state_.step);
      const auto at = static_cast<std::ptrdiff_t>(entry.begin);
      std::copy(param.begin(), param.end(), rank.master[bucket].begin() + at);
      std::copy(m.begin(), m.end(), rank.m[bucket].begin() + at);
      std::copy(factors.begin(), factors.end(), rank.v[bucket].begin() + at);
    }
  }

  void Update(const Buckets& gradients, Rank& rank) const {
    const float lr = LearningRate(rule_.learning_rates, state_);
    const bool is_lamb = rule_.optimizer == TrainingRule::Optimizer::kLamb;
    const GroupStep group =
        rule_.var_update_scaler > 0 ? MakeGroupStep(0.0, 0.0, lr, state_.step)
        : is_lamb ? MakeGroupStep(rule_.lamb_rule.beta1, rule_.lamb_rule.beta2, lr, state_.step)
                  : MakeGroupStep(rule_.adam_rule.beta1, rule_.adam_rule.beta2, lr, state_.step);
    for (size_t b = 0; b < gradients.size(); ++b) {
      if (rule_.optimizer == TrainingRule::Optimizer::kLamb) {
        UpdateTensors(gradients[b], b, group, rank);
        continue;
      }
      if (rule_.is_adafactor) {
        UpdateFactored(gradients[b], b, lr, rank);
        continue;
      }
      if (b < rule_.coded.size() && rule_.coded[b]) {
        rule_.is_muon ? UpdateMatrices(gradients[b], b, lr, rank)
                      : UpdateCoded(gradients[b], b, group, rank);
        continue;
      }
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

  void UpdateCoded(const std::vector<float>& gradients, size_t bucket, const GroupStep& step,
                   Rank& rank) const {
    rank.coded.resize(rule_.coded.size());
    std::vector<Adam8Tensor>& tensors = rank.coded[bucket];
    tensors.resize(rule_.entries[bucket].size());
    for (size_t t = 0; t < tensors.size(); ++t) {
      const auto [begin, size] = rule_.entries[bucket][t];
      const auto part = [begin = begin, size = size](const std::vector<float>& of) {
        const auto first = of.begin() + static_cast<std::ptrdiff_t>(begin);
        return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(size));
      };
      Adam8Tensor& x = tensors[t];
      const size_t blocks = (size + kAdam8Block - 1) / kAdam8Block;
      x.param = part(rank.master[bucket]);
      x.m.resize(size);
      x.v.resize(size);
      x.m_scale.resize(blocks);
      x.v_scale.resize(blocks);
      Adam8Step(x, part(gradients), state_.multiplier, rule_.adam_rule, step);
      std::copy(x.param.begin(), x.param.end(),
                rank.master[bucket].begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }

  void UpdateTensors(const std::vector<float>& gradients, size_t bucket, const GroupStep& step,
                     Rank& rank) const {
    for (const auto& [begin, size] : rule_.entries[bucket]) {
      const auto part = [begin = begin, size = size](const std::vector<float>& of) {
        const auto first = of.begin() + static_cast<std::ptrdiff_t>(begin);
        return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(size));
      };
      LambTensor x = {part(rank.master[bucket]), part(rank.m[bucket]), part(rank.v[bucket])};
      LambStep(x, part(gradients), state_.multiplier, rule_.lamb_rule, step);
      const auto put = [begin = begin](const std::vector<float>& from, std::vector<float>& to) {
        std::copy(from.begin(), from.end(), to.begin() + static_cast<std::ptrdiff_t>(begin));
      };
      put(x.param, rank.master[bucket]);
      put(x.m, rank.m[bucket]);
      put(x.v, rank.v[bucket]);
    }
  }

  TrainingRule rule_;
  std::vector<Rank> ranks_;
  StepState state_;
  // Of Gram-Schmidt.
  static constexpr double kEpsilon = 1e-8;
  // [bucket][place of a slice; else one].
  std::vector<std::vector<ExchangeErrors>> errors_;
  std::vector<std::vector<OneBitLambTensor>> tensors_;  // [bucket][tensor]
  bool is_frozen_ = false;
  // Of 0/1 Adam.
  int64_t var_interval_ = 1, var_counter_ = 0, local_interval_ = 1, local_counter_ = 0;
  // The weights of the last meeting; what each rank has moved since then, and the sum of the rates.
  Buckets agreed_;
  std::vector<Buckets> moved_;
  float rates_ = 0;
  // [group][bucket]; empty: none yet.
  std::vector<std::vector<LocoState>> loco_;
  // 1 / loss scale of these.
  float loco_inverse_scale_ = 0;
  bool forgets_ = false;
};

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_STAGES_H_
