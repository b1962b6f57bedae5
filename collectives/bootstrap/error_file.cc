#include "brigade/collectives/bootstrap/error_file.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/device/files.h"
#include "nlohmann/json.hpp"

namespace brigade::collectives {

absl::Status WriteErrorFile(const absl::Status& error, const EnvironmentGetter& get) {
  const char* const path = get("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return absl::OkStatus();
  const nlohmann::json content = {
      {"message",
       {{"message", error.ToString()},
        {"extraInfo", {{"timestamp", absl::StrCat(absl::ToUnixSeconds(absl::Now()))}}}}}};
  absl::StatusOr<device::FileReplacement> file = device::FileReplacement::Begin(path);
  if (!file.ok()) return file.status();
  // Messages may hold what is no UTF-8, as names of files do.
  file->Write(content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return file->Commit();
}

absl::Status WriteErrorFile(const absl::Status& error) {
  return WriteErrorFile(error, [](const char* name) { return std::getenv(name); });
}

}  // namespace brigade::collectives
