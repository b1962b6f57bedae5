#include "brigade/checkpoint/rank_files.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

// Summed and written at once.
constexpr int64_t kBlockBytes = int64_t{256} << 10;

}  // namespace

RankFiles::RankFiles(WriteMode mode, const std::string& root, const Layout& layout,
                     std::vector<Piece> pieces, int rank, int ranks, device::SystemCalls& system)
    : mode_(mode),
      root_(root),
      layout_(layout),
      rank_(rank),
      ranks_(ranks),
      system_(system),
      pieces_(std::move(pieces)),
      sums_(layout) {}

absl::Status RankFiles::Prepare(const std::string& token) {
  if (!in_place() || rank_ == 0) {
    BRIGADE_RETURN_IF_ERROR(PrepareRoot(system_, root_, token));
    BRIGADE_ASSIGN_OR_RETURN(auto lock, FolderLock::Take(system_, root_, token));
    lock_.emplace(std::move(lock));
    return absl::OkStatus();
  }
  std::vector<std::string> names;
  return system_.List(root_, names) == 0 ? absl::OkStatus() : Failed("list", root_);
}

absl::Status RankFiles::Begin(int64_t step, const std::string& token) {
  step_ = step;
  token_ = token;
  sums_.Clear();
  open_ = -1;
  written_ = 0;
  piece_file_sum_ = 0;
  leads_ = in_place() && rank_ == 0;
  if (!in_place()) {
    BRIGADE_ASSIGN_OR_RETURN(auto folder,
                             NewCheckpoint::Begin(system_, root_, step, own_file().bytes, token));
    folder_.emplace(std::move(folder));
    BRIGADE_ASSIGN_OR_RETURN(auto file, WritableFile::Create(system_, PathOf(own_file().name), 0));
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }
  if (rank_ != 0) return absl::OkStatus();
  const auto bytes = layout_.bytes() + static_cast<int64_t>(layout_.index().size());
  BRIGADE_ASSIGN_OR_RETURN(auto folder, NewCheckpoint::Begin(system_, root_, step, bytes, token));
  folder_.emplace(std::move(folder));
  return CreateFiles();
}

absl::Status RankFiles::TakeRoom() {
  if (in_place()) return absl::OkStatus();
  const std::string path = PartPath(root_, step_, token_);
  std::vector<std::string> names;
  if (system_.List(path, names) != 0) return Failed("list", path);
  int64_t bytes = 0;
  int first = rank_;
  for (int rank = 0; rank < ranks_; ++rank) {
    const PieceFile& file = piece_files_[static_cast<size_t>(rank)];
    if (!absl::c_linear_search(names, file.name)) continue;
    bytes += file.bytes;
    first = std::min(first, rank);
  }
  // No rank has taken room when the others looked what is free.
  BRIGADE_RETURN_IF_ERROR(folder_->CheckRoom(bytes));
  leads_ = first == rank_;
  if (!leads_) folder_->Leave();
  return files_.front().TakeRoom(own_file().bytes);
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
    BRIGADE_RETURN_IF_ERROR(WriteChunk(chunk));
    BRIGADE_RETURN_IF_ERROR(staging.Release(c));
  }
  for (WritableFile& file : files_) BRIGADE_RETURN_IF_ERROR(file.Finish());
  files_.clear();
  // Who has made a name makes it last: the host that leads, which syncs the folder when it commits
  // it, may know nothing of it.
  if (in_place() || leads_) return absl::OkStatus();
  return SyncFolder(system_, PartPath(root_, step_, token_));
}

