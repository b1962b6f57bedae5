#ifndef BRIGADE_TESTS_EXAMPLES_GPT_STAGED_PASSES_H_
#define BRIGADE_TESTS_EXAMPLES_GPT_STAGED_PASSES_H_

// A model cut over the stages of a pipeline, all of them in one thread of one rank, which run the
// items of a schedule with boundary arrays and slots made by hand.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/pass_collectives.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/nn/random.h"
#include "brigade/parallel/pass_collective.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::gpt {

// By the model's numbers of stage and parameter: tied tokens have one of each stage.
template <typename T>
using Gradients = std::map<std::pair<int, int>, std::vector<T>>;

// Weights of a part, and where its gradients go: to those of a micro-batch, each once, or all of
// them to the same ones.
template <typename T>
class PartParameters final : public zero::ParameterSource {
 public:
  PartParameters(const PassShape& shape, const ModelPart& part) : part_(part) {
    for (const zero::UnitSpec& unit : SpecOf(shape.model, shape.shards(), part)) {
      for (const zero::ParameterSpec& parameter : unit.parameters) {
        std::vector<float> values(static_cast<size_t>(parameter.size));
        const int number = part.parameters()[weights_.size()];
        InitializeParameter(shape.model, number, 3, shape.shards(), absl::MakeSpan(values));
        // Away from where it begins: biases and norms are not 0 and 1.
        nn::Random random(5, static_cast<uint64_t>(number));
        std::vector<T>& weights = weights_.emplace_back();
        for (const float value : values) {
          weights.push_back(T(value + 0.2f * static_cast<float>(random.Uniform() - 0.5)));
        }
      }
    }
  }

  // The next calls are those of a pass that may ask for gradients, of these stages, or may not.
  void Begin(Gradients<T>* gradients, const StageRange& stages) {
    EXPECT_EQ(acquired_, -1);
    gradients_ = gradients;
    next_ready_ = stages.end - 1;
    last_ready_ = gradients == nullptr ? next_ready_ : stages.first - 1;
  }
  void End() const { EXPECT_EQ(next_ready_, last_ready_); }

  absl::Status Acquire(int unit, zero::Pass) override {
    EXPECT_EQ(acquired_, -1);
    acquired_ = unit;
    return absl::OkStatus();
  }
  absl::Status Release(int unit) override {
    EXPECT_EQ(acquired_, unit);
    acquired_ = -1;
    return absl::OkStatus();
  }
  absl::StatusOr<const void*> Weights(int parameter) const override {
    EXPECT_NE(acquired_, -1);
    return weights_[static_cast<size_t>(parameter)].data();
  }
  precision::DType TypeOf(int) const override { return precision::kDType<T>; }
  absl::StatusOr<zero::GradientTarget> Gradient(int unit, int parameter) override {
    if (gradients_ == nullptr) return absl::InternalError("the pass has no gradients of weights");
    const auto at = static_cast<size_t>(parameter);
    auto& gradient = (*gradients_)[{part_.StageOf(unit), part_.parameters()[at]}];
    const bool accumulate = !gradient.empty();
    if (!accumulate) {
      gradient.resize(weights_[at].size());
      std::memset(gradient.data(), 0xFF, gradient.size() * sizeof(T));
    }
    return zero::GradientTarget{gradient.data(), accumulate};
  }
  absl::Status GradientsReady(int unit) override {
    EXPECT_EQ(part_.StageOf(unit), next_ready_--);
    return absl::OkStatus();
  }

 private:
  const ModelPart part_;
  std::vector<std::vector<T>> weights_;
  Gradients<T>* gradients_ = nullptr;
  int acquired_ = -1, next_ready_ = 0, last_ready_ = 0;
};

// Where a model is cut, and in which order its parts are run.
struct StagedCase {
  parallel::PipelineShape pipeline;
  // Of the parts, from 0 to all stages of the model.
  std::vector<int> boundaries;
  recompute::Policy policy = {};
  // A budget between what all and what block inputs take, instead of the policy.
  bool has_budget = false;
  // What all blocks save (kBlockSaveOptions), instead of what the policy says of that.
  std::optional<int> option = {};

