#include "brigade/data/source_files.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {
namespace {

// Deeper folders are a mistake.
constexpr int kMostDepth = 64;

absl::Status Failed(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", ShownPath(path)));
}

// What a folder holds: its files, and the folders in it.
struct Entries {
  std::vector<std::string> files, folders;
};

absl::StatusOr<Entries> EntriesOf(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), &closedir);
  if (open == nullptr) return Failed(folder);
  Entries entries;
  while (true) {
    errno = 0;
    const dirent* const entry = readdir(open.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name[0] == '.') continue;
    const std::string path = absl::StrCat(folder, absl::EndsWith(folder, "/") ? "" : "/", name);
    struct stat itself, target;
    if (lstat(path.c_str(), &itself) != 0) continue;
    if (S_ISDIR(itself.st_mode)) entries.folders.push_back(path);
    if (S_ISREG(itself.st_mode)) entries.files.push_back(path);
    if (!S_ISLNK(itself.st_mode)) continue;
    // A link to nothing is reported where it is opened.
    const bool is_there = stat(path.c_str(), &target) == 0;
    if (!is_there || S_ISREG(target.st_mode)) entries.files.push_back(path);
  }
  if (errno != 0) return Failed(folder);
  return entries;
}

absl::Status Collect(const std::string& folder, absl::string_view ending, int depth, BadData& bad,
                     std::vector<std::string>& files) {
  if (depth > kMostDepth) {
    return bad.File(absl::InvalidArgumentError(
        absl::StrCat(ShownPath(folder), " is more than ", kMostDepth, " folders deep")));
  }
  const absl::StatusOr<Entries> entries = EntriesOf(folder);
  if (!entries.ok()) return depth == 0 ? entries.status() : bad.File(entries.status());
  for (const std::string& file : entries->files) {
    if (absl::EndsWith(file, ending)) files.push_back(file);
  }
  for (const std::string& inner : entries->folders) {
    BRIGADE_RETURN_IF_ERROR(Collect(inner, ending, depth + 1, bad, files));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SourceFiles(const std::string& path,
                                                     absl::string_view ending, BadData& bad) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return Failed(path);
  if (S_ISREG(status.st_mode)) return std::vector<std::string>{path};
  if (!S_ISDIR(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(ShownPath(path), " is neither a file nor a folder"));
  }
  std::vector<std::string> files;
  BRIGADE_RETURN_IF_ERROR(Collect(path, ending, 0, bad, files));
  if (files.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the folder ", ShownPath(path), " has no files",
                     ending.empty() ? "" : absl::StrCat(" that end with ", ending)));
  }
  std::sort(files.begin(), files.end());
  return files;
}

int64_t MostDataBytes() { return device::MostFileBytes() / 2; }

absl::Status CheckDataBytes(const std::string& path, int64_t bytes) {
  if (bytes <= MostDataBytes()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the files up to ", ShownPath(path), " have ", bytes, " bytes; at most ",
                   MostDataBytes(), ", an eighth of the machine's memory, are read"));
}

}  // namespace brigade::data
