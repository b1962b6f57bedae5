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
#include "brigade/checkpoint/crc32c.h"
#include "brigade/checkpoint/strict_json.h"
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

std::string Quoted(absl::string_view text) { return Json(std::string(text)).dump(); }

template <typename... What>
absl::Status Wrong(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

void AppendFields(absl::string_view name, const Fields& fields, std::string& text) {
  absl::StrAppend(&text, ",\n\"", name, "\": {");
  const char* separator = "\n ";
  for (const auto& [key, value] : fields) {
    absl::StrAppend(&text, std::exchange(separator, ",\n "), Quoted(key), ": ", Quoted(value));
  }
  text += '}';
}

// Begins an object of a file or a piece file.
void AppendFile(const char*& separator, absl::string_view name, int64_t bytes, uint32_t crc32c,
                std::string& text) {
  absl::StrAppend(&text, std::exchange(separator, ",\n "), "{\"name\": ", Quoted(name),
                  ", \"bytes\": ", bytes, ", \"crc32c\": \"", SumText(crc32c), "\"");
}

// Reads an object with known keys; the first error stays.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) Note(where_, " is no object");
  }

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
  BRIGADE_RETURN_IF_ERROR(CheckFileName(file.name));
  for (const Json& each : *tensors) {
    ObjectReader tensor(each, absl::StrCat("tensor ", file.tensors.size(), " of ", file.name));
    file.tensors.push_back({tensor.TakeText("name"), tensor.TakeSum("crc32c")});
    BRIGADE_RETURN_IF_ERROR(tensor.Finish());
  }
  return file;
}

