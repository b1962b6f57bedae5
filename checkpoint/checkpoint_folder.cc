#include "brigade/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

constexpr absl::string_view kPrefix = "step-", kPartPrefix = ".step-", kPart = ".part-";
constexpr absl::string_view kTrashPrefix = ".trash-";

std::string NameOf(int64_t step) { return absl::StrFormat("step-%08d", step); }

std::string PartName(int64_t step, const std::string& token) {
  return absl::StrCat(".", NameOf(step), kPart, token);
}

std::string InFolder(const std::string& folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
}

absl::Status CheckRoom(device::SystemCalls& system, const std::string& root, int64_t bytes) {
  struct statvfs space = {};
  if (system.SpaceOf(root, space) != 0) return Failed("look at the space of", root);
  const uint64_t free = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  if (free >= static_cast<uint64_t>(bytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("cannot save to ", PrintablePath(root), ": ",
                                                   bytes, " bytes are needed, ", free,
                                                   " are free"));
}

// "a/b//" is a folder of "a".
std::string WithoutSlashesAtTheEnd(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  return last == std::string::npos ? path.substr(0, 1) : path.substr(0, last + 1);
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status MakeRoot(device::SystemCalls& system, const std::string& root) {
  if (system.MakeFolder(root, 0777) != 0 && errno != EEXIST) return Failed("make", root);
  // Also where it was there: whoever made it may have ended before this.
  return SyncFolder(system, ParentOf(root));
}

// Of saves and removals that were cut short: all that can be removed, but for `kept`; the first
// error.
absl::Status RemoveLeftovers(device::SystemCalls& system, const std::string& root,
                             absl::string_view kept = "") {
  std::vector<std::string> names;
  if (system.List(root, names) != 0) return Failed("list", root);
  absl::Status status;
  bool is_synced = false;
  for (const std::string& name : names) {
    const bool is_part = absl::StartsWith(name, kPartPrefix) && absl::StrContains(name, kPart);
    if (!is_part && !absl::StartsWith(name, absl::StrCat(kTrashPrefix, kPrefix))) continue;
    if (name == kept) continue;
    // Before its files go, it no longer has the name of a checkpoint on the disk either.
    if (!std::exchange(is_synced, true)) BRIGADE_RETURN_IF_ERROR(SyncFolder(system, root));
    status.Update(RemoveFolderWithFiles(system, InFolder(root, name)));
  }
  return status;
}

}  // namespace

absl::StatusOr<bool> IsCheckpoint(device::SystemCalls& system, const std::string& path) {
  const absl::Status opened =
      RandomAccessFile::Open(system, InFolder(path, kManifestName)).status();
  // One that is damaged is one: who loads it says so, and may take the one before.
  if (opened.ok() || absl::IsDataLoss(opened)) return true;
  // Nothing there, something else there, or no folder around it.
  if (absl::IsNotFound(opened) || absl::IsInvalidArgument(opened) ||
      absl::IsFailedPrecondition(opened)) {
    return false;
  }
  return opened;
}

absl::Status SetAside(device::SystemCalls& system, const std::string& root, int64_t step) {
  const std::string path = CheckpointPath(root, step);
  const std::string aside = InFolder(root, absl::StrCat("damaged-", NameOf(step)));
  for (int number = 1;; ++number) {
    const std::string to = number == 1 ? aside : absl::StrCat(aside, "-", number);
    if (system.RenameToNew(path, to) == 0) break;
    if (errno != EEXIST || number == 1000) return Failed("rename", path);
  }
  return SyncFolder(system, root);
}

std::string CheckpointPath(const std::string& root, int64_t step) {
  return InFolder(root, NameOf(step));
}

std::string PartPath(const std::string& root, int64_t step, const std::string& token) {
  return InFolder(WithoutSlashesAtTheEnd(root), PartName(step, token));
}

absl::Status PrepareRoot(device::SystemCalls& system, const std::string& root,
                         const std::string& token) {
  BRIGADE_RETURN_IF_ERROR(MakeRoot(system, WithoutSlashesAtTheEnd(root)));
  // If it stays, the next save removes it.
  const std::string path = PartPath(root, 0, token);
  if (system.MakeFolder(path, 0777) != 0) return Failed("make", path);
  if (system.RemoveFolder(path) != 0) return Failed("remove", path);
  return absl::OkStatus();
}

absl::StatusOr<NewCheckpoint> NewCheckpoint::Begin(device::SystemCalls& system,
                                                   const std::string& root, int64_t step,
                                                   int64_t bytes, const std::string& token) {
  return BeginOrJoin(system, root, step, bytes, token, /*joins=*/false);
}

absl::StatusOr<NewCheckpoint> NewCheckpoint::Join(device::SystemCalls& system,
                                                  const std::string& root, int64_t step,
                                                  int64_t bytes, const std::string& token) {
  return BeginOrJoin(system, root, step, bytes, token, /*joins=*/true);
}

absl::StatusOr<NewCheckpoint> NewCheckpoint::BeginOrJoin(device::SystemCalls& system,
                                                         const std::string& root_path, int64_t step,
                                                         int64_t bytes, const std::string& token,
                                                         bool joins) {
  const std::string root = WithoutSlashesAtTheEnd(root_path);
  BRIGADE_RETURN_IF_ERROR(MakeRoot(system, root));
  std::vector<std::string> names;
  if (system.List(root, names) != 0) return Failed("list", root);
  if (absl::c_linear_search(names, NameOf(step))) {
    return absl::AlreadyExistsError(
        absl::StrCat(PrintablePath(CheckpointPath(root, step)), " is there already"));
  }
  // What stays takes room, no more. All who join look, so that none counts it as taken.
  RemoveLeftovers(system, root, PartName(step, token)).IgnoreError();
  // Before the folder is there: whoever has made it must not give it up while others join.
  BRIGADE_RETURN_IF_ERROR(CheckRoom(system, root, bytes));
  const std::string path = PartPath(root, step, token);
  const bool leads = system.MakeFolder(path, 0777) == 0;
  if (!leads && !(joins && errno == EEXIST)) return Failed("make", path);
  return NewCheckpoint(system, root, NameOf(step), path, leads);
}

NewCheckpoint::NewCheckpoint(NewCheckpoint&& other) noexcept
    : system_(other.system_),
      root_(std::move(other.root_)),
      name_(std::move(other.name_)),
      path_(std::exchange(other.path_, "")),
      leads_(other.leads_) {}

NewCheckpoint::~NewCheckpoint() {
  if (leads_ && !path_.empty()) RemoveFolderWithFiles(*system_, path_).IgnoreError();
}

absl::Status NewCheckpoint::Commit(absl::string_view manifest) {
  if (!leads_) return absl::OkStatus();
  const std::string there = InFolder(path_, kManifestName), beside = there + ".part";
  BRIGADE_ASSIGN_OR_RETURN(
      auto file, WritableFile::Create(*system_, beside, static_cast<int64_t>(manifest.size())));
  BRIGADE_RETURN_IF_ERROR(file.Write(manifest, 0));
  BRIGADE_RETURN_IF_ERROR(file.Finish());
  if (system_->Rename(beside, there) != 0) return Failed("rename", beside);
  // The names of all files too.
  BRIGADE_RETURN_IF_ERROR(SyncFolder(*system_, path_));
  if (system_->RenameToNew(path_, InFolder(root_, name_)) != 0) return Failed("rename", path_);
  path_.clear();
  return SyncFolder(*system_, root_);
}

absl::StatusOr<std::vector<int64_t>> ListCheckpoints(device::SystemCalls& system,
                                                     const std::string& root) {
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
      BRIGADE_ASSIGN_OR_RETURN(const bool is_checkpoint,
                               IsCheckpoint(system, InFolder(root, name)));
      if (is_checkpoint) steps.push_back(step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::Status RemoveOldCheckpoints(device::SystemCalls& system, const std::string& root,
                                  int64_t saved, int keep) {
  if (keep < 1) {
    return absl::InvalidArgumentError(absl::StrCat("at least 1 checkpoint is kept, not ", keep));
  }
  BRIGADE_ASSIGN_OR_RETURN(std::vector<int64_t> steps, ListCheckpoints(system, root));
  const auto found = std::lower_bound(steps.begin(), steps.end(), saved);
  if (found == steps.end() || *found != saved) {
    return absl::NotFoundError(
        absl::StrCat("no checkpoint ", PrintablePath(CheckpointPath(root, saved))));
  }
  // Now too: their names may be those that are needed. What stays is an error below.
  RemoveLeftovers(system, root).IgnoreError();
  steps.erase(found);
  steps.resize(steps.size() - std::min(steps.size(), static_cast<size_t>(keep - 1)));
  for (const int64_t step : steps) {
    // So that no crash leaves a part of it under its name.
    const std::string path = CheckpointPath(root, step);
    const std::string trash = InFolder(root, absl::StrCat(kTrashPrefix, NameOf(step)));
    if (system.Rename(path, trash) != 0) return Failed("rename", path);
  }
  return RemoveLeftovers(system, root);
}

}  // namespace brigade::checkpoint
