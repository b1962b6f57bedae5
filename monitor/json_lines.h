#ifndef BRIGADE_MONITOR_JSON_LINES_H_
#define BRIGADE_MONITOR_JSON_LINES_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/append_file.h"
#include "brigade/monitor/back_end.h"
#include "brigade/monitor/record.h"

namespace brigade::monitor {

// Values that have a key, a JSON object a line for each record:
//
//   {"step":1,"seconds":..,"loss":..,"skipped":false}
//   {"step":100,"held_out_loss":..}
//
// What is not finite is null. Each line is handed to the system at once.
//
// Files        A new training replaces what is there. One that goes on cuts off what comes behind
//              its step, and lines of the step itself without "seconds", which are made again; what
//              counts since the start (Value::Kind::kSinceStart) is counted on. So does one that
//              goes back (a second Start), whose start stays what it was.
// Errors       As of AppendFile.
class JsonLines final : public BackEnd {
 public:
  // What is there stays until Start.
  static absl::StatusOr<std::unique_ptr<JsonLines>> Create(const std::string& path);

  std::string name() const override;
  absl::Status Start(const Position& from) override;
  absl::Status Write(const Record& record) override;
  absl::Status Finish() override;

 private:
  explicit JsonLines(device::AppendFile file) : file_(std::move(file)) {}

  device::AppendFile file_;
  bool has_started_ = false;
  // The numbers of the last line of a step that was kept at the first Start.
  std::map<std::string, double> before_;
};

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_JSON_LINES_H_
