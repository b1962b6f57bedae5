#ifndef BRIGADE_MODELS_MODEL_H_
#define BRIGADE_MODELS_MODEL_H_

// What a training needs of a model, whatever it computes: units with named parameters, and the
// forward and backward pass of each.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/models/model_cut.h"
#include "brigade/nn/gradient.h"
#include "brigade/parallel/pass_collective.h"
#include "brigade/parallel/pipeline/stage_range.h"
#include "brigade/precision/dtype.h"
#include "brigade/profile/step_profile.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/step.h"

namespace brigade::models {

// What one stage of a pipeline has of a model, whose units and parameters keep their numbers.
struct StageUnits {
  // Ranges of units, in ascending order. None: the model has its spec and its formulas alone, and
  // no memory of passes.
  std::vector<parallel::StageRange> chunks = {};
  // How many times there is what the passes over a chunk keep from the forward to the backward
  // pass; and what the first half of a backward pass leaves to the second, 0 where no pass is
  // split.
  int slots = 0;
  int deferred = 0;
};

// Backward passes in two halves, in which some schedules of pipelines make them: gradients of
// inputs, and later those of weights.
enum class BackwardHalf : uint8_t { kBoth, kInputs, kWeights };

// Which of the units a pass is over, and where it has what crosses to those of other stages
// (parallel/pipeline/stage_module.h). Without units it is over the whole model.
struct ChunkPass {
  parallel::StageRange units = {};
  // Of StageUnits; `deferred` in a half of a backward pass.
  int slot = 0;
  int deferred = 0;
  BackwardHalf half = BackwardHalf::kBoth;
  // Arrays of Boundary: what the unit before has made, what the last unit makes, and their
  // gradients; the backward pass may write over output_gradient. Null at the model's begin and end.
  const void* input = nullptr;
  void* output = nullptr;
  void* output_gradient = nullptr;
  void* input_gradient = nullptr;

  bool is_first(int unit) const { return units.size() > 0 && unit == units.first; }
  bool is_last(int unit) const { return units.size() > 0 && unit + 1 == units.end; }
};

// What crosses from a unit to the next: of a batch an array of one shape at each boundary, of which
// a unit that makes less leaves the end.
struct Boundary {
  int64_t elements = 0;
  precision::DType dtype = precision::DType::kFloat32;
};

// A micro-batch in device memory. What the arrays hold is the model's to say.
struct Batch {
  const void* inputs = nullptr;
  // Null: nothing to compare with, and no losses.
  const void* targets = nullptr;
  int64_t samples = 0;
  // Of each sample: tokens of a text, 1 for a model without. Of a model that is made for ranks that
  // share samples (Model::cuts_positions) those that this rank has, and so are the arrays'.
  int64_t positions = 1;
  // For models with dropout, in training: [1], device memory, a number of the step's own, the same
  // in both passes (nn::DropoutMask::step). Null: nothing is dropped, as in an evaluation.
  const int64_t* step = nullptr;
  // The number of the first sample among all of the step, of all ranks and micro-batches: what is
  // dropped does then not depend on how many there are.
  int64_t first_sample = 0;
  // Of models that are made for a stage of a pipeline.
  ChunkPass chunk = {};

  int64_t rows() const { return samples * positions; }
};

// Device memory that a model has, by purpose, in bytes.
struct ModelMemory {
  int64_t activations = 0;
  int64_t scratch = 0;
};

// Operations of a unit's passes, [profile::Pass].
using UnitFlops = std::array<profile::Flops, profile::kPasses>;

// The numbers that a source has of a model's units and parameters, [number in the spec], -1 for
// those of other stages of a pipeline. Empty: the spec's own.
struct SourceNumbers {
  absl::Span<const int> units = {};
  absl::Span<const int> parameters = {};

  int unit(int number) const { return At(units, number); }
  int parameter(int number) const { return At(parameters, number); }

 private:
  static int At(absl::Span<const int> numbers, int number) {
    return numbers.empty() ? number : numbers[static_cast<size_t>(number)];
  }
};

// The weights of one acquired unit, and where its gradients go.
class UnitParameters {
 public:
  UnitParameters(const std::vector<bool>& trainable, zero::UnitScope& scope,
                 const SourceNumbers& numbers = {})
      : trainable_(trainable), numbers_(numbers), scope_(&scope) {}
  // Of BackwardHalf::kWeights, which uses no weights: the unit is not acquired.
  UnitParameters(const std::vector<bool>& trainable, zero::ParameterSource& source, int unit,
                 const SourceNumbers& numbers)
      : trainable_(trainable), numbers_(numbers), source_(&source), unit_(unit) {}

  // By the parameter's number in the spec. Null for one below 0, which the unit does not have, and
  // after an error.
  const void* weights(int parameter);
  // Without data for a frozen one, and as above: layers leave such a gradient out.
  nn::Gradient gradient(int parameter);

  // The first error so far.
  const absl::Status& status() const { return scope_ == nullptr ? status_ : scope_->status(); }

 private:
  const std::vector<bool>& trainable_;
  const SourceNumbers numbers_;
  zero::UnitScope* const scope_ = nullptr;
  zero::ParameterSource* const source_ = nullptr;
  // In the source.
  const int unit_ = -1;
  absl::Status status_;
};

// A model with the memory of one micro-batch: a forward pass of all units in their order, and, if
// it is to be trained, the backward pass of all in the reverse order, before the next forward pass.
//
// Pipelines    One that gives BoundaryOf can be made for a stage of a pipeline (StageUnits): passes
//              are then over the units of one of its chunks (Batch::chunk), and each slot is free
//              again behind its backward pass. Forward passes that no backward pass follows, of an
//              evaluation, come when no step is in flight, and leave their slots free.
//
// Tensor ranks One that gives its cut can be made for tensor ranks: spec() is then what this rank
//              has, and passes are calls of all of them.
//
// Stream       Passes are enqueued on the one stream of all calls; they allocate nothing and never
//              wait.
class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Of zero::ZeroOptimizer::Create.
  const zero::ModelSpec& spec() const { return spec_; }
  // By the parameter's number in the spec.
  const std::vector<bool>& trainable() const { return trainable_; }
  // How many numbers a parameter is, which a partition by parameters weighs: its elements, unless
  // these are words of codes.
  virtual int64_t CountOf(int parameter) const { return sizes_[static_cast<size_t>(parameter)]; }

