// peer FOLDER [PORT]: publishes to all back ends what its input says, line by line:
//
//   start STEP     the training begins, or goes on
//   steps N        N more steps, and a timeline of the last one
//   evaluate       an evaluation
//   end            ends
//
// and says "page URL" first, then "done" behind each line that was carried out, and what is missing
// at the end. Files are FOLDER/events, FOLDER/csv and FOLDER/lines.jsonl.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "brigade/device/status_macros.h"
#include "brigade/monitor/csv_files.h"
#include "brigade/monitor/dashboard/dashboard.h"
#include "brigade/monitor/event_file.h"
#include "brigade/monitor/json_lines.h"
#include "brigade/monitor/monitor.h"

namespace brigade::monitor {
namespace {

constexpr int64_t kSamplesOfStep = 8;
constexpr char kTitle[] = "GPT <b>of</b> \"4\" layers & more";

// What the test expects too: exact as a float.
double LossOf(int64_t step) { return 5.5 - 0.0625 * static_cast<double>(step % 64); }

Record StepRecord(int64_t step) {
  const auto s = static_cast<double>(step);
  Record record = {.at = {step, kSamplesOfStep * step}, .wall_time = WallSeconds()};
  record.values = {{"", 0.25 * s, "seconds", Value::Kind::kSinceStart},
                   {"Train/Samples/train_loss", LossOf(step), "loss"},
                   {"Train/Samples/lr", 0.001 * std::min(s / 100, 1.0)},
                   {"Train/Samples/loss_scale", 65536},
                   {"Train/Samples/tokens_per_second", 20000 + 1000 * std::sin(s), "tokens"},
                   {"Train/Samples/grad_norm", step % 50 == 7 ? INFINITY : 1 + 1 / s},
                   {"Train/Profile/mfu", 0.4}};
  double sum = 0;
  const double of_purpose[] = {40e6, 20e6, 120e6, 33e6, 8e6, 1e6};
  const char* const purposes[] = {"parameters",  "gradients",     "optimizer_state",
                                  "activations", "communication", "scratch"};
  for (int i = 0; i < 6; ++i) {
    sum += of_purpose[i];
    const std::string tag = absl::StrCat("Train/Memory/device_", purposes[i]);
    record.values.push_back({tag + "_bytes", of_purpose[i]});
    record.values.push_back({tag + "_peak_bytes", 1.1 * of_purpose[i]});
  }
  record.values.push_back({"Train/Memory/device_bytes", sum});
  record.values.push_back({"Train/Memory/device_peak_bytes", 1.1 * sum});
  return record;
}

// Two stages of 1F1B with four micro-batches.
Timeline StepTimeline(int64_t step) {
  Timeline timeline = {.step = step, .seconds = 0.06};
  timeline.split = {{"gemm", 0.04},
                    {"other_compute", 0.01},
                    {"optimizer", 0.002},
                    {"exposed_communication", 0.005},
                    {"idle", 0.003}};
  const char* const lists[] = {"F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"};
  for (int stage = 0; stage < 2; ++stage) {
    Timeline::Lane lane = {.name = absl::StrCat("rank ", stage)};
    std::istringstream list(lists[stage]);
    double at = stage == 0 ? 0 : 0.004;
    for (std::string name; list >> name;) {
      const double wide = name[0] == 'F' ? 0.004 : 0.008;
      lane.passes.push_back({name, at, at + wide});
      lane.others.push_back({"exchange", at + wide - 0.001, at + wide});
      at += wide + 0.0005;
    }
    lane.others.push_back({"update", 0.056, 0.059});
    timeline.lanes.push_back(lane);
  }
  return timeline;
}

absl::Status Run(const std::string& folder, int port) {
  std::vector<std::unique_ptr<BackEnd>> back_ends;
  BRIGADE_ASSIGN_OR_RETURN(back_ends.emplace_back(), EventFile::Create(folder + "/events"));
  BRIGADE_ASSIGN_OR_RETURN(back_ends.emplace_back(), CsvFiles::Create(folder + "/csv"));
  BRIGADE_ASSIGN_OR_RETURN(back_ends.emplace_back(), JsonLines::Create(folder + "/lines.jsonl"));
  BRIGADE_ASSIGN_OR_RETURN(
      auto page,
      Dashboard::Create(
          {.port = port, .title = kTitle, .steps = 1000, .unit = "frame", .loss = "penalty"}));
  std::printf("page %s\n", page->url().c_str());
  std::fflush(stdout);
  back_ends.push_back(std::move(page));
  Monitor monitor(std::move(back_ends));
  int64_t step = 0;
  std::string word;
  while (std::cin >> word && word != "end") {
    int64_t number = 0;
    if (word == "start" && std::cin >> number) {
      step = number;
      monitor.Start({step, kSamplesOfStep * step});
    } else if (word == "steps" && std::cin >> number) {
      for (; number > 0; --number) monitor.Publish(StepRecord(++step));
      monitor.Publish(StepTimeline(step));
    } else if (word == "evaluate") {
      Record record = {.at = {step, kSamplesOfStep * step}, .wall_time = WallSeconds()};
      record.values = {{"Train/Samples/held_out_loss", LossOf(step) + 0.5, "held_out_loss"}};
      record.is_made_again = true;
      monitor.Publish(record);
    }
    monitor.Drain(absl::Minutes(5));
    std::printf("done\n");
    std::fflush(stdout);
  }
  for (const BackEndReport& report : monitor.Close(absl::Minutes(5))) {
    if (const std::string trouble = report.Trouble(); !trouble.empty()) {
      std::printf("%s\n", trouble.c_str());
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::monitor

int main(int argc, char** argv) {
  int port = 0;
  if (argc < 2 || (argc > 2 && !absl::SimpleAtoi(argv[2], &port))) return 2;
  const absl::Status status = brigade::monitor::Run(argv[1], port);
  if (status.ok()) return 0;
  std::fprintf(stderr, "peer: %s\n", std::string(status.message()).c_str());
  return 1;
}
