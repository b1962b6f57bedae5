#include "brigade/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

constexpr absl::string_view kPrefix = "step-", kPartPrefix = ".step-", kTrashPrefix = ".trash-";

std::string NameOf(int64_t step) { return absl::StrFormat("step-%08d", step); }

std::string Join(const std::string& folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
}

absl::Status CheckRoom(SystemCalls& system, const std::string& root, int64_t bytes) {
  struct statvfs space = {};
  if (system.SpaceOf(root, space) != 0) return Failed("look at the space of", root);
  const uint64_t free = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  if (free >= static_cast<uint64_t>(bytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot save to ", root, ": ", bytes, " bytes are needed, ", free, " are free"));
}

}  // namespace

std::string CheckpointPath(const std::string& root, int64_t step) {
  return Join(root, NameOf(step));
}

absl::StatusOr<NewCheckpoint> NewCheckpoint::Begin(SystemCalls& system, const std::string& root,
                                                   int64_t step, int64_t bytes,
                                                   const std::string& token) {
  if (system.MakeFolder(root, 0777) == 0) {
    const size_t slash = root.rfind('/');
    BRIGADE_RETURN_IF_ERROR(SyncFolder(system, slash == std::string::npos ? "."
                                               : slash == 0               ? "/"
                                                                          : root.substr(0, slash)));
  } else if (errno != EEXIST) {
    return Failed("make", root);
  }
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListCheckpoints(system, root));
  if (std::binary_search(steps.begin(), steps.end(), step)) {
    return absl::AlreadyExistsError(absl::StrCat(CheckpointPath(root, step), " is there already"));
  }
  BRIGADE_RETURN_IF_ERROR(CheckRoom(system, root, bytes));
  const std::string path = Join(root, absl::StrCat(".", NameOf(step), ".part-", token));
  if (system.MakeFolder(path, 0777) != 0) return Failed("make", path);
  return NewCheckpoint(system, root, NameOf(step), path);
}

NewCheckpoint::NewCheckpoint(NewCheckpoint&& other) noexcept
    : system_(other.system_),
      root_(std::move(other.root_)),
      name_(std::move(other.name_)),
      path_(std::exchange(other.path_, "")) {}

NewCheckpoint::~NewCheckpoint() {
  if (!path_.empty()) RemoveFolderWithFiles(*system_, path_).IgnoreError();
}

absl::Status NewCheckpoint::Commit(absl::string_view manifest) {
  const std::string there = Join(path_, kManifestName), beside = there + ".part";
  BRIGADE_ASSIGN_OR_RETURN(
      auto file, WritableFile::Create(*system_, beside, static_cast<int64_t>(manifest.size())));
  BRIGADE_RETURN_IF_ERROR(file.Write(manifest, 0));
  BRIGADE_RETURN_IF_ERROR(file.Finish());
  if (system_->Rename(beside, there) != 0) return Failed("rename", beside);
  // The names of all files too.
  BRIGADE_RETURN_IF_ERROR(SyncFolder(*system_, path_));
  if (system_->RenameToNew(path_, Join(root_, name_)) != 0) return Failed("rename", path_);
  path_.clear();
  return SyncFolder(*system_, root_);
}

absl::StatusOr<std::vector<int64_t>> ListCheckpoints(SystemCalls& system, const std::string& root) {
  std::vector<std::string> names;
  if (system.List(root, names) != 0) {
    if (errno == ENOENT) return std::vector<int64_t>();
    return Failed("list", root);
  }
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    int64_t step = 0;
    absl::string_view number = name;
    // No other way to write the number.
    if (absl::ConsumePrefix(&number, kPrefix) && absl::SimpleAtoi(number, &step) && step >= 0 &&
        name == NameOf(step)) {
      steps.push_back(step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::Status RemoveOldCheckpoints(SystemCalls& system, const std::string& root, int keep) {
  if (keep < 1) {
    return absl::InvalidArgumentError(absl::StrCat("at least 1 checkpoint is kept, not ", keep));
  }
  BRIGADE_ASSIGN_OR_RETURN(std::vector<int64_t> steps, ListCheckpoints(system, root));
  steps.resize(steps.size() - std::min(steps.size(), static_cast<size_t>(keep)));
  for (const int64_t step : steps) {
    // So that no crash leaves a part of it under its name.
    const std::string path = CheckpointPath(root, step);
    const std::string trash = Join(root, absl::StrCat(kTrashPrefix, NameOf(step)));
    if (system.Rename(path, trash) != 0) return Failed("rename", path);
  }
  if (!steps.empty()) BRIGADE_RETURN_IF_ERROR(SyncFolder(system, root));
  std::vector<std::string> names;
  if (system.List(root, names) != 0) return Failed("list", root);
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, kTrashPrefix) && !absl::StartsWith(name, kPartPrefix)) continue;
    BRIGADE_RETURN_IF_ERROR(RemoveFolderWithFiles(system, Join(root, name)));
  }
  return absl::OkStatus();
}

}  // namespace brigade::checkpoint
