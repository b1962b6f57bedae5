#include "brigade/checkpoint/verify.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/checkpoint_reader.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

// A header, a tensor, or a whole file without a header.
struct Section {
  int64_t end = 0;
  // Of the manifest's file; -1: none.
  int tensor = -1;
};

// Summed bytes of a file of the manifest, all of one section.
struct Part {
  int64_t offset = 0;
  int64_t bytes = 0;
  size_t section = 0;
  uint32_t sum = 0;
};

class Verification {
 public:
  Verification(CheckpointReader& reader, const VerifyOptions& options, device::SystemCalls& system)
      : reader_(reader), manifest_(reader.manifest()), options_(options), system_(system) {}

  absl::Status Run();
  VerifyReport& report() { return report_; }

 private:
  // A file in the folder, and which parts of the manifest's files it has.
  using Stored = PieceFile;

  void ReadHeaders();
  void CheckIndex();
  absl::Status ReadAll();
  void Sum(const Stored& file, absl::string_view bytes);
  void CheckFiles();
  void CheckFolder();

  void Damage(std::string what) {
    if (said_.insert(what).second) report_.damages.push_back(std::move(what));
  }
  std::string PathOf(const std::string& name) const {
    return PrintablePath(absl::StrCat(reader_.folder(), "/", name));
  }

  CheckpointReader& reader_;
  const Manifest& manifest_;
  const VerifyOptions& options_;
  device::SystemCalls& system_;
  VerifyReport report_;
  std::set<std::string> said_;
  std::vector<Stored> stored_;
  // Of each file of the manifest.
  std::vector<std::optional<SafetensorsHeader>> headers_;
  std::vector<std::vector<Section>> sections_;
  std::vector<std::vector<Part>> parts_;
  // Of the file that is summed now: the extent, the bytes of it that were summed, and the sum of
  // all so far.
  size_t extent_ = 0;
  int64_t in_extent_ = 0;
  uint32_t sum_ = 0;
};

// Splits each file into sections; one without a readable header stays whole.
void Verification::ReadHeaders() {
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    const Manifest::File& file = manifest_.files[f];
    std::optional<SafetensorsHeader>& header = headers_.emplace_back();
    std::vector<Section>& sections = sections_.emplace_back();
    if (absl::EndsWith(file.name, kSafetensorsEnding)) {
      absl::StatusOr<SafetensorsHeader> read = reader_.ReadHeaderOf(static_cast<int>(f));
      if (read.ok()) {
        header = *std::move(read);
      } else {
        Damage(std::string(read.status().message()));
      }
    }
    report_.tensors += static_cast<int>(file.tensors.size());
    if (header.has_value()) {
      const auto begin = static_cast<int64_t>(header->data_begin);
      sections.push_back({.end = begin});
      for (const TensorInfo& tensor : header->tensors) {
        sections.push_back({.end = begin + static_cast<int64_t>(tensor.end),
                            .tensor = static_cast<int>(sections.size()) - 1});
      }
    } else {
      sections.push_back({.end = file.bytes});
    }
  }
}

// Once the headers of the files that it names were read.
void Verification::CheckIndex() {
  const absl::StatusOr<WeightIndex> index = reader_.ReadIndex();
  if (!index.ok()) return Damage(std::string(index.status().message()));
  std::set<std::string> named;
  for (const auto& entry : index->file_of) named.insert(entry.second);
  std::map<std::string, const SafetensorsHeader*> headers;
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    if (named.count(manifest_.files[f].name) == 0) continue;
    if (!headers_[f].has_value()) return;
    headers[manifest_.files[f].name] = &*headers_[f];
  }
  const absl::Status checked = CheckWeightIndex(*index, headers);
  if (!checked.ok()) Damage(absl::StrCat(PathOf(kWeightIndexName), ": ", checked.message()));
}

absl::Status Verification::ReadAll() {
  std::vector<ReadRange> ranges;
  for (size_t s = 0; s < stored_.size(); ++s) {
    ranges.push_back({.source = static_cast<int>(s), .bytes = stored_[s].bytes});
    report_.bytes += stored_[s].bytes;
    if (stored_[s].bytes > 0) continue;
    // Of which there is no chunk.
    const absl::Status opened =
        OpenFileOfSize(system_, reader_.folder(), stored_[s].name, 0).status();
    if (!opened.ok()) Damage(std::string(opened.message()));
  }
  // Of the reading thread.
  std::optional<RandomAccessFile> open;
  int opened = -1;
  const auto read = [&](const ReadRange& part, char* to) -> absl::Status {
    if (part.source != opened) {
      const Stored& file = stored_[static_cast<size_t>(part.source)];
      open.reset();
      BRIGADE_ASSIGN_OR_RETURN(auto next,
                               OpenFileOfSize(system_, reader_.folder(), file.name, file.bytes));
      open.emplace(std::move(next));
      opened = part.source;
    }
    return open->Read(to, part.bytes, part.offset);
  };
  int64_t done = 0;
  return ReadAhead(ranges, options_.chunk_bytes, read, [&](const ReadChunk& chunk) {
    const Stored& file = stored_[chunk.range];
    if (chunk.offset == 0) {
      extent_ = 0;
      in_extent_ = 0;
      sum_ = 0;
    }
    if (chunk.bytes.ok()) {
      Sum(file, *chunk.bytes);
      const auto bytes = static_cast<int64_t>(chunk.bytes->size());
      done += bytes;
      if (chunk.offset + bytes == file.bytes && sum_ != file.crc32c) {
        Damage(SumError(PathOf(file.name), sum_, file.crc32c));
      }
    } else {
      Damage(std::string(chunk.bytes.status().message()));
      done += file.bytes - chunk.offset;
    }
    if (options_.progress) options_.progress(done, report_.bytes);
    return absl::OkStatus();
  });
}

