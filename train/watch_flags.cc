#include "brigade/train/watch_flags.h"

#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "brigade/device/command_line.h"
#include "brigade/device/files.h"

ABSL_FLAG(std::string, metrics, "",
          "write metrics here, one JSON object a line; tools:plot draws them");
ABSL_FLAG(std::optional<int>, dashboard, std::nullopt,
          "show the training to browsers on this machine, at this port: 0 takes one that is free");
ABSL_FLAG(std::string, trace, "", "write a Chrome trace here, for ui.perfetto.dev");

namespace brigade::train {

WatchOptions WatchFlags(Refusals& refusals) {
  WatchOptions options = {.metrics = device::FromUsersFolder(absl::GetFlag(FLAGS_metrics)),
                          .trace = device::FromUsersFolder(absl::GetFlag(FLAGS_trace)),
                          .dashboard_port = absl::GetFlag(FLAGS_dashboard)};
  if (device::SameFile(options.trace, options.metrics)) {
    refusals.Add("trace", " and --metrics name the same file, ", options.trace);
  }
  if (const std::optional<int> port = options.dashboard_port;
      port.has_value() && (*port < 0 || *port > 65535)) {
    refusals.Add("dashboard", " is ", *port, "; it must be 0 to 65535");
  }
  return options;
}

}  // namespace brigade::train
