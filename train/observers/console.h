#ifndef BRIGADE_TRAIN_OBSERVERS_CONSOLE_H_
#define BRIGADE_TRAIN_OBSERVERS_CONSOLE_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "brigade/train/observers/observer.h"
#include "brigade/train/observers/step_watcher.h"

namespace brigade::train {

// Shows how the training goes: in a terminal one line that is written over, elsewhere a line now
// and then; or, if it is told so, a line that stays every so many steps. Behind lines that stay
// come the parts of a step, if it is given them (wall_clock_breakdown).
class Console final : public Observer {
 public:
  // `columns` of a terminal; 0 where there is none. `steps_per_print`: steps between lines that
  // stay; 0: by the time. `unit`: of what a step has so many, and losses are means; `loss`: in what
  // they count.
  Console(std::FILE* out, size_t columns, int64_t steps, double units_of_step,
          int64_t steps_per_print = 0, std::string unit = "byte", std::string loss = "nats");

  absl::Status OnStart(const Start& start) override;
  absl::Status OnLoad(const Start& start) override;
  absl::Status OnStep(const StepMetrics& metrics) override;
  absl::Status OnEvaluation(const Evaluation& evaluation) override;
  // Its tables, or a line where they are in a file.
  absl::Status OnProfile(const ProfileEvent& profile) override;
  // Tells of one that failed; the report counts the others.
  absl::Status OnSave(const SaveEvent& save) override;
  // Of a step of before.
  void OnBreakdown(const StepBreakdown& breakdown);
  // All steps were made: the parts of those behind the last line.
  void OnEnd() { PrintBreakdown(); }

 private:
  using Clock = std::chrono::steady_clock;

  void Print(const std::string& line, bool stays);
  // The means of the steps since the last time.
  void PrintBreakdown();
  // Whether a line of this step is due by now.
  bool IsDue(int64_t step, Clock::time_point now) const;

  std::FILE* const out_;
  const size_t columns_;
  const int64_t steps_;
  const double units_of_step_;
  const int64_t steps_per_print_;
  const std::string unit_, loss_;
  double seconds_ = 0;
  // From where on the rate counts: the step of the training before, or of the state that was loaded
  // meanwhile, and the time then.
  int64_t first_step_ = 0;
  double first_seconds_ = 0;
  Clock::time_point printed_;
  // Sums over steps, and how many.
  StepBreakdown parts_;
  int64_t parts_of_ = 0;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_OBSERVERS_CONSOLE_H_
