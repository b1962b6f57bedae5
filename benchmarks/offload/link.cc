// A step with the optimizer state on the host, behind a link that is as slow as one likes, beside
// its parts alone. benchmarks/offload/README.md says how to read it.

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/offload/one_rank.h"
#include "brigade/device/status_macros.h"

ABSL_FLAG(int64_t, elements, int64_t{32} << 20, "of the model");
ABSL_FLAG(int, steps, 4, "of a turn");
ABSL_FLAG(int, rounds, 7, "turns of each contestant; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

constexpr int kUnits = 16;

double SecondsOf(const std::function<absl::Status()>& work, absl::Status& status) {
  const auto begin = std::chrono::steady_clock::now();
  status.Update(work());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// So many steps of the turn, one after the other.
absl::StatusOr<double> SecondsOfStep(OneRank& rank,
                                     const std::function<absl::Status(OneRank&)>& step,
                                     int64_t* host_waits) {
  const int steps = absl::GetFlag(FLAGS_steps);
  absl::Status status;
  const double seconds = SecondsOf(
      [&]() -> absl::Status {
        const int64_t before = rank.context().host_waits();
        for (int i = 0; i < steps; ++i) BRIGADE_RETURN_IF_ERROR(step(rank));
        *host_waits += rank.context().host_waits() - before;
        return rank.Finish();
      },
      status);
  BRIGADE_RETURN_IF_ERROR(status);
  return seconds / steps;
}

// The passes, or what a step copies, alone.
class Parts {
 public:
  static absl::StatusOr<std::unique_ptr<Parts>> Create(double link_bytes_per_second) {
    auto self = std::make_unique<Parts>();
    device::ContextOptions options;
    options.checks = false;
    options.link_bytes_per_second = link_bytes_per_second;
    BRIGADE_ASSIGN_OR_RETURN(self->context_, device::Context::Create(options));
    BRIGADE_ASSIGN_OR_RETURN(self->stream_, self->context_->CreateStream("parts"));
    self->bytes_ = 2 * absl::GetFlag(FLAGS_elements) / kUnits;
    BRIGADE_ASSIGN_OR_RETURN(self->device_,
                             self->context_->Allocate(self->bytes_, device::Purpose::kScratch));
    BRIGADE_ASSIGN_OR_RETURN(self->host_,
                             self->context_->AllocateHost(self->bytes_, device::Purpose::kScratch));
    return self;
  }
  absl::Status Passes(double seconds) {
    for (int i = 0; i < kUnits; ++i) {
      BRIGADE_RETURN_IF_ERROR(EnqueuePass(seconds / (3 * kUnits), *stream_));
      BRIGADE_RETURN_IF_ERROR(EnqueuePass(2 * seconds / (3 * kUnits), *stream_));
    }
    return stream_->Synchronize();
  }
  absl::Status OneWay() {
    for (int i = 0; i < kUnits; ++i) {
      BRIGADE_RETURN_IF_ERROR(stream_->Copy(host_.data(), device_.data(), bytes_));
    }
    return stream_->Synchronize();
  }

 private:
  std::unique_ptr<device::Context> context_;
  device::Buffer device_, host_;
  std::unique_ptr<device::Stream> stream_;
  int64_t bytes_ = 0;
};

// What takes how long, in times of the update.
struct Setting {
  const char* name;
  double passes, one_way;
};
constexpr Setting kSettings[] = {{"slow_link", 0.5, 3},
                                 {"long_passes", 6, 0.5},
                                 {"long_update", 0.5, 0.25},
                                 {"all_alike", 1, 1}};

Figures figures;

// All of a setting take turns.
absl::Status Measure(const Setting& setting, double update_seconds, int64_t* host_waits) {
  const UnitModel model = {.units = kUnits, .elements = absl::GetFlag(FLAGS_elements)};
  const double passes = setting.passes * update_seconds;
  const double link = 2 * static_cast<double>(model.elements) / (setting.one_way * update_seconds);
  zero::OffloadOptions host;
  host.optimizer_state = device::Tier::kHost;
  zero::OffloadOptions delayed = host;
  delayed.delay_update = true;
  delayed.delay_warm_up = 0;
  BRIGADE_ASSIGN_OR_RETURN(const auto parts, Parts::Create(link));
  BRIGADE_ASSIGN_OR_RETURN(const auto alone, OneRank::Create(model, host));
  BRIGADE_ASSIGN_OR_RETURN(const auto exact, OneRank::Create(model, host, link));
  BRIGADE_ASSIGN_OR_RETURN(const auto late, OneRank::Create(model, delayed, link));
  const auto update = [](OneRank& rank) { return rank.Update(); };
  const auto step = [passes](OneRank& rank) { return rank.Step(passes); };
  Seconds passes_alone, link_alone, update_alone, exact_step, late_step;
  absl::Status status;
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    const double p = SecondsOf([&] { return parts->Passes(passes); }, status);
    // Gradients down, and weights up when the passes have read the last ones.
    const double l = 2 * SecondsOf([&] { return parts->OneWay(); }, status);
    BRIGADE_RETURN_IF_ERROR(status);
    int64_t warm_up = 0;
    int64_t* const waits = round < 0 ? &warm_up : host_waits;
    BRIGADE_ASSIGN_OR_RETURN(const double u, SecondsOfStep(*alone, update, waits));
    BRIGADE_ASSIGN_OR_RETURN(const double e, SecondsOfStep(*exact, step, waits));
    BRIGADE_ASSIGN_OR_RETURN(const double d, SecondsOfStep(*late, step, waits));
    if (round < 0) continue;
    passes_alone.push_back(p);
    link_alone.push_back(l);
    update_alone.push_back(u);
    exact_step.push_back(e);
    late_step.push_back(d);
  }
  Seconds longest;
  for (size_t r = 0; r < passes_alone.size(); ++r) {
    longest.push_back(std::max({passes_alone[r], link_alone[r], update_alone[r]}));
  }
  const double of_longest = MedianRatio(exact_step, longest);
  const double late_of_longest = MedianRatio(late_step, longest);
  std::cout << absl::StrFormat("%-12s", setting.name);
  for (const Seconds* const seconds :
       {&passes_alone, &link_alone, &update_alone, &exact_step, &late_step}) {
    std::cout << absl::StrFormat(" %9.1f", Median(*seconds) * 1e3);
  }
  std::cout << absl::StrFormat(" %10.3f %10.3f\n", of_longest, late_of_longest);
  figures.Add(absl::StrCat(setting.name, "_of_longest"), of_longest);
  figures.Add(absl::StrCat(setting.name, "_late_of_longest"), late_of_longest);
  return absl::OkStatus();
}

absl::Status Main() {
  // By the update's time here.
  const UnitModel model = {.units = kUnits, .elements = absl::GetFlag(FLAGS_elements)};
  zero::OffloadOptions host;
  host.optimizer_state = device::Tier::kHost;
  BRIGADE_ASSIGN_OR_RETURN(auto rank, OneRank::Create(model, host));
  Seconds update;
  int64_t host_waits = 0;
  for (int i = 0; i < 5; ++i) {
    BRIGADE_ASSIGN_OR_RETURN(const double seconds,
                             SecondsOfStep(
                                 *rank, [](OneRank& each) { return each.Update(); }, &host_waits));
    update.push_back(seconds);
  }
  rank.reset();
  host_waits = 0;
  std::cout << absl::StrFormat(
      "# %d elements in %d units, ms a step; of the longest part: exact, and a step late\n"
      "%-12s %9s %9s %9s %9s %9s %10s %10s\n",
      model.elements, kUnits, "", "passes", "link", "update", "exact", "late", "of_longest",
      "late");
  for (const Setting& setting : kSettings) {
    BRIGADE_RETURN_IF_ERROR(Measure(setting, Median(update), &host_waits));
  }
  std::cout << "host waits in all steps: " << host_waits << "\n";
  figures.Add("host_waits", static_cast<double>(host_waits));
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "steps behind a slow link",
                                      brigade::benchmarks::Main);
}
