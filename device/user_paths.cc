#include "brigade/device/user_paths.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace brigade::device {

namespace fs = std::filesystem;

std::string FromUsersFolder(const std::string& path) {
  const char* const folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (path.empty() || path[0] == '/' || folder == nullptr) return path;
  return absl::StrCat(folder, "/", path);
}

std::string DataFile(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) return path;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  // One folder for each repository; the names differ between versions of Bazel.
  for (const auto& repository : fs::directory_iterator(program.string() + ".runfiles", error)) {
    const fs::path found = repository.path() / path;
    if (fs::exists(found, error)) return found.string();
  }
  return path;
}

}  // namespace brigade::device