  std::string Name() const {
    std::string name =
        absl::StrCat(ToString(pipeline.schedule), ", ", pipeline.stages, " stages, ",
                     has_budget ? "budget" : ToString(policy), ", stash ",
                     static_cast<int>(policy.stash), option.has_value() ? ", saves " : "",
                     option.has_value() ? kBlockSaveOptions[*option].name : "", ", cut at");
    for (const int boundary : boundaries) absl::StrAppend(&name, " ", boundary);
    return name;
  }
};

// The whole model, micro-batch by micro-batch.
inline StagedCase OneStage(const ModelOptions& model, int micro_batches) {
  return {.pipeline = {.micro_batches = micro_batches}, .boundaries = {0, StagesOf(model)}};
}

template <typename T>
struct StagedResult {
  using Loss = std::conditional_t<std::is_same_v<T, double>, double, float>;

  // [micro-batch].
  std::vector<std::vector<Loss>> losses;
  std::vector<Gradients<T>> gradients;
  // Of all stages.
  int64_t activation_bytes = 0;
};

// What all runs of a test share.
struct StagedLab {
  device::Context& context;
  device::Stream& stream;
  PassShape shape;
  PassGroups groups;
  double dropout = 0;
  std::string directory = {};
  // Micro-batches add to the same gradients.
  bool accumulates = false;
};

template <typename T>
class StagedRun {
 public:
  StagedRun(const StagedLab& lab, const StagedCase& staged)
      : lab_(lab),
        staged_(staged),
        schedule_(parallel::ComputationsOf(staged.pipeline).value()),
        parts_(staged.pipeline.parts()) {
    const auto micro_batches = static_cast<size_t>(staged.pipeline.micro_batches);
    const auto elements = static_cast<size_t>(lab.shape.own_rows() * lab.shape.model.width);
    const auto parts = static_cast<size_t>(parts_);
    arrays_.assign(parts, Arrays(micro_batches, std::vector<T>(elements)));
    gradients_.assign(parts, Arrays(micro_batches, std::vector<T>(elements)));
    for (Arrays* arrays : {&arrays_[0], &gradients_[0]}) {
      for (size_t p = 0; p < parts; ++p) {
        for (std::vector<T>& array : arrays[p]) Poison(array);
      }
    }
    forward_.assign(parts, std::vector<bool>(micro_batches));
    backward_.assign(parts, std::vector<bool>(micro_batches));
    const int64_t runs = std::ssize(lab.shape.runs());
    for (size_t m = 0; m < micro_batches; ++m) {
      nn::Random random(8, m);
      std::vector<uint8_t>& bytes = bytes_.emplace_back();
      bytes.resize(static_cast<size_t>(lab.shape.batch * (lab.shape.positions() + runs)));
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
      result_.losses.emplace_back(static_cast<size_t>(lab.shape.rows()));
    }
    result_.gradients.resize(micro_batches);
    for (int s = 0; s < staged.pipeline.stages; ++s) CreateStage(s);
  }

