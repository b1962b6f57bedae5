#include "brigade/checkpoint/rank_files.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {

RankFiles::RankFiles(WriteMode mode, const std::string& root, const Layout& layout,
                     const zero::Plan& plan, int rank, int ranks, device::SystemCalls& system)
    : mode_(mode),
      root_(root),
      layout_(layout),
      plan_(plan),
      rank_(rank),
      ranks_(ranks),
      system_(system),
      pieces_(layout.PiecesOf(plan, rank)) {}

absl::Status RankFiles::Prepare(const std::string& token) const {
  if (!in_place() || rank_ == 0) return PrepareRoot(system_, root_, token);
  std::vector<std::string> names;
  return system_.List(root_, names) == 0 ? absl::OkStatus() : Failed("list", root_);
}

absl::Status RankFiles::Begin(int64_t step, const std::string& token) {
  step_ = step;
  token_ = token;
  sums_.assign(pieces_.size(), 0);
  open_ = -1;
  written_ = 0;
  piece_file_sum_ = 0;
  if (!in_place()) {
    const PieceFile own = PieceFileOf(rank_);
    BRIGADE_ASSIGN_OR_RETURN(auto folder,
                             NewCheckpoint::Join(system_, root_, step, own.bytes, token));
    folder_.emplace(std::move(folder));
    BRIGADE_ASSIGN_OR_RETURN(auto file, WritableFile::Create(system_, PathOf(own.name), own.bytes));
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }
  if (rank_ != 0) return absl::OkStatus();
  const auto bytes = layout_.bytes() + static_cast<int64_t>(layout_.index().size());
  BRIGADE_ASSIGN_OR_RETURN(auto folder, NewCheckpoint::Begin(system_, root_, step, bytes, token));
  folder_.emplace(std::move(folder));
  return CreateFiles();
}

// With their headers; all ranks write the rest. They stay open, so that each is synced once.
absl::Status RankFiles::CreateFiles() {
  const auto create = [&](const std::string& name, int64_t bytes,
                          absl::string_view first) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(auto file, WritableFile::Create(system_, PathOf(name), bytes));
    files_.push_back(std::move(file));
    return files_.back().Write(first, 0);
  };
  for (const TensorFile& file : layout_.files()) {
    BRIGADE_RETURN_IF_ERROR(create(file.name, file.bytes, file.header));
  }
  const auto bytes = static_cast<int64_t>(layout_.index().size());
  return create(kWeightIndexName, bytes, layout_.index());
}

absl::Status RankFiles::Write(Staging& staging, absl::FunctionRef<bool()> is_cancelled) {
  if (!in_place() && rank_ == 0) {
    for (const TensorFile& file : layout_.files()) {
      BRIGADE_RETURN_IF_ERROR(Append(file.header, device::Crc32c(file.header)));
    }
    BRIGADE_RETURN_IF_ERROR(Append(layout_.index(), device::Crc32c(layout_.index())));
  }
  for (int c = 0; c < staging.chunks(); ++c) {
    if (is_cancelled()) return absl::OkStatus();
    BRIGADE_ASSIGN_OR_RETURN(const Staging::Chunk chunk, staging.Take(c));
    BRIGADE_RETURN_IF_ERROR(in_place() ? WriteInPlace(chunk) : WritePieceFile(chunk));
    BRIGADE_RETURN_IF_ERROR(staging.Release(c));
  }
  for (WritableFile& file : files_) BRIGADE_RETURN_IF_ERROR(file.Finish());
  files_.clear();
  // Who has made a name makes it last: the host that leads may know nothing of it.
  return in_place() ? absl::OkStatus() : SyncFolder(system_, PartPath(root_, step_, token_));
}

absl::Status RankFiles::WriteInPlace(const Staging::Chunk& chunk) {
  // Parts that follow each other in a file, and so in the chunk, are written at once.
  int64_t run_at = 0, run_bytes = 0, run_offset = 0;
  int run_file = -1;
  WritableFile* file = nullptr;
  const auto flush = [&]() -> absl::Status {
    if (run_bytes == 0) return absl::OkStatus();
    return file->Write({chunk.data + run_at, static_cast<size_t>(std::exchange(run_bytes, 0))},
                       run_offset);
  };
  for (const Staging::Part& part : chunk.parts) {
    const auto p = static_cast<size_t>(part.piece);
    const Piece& piece = pieces_[p];
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(piece.tensor)];
    const int64_t offset = tensor.offset + piece.offset + part.offset;
    if (tensor.file != run_file || offset != run_offset + run_bytes) {
      BRIGADE_RETURN_IF_ERROR(flush());
      BRIGADE_ASSIGN_OR_RETURN(file, FileOf(tensor.file));
      run_file = tensor.file;
      run_at = part.at;
      run_offset = offset;
    }
    sums_[p] = device::Crc32c({chunk.data + part.at, static_cast<size_t>(part.bytes)}, sums_[p]);
    run_bytes += part.bytes;
  }
  return flush();
}

