#ifndef BRIGADE_PARALLEL_PLAN_PUBLISHED_H_
#define BRIGADE_PARALLEL_PLAN_PUBLISHED_H_

// Trainings whose speed was published, and what the model predicts for them.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/parallel/plan/configuration.h"
#include "brigade/parallel/plan/machine.h"
#include "brigade/parallel/plan/search.h"
#include "brigade/parallel/plan/transformer.h"

namespace brigade::parallel {

struct PublishedRun {
  std::string source;
  // Names of TransformerByName and MachineByName.
  std::string model;
  std::string machine;
  Execution execution;
  // What was published is fixed; of the rest the prediction takes what is fastest, as the authors
  // will have.
  SearchSpace space;
  // TFLOP/s a device, and what they count: operations of recomputation too, or the model's alone.
  double teraflops = 0;
  bool counts_recomputation = false;
  // Whether the device's efficiency was fitted to it: no prediction.
  bool is_fitted = false;
  // Whether figure and configuration have been looked up again; the others are as remembered from
  // the paper, and no test stands on them.
  bool is_checked = false;
};

const std::vector<PublishedRun>& PublishedRuns();

struct PublishedPrediction {
  Candidate candidate = {};
  double teraflops = 0;
  // (predicted - published) / published, in percent.
  double error_percent = 0;
};

// Errors       Those of Search; NotFound for names that do not exist.
absl::StatusOr<PublishedPrediction> Predict(const PublishedRun& run, const Machine& machine);

// Of models that grow with the tensor ranks of one node: the speed of a device with t tensor ranks
// beside one without, at the same batch.
struct PublishedTensorEfficiency {
  std::string model;
  int tensor = 1;
  double percent = 100;
};
// Shoeybi et al. 2019 (arXiv 1909.08053), figure 5, model parallel; as remembered, but for the
// existence of these points. The first has one rank.
absl::Span<const PublishedTensorEfficiency> TensorEfficiencies();
// In the same order.
absl::StatusOr<std::vector<double>> PredictTensorEfficiencies(const Machine& machine);

// A model for each number of ranks, from 8 to 16384, that is as large as is trained on so many.
struct ScalingPoint {
  int ranks = 8;
  std::string model;
  int64_t batch = 512;
};
absl::Span<const ScalingPoint> ScalingPoints();

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_PUBLISHED_H_
