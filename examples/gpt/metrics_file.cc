#include "brigade/examples/gpt/metrics_file.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"

namespace brigade::gpt {

using Json = nlohmann::ordered_json;

namespace {

// More than any line of these files has.
constexpr size_t kMostLineBytes = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Create(const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(std::FILE* const file, device::OpenForUpdate(path));
  return std::unique_ptr<MetricsFile>(new MetricsFile(path, file));
}

MetricsFile::~MetricsFile() { std::fclose(file_); }

absl::Status MetricsFile::Write(const std::string& line) {
  if (std::fputs((line + "\n").c_str(), file_) >= 0 && std::fflush(file_) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
}

absl::Status MetricsFile::OnStart(const Start& start) {
  // All lines up to the first that is none, or comes later: evaluations at this step do.
  int64_t kept = 0;
  std::string line;
  std::rewind(file_);
  for (int c = 0; start.step > 0 && (c = std::fgetc(file_)) != EOF;) {
    line += static_cast<char>(c);
    if (line.size() > kMostLineBytes) break;
    if (c != '\n') continue;
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) break;
    const bool is_step = json.contains("seconds") && json["seconds"].is_number();
    if (json["step"].get<int64_t>() > start.step - (is_step ? 0 : 1)) break;
    if (is_step) seconds_ = json["seconds"].get<double>();
    kept += static_cast<int64_t>(line.size());
    line.clear();
  }
  if (std::ferror(file_) == 0 && ftruncate(fileno(file_), kept) == 0 &&
      std::fseek(file_, 0, SEEK_END) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot go on with ", path_));
}

absl::Status MetricsFile::OnStep(const StepMetrics& metrics) {
  return Write(Json({{"step", metrics.step},
                     {"seconds", seconds_ + metrics.seconds},
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