absl::Status RankFiles::WritePieceFile(const Staging::Chunk& chunk) {
  int64_t bytes = 0;
  uint32_t sum = 0;
  for (const Staging::Part& part : chunk.parts) {
    const auto p = static_cast<size_t>(part.piece);
    const uint32_t of_part =
        device::Crc32c({chunk.data + part.at, static_cast<size_t>(part.bytes)});
    sums_[p] = device::CombineCrc32c(sums_[p], of_part, static_cast<uint64_t>(part.bytes));
    sum = device::CombineCrc32c(sum, of_part, static_cast<uint64_t>(part.bytes));
    bytes += part.bytes;
  }
  return Append({chunk.data, static_cast<size_t>(bytes)}, sum);
}

// To the piece file, bytes with this checksum.
absl::Status RankFiles::Append(absl::string_view bytes, uint32_t crc32c) {
  piece_file_sum_ = device::CombineCrc32c(piece_file_sum_, crc32c, bytes.size());
  const int64_t at = written_;
  written_ += static_cast<int64_t>(bytes.size());
  return files_.front().Write(bytes, at);
}

// One of the files that all ranks write: of rank 0 all are open; of others the one that they write
// now.
absl::StatusOr<WritableFile*> RankFiles::FileOf(int file) {
  if (rank_ == 0) return &files_[static_cast<size_t>(file)];
  if (file != open_) {
    if (!files_.empty()) BRIGADE_RETURN_IF_ERROR(files_.back().Finish());
    files_.clear();
    BRIGADE_ASSIGN_OR_RETURN(
        auto opened,
        WritableFile::Open(system_, PathOf(layout_.files()[static_cast<size_t>(file)].name)));
    files_.push_back(std::move(opened));
    open_ = file;
  }
  return &files_.back();
}

PieceFile RankFiles::PieceFileOf(int rank) const {
  PieceFile piece_file = {.name = absl::StrFormat("pieces-%05d-of-%05d.bin", rank + 1, ranks_)};
  std::vector<PieceFile::Extent>& extents = piece_file.extents;
  const auto files = static_cast<int>(layout_.files().size());
  if (rank == 0) {
    for (int f = 0; f < files; ++f) {
      const auto bytes = layout_.files()[static_cast<size_t>(f)].header.size();
      extents.push_back({f, 0, static_cast<int64_t>(bytes)});
    }
    extents.push_back({files, 0, static_cast<int64_t>(layout_.index().size())});
  }
  const size_t first = extents.size();
  for (const Piece& piece : rank == rank_ ? pieces_ : layout_.PiecesOf(plan_, rank)) {
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(piece.tensor)];
    const int64_t offset = tensor.offset + piece.offset;
    if (extents.size() > first && extents.back().file == tensor.file &&
        extents.back().offset + extents.back().bytes == offset) {
      extents.back().bytes += piece.bytes;
    } else {
      extents.push_back({tensor.file, offset, piece.bytes});
    }
  }
  for (const PieceFile::Extent& extent : extents) piece_file.bytes += extent.bytes;
  return piece_file;
}

absl::Status RankFiles::Commit(absl::string_view manifest) {
  return leads() ? folder_->Commit(manifest) : absl::OkStatus();
}

absl::Status RankFiles::CheckIsThere() const {
  if (in_place() || leads()) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(const bool is_there, IsCheckpoint(system_, path()));
  if (is_there) return absl::OkStatus();
  // A request that the network has repeated may have told every rank that another one leads.
  return absl::UnavailableError(
      absl::StrCat("no rank has made ", PrintablePath(path()), " a checkpoint"));
}

void RankFiles::End() {
  // Files that are open are renamed, not removed, by some file systems.
  files_.clear();
  folder_.reset();
}

void RankFiles::GiveUp() {
  End();
  // Where the ranks cannot speak with each other, the one that made the folder may have removed it
  // before this one's file was in it. No rank can have gone on to the commit.
  if (!in_place()) RemoveFolderWithFiles(system_, PartPath(root_, step_, token_)).IgnoreError();
}

}  // namespace brigade::checkpoint
