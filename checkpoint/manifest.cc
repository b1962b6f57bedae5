#include "brigade/checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "nlohmann/json.hpp"

namespace brigade::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "brigade checkpoint";
constexpr int kVersion = 1;
constexpr int kDepth = 8;

// Before and behind the checksum of what is before it.
constexpr absl::string_view kSumBegin = ",\n\"crc32c\": \"", kSumEnd = "\"\n}\n";
constexpr size_t kSumDigits = 8;

std::string SumText(uint32_t crc) { return absl::StrFormat("%08x", crc); }

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
    try {
      return Add(Json(std::string(text)).dump());
    } catch (const Json::exception&) {
      status_.Update(Wrong("\"", Show(text), "\" is no UTF-8"));
      return *this;
    }
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

absl::Status WrongExtent(const PieceFile& file, size_t extent) {
  return Wrong("extent ", extent, " of ", Show(file.name), " is no part of a file of the manifest");
}

// Reads an object with known keys; the first error stays.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) Note(where_, " is no object");
  }

  const absl::Status& status() const { return status_; }

  // Null if it is not there, or not of this type.
  const Json* Take(const char* key, Json::value_t type) {
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(key);
    if (found == object_.end()) {
      Note(where_, ": \"", key, "\" is missing");
      return nullptr;
    }
    ++taken_;
    if (found->type() == type) return &*found;
    Note(where_, ": \"", key, "\" is ", found->type_name());
    return nullptr;
  }
  std::string TakeText(const char* key) {
    const Json* const value = Take(key, Json::value_t::string);
    return value == nullptr ? "" : value->get<std::string>();
  }
  int64_t TakeBytes(const char* key) {
    const Json* const value = Take(key, Json::value_t::number_unsigned);
    if (value == nullptr) return 0;
    if (value->get<uint64_t>() <= std::numeric_limits<int64_t>::max()) return value->get<int64_t>();
    Note(where_, ": \"", key, "\" is ", value->get<uint64_t>());
    return 0;
  }
  uint32_t TakeSum(const char* key) {
    const std::string text = TakeText(key);
    uint32_t sum = 0;
    if (status_.ok() && (!absl::SimpleHexAtoi(text, &sum) || SumText(sum) != text)) {
      Note(where_, ": \"", key, "\" is ", device::Printable(text, 100));
    }
    return sum;
  }
  Fields TakeFields(const char* key) {
    Fields fields;
    const Json* const object = Take(key, Json::value_t::object);
    if (object == nullptr) return fields;
    for (const auto& [name, value] : object->items()) {
      if (!value.is_string()) Note(key, ": \"", device::Printable(name, 200), "\" is no text");
      if (status_.ok()) fields[name] = value.get<std::string>();
    }
    return fields;
  }

  template <typename... What>
  void Note(const What&... what) {
    status_.Update(Wrong(what...));
  }
  void Note(const absl::Status& status) { status_.Update(status); }

  // All keys were taken.
  absl::Status Finish() {
    if (status_.ok() && taken_ != object_.size()) Note(where_, " has a key that is not known");
    return status_;
  }

 private:
  const Json& object_;
  const std::string where_;
  size_t taken_ = 0;
  absl::Status status_;
};

absl::StatusOr<Manifest::File> FileOf(const Json& json, size_t index) {
  ObjectReader reader(json, absl::StrCat("file ", index));
  Manifest::File file = {.name = reader.TakeText("name"),
                         .bytes = reader.TakeBytes("bytes"),
                         .crc32c = reader.TakeSum("crc32c")};
  const Json* const tensors = reader.Take("tensors", Json::value_t::array);
  BRIGADE_RETURN_IF_ERROR(reader.Finish());
  file.tensors.reserve(tensors->size());
  for (const Json& each : *tensors) {
    ObjectReader tensor(each, absl::StrCat("tensor ", file.tensors.size(), " of file ", index));
    file.tensors.push_back({tensor.TakeText("name"), tensor.TakeSum("crc32c")});
    BRIGADE_RETURN_IF_ERROR(tensor.Finish());
  }
  return file;
}

