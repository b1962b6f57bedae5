#ifndef BRIGADE_TUNE_RANK_MODEL_H_
#define BRIGADE_TUNE_RANK_MODEL_H_

// What a job needs of memory and takes of time, before it runs.
//
// Memory       That of the trainer's own formulas (train/rank_memory.h), of every rank, to
//              the byte: those of collectives are asked of communicators like the training's.
// Time         A model, for an order: the passes by a trial of one block, the collectives by the
//              cost model of collectives/tuning with figures of this machine, the update and what
//              moves by bytes. docs/tuning.md says how good it is.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/collectives/tuning/topology.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/parallel/pipeline/item.h"
#include "brigade/tune/world.h"
#include "brigade/zero/plan/memory_model.h"

namespace brigade::tune {

// Of the machine, with all ranks at work, as they are in a training.
struct Figures {
  collectives::Topology topology;
  // Of an element of a rank's slices: check and update.
  double update_s = 1e-9;
  // Bytes a second that a rank reads and writes.
  double memory_bytes_per_s = 5e9;
  // Between device and host, each way.
  double link_bytes_per_s = 5e9;
  // Between host and file.
  double file_bytes_per_s = 1e9;
  // Ranks beyond so many wait for each other: the process's processors, or 1 of a GPU that all
  // share.
  int processors = 1;
};

// A trial's seconds of passes over micro-batches of two sizes, between and beyond which they are
// taken as a line. Of ranks that share a model's matrices and texts as one key says.
struct MeasuredCosts {
  int64_t small_batch = 1;
  gpt::PassCosts small = {};
  int64_t large_batch = 2;
  gpt::PassCosts large = {};

  gpt::PassCosts At(int64_t batch) const;
};

// Seconds of a step.
struct StepSeconds {
  double passes = 0;
  // What of collectives no pass hides: those of ZeRO, and those in passes.
  double collectives = 0;
  double shared_passes = 0;
  double update = 0;
  // Between tiers.
  double moves = 0;
  // Of a pipeline, beside the work.
  double bubble = 0;

  double total() const { return passes + collectives + shared_passes + update + moves + bubble; }
};

// What fits one rank.
struct RankNeeds {
  std::vector<zero::MemoryTerm> terms;
  // Of the device: with what is there for a moment. Of the host: without it.
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;
  // Of device_bytes.
  int64_t activation_bytes = 0;
};

struct Prediction {
  // Of the rank that needs most on the device.
  RankNeeds needs;
  int rank = 0;
  // Of the rank that needs most on the host.
  int64_t host_bytes = 0;
  StepSeconds seconds;
};

class RankModel {
 public:
  // Both must outlive the model. `figures` may be changed between calls.
  RankModel(World& world, const Figures& figures) : world_(world), figures_(figures) {}

  // Trials for ranks that share a model's matrices and texts like those of a job.
  using SharedKey = std::tuple<int, int, bool, int, bool>;
  static SharedKey KeyOf(const gpt::Job& job);
  void SetCosts(const SharedKey& key, const MeasuredCosts& costs) { costs_[key] = costs; }

  // Needs no costs. Errors of the planner: a budget that is too small, parts that do not fit.
  absl::StatusOr<Prediction> MemoryOf(const gpt::Job& job);
  // Memory and time. Without costs of its key by operations, at 1e9 a second.
  absl::StatusOr<Prediction> Predict(const gpt::Job& job);

 private:
  struct Part;
  absl::StatusOr<Part> PartOf(const gpt::Job& job, const World::Place& place,
                              device::Context& context) const;
  absl::StatusOr<RankNeeds> NeedsOf(const gpt::Job& job, const World::Place& place,
                                    const Part& part) const;
  absl::StatusOr<StepSeconds> SecondsOf(const gpt::Job& job, const Part& part, double& work) const;
  absl::StatusOr<Prediction> Of(const gpt::Job& job, bool with_time);
  gpt::PassCosts CostsOf(const gpt::Job& job) const;
  // Of one call of a group of `size` ranks.
  double CollectiveSeconds(const collectives::CollectiveSignature& signature, int size) const;

  World& world_;
  const Figures& figures_;
  std::map<SharedKey, MeasuredCosts> costs_;
};

// "weights 1024, padding 12": the terms of one tier by their names, the largest first.
std::string DescribeTerms(const std::vector<zero::MemoryTerm>& terms, device::Tier tier);

}  // namespace brigade::tune

#endif  // BRIGADE_TUNE_RANK_MODEL_H_