// Each byte once, for the stored file and for the section that it is of.
void Verification::Sum(const Stored& file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const PieceFile::Extent& extent = file.extents[extent_];
    const auto f = static_cast<size_t>(extent.file);
    const int64_t offset = extent.offset + in_extent_;
    const std::vector<Section>& sections = sections_[f];
    const auto section = std::partition_point(
        sections.begin(), sections.end(), [&](const Section& each) { return each.end <= offset; });
    const int64_t count = std::min(
        {static_cast<int64_t>(bytes.size()), extent.bytes - in_extent_, section->end - offset});
    const uint32_t sum = device::Crc32c(bytes.substr(0, static_cast<size_t>(count)));
    sum_ = device::CombineCrc32c(sum_, sum, static_cast<uint64_t>(count));
    const auto index = static_cast<size_t>(section - sections.begin());
    std::vector<Part>& parts = parts_[f];
    if (parts.empty() || parts.back().section != index ||
        parts.back().offset + parts.back().bytes != offset) {
      parts.push_back({.offset = offset, .section = index});
    }
    parts.back().sum = device::CombineCrc32c(parts.back().sum, sum, static_cast<uint64_t>(count));
    parts.back().bytes += count;
    in_extent_ += count;
    if (in_extent_ == extent.bytes) {
      ++extent_;
      in_extent_ = 0;
    }
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

// What was read of the files of the manifest, as far as it is all of a tensor, or of a file.
void Verification::CheckFiles() {
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    const Manifest::File& file = manifest_.files[f];
    std::vector<Part>& parts = parts_[f];
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.offset < b.offset; });
    size_t next = 0;
    uint32_t whole_sum = 0;
    int64_t whole_bytes = 0, begin = 0;
    for (size_t s = 0; s < sections_[f].size(); ++s) {
      const Section& section = sections_[f][s];
      uint32_t sum = 0;
      int64_t bytes = 0;
      for (; next < parts.size() && parts[next].section == s; ++next) {
        sum = device::CombineCrc32c(sum, parts[next].sum, static_cast<uint64_t>(parts[next].bytes));
        bytes += parts[next].bytes;
      }
      whole_sum = device::CombineCrc32c(whole_sum, sum, static_cast<uint64_t>(bytes));
      whole_bytes += bytes;
      if (section.tensor >= 0 && bytes == section.end - begin) {
        const Manifest::Tensor& tensor = file.tensors[static_cast<size_t>(section.tensor)];
        const std::string what =
            absl::StrCat(PathOf(file.name), ": tensor ", device::Quoted(tensor.name));
        if (sum != tensor.crc32c) Damage(SumError(what, sum, tensor.crc32c));
      }
      begin = section.end;
    }
    if (whole_bytes == file.bytes && whole_sum != file.crc32c) {
      Damage(SumError(PathOf(file.name), whole_sum, file.crc32c));
    }
  }
}

void Verification::CheckFolder() {
  std::vector<std::string> names;
  if (system_.List(reader_.folder(), names) != 0) {
    return Damage(std::string(Failed("list", reader_.folder()).message()));
  }
  std::set<absl::string_view> known = {kManifestName};
  for (const Stored& file : stored_) known.insert(file.name);
  for (const std::string& name : names) {
    if (known.count(name) == 0) Damage(absl::StrCat(PathOf(name), " is not in the manifest"));
  }
}

absl::Status Verification::Run() {
  stored_ = manifest_.pieces;
  if (stored_.empty()) {
    for (size_t f = 0; f < manifest_.files.size(); ++f) {
      const Manifest::File& file = manifest_.files[f];
      stored_.push_back({.name = file.name,
                         .bytes = file.bytes,
                         .crc32c = file.crc32c,
                         .extents = {{.file = static_cast<int>(f), .bytes = file.bytes}}});
    }
  }
  report_.files = static_cast<int>(stored_.size());
  parts_.resize(manifest_.files.size());
  ReadHeaders();
  CheckIndex();
  BRIGADE_RETURN_IF_ERROR(ReadAll());
  CheckFiles();
  CheckFolder();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<VerifyReport> Verify(const std::string& folder, const VerifyOptions& options,
                                    device::SystemCalls& system) {
  const auto begin = std::chrono::steady_clock::now();
  BRIGADE_ASSIGN_OR_RETURN(auto reader, CheckpointReader::Open(system, folder));
  Verification verification(reader, options, system);
  BRIGADE_RETURN_IF_ERROR(verification.Run());
  VerifyReport& report = verification.report();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(report);
}

}  // namespace brigade::checkpoint
