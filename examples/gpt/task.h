#ifndef BRIGADE_EXAMPLES_GPT_TASK_H_
#define BRIGADE_EXAMPLES_GPT_TASK_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "brigade/examples/gpt/corpus.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/train/task.h"

namespace brigade::gpt {

// A GPT and a corpus, which train/ trains. What train::Job says comes with each call: it may be
// what the cost model has made of the job's.
class Task final : public train::Task {
 public:
  // It must outlive the task.
  explicit Task(const Job& job) : model_(job.model), corpus_(job.corpus) {}

  absl::StatusOr<std::unique_ptr<train::RankPart>> CreatePart(
      const train::RankPlace& place) const override;
  collectives::JobValues Values(const train::Job& job) const override;
  checkpoint::Fields Fields(const train::Job& job) const override;
  absl::StatusOr<zero::ModelSpec> Spec(const train::Job& job, const parallel::Coordinates& at,
                                       device::Context& context) const override;
  int64_t held_out_samples() const override { return HeldOutTexts(corpus_, model_.context); }
  int64_t held_out_losses() const override { return held_out_samples() * model_.context; }

 private:
  const ModelOptions& model_;
  const Corpus& corpus_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_TASK_H_