absl::StatusOr<PieceFile> PieceFileOf(const Json& json, size_t index) {
  ObjectReader reader(json, absl::StrCat("piece file ", index));
  PieceFile file = {.name = reader.TakeText("name"),
                    .bytes = reader.TakeBytes("bytes"),
                    .crc32c = reader.TakeSum("crc32c")};
  const Json* const extents = reader.Take("extents", Json::value_t::array);
  BRIGADE_RETURN_IF_ERROR(reader.Finish());
  file.extents.reserve(extents->size());
  const auto is_number = [](const Json& value) {
    return value.is_number_unsigned() &&
           value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
  };
  for (const Json& each : *extents) {
    if (!each.is_array() || each.size() != 3 || !std::all_of(each.begin(), each.end(), is_number) ||
        each[0].get<int64_t>() > std::numeric_limits<int>::max()) {
      return WrongExtent(file, file.extents.size());
    }
    file.extents.push_back({each[0].get<int>(), each[1].get<int64_t>(), each[2].get<int64_t>()});
  }
  return file;
}

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

absl::Status Check(const Manifest& manifest) {
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

}  // namespace

absl::Status CheckFileName(absl::string_view name) {
  if (!name.empty() && name.front() != '.' && name.size() <= 255 &&
      name.find_first_of(absl::string_view("/\0", 2)) == absl::string_view::npos) {
    return absl::OkStatus();
  }
  return Wrong("\"", device::Printable(name, 200), "\" is no name of a file of the folder");
}

absl::StatusOr<std::string> ManifestText(const Manifest& manifest) {
  BRIGADE_RETURN_IF_ERROR(Check(manifest));
  Writer writer;
  writer.Add("{\n\"format\": \"", kFormat, "\",\n\"version\": ", kVersion);
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
  writer.Add(kSumBegin, sum, kSumEnd);
  BRIGADE_RETURN_IF_ERROR(writer.status());
  if (writer.text().size() > kMostManifestBytes) {
    return Wrong("a manifest of ", writer.text().size(), " bytes, of at most ", kMostManifestBytes);
  }
  return std::move(writer).Take();
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  constexpr size_t kTail = kSumBegin.size() + kSumDigits + kSumEnd.size();
  if (text.size() < kTail || !absl::EndsWith(text, kSumEnd) ||
      text.substr(text.size() - kTail, kSumBegin.size()) != kSumBegin) {
    return absl::DataLossError("the manifest does not end with its checksum");
  }
  const absl::string_view summed = text.substr(0, text.size() - kTail);
  const absl::string_view sum = text.substr(summed.size() + kSumBegin.size(), kSumDigits);
  if (const std::string computed = SumText(device::Crc32c(summed)); computed != sum) {
    return absl::DataLossError(absl::StrCat("the manifest's checksum is ", computed,
                                            ", and should be ", device::Printable(sum, 50)));
  }
  BRIGADE_ASSIGN_OR_RETURN(const Json json,
                           ParseJson(text, {.bytes = kMostManifestBytes, .depth = kDepth}));
  ObjectReader reader(json, "the manifest");
  if (const std::string format = reader.TakeText("format"); format != kFormat) {
    reader.Note("\"format\" is \"", device::Printable(format, 100), "\"");
  }
  const int64_t version = reader.TakeBytes("version");
  BRIGADE_RETURN_IF_ERROR(reader.status());
  if (version != kVersion) {
    return absl::UnimplementedError(
        absl::StrCat("version ", version, " is not known; ", kVersion, " is"));
  }
  Manifest manifest = {.state = reader.TakeFields("state"),
                       .rates = reader.TakeFields("rates"),
                       .options = reader.TakeFields("options"),
                       .parameters = reader.TakeFields("parameters"),
                       .training = reader.TakeFields("training"),
                       .file_bytes = reader.TakeBytes("file_bytes")};
  const Json* const files = reader.Take("files", Json::value_t::array);
  const Json* const pieces =
      json.contains("pieces") ? reader.Take("pieces", Json::value_t::array) : nullptr;
  reader.TakeSum("crc32c");
  BRIGADE_RETURN_IF_ERROR(reader.Finish());
  for (const Json& each : *files) {
    BRIGADE_ASSIGN_OR_RETURN(auto file, FileOf(each, manifest.files.size()));
    manifest.files.push_back(std::move(file));
  }
  if (pieces != nullptr) {
    if (pieces->empty()) return Wrong("\"pieces\" holds nothing");
    for (const Json& each : *pieces) {
      BRIGADE_ASSIGN_OR_RETURN(auto file, PieceFileOf(each, manifest.pieces.size()));
      manifest.pieces.push_back(std::move(file));
    }
  }
  BRIGADE_RETURN_IF_ERROR(Check(manifest));
  return manifest;
}

}  // namespace brigade::checkpoint
