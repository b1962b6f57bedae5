#include "brigade/device/file/store_versions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/device/file/file_size_signal.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::device::internal {

StoreVersions::StoreVersions(const StoreFile& file, absl::Span<const int64_t> chunk_bytes,
                             CrashSafety safety, absl::Span<char> table)
    : file_(file),
      safety_(safety),
      layout_sum_(LayoutSum(chunk_bytes)),
      current_(chunk_bytes.size()),
      written_(chunk_bytes.size()),
      next_(chunk_bytes.size()),
      table_(table) {}

absl::Status StoreVersions::Create() {
  MutexLock lock(mutex_);
  if (safety_ == CrashSafety::kNone) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(WriteTable(current_, 0));
  return syncs() ? file_.SyncDirectory() : absl::OkStatus();
}

absl::Status StoreVersions::Open() {
  MutexLock lock(mutex_);
  absl::Status first_error;
  TableHead newest = {.commits = -1};
  for (int copy = 0; copy < 2; ++copy) {
    BRIGADE_RETURN_IF_ERROR(file_.Read(table_, copy * static_cast<int64_t>(table_.size())));
    const absl::StatusOr<TableHead> head =
        ReadTable({table_.data(), table_.size()}, layout_sum_, absl::MakeSpan(next_));
    if (!head.ok() && first_error.ok()) first_error = head.status();
    if (!head.ok() || head->commits <= newest.commits) continue;
    newest = *head;
    std::copy(next_.begin(), next_.end(), current_.begin());
  }
  const auto refuse = [&](absl::StatusCode code, absl::string_view reason) {
    return absl::Status(code,
                        absl::StrCat("the table of ", Printable(file_.path(), 400), ": ", reason));
  };
  if (newest.commits < 0) return refuse(first_error.code(), first_error.message());
  if (newest.boot_sum != 0 && newest.boot_sum != boot_sum_) {
    return refuse(absl::StatusCode::kDataLoss,
                  "the machine was started again since it was written, and its crash safety was "
                  "that of a process");
  }
  commits_.store(newest.commits, std::memory_order_release);
  return absl::OkStatus();
}

ChunkVersion StoreVersions::Current(int64_t chunk) const {
  MutexLock lock(mutex_);
  return current_[At(chunk)];
}

absl::StatusOr<int32_t> StoreVersions::BeginWrite(int64_t chunk) {
  MutexLock lock(mutex_);
  BRIGADE_RETURN_IF_ERROR(broken_);
  // What fails midway is nothing to commit.
  written_[At(chunk)] = {};
  return current_[At(chunk)].slot == 0 ? 1 : 0;
}

void StoreVersions::EndWrite(int64_t chunk, const ChunkVersion& written) {
  MutexLock lock(mutex_);
  written_[At(chunk)] = written;
}

absl::Status StoreVersions::Commit() {
  MutexLock lock(mutex_);
  BRIGADE_RETURN_IF_ERROR(broken_);
  for (size_t i = 0; i < current_.size(); ++i) {
    next_[i] = written_[i].slot < 0 ? current_[i] : written_[i];
  }
  if (safety_ != CrashSafety::kNone) BRIGADE_RETURN_IF_ERROR(WriteTable(next_, commits() + 1));
  std::copy(next_.begin(), next_.end(), current_.begin());
  std::fill(written_.begin(), written_.end(), ChunkVersion());
  commits_.fetch_add(1, std::memory_order_release);
  return absl::OkStatus();
}

void StoreVersions::Abandon() {
  MutexLock lock(mutex_);
  std::fill(written_.begin(), written_.end(), ChunkVersion());
}

absl::Status StoreVersions::WriteTable(absl::Span<const ChunkVersion> versions, int64_t commits) {
  const FileSizeSignalBlock no_signal;
  BRIGADE_RETURN_IF_ERROR(file_.Check());
  // Else the disk may take the table before what it says.
  if (syncs()) BRIGADE_RETURN_IF_ERROR(file_.Sync());
  internal::WriteTable({layout_sum_, syncs() ? 0 : boot_sum_, commits}, versions, table_);
  absl::Status status = file_.Write(table_, commits % 2 * static_cast<int64_t>(table_.size()));
  if (status.ok() && syncs()) status = file_.Sync();
  if (status.ok()) return status;
  broken_ = absl::Status(
      status.code(), absl::StrCat(status.message(), ", its table of commit ", commits,
                                  ": it takes no more writes, because a crash would find either "
                                  "this commit or the one before"));
  return broken_;
}

}  // namespace brigade::device::internal
