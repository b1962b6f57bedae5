#include "brigade/examples/gpt/console.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace brigade::gpt {
namespace {

constexpr auto kTerminalInterval = std::chrono::milliseconds(100);
constexpr auto kLogInterval = std::chrono::seconds(5);
constexpr size_t kColumns = 79;  // a longer line could not be written over

}  // namespace

Console::Console(std::FILE* out, bool terminal, int64_t steps, double tokens_of_step)
    : out_(out), terminal_(terminal), steps_(steps), tokens_of_step_(tokens_of_step) {}

void Console::Print(const std::string& line, bool stays) {
  // "\033[K" clears what the line before has left.
  const std::string end = terminal_ ? (stays ? "\033[K\n" : "\033[K") : "\n";
  absl::FPrintF(out_, "%s%s%s", terminal_ ? "\r" : "", terminal_ ? line.substr(0, kColumns) : line,
                end);
  std::fflush(out_);
}

absl::Status Console::OnStep(const StepMetrics& metrics) {
  seconds_ = metrics.seconds;
  const Clock::time_point now = Clock::now();
  const bool last = metrics.step == steps_;
  const auto interval = terminal_ ? Clock::duration(kTerminalInterval) : kLogInterval;
  if (metrics.step > 1 && !last && now - printed_ < interval) return absl::OkStatus();
  printed_ = now;
  const auto step = static_cast<double>(metrics.step);
  const double left = seconds_ / step * (static_cast<double>(steps_) - step);
  Print(absl::StrFormat(
            "step %*d/%d  loss %.4f  %.0f tokens/s  scale %g  norm %.3f  lr %.2e  %.0f s left%s",
            static_cast<int>(absl::StrCat(steps_).size()), metrics.step, steps_, metrics.loss,
            tokens_of_step_ * step / seconds_, metrics.loss_scale, metrics.grad_norm,
            metrics.learning_rate, left, metrics.skipped ? "  skipped: overflow" : ""),
        last);
  return absl::OkStatus();
}

absl::Status Console::OnEvaluation(const Evaluation& evaluation) {
  Print(absl::StrFormat("held out after %d steps: %.4f nats per byte", evaluation.step,
                        evaluation.held_out_loss),
        true);
  return absl::OkStatus();
}

}  // namespace brigade::gpt
