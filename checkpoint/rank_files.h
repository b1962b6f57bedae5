#ifndef BRIGADE_CHECKPOINT_RANK_FILES_H_
#define BRIGADE_CHECKPOINT_RANK_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/folder_lock.h"
#include "brigade/checkpoint/layout.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/staging.h"
#include "brigade/checkpoint/tensor_sums.h"
#include "brigade/checkpoint/write_mode.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::checkpoint {

// What one rank writes of a checkpoint. Begin, TakeRoom, Write and Commit each come after the one
// before has succeeded on all ranks.
class RankFiles {
 public:
  // All must outlive it. `pieces`: what this rank saves.
  RankFiles(WriteMode mode, const std::string& root, const Layout& layout,
            std::vector<Piece> pieces, int rank, int ranks, device::SystemCalls& system);

  // Of piece files: tells the others what is in this rank's. A call of all ranks, before Begin.
  absl::Status ExchangeExtents(collectives::Communicator& communicator);

  // Makes the root, locks it for all ranks that give this token (FolderLock), and finds out whether
  // it can hold checkpoints, as far as that shows before one is written. In place rank 0 does, and
  // before the others do what they do.
  absl::Status Prepare(const std::string& token);

  // The folder of a new checkpoint, and the files in it (NewCheckpoint), all with this token. In
  // place rank 0 makes them for all, and takes room.
  absl::Status Begin(int64_t step, const std::string& token);
  // Of piece files: finds out which ranks see the same folder, the first of which leads, and
  // whether there is room for what they all write; and takes it.
  absl::Status TakeRoom();
  // All chunks, synced. Ends early, with OK, once `is_cancelled`.
  absl::Status Write(Staging& staging, absl::FunctionRef<bool()> is_cancelled);
  // The rank that leads makes it a checkpoint; after that the others look whether one is there.
  absl::Status Commit(absl::string_view manifest);
  absl::Status CheckIsThere() const;
  // Among the ranks that see the same folder this one does what one does.
  bool leads() const { return leads_; }
  // After a Commit or CheckIsThere that has failed on some rank: the rank that leads takes back
  // what it has committed, or would have.
  absl::Status Withdraw();
  // Closes all files, and removes what was not committed.
  void End();

  // Of this rank's pieces, and of its piece file: CRC-32C of what was written.
  const TensorSums& sums() const { return sums_; }
  uint32_t piece_file_sum() const { return piece_file_sum_; }

  // The piece files of all ranks, in the manifest, without their checksums; what one holds lies in
  // this order: of rank 0 headers and index first.
  const std::vector<PieceFile>& piece_files() const { return piece_files_; }

  std::string path() const { return CheckpointPath(root_, step_); }

 private:
  std::vector<PieceFile::Extent> OwnExtents() const;
  const PieceFile& own_file() const { return piece_files_[static_cast<size_t>(rank_)]; }
  absl::Status CreateFiles();
  absl::Status WriteChunk(const Staging::Chunk& chunk);
  absl::Status Append(absl::string_view bytes, uint32_t crc32c);
  absl::StatusOr<WritableFile*> FileOf(int file);

  bool in_place() const { return mode_ == WriteMode::kInPlace; }
  std::string PathOf(const std::string& name) const {
    return absl::StrCat(PartPath(root_, step_, token_), "/", name);
  }

  const WriteMode mode_;
  const std::string root_;
  const Layout& layout_;
  const int rank_, ranks_;
  device::SystemCalls& system_;
  const std::vector<Piece> pieces_;
  std::vector<PieceFile> piece_files_;

  std::optional<FolderLock> lock_;
  int64_t step_ = 0;
  std::string token_;
  std::optional<NewCheckpoint> folder_;
  bool leads_ = false;
  // Of kPieceFiles this rank's own; else those that it has open, and which one that is on other
  // ranks than 0. How much a piece file has.
  std::vector<WritableFile> files_;
  int open_ = -1;
  int64_t written_ = 0;
  TensorSums sums_;
  uint32_t piece_file_sum_ = 0;
};

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_RANK_FILES_H_