absl::StatusOr<PieceFile> PieceFileOf(const Json& json, const Manifest& manifest) {
  ObjectReader reader(json, absl::StrCat("piece file ", manifest.pieces.size()));
  PieceFile file = {.name = reader.TakeText("name"),
                    .bytes = reader.TakeBytes("bytes"),
                    .crc32c = reader.TakeSum("crc32c")};
  const Json* const extents = reader.Take("extents", Json::value_t::array);
  BRIGADE_RETURN_IF_ERROR(reader.Finish());
  BRIGADE_RETURN_IF_ERROR(CheckFileName(file.name));
  int64_t bytes = 0;
  for (const Json& each : *extents) {
    const absl::Status wrong = Wrong("extent ", file.extents.size(), " of ", file.name,
                                     " is no part of a file of the manifest");
    const auto is_number = [](const Json& value) { return value.is_number_unsigned(); };
    if (!each.is_array() || each.size() != 3 || !std::all_of(each.begin(), each.end(), is_number)) {
      return wrong;
    }
    const auto index = each[0].get<uint64_t>(), offset = each[1].get<uint64_t>(),
               length = each[2].get<uint64_t>();
    if (index >= manifest.files.size()) return wrong;
    const auto whole = static_cast<uint64_t>(manifest.files[index].bytes);
    if (length == 0 || offset > whole || length > whole - offset) return wrong;
    file.extents.push_back(
        {static_cast<int>(index), static_cast<int64_t>(offset), static_cast<int64_t>(length)});
    // No overflow: extents that overlap are refused later, but not more than there are.
    if (__builtin_add_overflow(bytes, static_cast<int64_t>(length), &bytes)) return wrong;
  }
  if (bytes != file.bytes) {
    return Wrong(file.name, " has ", file.bytes, " bytes, its extents ", bytes);
  }
  return file;
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
  size_t next = 0;
  for (size_t f = 0; f < manifest.files.size(); ++f) {
    int64_t at = 0;
    for (; next < all.size() && all[next].file == static_cast<int>(f); ++next) {
      if (all[next].offset != at) break;
      at += all[next].bytes;
    }
    if (at != manifest.files[f].bytes) {
      return Wrong("the pieces of ", manifest.files[f].name, " do not follow each other at byte ",
                   at);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNamesDiffer(const Manifest& manifest) {
  std::set<std::string> names;
  const auto add = [&](const std::string& name) {
    return names.insert(name).second ? absl::OkStatus() : Wrong(name, " is given twice");
  };
  for (const Manifest::File& file : manifest.files) BRIGADE_RETURN_IF_ERROR(add(file.name));
  for (const PieceFile& file : manifest.pieces) BRIGADE_RETURN_IF_ERROR(add(file.name));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFileName(absl::string_view name) {
  if (!name.empty() && name.front() != '.' && name.size() <= 255 &&
      name.find_first_of(absl::string_view("/\0", 2)) == absl::string_view::npos) {
    return absl::OkStatus();
  }
  return Wrong("\"", device::Printable(name, 200), "\" is no name of a file of the folder");
}

std::string ManifestText(const Manifest& manifest) {
  std::string text = absl::StrCat("{\n\"format\": \"", kFormat, "\",\n\"version\": ", kVersion);
  AppendFields("state", manifest.state, text);
  AppendFields("rates", manifest.rates, text);
  AppendFields("options", manifest.options, text);
  AppendFields("training", manifest.training, text);
  AppendFields("parameters", manifest.parameters, text);
  absl::StrAppend(&text, ",\n\"file_bytes\": ", manifest.file_bytes, ",\n\"files\": [");
  const char* separator = "\n ";
  for (const Manifest::File& file : manifest.files) {
    AppendFile(separator, file.name, file.bytes, file.crc32c, text);
    text += ", \"tensors\": [";
    const char* between = "\n  ";
    for (const Manifest::Tensor& tensor : file.tensors) {
      absl::StrAppend(&text, std::exchange(between, ",\n  "), "{\"name\": ", Quoted(tensor.name),
                      ", \"crc32c\": \"", SumText(tensor.crc32c), "\"}");
    }
    text += "]}";
  }
  text += ']';
  if (!manifest.pieces.empty()) {
    text += ",\n\"pieces\": [";
    separator = "\n ";
    for (const PieceFile& file : manifest.pieces) {
      AppendFile(separator, file.name, file.bytes, file.crc32c, text);
      text += ", \"extents\": [";
      const char* between = "\n  ";
      for (const PieceFile::Extent& extent : file.extents) {
        absl::StrAppend(&text, std::exchange(between, ",\n  "), "[", extent.file, ", ",
                        extent.offset, ", ", extent.bytes, "]");
      }
      text += "]}";
    }
    text += ']';
  }
  const uint32_t sum = Crc32c(text);
  absl::StrAppend(&text, kSumBegin, SumText(sum), kSumEnd);
  return text;
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  constexpr size_t kTail = kSumBegin.size() + kSumDigits + kSumEnd.size();
  if (text.size() < kTail || !absl::EndsWith(text, kSumEnd) ||
      text.substr(text.size() - kTail, kSumBegin.size()) != kSumBegin) {
    return absl::DataLossError("the manifest does not end with its checksum");
  }
  const absl::string_view summed = text.substr(0, text.size() - kTail);
  const absl::string_view sum = text.substr(summed.size() + kSumBegin.size(), kSumDigits);
  if (const std::string computed = SumText(Crc32c(summed)); computed != sum) {
    return absl::DataLossError(absl::StrCat("the manifest's checksum is ", computed,
                                            ", and should be ", device::Printable(sum, 50)));
  }
  BRIGADE_ASSIGN_OR_RETURN(const Json json,
                           ParseJson(text, {.bytes = kMostManifestBytes, .depth = kDepth}));
  ObjectReader reader(json, "the manifest");
  if (const std::string format = reader.TakeText("format"); format != kFormat) {
    reader.Note("\"format\" is \"", device::Printable(format, 100), "\"");
  }
  if (const int64_t version = reader.TakeBytes("version"); version != kVersion) {
    reader.Note("version ", version, " is not known; ", kVersion, " is");
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
    for (const Json& each : *pieces) {
      BRIGADE_ASSIGN_OR_RETURN(auto file, PieceFileOf(each, manifest));
      manifest.pieces.push_back(std::move(file));
    }
    BRIGADE_RETURN_IF_ERROR(CheckExtents(manifest));
  }
  BRIGADE_RETURN_IF_ERROR(CheckNamesDiffer(manifest));
  return manifest;
}

}  // namespace brigade::checkpoint