// Parts that follow each other in a file, and so in the chunk, are written together; and block
// after block, so that the file gets what was summed out of the processor's cache.
absl::Status RankFiles::WriteChunk(const Staging::Chunk& chunk) {
  int run_file = 0;
  int64_t run_at = 0, run_bytes = 0, run_offset = 0;
  uint32_t run_sum = 0;
  const auto flush = [&]() -> absl::Status {
    if (run_bytes == 0) return absl::OkStatus();
    const absl::string_view run(chunk.data + run_at, static_cast<size_t>(run_bytes));
    const int64_t offset = run_offset;
    run_at += run_bytes;
    run_offset += std::exchange(run_bytes, 0);
    const uint32_t sum = std::exchange(run_sum, 0);
    if (!in_place()) return Append(run, sum);
    BRIGADE_ASSIGN_OR_RETURN(WritableFile* const file, FileOf(run_file));
    return file->Write(run, offset);
  };
  for (const Staging::Part& part : chunk.parts) {
    const Piece& piece = pieces_[static_cast<size_t>(part.piece)];
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(piece.tensor)];
    const int file = in_place() ? tensor.file : 0;
    const int64_t offset = in_place() ? tensor.offset + piece.offset + part.offset : part.at;
    if (file != run_file || offset != run_offset + run_bytes) {
      BRIGADE_RETURN_IF_ERROR(flush());
      run_file = file;
      run_at = part.at;
      run_offset = offset;
    }
    for (int64_t done = 0; done < part.bytes;) {
      const int64_t count = std::min(part.bytes - done, kBlockBytes - run_bytes);
      const uint32_t sum = sums_.Add(piece.tensor, piece.offset + part.offset + done,
                                     {chunk.data + part.at + done, static_cast<size_t>(count)});
      if (!in_place()) {
        run_sum = device::CombineCrc32c(run_sum, sum, static_cast<uint64_t>(count));
      }
      run_bytes += count;
      done += count;
      if (run_bytes == kBlockBytes) BRIGADE_RETURN_IF_ERROR(flush());
    }
  }
  return flush();
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

std::vector<PieceFile::Extent> RankFiles::OwnExtents() const {
  std::vector<PieceFile::Extent> extents;
  const auto files = static_cast<int>(layout_.files().size());
  if (rank_ == 0) {
    for (int f = 0; f < files; ++f) {
      const auto bytes = layout_.files()[static_cast<size_t>(f)].header.size();
      extents.push_back({f, 0, static_cast<int64_t>(bytes)});
    }
    extents.push_back({files, 0, static_cast<int64_t>(layout_.index().size())});
  }
  const size_t first = extents.size();
  for (const Piece& piece : pieces_) {
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(piece.tensor)];
    const int64_t offset = tensor.offset + piece.offset;
    if (extents.size() > first && extents.back().file == tensor.file &&
        extents.back().offset + extents.back().bytes == offset) {
      extents.back().bytes += piece.bytes;
    } else {
      extents.push_back({tensor.file, offset, piece.bytes});
    }
  }
  return extents;
}

absl::Status RankFiles::ExchangeExtents(collectives::Communicator& communicator) {
  using Extent = PieceFile::Extent;
  static_assert(std::is_trivially_copyable_v<Extent>);
  const std::vector<Extent> own = OwnExtents();
  const std::string mine(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(Extent));
  BRIGADE_ASSIGN_OR_RETURN(const auto all, collectives::AllGatherBytes(mine, communicator));
  piece_files_.clear();
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::string& bytes = all[static_cast<size_t>(rank)];
    PieceFile& file = piece_files_.emplace_back();
    file.name = absl::StrFormat("pieces-%05d-of-%05d.bin", rank + 1, ranks_);
    file.extents.resize(bytes.size() / sizeof(Extent));
    if (!bytes.empty()) std::memcpy(file.extents.data(), bytes.data(), bytes.size());
    for (const Extent& extent : file.extents) file.bytes += extent.bytes;
  }
  return absl::OkStatus();
}

absl::Status RankFiles::Commit(absl::string_view manifest) {
  return leads_ ? folder_->Commit(manifest) : absl::OkStatus();
}

absl::Status RankFiles::Withdraw() { return leads_ ? folder_->Withdraw() : absl::OkStatus(); }

absl::Status RankFiles::CheckIsThere() const {
  if (in_place() || leads_) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(const bool is_there, IsCheckpoint(system_, path()));
  if (is_there) return absl::OkStatus();
  // The file system is not as coherent as it has to be.
  return absl::UnavailableError(absl::StrCat(
      PrintablePath(path()), " is no checkpoint here, and should be, by another rank"));
}

void RankFiles::End() {
  // Files that are open are renamed, not removed, by some file systems.
  files_.clear();
  folder_.reset();
}

}  // namespace brigade::checkpoint
