#ifndef BRIGADE_EXAMPLES_GPT_METRICS_FILE_H_
#define BRIGADE_EXAMPLES_GPT_METRICS_FILE_H_

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "brigade/examples/gpt/job.h"

namespace brigade::gpt {

// Writes metrics as they come, one JSON object a line:
//
//   {"step": 1, "seconds": .., "loss": .., "tokens_per_second": .., "loss_scale": ..,
//    "grad_norm": .., "learning_rate": .., "skipped": false}
//   {"step": 100, "held_out_loss": ..}
//
// What is not finite is null. Each line is handed to the system at once. Errors: what the system
// says, naming the file.
//
// A training that is resumed goes on with its file: what lies behind the step from which it goes on
// is cut off, and seconds are counted on.
class MetricsFile final : public Observer {
 public:
  // What is there stays until OnStart.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Create(const std::string& path);
  ~MetricsFile() override;

  absl::Status OnStart(const Start& start) override;
  absl::Status OnStep(const StepMetrics& metrics) override;
  absl::Status OnEvaluation(const Evaluation& evaluation) override;

 private:
  MetricsFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  absl::Status Write(const std::string& line);

  const std::string path_;
  std::FILE* const file_;
  // Those of the training before.
  double seconds_ = 0;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_METRICS_FILE_H_
