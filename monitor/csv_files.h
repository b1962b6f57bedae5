#ifndef BRIGADE_MONITOR_CSV_FILES_H_
#define BRIGADE_MONITOR_CSV_FILES_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/append_file.h"
#include "brigade/monitor/back_end.h"
#include "brigade/monitor/record.h"

namespace brigade::monitor {

// CSV as DeepSpeed's csv_monitor writes it: a file for each tag, whose "/" and blanks are "_", with
// lines "SAMPLES,VALUE" that end in "\r\n", below the line "step,NAME" with the tag's last part.
//
// Files        Of a new training they replace what is there. One that goes on cuts off what comes
//              behind its step, as does one that goes back (a second Start); all when the tag's
//              next value comes.
// Errors       As of AppendFile. Files that can be written are.
// Source       deepspeed/monitor/csv_monitor.py, which begins each start with the first line again.
class CsvFiles final : public BackEnd {
 public:
  // Makes the folder.
  static absl::StatusOr<std::unique_ptr<CsvFiles>> Create(const std::string& folder);

  // "Train/Samples/train loss" is in Train_Samples_train_loss.csv.
  static std::string FileOf(absl::string_view tag);

  std::string name() const override;
  absl::Status Start(const Position& from) override;
  absl::Status Write(const Record& record) override;
  absl::Status Finish() override;

 private:
  explicit CsvFiles(std::string folder) : folder_(std::move(folder)) {}

  absl::Status WriteValue(const Value& value, const Record& record);

  const std::string folder_;
  struct File {
    device::AppendFile file;
    // Since Start.
    bool is_cut = false;
  };

  Position from_;
  // By their names.
  std::map<std::string, File> files_;
};

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_CSV_FILES_H_
