#ifndef BRIGADE_MONITOR_EVENT_FILE_H_
#define BRIGADE_MONITOR_EVENT_FILE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/append_file.h"
#include "brigade/monitor/back_end.h"
#include "brigade/monitor/record.h"

namespace brigade::monitor {

// TensorBoard's event files: values that have a tag, over samples.
//
// Files        Each start has one of its own, FOLDER/events.out.tfevents.SECONDS.HOST, whose name
//              comes behind those that are there, also where the clock was set back. A training
//              that goes on says from where: TensorBoard drops what older files have of later
//              steps. So does a new one, of all of them; and one that goes back (a second Start),
//              in its file.
// Errors       As of AppendFile. What could not be written of the file's begin comes with the next
//              record.
class EventFile final : public BackEnd {
 public:
  // Makes folder and file.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder);

  std::string name() const override;
  absl::Status Start(const Position& from) override;
  absl::Status Write(const Record& record) override;
  absl::Status Finish() override;

 private:
  EventFile(std::string folder, device::AppendFile file)
      : folder_(std::move(folder)), file_(std::move(file)) {}

  const std::string folder_;
  device::AppendFile file_;
  // What the file must have before any record, and has not yet.
  std::string begin_;
};

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_EVENT_FILE_H_
