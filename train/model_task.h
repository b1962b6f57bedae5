#ifndef BRIGADE_TRAIN_MODEL_TASK_H_
#define BRIGADE_TRAIN_MODEL_TASK_H_

// Any models::Model and any data::Samples as a task of train/.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "brigade/data/samples.h"
#include "brigade/device/context.h"
#include "brigade/models/model.h"
#include "brigade/models/tensor_options.h"
#include "brigade/parallel/context/context_ranks.h"
#include "brigade/parallel/grid.h"
#include "brigade/train/config/config.h"
#include "brigade/train/job.h"
#include "brigade/train/task.h"

namespace brigade::train {

// For what a rank's model is made: micro-batches of so many samples.
struct ModelPlace {
  // Among others the type of weights and activations, zero.dtype, and what is to be made again in
  // the backward pass, `recompute`. A factory refuses what its model cannot do; one that makes
  // nothing again need not look (models::Model::recomputes).
  const TrainConfig& config;
  device::Context& context;
  int64_t samples = 1;
  // Of a sample, as much as this rank has.
  int64_t positions = 1;
  // Likewise: a model whose data may have several forms sees which it is.
  int64_t input_bytes = 0;
  // With several of them a sample's positions are cut over these ranks, and the model must say that
  // it is made for that, by models::Model::cuts_positions.
  parallel::ContextRanks context_ranks = {};
  // Of a pipeline: which of its units the model needs memory for, first none, so that it tells what
  // it would be. A model that does not give models::Model::BoundaryOf need not look.
  std::optional<models::StageUnits> stage = std::nullopt;
  // How many tensor shards the model has, and which are this rank's. A model that does not give
  // models::Model::cut need not look. One without units, of `stage`, has no ranks to call: where
  // only a spec is asked for, `tensor.ranks` is null.
  models::TensorOptions tensor = {};
};

// Makes a model, the same on all ranks. Called by each rank on its own thread; the context outlives
// the model.
using ModelFactory =
    std::function<absl::StatusOr<std::unique_ptr<models::Model>>(const ModelPlace& place)>;

// What a model is trained on.
struct TrainingData {
  std::shared_ptr<const data::Samples> training;
  // Of the same shape; null: nothing is evaluated.
  std::shared_ptr<const data::Samples> held_out = nullptr;
  // Each epoch in another order, of Job::seed; else always from the first sample to the last.
  bool shuffle = true;
  // The samples behind an epoch's last whole batch are left out, as where the config says so
  // (dataloader_drop_last); else they are a short step.
  bool drop_last = false;
  // 0: without end.
  int64_t epochs = 0;

  // How many steps so many epochs are, with this batch; 0 where they are without end.
  // InvalidArgument for data that no step can be made of.
  absl::StatusOr<int64_t> Steps(int64_t batch) const;
};

// A model and its data, on the data, tensor, context and pipeline ranks of a grid, in every ZeRO
// stage.
//
// Tensor ranks A model that says how its matrices are cut (models::Model::cut) is shared by them,
//              in TrainConfig::tensor_shards shards. With the same shards losses and weights are,
//              bit by bit on a CPU, those of one rank, if the model's sums over shards are.
// Context      Where the data say what of a sample goes by positions (data::Samples::position_rows)
//              and the model takes a part of these (models::Model::cuts_positions), context ranks
//              share each sample: all read it, and each copies its positions to its device. Losses
//              and weights are those of one rank up to the order of sums, and rounding; the same in
//              every run.
// Pipelines    A model that says what crosses between its units (models::Model::BoundaryOf) is cut
//              into ranges of these, as TrainConfig::partition says. Losses and weights are, bit by
//              bit, those without a pipeline; passes go together in a step (Trainer::Fit, not
//              Batch).
// Weights      A step's gradient is that of the mean over all losses that count in it, on all ranks
//              and in all micro-batches: a short step weighs what it is. The losses that are told
//              are such means too.
// Data         Which samples a step has is a function of seed and step (data/sampler.h), so that
//              a training goes on inside an epoch, on any number of ranks, as if it had not
//              stopped. They are read ahead on a thread.
// Checkpoints  Have the data's sizes and a checksum of some samples: another data set is refused.
// Errors       CreatePart: InvalidArgument naming all keys for what a Model does not do: sequence
//              parallelism, tensor parallelism if it does not say how it is cut, context
//              parallelism if model or data do not say how a sample is, a pipeline if it does not
//              say what crosses, a schedule that splits the backward pass if it does not, a
//              partition by measured times, a partition or a profile by operations if it does not
//              tell these, recomputation if it makes nothing again, and its measured times, dropout
//              of the config's; with replicas it needs drop_last. Those of the factory. Steps:
//              those of data/loader.h, of the model and of the samples.
class ModelTask final : public Task {
 public:
  // InvalidArgument for data without samples, or of two shapes.
  static absl::StatusOr<std::unique_ptr<ModelTask>> Create(ModelFactory model, TrainingData data);

  absl::StatusOr<std::unique_ptr<RankPart>> CreatePart(const RankPlace& place) const override;
  collectives::JobValues Values(const Job& job) const override;
  checkpoint::Fields Fields(const Job& job) const override;
  absl::StatusOr<zero::ModelSpec> Spec(const Job& job, const parallel::Coordinates& at,
                                       device::Context& context) const override;
  int64_t held_out_samples() const override;
  int64_t held_out_losses() const override { return held_out_losses_; }

 private:
  ModelTask(ModelFactory model, TrainingData data)
      : model_(std::move(model)), data_(std::move(data)) {}

  // The data of a training by this config.
  TrainingData DataOf(const TrainConfig& config) const;
  // Of the data, in words.
  std::string Order(const TrainConfig& config) const;
  // On a rank that has a part of the model, of each sample, or of both. `ranks`: the tensor group,
  // if there is one.
  ModelPlace PlaceOf(const Job& job, const parallel::Coordinates& at,
                     collectives::Communicator* ranks, const parallel::ContextRanks& context_ranks,
                     device::Context& context) const;

  const ModelFactory model_;
  const TrainingData data_;
  int64_t held_out_losses_ = 0;
  // In words, with checksums.
  std::string training_, held_out_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_MODEL_TASK_H_
