#include "brigade/examples/gpt/metrics_file.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"

namespace brigade::gpt {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Create(const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(std::FILE* const file, device::OpenForWriting(path));
  return std::unique_ptr<MetricsFile>(new MetricsFile(path, file));
}

MetricsFile::~MetricsFile() { std::fclose(file_); }

absl::Status MetricsFile::Write(const std::string& line) {
  if (std::fputs((line + "\n").c_str(), file_) >= 0 && std::fflush(file_) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
}

absl::Status MetricsFile::OnStep(const StepMetrics& metrics) {
  return Write(Json({{"step", metrics.step},
                     {"seconds", metrics.seconds},
                     {"loss", metrics.loss},
                     {"tokens_per_second", metrics.tokens_per_second},
                     {"loss_scale", metrics.loss_scale},
                     {"grad_norm", metrics.grad_norm},
                     {"learning_rate", metrics.learning_rate},
                     {"skipped", metrics.skipped}})
                   .dump());
}

absl::Status MetricsFile::OnEvaluation(const Evaluation& evaluation) {
  return Write(
      Json({{"step", evaluation.step}, {"held_out_loss", evaluation.held_out_loss}}).dump());
}

}  // namespace brigade::gpt
