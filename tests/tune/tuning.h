#ifndef BRIGADE_TESTS_TUNE_TUNING_H_
#define BRIGADE_TESTS_TUNE_TUNING_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/tune/setup.h"
#include "brigade/tune/tuner.h"

namespace brigade::tune {

inline constexpr char kConfig[] = R"({
    "train_batch_size": 8, "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}, "gradient_clipping": 1.0})";

inline const gpt::Corpus& Texts() {
  static const gpt::Corpus corpus = gpt::ReadLicences().value();
  return corpus;
}

// A search on threads of this process.
class Tuning {
 public:
  Tuning(const gpt::ModelOptions& model, int ranks) : ranks_(ranks) {
    make_job = [model, ranks](const std::string& text) -> absl::StatusOr<gpt::Job> {
      gpt::Job job;
      job.model = model;
      BRIGADE_ASSIGN_OR_RETURN(job.config, train::ParseConfig(text, ranks));
      job.model.tensor_shards = job.config.tensor_shards;
      BRIGADE_RETURN_IF_ERROR(gpt::Validate(job.model));
      BRIGADE_RETURN_IF_ERROR(gpt::Validate(gpt::ShapeOf(job)));
      return job;
    };
    world = World::Create(ranks, device::Cpu(), {}, &recorder.tracer()).value();
    figures.topology.ranks_of_node = {ranks};
    figures.topology.inside = figures.topology.between = {1e-5, 5e9};
    figures.processors = Processors();
    rank_model = std::make_unique<RankModel>(*world, figures);
    totals = {.ranks = ranks, .batch = 8};
  }

  absl::StatusOr<Search> Find(const Space& space, const Limits& limits = {}) {
    return FindFitting(Json::parse(kConfig), space, totals, make_job, limits, *rank_model, stop);
  }
  absl::Status Predict(std::vector<Candidate>& candidates) {
    BRIGADE_RETURN_IF_ERROR(MeasureMachine(*world, figures));
    return PredictTimes(Texts(), *world, recorder, figures, *rank_model, candidates, stop);
  }
  // Real trials.
  void Run(const std::vector<size_t>& order, const TrialPlan& plan, const TrialSteps& steps,
           std::vector<Candidate>& candidates, const Limits& limits = {}) {
    Run(order, plan, TrialsOnThreads(ranks_, steps, Texts(), limits, stop), candidates);
  }
  void Run(const std::vector<size_t>& order, const TrialPlan& plan, const Trial& trial,
           std::vector<Candidate>& candidates) {
    RunTrials(order, plan, trial, candidates, stop, [this](size_t index) {
      tried.push_back(index);
      if (std::ssize(tried) == stop_after) stop = true;
    });
  }

  train::Recorder recorder{nullptr};
  std::unique_ptr<World> world;
  Figures figures;
  std::unique_ptr<RankModel> rank_model;
  Totals totals;
  MakeJob make_job;
  std::atomic<bool> stop = false;
  std::vector<size_t> tried;
  int64_t stop_after = -1;

 private:
  const int ranks_;
};

inline const gpt::ModelOptions kTiny = {.layers = 2, .heads = 2, .width = 32, .context = 32};

}  // namespace brigade::tune

#endif  // BRIGADE_TESTS_TUNE_TUNING_H_
