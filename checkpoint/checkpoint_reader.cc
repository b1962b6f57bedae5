#include "brigade/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

// Of the master and the moments that are read now, and of those to come.
constexpr size_t kMostOpenFiles = 8;

}  // namespace

absl::StatusOr<RandomAccessFile> OpenFileOfSize(device::SystemCalls& system,
                                                const std::string& folder, const std::string& name,
                                                int64_t bytes) {
  const std::string path = absl::StrCat(folder, "/", name);
  absl::StatusOr<RandomAccessFile> file = RandomAccessFile::Open(system, path);
  if (absl::IsNotFound(file.status())) {
    return absl::DataLossError(absl::StrCat(PrintablePath(path), " is not there"));
  }
  if (file.ok() && file->size() != bytes) {
    return absl::DataLossError(absl::StrCat(PrintablePath(path), " has ", file->size(),
                                            " bytes, and should have ", bytes));
  }
  return file;
}

std::string SumError(absl::string_view what, uint32_t is, uint32_t should_be) {
  return absl::StrFormat("%s has the checksum %08x, and should have %08x", what, is, should_be);
}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(device::SystemCalls& system,
                                                        const std::string& folder) {
  CheckpointReader reader(system, folder);
  const std::string path = absl::StrCat(folder, "/", kManifestName);
  BRIGADE_ASSIGN_OR_RETURN(const auto file, RandomAccessFile::Open(system, path));
  if (file.size() > static_cast<int64_t>(kMostManifestBytes)) {
    return absl::DataLossError(
        absl::StrCat(PrintablePath(path), " has ", file.size(), " bytes, too many"));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  BRIGADE_RETURN_IF_ERROR(file.Read(text.data(), file.size(), 0));
  absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (!manifest.ok()) {
    // One of another version is as it should be.
    const bool is_whole = absl::IsUnimplemented(manifest.status());
    return absl::Status(is_whole ? absl::StatusCode::kUnimplemented : absl::StatusCode::kDataLoss,
                        absl::StrCat(PrintablePath(path), ": ", manifest.status().message()));
  }
  reader.manifest_ = *std::move(manifest);
  reader.manifest_sum_ = device::Crc32c(text);
  if (reader.manifest_.pieces.empty()) return reader;
  reader.extents_.resize(reader.manifest_.files.size());
  for (size_t p = 0; p < reader.manifest_.pieces.size(); ++p) {
    int64_t at = 0;
    for (const PieceFile::Extent& each : reader.manifest_.pieces[p].extents) {
      reader.extents_[static_cast<size_t>(each.file)].push_back(
          {each.offset, each.bytes, static_cast<int>(p), at});
      at += each.bytes;
    }
  }
  for (std::vector<Extent>& of_file : reader.extents_) {
    std::sort(of_file.begin(), of_file.end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  }
  return reader;
}

absl::Status CheckpointReader::Read(int file, int64_t offset, int64_t bytes, void* to) {
  auto* next = static_cast<char*>(to);
  return ForEachPart(file, offset, bytes, [&](const Part& part) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const RandomAccessFile* const open, FileOf(part));
    BRIGADE_RETURN_IF_ERROR(open->Read(next, part.bytes, part.offset));
    next += part.bytes;
    return absl::OkStatus();
  });
}

void CheckpointReader::BeginToRead(int file, int64_t offset, int64_t bytes) {
  ForEachPart(file, offset, bytes, [&](const Part& part) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const RandomAccessFile* const open, FileOf(part));
    open->BeginToRead(part.bytes, part.offset);
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status CheckpointReader::ForEachPart(
    int file, int64_t offset, int64_t bytes,
    absl::FunctionRef<absl::Status(const Part& part)> use) const {
  if (bytes == 0) return absl::OkStatus();
  const auto f = static_cast<size_t>(file);
  const Manifest::File& whole = manifest_.files[f];
  if (extents_.empty()) return use({whole.name, whole.bytes, offset, bytes});
  const std::vector<Extent>& extents = extents_[f];
  auto extent = std::upper_bound(extents.begin(), extents.end(), offset,
                                 [](int64_t at, const Extent& each) { return at < each.offset; });
  for (--extent; bytes > 0; ++extent) {
    const int64_t skipped = offset - extent->offset;
    const int64_t count = std::min(bytes, extent->bytes - skipped);
    const PieceFile& piece = manifest_.pieces[static_cast<size_t>(extent->piece)];
    BRIGADE_RETURN_IF_ERROR(use({piece.name, piece.bytes, extent->at + skipped, count}));
    offset += count;
    bytes -= count;
  }
  return absl::OkStatus();
}

absl::StatusOr<const RandomAccessFile*> CheckpointReader::FileOf(const Part& part) {
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [&](const auto& each) { return each.first == part.name; });
  if (found != open_.end()) {
    std::rotate(found, found + 1, open_.end());
    return open_.back().second.get();
  }
  BRIGADE_ASSIGN_OR_RETURN(auto file, OpenFileOfSize(*system_, folder_, part.name, part.size));
  if (open_.size() == kMostOpenFiles) open_.erase(open_.begin());
  open_.emplace_back(part.name, std::make_unique<RandomAccessFile>(std::move(file)));
  return open_.back().second.get();
}

