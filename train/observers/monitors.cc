#include "brigade/train/observers/monitors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/user_paths.h"
#include "brigade/monitor/csv_files.h"
#include "brigade/monitor/dashboard/dashboard.h"
#include "brigade/monitor/event_file.h"
#include "brigade/monitor/json_lines.h"

namespace brigade::train {
namespace {

absl::Status NamingTheFlag(const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--dashboard: ", status.message(),
                                                  "; --dashboard=0 takes a port that is free"));
}

}  // namespace

absl::StatusOr<Monitors> CreateMonitors(const MonitorOptions& options) {
  Monitors monitors;
  // First, because it makes nothing.
  if (options.dashboard_port.has_value()) {
    auto page = monitor::Dashboard::Create({.port = *options.dashboard_port,
                                            .title = options.title,
                                            .steps = options.steps,
                                            .unit = options.unit,
                                            .loss = options.loss});
    if (!page.ok()) return NamingTheFlag(page.status());
    monitors.url = (*page)->url();
    monitors.back_ends.push_back(*std::move(page));
  }
  if (!options.metrics.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(auto lines, monitor::JsonLines::Create(options.metrics));
    monitors.back_ends.push_back(std::move(lines));
  }
  if (const std::string& folder = options.config.tensorboard; !folder.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(auto events,
                             monitor::EventFile::Create(device::FromUsersFolder(folder)));
    monitors.back_ends.push_back(std::move(events));
  }
  if (const std::string& folder = options.config.csv; !folder.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(auto csv, monitor::CsvFiles::Create(device::FromUsersFolder(folder)));
    monitors.back_ends.push_back(std::move(csv));
  }
  return monitors;
}

}  // namespace brigade::train