  // By formula: what the model has allocated of its device.
  virtual ModelMemory bytes() const { return {}; }

  // How its parameters are cut over tensor ranks; null of a model whose matrices they cannot share.
  virtual const ModelCut* cut() const { return nullptr; }
  // Whether it is made for samples whose positions are cut over context ranks
  // (parallel/context/context_ranks.h), of which each has batches of its part: losses and gradients
  // are then of these, and ranks exchange what positions need of others. All of the group make the
  // same passes in one order.
  virtual bool cuts_positions() const { return false; }
  // What the passes of all its units over a batch exchange: forward, backward, and what is made
  // again. Nothing where a rank has none to share with.
  virtual std::vector<parallel::PassCollective> CollectivesOf(const Batch& /*batch*/) const {
    return {};
  }

  // How many losses a batch has; each counts the same, but for those that the model leaves at 0.
  virtual int64_t LossesOf(const Batch& batch) const = 0;

  // What crosses between two units for a batch; nothing of a model that is on one rank as a whole.
  virtual std::optional<Boundary> BoundaryOf(const Batch& /*batch*/) const { return std::nullopt; }
  // Whether BackwardUnit does halves of it. The half kInputs makes input_gradient and no gradients
  // of parameters: what these need stays in the slot and in `deferred`. The half kWeights comes
  // later, perhaps behind passes of other micro-batches, and writes all of them; it has the same
  // input and output_gradient, as the first half has left it, but no weights, no RecomputeUnit
  // and no memory for input_gradient.
  virtual bool splits_backward() const { return false; }
  // For how many passes there is memory, as StageUnits says: a training refuses a model that has
  // less than its schedule needs.
  virtual int slots() const { return 1; }
  virtual int deferred() const { return 0; }

  // For a profile, by formula (profile/flops.h): what the passes over a batch compute on this rank,
  // the forward pass, the backward pass, and RecomputeUnit. Nothing of a model that does not tell.
  virtual std::optional<UnitFlops> FlopsOf(int /*unit*/, const Batch& /*batch*/) const {
    return std::nullopt;
  }
  // The same of all tensor ranks, without what several of them compute alike: what one would that
  // has the whole model.
  virtual std::optional<UnitFlops> WholeFlopsOf(int unit, const Batch& batch) const {
    return FlopsOf(unit, batch);
  }

  // Values of a new training: a function of the seed and the parameter alone. Of a parameter that
  // is cut all of them, as it is as a whole.
  virtual void Initialize(int parameter, uint64_t seed, absl::Span<float> values) const = 0;

  // Of the last unit: writes losses [LossesOf(batch)], float (double for float64), device memory,
  // unless it is null.
  //
  // Errors       InvalidArgument naming a batch that the model has no memory for, before anything
  //              is enqueued; those of the layers and of `parameters`.
  virtual absl::Status ForwardUnit(int unit, const Batch& batch, void* losses,
                                   UnitParameters& parameters, device::Stream& stream) = 0;

  // Whether its backward passes make again what a training's configuration asks for, where it does
  // (TrainConfig::recompute, with its stash). A training that asks refuses a model that does not;
  // of one that does some of it, its factory refuses the rest.
  virtual bool recomputes() const { return false; }
  // Before the unit's backward pass: makes again what its forward pass has not kept.
  virtual absl::Status RecomputeUnit(int /*unit*/, const Batch& /*batch*/,
                                     UnitParameters& /*parameters*/, device::Stream& /*stream*/) {
    return absl::OkStatus();
  }

  // The unit's part of the gradient of seed * (sum of the losses); `seed` [1] is device memory,
  // which the last unit reads. For means over what counts, in a batch or in all of a step, the seed
  // has its share.
  virtual absl::Status BackwardUnit(int unit, const Batch& batch, const float* seed,
                                    UnitParameters& parameters, device::Stream& stream) = 0;

 protected:
  explicit Model(zero::ModelSpec spec);

 private:
  const zero::ModelSpec spec_;
  std::vector<bool> trainable_;
  std::vector<int64_t> sizes_;
};

// By its name, the model's number of each parameter that the plan of a training has: all of them,
// or, where ranks share the model (ZeroOptions::model_ranks), some. InvalidArgument naming both
// numbers, or the parameter that is none of the model's.
absl::StatusOr<std::vector<int>> NumbersIn(const Model& model, const zero::Plan& plan,
                                           bool is_shared);

// Called before the stream gets a unit's pass.
using PassMark = std::function<absl::Status(profile::Pass pass, int unit)>;

// All units, or those of the batch's chunk, as a ParameterSource has to be called: each is acquired
// for its pass, and its gradients are ready after its backward pass. `mark` may be null.
absl::Status Forward(Model& model, const Batch& batch, void* losses, zero::ParameterSource& source,
                     device::Stream& stream, const PassMark& mark = nullptr,
                     const SourceNumbers& numbers = {});
absl::Status Backward(Model& model, const Batch& batch, const float* seed,
                      zero::ParameterSource& source, device::Stream& stream,
                      const PassMark& mark = nullptr, const SourceNumbers& numbers = {});

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_MODEL_H_
