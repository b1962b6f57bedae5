#include "brigade/train/observers/console.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "brigade/profile/profile_text.h"

namespace brigade::train {
namespace {

constexpr absl::Duration kTerminalInterval = absl::Milliseconds(100);
constexpr absl::Duration kLogInterval = absl::Seconds(5);

}  // namespace

Console::Console(std::FILE* out, size_t columns, int64_t steps, double units_of_step,
                 int64_t steps_per_print, std::string unit, std::string loss)
    : out_(out),
      columns_(columns),
      steps_(steps),
      units_of_step_(units_of_step),
      steps_per_print_(steps_per_print),
      unit_(std::move(unit)),
      loss_(std::move(loss)) {}

void Console::Print(const std::string& line, bool stays) {
  if (columns_ == 0) {
    absl::FPrintF(out_, "%s\n", line);
  } else {
    // A line as wide as the terminal could not be written over. "\033[K" clears what the one before
    // has left.
    absl::FPrintF(out_, "\r%s\033[K%s", line.substr(0, columns_ - 1), stays ? "\n" : "");
  }
  std::fflush(out_);
}

absl::Status Console::OnStart(const Start& start) {
  first_step_ = start.step;
  if (!start.resumed.empty()) Print(start.resumed, true);
  if (!start.file.empty()) Print(start.file, true);
  for (const absl::string_view line : absl::StrSplit(start.codecs, '\n', absl::SkipEmpty())) {
    Print(std::string(line), true);
  }
  if (!start.digests.empty()) Print(start.digests, true);
  return absl::OkStatus();
}

absl::Status Console::OnLoad(const Start& start) {
  first_step_ = start.step;
  first_seconds_ = seconds_;
  if (!start.resumed.empty()) Print(start.resumed, true);
  return absl::OkStatus();
}

absl::Status Console::OnSave(const SaveEvent& save) {
  if (!save.report.ok()) {
    Print(absl::StrCat("step ", save.step,
                       ": a checkpoint was not saved: ", save.report.status().message()),
          true);
  } else if (!save.report->older_removed.ok()) {
    Print(absl::StrCat("step ", save.step, ": older checkpoints are still there: ",
                       save.report->older_removed.message()),
          true);
  }
  return absl::OkStatus();
}

absl::Status Console::OnProfile(const ProfileEvent& profile) {
  std::string text =
      profile.text.empty() ? profile::ProfileLine(profile.profile) : "\n" + profile.text;
  // A line at a time: in a terminal each is cut.
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    Print(std::string(line), true);
  }
  return absl::OkStatus();
}

bool Console::IsDue(int64_t step, Clock::time_point now) const {
  if (steps_per_print_ > 0 && columns_ == 0) return false;
  const absl::Duration interval = columns_ > 0 ? kTerminalInterval : kLogInterval;
  return step == first_step_ + 1 || absl::FromChrono(now - printed_) >= interval;
}

absl::Status Console::OnStep(const StepMetrics& metrics) {
  seconds_ = metrics.seconds;
  const Clock::time_point now = Clock::now();
  const bool stays =
      metrics.step == steps_ || (steps_per_print_ > 0 && metrics.step % steps_per_print_ == 0);
  if (!stays && !IsDue(metrics.step, now)) return absl::OkStatus();
  printed_ = now;
  const auto made = static_cast<double>(metrics.step - first_step_);
  const double took = seconds_ - first_seconds_;
  const double left = took / made * static_cast<double>(steps_ - metrics.step);
  Print(absl::StrFormat("step %*d/%d loss %.4f %.0f %ss/s scale %g norm %.2f lr %.1e %.0fs left%s",
                        static_cast<int>(absl::StrCat(steps_).size()), metrics.step, steps_,
                        metrics.loss, units_of_step_ * made / took, unit_, metrics.loss_scale,
                        metrics.grad_norm, metrics.learning_rate, left,
                        metrics.skipped ? " skipped: overflow" : ""),
        stays);
  if (stays || columns_ == 0) PrintBreakdown();
  return absl::OkStatus();
}

void Console::OnBreakdown(const StepBreakdown& breakdown) {
  parts_.forward += breakdown.forward;
  parts_.backward_inner += breakdown.backward_inner;
  parts_.backward_allreduce += breakdown.backward_allreduce;
  parts_.update += breakdown.update;
  ++parts_of_;
}

void Console::PrintBreakdown() {
  if (parts_of_ == 0) return;
  const auto steps = static_cast<double>(parts_of_);
  Print(absl::StrFormat("time (ms) | forward: %.2f | backward: %.2f | backward_inner: %.2f | "
                        "backward_allreduce: %.2f | step: %.2f",
                        parts_.forward / steps, parts_.backward() / steps,
                        parts_.backward_inner / steps, parts_.backward_allreduce / steps,
                        parts_.update / steps),
        true);
  parts_ = {};
  parts_of_ = 0;
}

absl::Status Console::OnEvaluation(const Evaluation& evaluation) {
  Print(absl::StrFormat("held out after %d steps: %.4f %s per %s", evaluation.step,
                        evaluation.held_out_loss, loss_, unit_),
        true);
  return absl::OkStatus();
}

}  // namespace brigade::train
