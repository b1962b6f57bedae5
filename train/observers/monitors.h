#ifndef BRIGADE_TRAIN_OBSERVERS_MONITORS_H_
#define BRIGADE_TRAIN_OBSERVERS_MONITORS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/monitor/back_end.h"
#include "brigade/train/config/config.h"

namespace brigade::train {

// What flags and config say of monitors.
struct MonitorOptions {
  // A file of JSON lines; empty: none.
  std::string metrics;
  MonitorConfig config;
  // 0: any that is free; none: no page.
  std::optional<int> dashboard_port;
  // Of the page.
  std::string title;
  int64_t steps = 0;
  std::string unit = "sample";
  std::string loss = "nats";
};

struct Monitors {
  std::vector<std::unique_ptr<monitor::BackEnd>> back_ends;
  // Of the page; empty without one.
  std::string url;
};

// Of rank 0. Errors of the back ends, before anything is trained.
absl::StatusOr<Monitors> CreateMonitors(const MonitorOptions& options);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_OBSERVERS_MONITORS_H_
