#include "brigade/models/new_folder.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/device/status_macros.h"

namespace brigade::models {
namespace {

// With its slash; "" for one beside which there is none.
std::string ParentOf(const std::string& folder) {
  const size_t slash = folder.rfind('/');
  return slash == std::string::npos ? "" : folder.substr(0, slash + 1);
}

}  // namespace

absl::StatusOr<NewFolder> NewFolder::Create(const std::string& path, device::SystemCalls& system) {
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (folder.empty()) return absl::InvalidArgumentError("the folder to write has no name");
  if (std::vector<std::string> names; system.List(folder, names) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat(checkpoint::PrintablePath(folder), " is there already"));
  }
  const std::string parent = ParentOf(folder);
  std::random_device random;
  const std::string part = absl::StrFormat("%s.%s.part-%08x%08x", parent,
                                           folder.substr(parent.size()), random(), random());
  if (system.MakeFolder(part, 0777) != 0) return checkpoint::Failed("make", part);
  return NewFolder(system, folder, part);
}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : system_(other.system_),
      folder_(std::move(other.folder_)),
      part_(std::exchange(other.part_, "")) {}

NewFolder::~NewFolder() {
  if (!part_.empty()) checkpoint::RemoveFolderWithFiles(*system_, part_).IgnoreError();
}

std::string NewFolder::PathOf(absl::string_view name) const {
  return absl::StrCat(part_, "/", name);
}

absl::Status NewFolder::WriteText(absl::string_view name, const std::string& text) const {
  BRIGADE_ASSIGN_OR_RETURN(
      auto file,
      checkpoint::WritableFile::Create(*system_, PathOf(name), static_cast<int64_t>(text.size())));
  BRIGADE_RETURN_IF_ERROR(file.Write(text, 0));
  return file.Finish();
}

absl::Status NewFolder::Publish() {
  // The names of all files, before the folder has its own.
  BRIGADE_RETURN_IF_ERROR(checkpoint::SyncFolder(*system_, part_));
  if (system_->RenameToNew(part_, folder_) != 0) return checkpoint::Failed("rename to", folder_);
  part_.clear();
  const std::string parent = ParentOf(folder_);
  return checkpoint::SyncFolder(*system_, parent.empty() ? "." : parent);
}

}  // namespace brigade::models