absl::StatusOr<SafetensorsHeader> CheckpointReader::ReadHeaderOf(int file) {
  const Manifest::File& whole = manifest_.files[static_cast<size_t>(file)];
  const std::string path = absl::StrCat(folder_, "/", whole.name);
  const auto damaged = [&](const auto&... what) {
    return absl::DataLossError(absl::StrCat(PrintablePath(path), ": ", what...));
  };
  absl::Status read;
  uint32_t sum = 0;
  const absl::StatusOr<SafetensorsHeader> header =
      ReadHeader(static_cast<uint64_t>(whole.bytes), [&](int64_t offset, int64_t bytes, void* to) {
        read = Read(file, offset, bytes, to);
        sum = device::Crc32c({static_cast<const char*>(to), static_cast<size_t>(bytes)}, sum);
        return read;
      });
  BRIGADE_RETURN_IF_ERROR(read);
  if (!header.ok()) return damaged(header.status().message());
  if (header->tensors.size() != whole.tensors.size()) {
    return damaged("the header has ", header->tensors.size(), " tensors, and should have ",
                   whole.tensors.size());
  }
  for (size_t t = 0; t < whole.tensors.size(); ++t) {
    const TensorInfo& tensor = header->tensors[t];
    if (tensor.name != whole.tensors[t].name) {
      return damaged("tensor ", t, " is ", device::Quoted(tensor.name), ", and should be ",
                     device::Quoted(whole.tensors[t].name));
    }
    sum = device::CombineCrc32c(sum, whole.tensors[t].crc32c, tensor.end - tensor.begin);
  }
  if (sum != whole.crc32c) return damaged("the header is damaged");
  return header;
}

absl::StatusOr<std::vector<SafetensorsHeader>> CheckpointReader::ReadHeaders() {
  std::vector<SafetensorsHeader> headers(manifest_.files.size());
  for (size_t f = 0; f < headers.size(); ++f) {
    if (!absl::EndsWith(manifest_.files[f].name, kSafetensorsEnding)) continue;
    BRIGADE_ASSIGN_OR_RETURN(headers[f], ReadHeaderOf(static_cast<int>(f)));
  }
  return headers;
}

absl::StatusOr<WeightIndex> CheckpointReader::ReadIndex() {
  const std::string path = PrintablePath(absl::StrCat(folder_, "/", kWeightIndexName));
  const auto found =
      std::find_if(manifest_.files.begin(), manifest_.files.end(),
                   [](const Manifest::File& file) { return file.name == kWeightIndexName; });
  if (found == manifest_.files.end()) {
    return absl::DataLossError(absl::StrCat(path, " is not in the manifest"));
  }
  if (found->bytes > static_cast<int64_t>(kMostWeightIndexBytes)) {
    return absl::DataLossError(absl::StrCat(path, " has ", found->bytes, " bytes, too many"));
  }
  std::string text(static_cast<size_t>(found->bytes), '\0');
  BRIGADE_RETURN_IF_ERROR(
      Read(static_cast<int>(found - manifest_.files.begin()), 0, found->bytes, text.data()));
  if (const uint32_t sum = device::Crc32c(text); sum != found->crc32c) {
    return absl::DataLossError(SumError(path, sum, found->crc32c));
  }
  absl::StatusOr<WeightIndex> index = ParseWeightIndex(text);
  if (index.ok()) return index;
  return absl::DataLossError(absl::StrCat(path, ": ", index.status().message()));
}

}  // namespace brigade::checkpoint
