#include "brigade/checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/manifest_format.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

using internal::SumText;
using internal::WrongExtent;

// Of a name, in an error.
std::string Show(absl::string_view name) { return device::Printable(name, 300); }

template <typename... What>
absl::Status Wrong(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

// A text with strings of JSON; the first error stays.
class Writer {
 public:
  template <typename... What>
  Writer& Add(const What&... what) {
    absl::StrAppend(&text_, what...);
    return *this;
  }
  Writer& AddQuoted(absl::string_view text) {
    const absl::StatusOr<std::string> quoted = JsonString(text);
    status_.Update(quoted.status());
    return Add(quoted.value_or(""));
  }
  void AddFields(absl::string_view name, const Fields& fields) {
    Add(",\n\"", name, "\": {");
    const char* separator = "\n ";
    for (const auto& [key, value] : fields) {
      Add(std::exchange(separator, ",\n ")).AddQuoted(key).Add(": ").AddQuoted(value);
    }
    Add("}");
  }
  // The begin of an object of a file or a piece file.
  void AddFile(absl::string_view separator, absl::string_view name, int64_t bytes,
               uint32_t crc32c) {
    Add(separator, "{\"name\": ").AddQuoted(name);
    Add(", \"bytes\": ", bytes, ", \"crc32c\": \"", SumText(crc32c), "\"");
  }

  const std::string& text() const { return text_; }
  const absl::Status& status() const { return status_; }
  std::string Take() && { return std::move(text_); }

 private:
  std::string text_;
  absl::Status status_;
};

// Each extent is a part of a file, and the extents of each piece file are as long as it is.
absl::Status CheckPieceFiles(const Manifest& manifest) {
  for (const PieceFile& piece : manifest.pieces) {
    int64_t bytes = 0;
    for (size_t e = 0; e < piece.extents.size(); ++e) {
      const auto& [file, offset, length] = piece.extents[e];
      if (file < 0 || static_cast<size_t>(file) >= manifest.files.size()) {
        return WrongExtent(piece, e);
      }
      const int64_t whole = manifest.files[static_cast<size_t>(file)].bytes;
      if (offset < 0 || length <= 0 || length > whole - offset ||
          __builtin_add_overflow(bytes, length, &bytes)) {
        return WrongExtent(piece, e);
      }
    }
    if (bytes != piece.bytes) {
      return Wrong(Show(piece.name), " has ", piece.bytes, " bytes, its extents ", bytes);
    }
  }
  return absl::OkStatus();
}

// Each byte of each file is in one extent.
absl::Status CheckExtents(const Manifest& manifest) {
  std::vector<PieceFile::Extent> all;
  size_t count = 0;
  for (const PieceFile& piece : manifest.pieces) count += piece.extents.size();
  all.reserve(count);
  for (const PieceFile& piece : manifest.pieces) {
    all.insert(all.end(), piece.extents.begin(), piece.extents.end());
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  auto next = all.begin();
  for (size_t f = 0; f < manifest.files.size(); ++f) {
    int64_t at = 0;
    for (; next != all.end() && next->file == static_cast<int>(f); ++next) {
      if (next->offset != at) break;
      at += next->bytes;
    }
    const bool has_more = next != all.end() && next->file == static_cast<int>(f);
    if (at != manifest.files[f].bytes || has_more) {
      return Wrong("the pieces of ", Show(manifest.files[f].name),
                   " do not follow each other at byte ", at);
    }
  }
  return absl::OkStatus();
}

}  // namespace

namespace internal {

std::string SumText(uint32_t crc) { return absl::StrFormat("%08x", crc); }

absl::Status WrongExtent(const PieceFile& file, size_t extent) {
  return Wrong("extent ", extent, " of ", Show(file.name), " is no part of a file of the manifest");
}

absl::Status CheckManifest(const Manifest& manifest) {
  if (manifest.file_bytes < 0) return Wrong("file_bytes is ", manifest.file_bytes);
  std::set<absl::string_view> names;
  int64_t all = 0;
  const auto check = [&](const auto& file) {
    BRIGADE_RETURN_IF_ERROR(CheckFileName(file.name));
    if (!names.insert(file.name).second) return Wrong(Show(file.name), " is given twice");
    if (file.bytes < 0) return Wrong(Show(file.name), " has ", file.bytes, " bytes");
    return absl::OkStatus();
  };
  for (const Manifest::File& file : manifest.files) {
    BRIGADE_RETURN_IF_ERROR(check(file));
    if (__builtin_add_overflow(all, file.bytes, &all)) {
      return Wrong("with ", Show(file.name), " files have more bytes than 2^63 - 1");
    }
  }
  for (const PieceFile& file : manifest.pieces) BRIGADE_RETURN_IF_ERROR(check(file));
  if (manifest.pieces.empty()) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckPieceFiles(manifest));
  return CheckExtents(manifest);
}

}  // namespace internal

absl::Status CheckFileName(absl::string_view name) {
  if (!name.empty() && name.front() != '.' && name.size() <= 255 &&
      name.find_first_of(absl::string_view("/\0", 2)) == absl::string_view::npos) {
    return absl::OkStatus();
  }
  return Wrong(device::Quoted(name), " is no name of a file of the folder");
}

absl::StatusOr<std::string> ManifestText(const Manifest& manifest) {
  BRIGADE_RETURN_IF_ERROR(internal::CheckManifest(manifest));
  Writer writer;
  writer.Add("{\n\"format\": \"", internal::kFormat, "\",\n\"version\": ", internal::kVersion);
  writer.AddFields("state", manifest.state);
  writer.AddFields("rates", manifest.rates);
  writer.AddFields("options", manifest.options);
  writer.AddFields("training", manifest.training);
  writer.AddFields("parameters", manifest.parameters);
  writer.Add(",\n\"file_bytes\": ", manifest.file_bytes, ",\n\"files\": [");
  const char* separator = "\n ";
  for (const Manifest::File& file : manifest.files) {
    writer.AddFile(std::exchange(separator, ",\n "), file.name, file.bytes, file.crc32c);
    writer.Add(", \"tensors\": [");
    const char* between = "\n  ";
    for (const Manifest::Tensor& tensor : file.tensors) {
      writer.Add(std::exchange(between, ",\n  "), "{\"name\": ").AddQuoted(tensor.name);
      writer.Add(", \"crc32c\": \"", SumText(tensor.crc32c), "\"}");
    }
    writer.Add("]}");
  }
  writer.Add("]");
  if (!manifest.pieces.empty()) {
    writer.Add(",\n\"pieces\": [");
    separator = "\n ";
    for (const PieceFile& file : manifest.pieces) {
      writer.AddFile(std::exchange(separator, ",\n "), file.name, file.bytes, file.crc32c);
      writer.Add(", \"extents\": [");
      const char* between = "\n  ";
      for (const PieceFile::Extent& extent : file.extents) {
        writer.Add(std::exchange(between, ",\n  "), "[", extent.file, ", ", extent.offset, ", ",
                   extent.bytes, "]");
      }
      writer.Add("]}");
    }
    writer.Add("]");
  }
  const std::string sum = SumText(device::Crc32c(writer.text()));
  writer.Add(internal::kSumBegin, sum, internal::kSumEnd);
  BRIGADE_RETURN_IF_ERROR(writer.status());
  if (writer.text().size() > kMostManifestBytes) {
    return Wrong("a manifest of ", writer.text().size(), " bytes, of at most ", kMostManifestBytes);
  }
  return std::move(writer).Take();
}

}  // namespace brigade::checkpoint
