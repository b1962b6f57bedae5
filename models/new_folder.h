#ifndef BRIGADE_MODELS_NEW_FOLDER_H_
#define BRIGADE_MODELS_NEW_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::models {

// A folder of files that has its name when it is on the disk as a whole.
//
// Errors       AlreadyExists if something has the name; InvalidArgument for a path without a name;
//              what the system says. Unless Publish is OK there is nothing new.
class NewFolder {
 public:
  static absl::StatusOr<NewFolder> Create(const std::string& path, device::SystemCalls& system);
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;
  // Removes what is not published.
  ~NewFolder();

  // Of a file in the folder, while it is written.
  std::string PathOf(absl::string_view name) const;
  absl::Status WriteText(absl::string_view name, const std::string& text) const;

  // The last call.
  absl::Status Publish();

 private:
  NewFolder(device::SystemCalls& system, std::string folder, std::string part)
      : system_(&system), folder_(std::move(folder)), part_(std::move(part)) {}

  device::SystemCalls* system_;
  std::string folder_;
  // Where it is written; empty when there is nothing to remove.
  std::string part_;
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_NEW_FOLDER_H_
