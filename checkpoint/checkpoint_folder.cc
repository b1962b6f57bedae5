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

// The end of a rename by which this manifest comes to be at `to`. Over a network it may be asked
// for twice, and the answer be that of the second time: that nothing has the old name.
absl::Status CheckRenamed(device::SystemCalls& system, int result, const std::string& from,
                          const std::string& to, absl::string_view manifest) {
  if (result == 0) return absl::OkStatus();
  const absl::Status failed = Failed("rename", from);
  if (!absl::IsNotFound(failed)) return failed;
  const auto file = RandomAccessFile::Open(system, to);
  if (!file.ok() || file->size() != static_cast<int64_t>(manifest.size())) return failed;
  std::string there(manifest.size(), '\0');
  const absl::Status read = file->Read(there.data(), file->size(), 0);
  return read.ok() && there == manifest ? absl::OkStatus() : failed;
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
  // Both may have been asked for twice: CheckRenamed.
  if (system.MakeFolder(path, 0777) != 0 && errno != EEXIST) return Failed("make", path);
  if (system.RemoveFolder(path) != 0 && errno != ENOENT) return Failed("remove", path);
  return absl::OkStatus();
}

absl::StatusOr<NewCheckpoint> NewCheckpoint::Begin(device::SystemCalls& system,
                                                   const std::string& root_path, int64_t step,
                                                   int64_t bytes, const std::string& token) {
  const std::string root = WithoutSlashesAtTheEnd(root_path);
  BRIGADE_RETURN_IF_ERROR(MakeRoot(system, root));
  std::vector<std::string> names;
  if (system.List(root, names) != 0) return Failed("list", root);
  if (absl::c_linear_search(names, NameOf(step))) {
    return absl::AlreadyExistsError(
        absl::StrCat(PrintablePath(CheckpointPath(root, step)), " is there already"));
  }
  // What stays takes room, no more. All who begin it look, so that none counts it as taken.
  RemoveLeftovers(system, root, PartName(step, token)).IgnoreError();
  struct statvfs space = {};
  if (system.SpaceOf(root, space) != 0) return Failed("look at the space of", root);
  NewCheckpoint self(system, root, step, PartPath(root, step, token), device::FreeBytes(space));
  // Before the folder is there: whoever has made it must not give it up while others begin it.
  absl::Status begun = self.CheckRoom(bytes);
  if (begun.ok() && system.MakeFolder(self.path_, 0777) != 0 && errno != EEXIST) {
    begun = Failed("make", self.path_);
  }
  // Nor must one who has not made it.
  if (!begun.ok()) self.Leave();
  BRIGADE_RETURN_IF_ERROR(begun);
  return self;
}

NewCheckpoint::NewCheckpoint(NewCheckpoint&& other) noexcept
    : system_(other.system_),
      root_(std::move(other.root_)),
      named_(std::move(other.named_)),
      path_(std::move(other.path_)),
      free_bytes_(other.free_bytes_),
      has_name_(other.has_name_),
      removes_(std::exchange(other.removes_, false)) {}

NewCheckpoint::~NewCheckpoint() {
  if (removes_) RemoveFolderWithFiles(*system_, path_).IgnoreError();
}

absl::Status NewCheckpoint::CheckRoom(int64_t bytes) const {
  if (bytes <= free_bytes_) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("cannot save to ", PrintablePath(root_), ": ",
                                                   bytes, " bytes are needed, ", free_bytes_,
                                                   " are free"));
}

absl::Status NewCheckpoint::Commit(absl::string_view manifest) {
  const std::string there = InFolder(path_, kManifestName), beside = there + ".part";
  BRIGADE_ASSIGN_OR_RETURN(
      auto file, WritableFile::Create(*system_, beside, static_cast<int64_t>(manifest.size())));
  BRIGADE_RETURN_IF_ERROR(file.Write(manifest, 0));
  BRIGADE_RETURN_IF_ERROR(file.Finish());
  BRIGADE_RETURN_IF_ERROR(
      CheckRenamed(*system_, system_->Rename(beside, there), beside, there, manifest));
  // The names of all files too.
  BRIGADE_RETURN_IF_ERROR(SyncFolder(*system_, path_));
  BRIGADE_RETURN_IF_ERROR(CheckRenamed(*system_, system_->RenameToNew(path_, named_), path_,
                                       InFolder(named_, kManifestName), manifest));
  has_name_ = true;
  removes_ = false;
  return SyncFolder(*system_, root_);
}

absl::Status NewCheckpoint::Withdraw() {
  if (!has_name_) return absl::OkStatus();
  // It may have been asked for twice: CheckRenamed.
  if (system_->RenameToNew(named_, path_) != 0 && errno != ENOENT) return Failed("rename", named_);
  has_name_ = false;
  // Only then may its files go. Else the next save removes them.
  BRIGADE_RETURN_IF_ERROR(SyncFolder(*system_, root_));
  removes_ = true;
  return absl::OkStatus();
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
    // It may have been asked for twice: CheckRenamed.
    if (system.Rename(path, trash) != 0 && errno != ENOENT) return Failed("rename", path);
  }
  return RemoveLeftovers(system, root);
}

}  // namespace brigade::checkpoint