  StagedResult<T> Run() {
    const int64_t sent_before[] = {Sent(kGroups[0]), Sent(kGroups[1])};
    std::vector<size_t> next(stages_.size());
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (size_t s = 0; s < stages_.size(); ++s) {
        const auto& list = schedule_.lists[s];
        if (next[s] == list.size() || !IsReady(static_cast<int>(s), list[next[s]])) continue;
        RunItem(static_cast<int>(s), list[next[s]++]);
        goes_on = true;
      }
    }
    for (size_t s = 0; s < stages_.size(); ++s) EXPECT_EQ(next[s], schedule_.lists[s].size());
    for (size_t g = 0; g < kGroups.size(); ++g) {
      EXPECT_EQ(Sent(kGroups[g]) - sent_before[g], WantedOf(kGroups[g]));
    }
    return std::move(result_);
  }

 private:
  static constexpr std::array kGroups = {parallel::GridGroup::kTensor,
                                         parallel::GridGroup::kContext};

  using Arrays = std::vector<std::vector<T>>;
  // Of one sort, of a stage.
  struct Slots {
    int most = 0;
    std::vector<int> free;
    // By chunk and micro-batch.
    std::map<std::pair<int, int>, int> used;

    void Take(std::pair<int, int> who) {
      if (free.empty()) free.push_back(most++);
      // Not the one that was freed last, so that all are used.
      used[who] = free.front();
      free.erase(free.begin());
    }
    void Free(std::pair<int, int> who) {
      free.push_back(used.at(who));
      used.erase(who);
    }
  };
  struct Stage {
    std::unique_ptr<Transformer> transformer;
    std::unique_ptr<PartParameters<T>> parameters;
    Slots activations, deferred;
  };

  static void Poison(std::vector<T>& array) {
    std::memset(array.data(), 0xFF, array.size() * sizeof(T));
  }

  // Null for a rank alone.
  collectives::Communicator* GroupOf(parallel::GridGroup which) const {
    return which == parallel::GridGroup::kTensor ? lab_.groups.tensor : lab_.groups.context;
  }
  int64_t Sent(parallel::GridGroup which) const {
    const collectives::Communicator* const group = GroupOf(which);
    int64_t sent = 0;
    for (int to = 0; group != nullptr && to < group->size(); ++to) sent += group->sent_bytes(to);
    return sent;
  }
  // What the plans of all stages say of that.
  int64_t WantedOf(parallel::GridGroup which) const {
    int64_t wanted = 0;
    for (const Stage& stage : stages_) {
      for (const auto& each : CollectivesOfPasses(lab_.shape, stage.transformer->plan())) {
        if (each.group != which) continue;
        collectives::Communicator& group = *GroupOf(which);
        const auto signature = group.Resolve(each.signature).value();
        wanted += staged_.pipeline.micro_batches * each.times *
                  collectives::WireBytes(signature, group.rank(), group.size());
      }
    }
    return wanted;
  }

  int PartOf(int stage, int chunk) const {
    return parallel::PartOf(staged_.pipeline, stage, chunk);
  }
  StageRange RangeOf(int part) const {
    const auto p = static_cast<size_t>(part);
    return {staged_.boundaries[p], staged_.boundaries[p + 1]};
  }

  // The slots that an item takes before it runs, or frees behind it.
  static void Take(const parallel::PipelineItem& item, Stage& stage) {
    const std::pair<int, int> who = {item.chunk, item.micro_batch};
    if (item.kind == parallel::ItemKind::kForward) stage.activations.Take(who);
    if (item.kind == parallel::ItemKind::kBackwardInput) stage.deferred.Take(who);
  }
  static void Free(const parallel::PipelineItem& item, Stage& stage) {
    const std::pair<int, int> who = {item.chunk, item.micro_batch};
    if (item.kind == parallel::ItemKind::kBackwardWeight) stage.deferred.Free(who);
    if (item.kind == parallel::ItemKind::kBackwardWeight ||
        item.kind == parallel::ItemKind::kBackward) {
      stage.activations.Free(who);
    }
  }

  void CreateStage(int s) {
    std::vector<StageRange> chunks;
    for (int c = 0; c < staged_.pipeline.schedule.chunks; ++c) {
      chunks.push_back(RangeOf(PartOf(s, c)));
    }
    const ModelPart part(lab_.shape.model, chunks);
    Stage needed;
    for (const parallel::PipelineItem& item : schedule_.lists[static_cast<size_t>(s)]) {
      Take(item, needed);
      Free(item, needed);
    }
    const PassSlots slots = {needed.activations.most, needed.deferred.most};
    const PassCosts costs = CountOperations(lab_.shape);
    recompute::Policy policy = staged_.policy;
    if (staged_.has_budget) {
      const auto bytes = [&](recompute::Policy::Kind kind) {
        return ActivationBytes(lab_.shape,
                               PlanPart(lab_.shape, costs, part, slots, {.kind = kind}).value());
      };
      policy = {
          .kind = recompute::Policy::Kind::kBudget,
          .budget_bytes =
              (bytes(recompute::Policy::Kind::kNone) + bytes(recompute::Policy::Kind::kBlock)) / 2};
    }
    PartPlan plan = PlanPart(lab_.shape, costs, part, slots, policy).value();
    if (staged_.option.has_value()) plan = WithOption(std::move(plan), policy);
    const int64_t bytes = ActivationBytes(lab_.shape, plan);
    if (staged_.has_budget) {
      EXPECT_LE(bytes, policy.budget_bytes);
    }
    result_.activation_bytes += bytes;
    Stage& stage = stages_.emplace_back();
    const auto activations = [&] {
      return lab_.context.memory_stats().current_bytes(device::Purpose::kActivations);
    };
    const int64_t before = activations();
    const device::FileOptions file = {.directory = lab_.directory};
    stage.transformer =
        Transformer::Create(lab_.shape, std::move(plan), lab_.context, lab_.groups,
                            policy.stash == recompute::StashTier::kFile ? &file : nullptr)
            .value();
    EXPECT_EQ(activations() - before, bytes);
    stage.parameters = std::make_unique<PartParameters<T>>(lab_.shape, part);
  }

  // The policy's plan, in which all blocks save the case's option.
  PartPlan WithOption(PartPlan plan, const recompute::Policy& policy) const {
    for (size_t c = 0; c < plan.schedules.size(); ++c) {
      const recompute::Chain chain =
          ActivationChain(lab_.shape, CountOperations(lab_.shape), plan.part.chunks()[c],
                          plan.slots.splits_backward());
      recompute::Plan of_chunk = PlanOf(chain, policy).value();
      for (recompute::Operation& operation : of_chunk.operations) {
        using recompute::Action;
        const auto s = static_cast<size_t>(operation.stage);
        if (chain.stages[s].options.size() == 1) continue;
        if (operation.action != Action::kForwardSave && operation.action != Action::kBackward) {
          continue;
        }
        operation.option = *staged_.option;
      }
      plan.schedules[c] = recompute::Place(chain, of_chunk, plan.slots.placement()).value();
    }
    return plan;
  }

  bool IsReady(int stage, const parallel::PipelineItem& item) const {
    const int part = PartOf(stage, item.chunk);
    const auto m = static_cast<size_t>(item.micro_batch);
    switch (item.kind) {
      case parallel::ItemKind::kForward:
        return part == 0 || forward_[static_cast<size_t>(part) - 1][m];
      case parallel::ItemKind::kBackwardWeight:
        return true;
      default:
        return part + 1 == parts_ || backward_[static_cast<size_t>(part) + 1][m];
    }
  }

  void RunItem(int s, const parallel::PipelineItem& item) {
    using Kind = parallel::ItemKind;
    Stage& stage = stages_[static_cast<size_t>(s)];
    Take(item, stage);
    const std::pair<int, int> who = {item.chunk, item.micro_batch};
    const auto p = static_cast<size_t>(PartOf(s, item.chunk));
    const auto m = static_cast<size_t>(item.micro_batch);
    const bool is_first = p == 0, is_last = static_cast<int>(p) + 1 == parts_;
    const bool is_half = item.kind == Kind::kBackwardInput || item.kind == Kind::kBackwardWeight;
    parallel::StagePass pass = {.chunk = item.chunk,
                                .micro_batch = item.micro_batch,
                                .activations = stage.activations.used.at(who)};
    if (is_half) pass.deferred = stage.deferred.used.at(who);
    if (!is_first) pass.input = arrays_[p - 1][m].data();
    if (item.kind == Kind::kForward) {
      if (!is_last) pass.output = arrays_[p][m].data();
    } else if (item.kind != Kind::kBackwardWeight) {
      if (!is_last) pass.output_gradient = gradients_[p][m].data();
      if (!is_first) pass.input_gradient = gradients_[p - 1][m].data();
    }
    const nn::Texts texts = {bytes_[m].data(), lab_.shape.batch, lab_.shape.positions(),
                             std::ssize(lab_.shape.runs())};
    const int64_t step = 12;
    const nn::DropoutMask dropout = {
        .probability = lab_.dropout,
        .seed = 7,
        .step = &step,
        .first_element = item.micro_batch * lab_.shape.rows() * lab_.shape.model.width};
    const float seed = 1024;
    const bool has_gradients = item.kind == Kind::kBackward || item.kind == Kind::kBackwardWeight;
    Gradients<T>& gradients = result_.gradients[lab_.accumulates ? 0 : m];
    PartParameters<T>& parameters = *stage.parameters;
    parameters.Begin(has_gradients ? &gradients : nullptr, RangeOf(static_cast<int>(p)));
    Transformer& transformer = *stage.transformer;
    const auto run = [&]() -> absl::Status {
      switch (item.kind) {
        case Kind::kForward:
          forward_[p][m] = true;
          return transformer.Forward(pass, texts, is_last ? result_.losses[m].data() : nullptr,
                                     dropout, parameters, lab_.stream);
        case Kind::kBackward:
          backward_[p][m] = true;
          return transformer.Backward(pass, texts, is_last ? &seed : nullptr, dropout, parameters,
                                      lab_.stream);
        case Kind::kBackwardInput:
          backward_[p][m] = true;
          return transformer.BackwardInput(pass, texts, is_last ? &seed : nullptr, dropout,
                                           parameters, lab_.stream);
        default:
          return transformer.BackwardWeight(pass, texts, parameters, lab_.stream);
      }
    };
    ASSERT_OK(run());
    ASSERT_OK(lab_.stream.Synchronize());
    parameters.End();
    // What nobody may read any more.
    const bool frees_input = item.kind == Kind::kBackward || item.kind == Kind::kBackwardWeight;
    if (frees_input && !is_first) Poison(arrays_[p - 1][m]);
    if (item.kind != Kind::kForward && !is_last) Poison(gradients_[p][m]);
    Free(item, stage);
  }

  const StagedLab& lab_;
  const StagedCase& staged_;
  const parallel::PipelineSchedule schedule_;
  const int parts_;
  std::vector<Stage> stages_;
  // [part][micro-batch]: what it computes, and the gradient of that.
  std::vector<Arrays> arrays_, gradients_;
  // [part][micro-batch]: which passes have been.
  std::vector<std::vector<bool>> forward_, backward_;
  std::vector<std::vector<uint8_t>> bytes_;
  StagedResult<T> result_;
};

template <typename T>
StagedResult<T> RunStaged(const StagedLab& lab, const StagedCase& staged) {
  return StagedRun<T>(lab, staged).Run();
}

template <typename T>
void ExpectSameBits(const StagedResult<T>& result, const StagedResult<T>& wanted) {
  EXPECT_EQ(result.losses, wanted.losses);
  ASSERT_EQ(result.gradients.size(), wanted.gradients.size());
  for (size_t m = 0; m < wanted.gradients.size(); ++m) {
    ASSERT_EQ(result.gradients[m].size(), wanted.gradients[m].size());
    for (const auto& [key, gradient] : wanted.gradients[m]) {
      const std::vector<T>& other = result.gradients[m].at(key);
      ASSERT_EQ(other.size(), gradient.size());
      EXPECT_EQ(std::memcmp(other.data(), gradient.data(), gradient.size() * sizeof(T)), 0)
          << "micro-batch " << m << ", stage " << key.first << ", parameter " << key.second;
    }
  }
}

}  // namespace brigade::gpt

#endif  // BRIGADE_TESTS_EXAMPLES_GPT_STAGED_PASSES_H_
