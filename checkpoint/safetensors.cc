#include "brigade/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::device::Printable;
using ::brigade::device::Quoted;
using ::brigade::precision::DType;

constexpr size_t kLengthBytes = 8;
constexpr char kMetadataKey[] = "__metadata__";

// All types of the format.
struct Type {
  const char* name;
  uint64_t bits;
  std::optional<DType> dtype = {};
};
constexpr Type kTypes[] = {
    {"F32", 32, DType::kFloat32},
    {"F16", 16, DType::kFloat16},
    {"BF16", 16, DType::kBFloat16},
    {"F64", 64, DType::kFloat64},
    {"I32", 32, DType::kInt32},
    {"I64", 64, DType::kInt64},
    {"U8", 8, DType::kUint8},
    {"BOOL", 8},
    {"I8", 8},
    {"F8_E5M2", 8},
    {"F8_E4M3", 8},
    {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8},
    {"I16", 16},
    {"U16", 16},
    {"U32", 32},
    {"U64", 64},
    {"C64", 64},
    {"F4", 4},
    {"F6_E2M3", 6},
    {"F6_E3M2", 6},
};

const Type* FindType(absl::string_view name) {
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const Type& type) { return type.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

template <typename... What>
absl::Status Wrong(absl::string_view tensor, const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor), ": ", what...));
}

absl::Status CheckName(absl::string_view name) {
  if (name.empty()) return Wrong(name, "no name");
  if (name.find('\0') != absl::string_view::npos) return Wrong(name, "a NUL in the name");
  if (name == kMetadataKey) return Wrong(name, "the format's own name");
  return absl::OkStatus();
}

absl::Status CheckMetadataName(absl::string_view name) {
  if (name.find('\0') == absl::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a NUL in ", Quoted(name), " of __metadata__"));
}

absl::Status TooManyDimensions(absl::string_view name) {
  return Wrong(name, "more than ", kMostDimensions, " dimensions");
}

// Of type and shape.
absl::StatusOr<uint64_t> BytesOf(const TensorInfo& tensor) {
  const Type* const type = FindType(tensor.type);
  if (type == nullptr) {
    return Wrong(tensor.name, Quoted(tensor.type), " is no type");
  }
  if (tensor.shape.size() > kMostDimensions) return TooManyDimensions(tensor.name);
  uint64_t bits = type->bits;
  for (const uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bits, extent, &bits)) {
      return Wrong(tensor.name, "a shape of more elements than 64 bits count");
    }
  }
  if (bits % 8 != 0) return Wrong(tensor.name, "its elements end amid a byte");
  return bits / 8;
}

absl::Status CheckNamesDiffer(const std::vector<TensorInfo>& tensors) {
  std::vector<absl::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? absl::OkStatus() : Wrong(*twice, "given twice");
}

// Takes the JSON as it is read, so that what is too deep or too much is never kept.
class HeaderReader : public JsonHandler {
 public:
  SafetensorsHeader Take() { return std::move(header_); }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(absl::StrCat(Printable(text, 200), ", no whole number of 64 bits"));
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (place_ == Place::kShape) {
      std::vector<uint64_t>& shape = header_.tensors.back().shape;
      // Now, not once it has taken the memory.
      if (shape.size() == kMostDimensions) return Fail(TooManyDimensions(Last()));
      shape.push_back(number);
      return true;
    }
    if (place_ != Place::kOffsets) return Unexpected("a number");
    if (offsets_ == 2) return Fail(Wrong(Last(), "more than two data_offsets"));
    (offsets_++ == 0 ? header_.tensors.back().begin : header_.tensors.back().end) = number;
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[key_] = text;
      return true;
    }
    if (place_ != Place::kTensor || field_ != Field::kType) return Unexpected("a string");
    header_.tensors.back().type = text;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kRoot && key_ == kMetadataKey) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kRoot) {
      place_ = Place::kTensor;
      header_.tensors.emplace_back().name = std::move(key_);
      has_.fill(false);
    } else {
      return Unexpected("an object");
    }
    return true;
  }

  bool key(string_t& text) override {
    if (place_ == Place::kTensor) return StartField(text);
    const bool is_metadata = place_ == Place::kRoot && text == kMetadataKey;
    if (is_metadata && std::exchange(has_metadata_, true)) {
      return Fail("__metadata__ is given twice");
    }
    if (place_ == Place::kMetadata && header_.metadata.count(text) != 0) {
      return Fail(Quoted(text), " is given twice in __metadata__");
    }
    if (place_ == Place::kMetadata) {
      const absl::Status name = CheckMetadataName(text);
      if (!name.ok()) return Fail(name);
    }
    if (place_ == Place::kRoot && !is_metadata) {
      const absl::Status name = CheckName(text);
      if (!name.ok()) return Fail(name);
    }
    key_ = std::move(text);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      for (size_t field = 0; field < kFields.size(); ++field) {
        if (!has_[field]) return Fail(Wrong(Last(), "no ", kFields[field]));
      }
    }
    place_ = place_ == Place::kRoot ? Place::kOutside : Place::kRoot;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || field_ == Field::kType) return Unexpected("an array");
    place_ = field_ == Field::kShape ? Place::kShape : Place::kOffsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_ != 2) {
      return Fail(Wrong(Last(), "fewer than two data_offsets"));
    }
    place_ = Place::kTensor;
    return true;
  }

 private:
  // What is open.
  enum class Place { kOutside, kRoot, kMetadata, kTensor, kShape, kOffsets };
  enum class Field { kType, kShape, kOffsets };
  static constexpr std::array<absl::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  absl::string_view Last() const { return header_.tensors.back().name; }

  bool StartField(absl::string_view name) {
    const auto* const found = std::find(kFields.begin(), kFields.end(), name);
    if (found == kFields.end()) {
      return Fail(Wrong(Last(), Quoted(name), " is no field of a tensor"));
    }
    const auto field = static_cast<size_t>(found - kFields.begin());
    if (std::exchange(has_[field], true)) return Fail(Wrong(Last(), name, " is given twice"));
    field_ = static_cast<Field>(field);
    return true;
  }

  bool Unexpected(absl::string_view what) {
    if (place_ == Place::kOutside) {
      return Fail("the header is ", what, ", no object");
    }
    if (place_ == Place::kRoot) return Fail(Wrong(key_, what, " instead of an object"));
    if (place_ == Place::kMetadata) {
      return Fail("__metadata__ maps ", Quoted(key_), " to ", what, ", no string");
    }
    return Fail(Wrong(Last(), kFields[static_cast<size_t>(field_)], " is or holds ", what));
  }

  SafetensorsHeader header_;
  Place place_ = Place::kOutside;
  // Of the root, or the metadata.
  std::string key_;
  Field field_ = Field::kType;
  // Which fields the last tensor has.
  std::array<bool, 3> has_ = {};
  bool has_metadata_ = false;
  int offsets_ = 0;
};

}  // namespace

absl::string_view TypeName(DType dtype) {
  for (const Type& type : kTypes) {
    if (type.dtype == dtype) return type.name;
  }
  return "";
}

std::optional<DType> DTypeOf(absl::string_view type) {
  const Type* const found = FindType(type);
  return found == nullptr ? std::nullopt : found->dtype;
}

absl::StatusOr<uint64_t> ParseHeaderBytes(absl::string_view first, uint64_t file_bytes) {
  if (first.size() < kLengthBytes || file_bytes < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a file of ", file_bytes, " bytes has no header"));
  }
  uint64_t bytes = 0;
  for (size_t i = kLengthBytes; i-- > 0;) bytes = bytes << 8 | static_cast<unsigned char>(first[i]);
  if (bytes > kMostHeaderBytes || bytes > file_bytes - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a header of ", bytes, " bytes in a file of ",
                                                   file_bytes, "; at most ", kMostHeaderBytes,
                                                   " are read"));
  }
  return bytes;
}

absl::StatusOr<SafetensorsHeader> ParseHeader(absl::string_view json, uint64_t file_bytes) {
  // A byte-order mark would be skipped.
  const size_t start = json.find_first_not_of(" \t\r\n");
  if (start == absl::string_view::npos || json[start] != '{') {
    return absl::InvalidArgumentError("the header is no object");
  }
  HeaderReader reader;
  BRIGADE_RETURN_IF_ERROR(ReadJson(json, reader));
  SafetensorsHeader header = reader.Take();
  header.data_begin = kLengthBytes + json.size();
  if (header.data_begin > file_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a file of ", file_bytes, " bytes ends amid its header"));
  }
  const absl::Status names = CheckNamesDiffer(header.tensors);
  if (!names.ok()) return names;
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  uint64_t at = 0;
  for (const TensorInfo& tensor : header.tensors) {
    const absl::StatusOr<uint64_t> bytes = BytesOf(tensor);
    if (!bytes.ok()) return bytes.status();
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes) {
      return Wrong(tensor.name, "data_offsets [", tensor.begin, ", ", tensor.end,
                   "], but type and shape are ", *bytes, " bytes");
    }
    if (tensor.begin != at) {
      return Wrong(tensor.name, "its data begins at ", tensor.begin, ", where that before ends at ",
                   at);
    }
    at = tensor.end;
  }
  if (at != file_bytes - header.data_begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensors have ", at, " bytes, the file ", file_bytes - header.data_begin));
  }
  return header;
}

absl::StatusOr<SafetensorsHeader> ReadHeader(
    uint64_t file_bytes,
    absl::FunctionRef<absl::Status(int64_t offset, int64_t bytes, void* to)> read) {
  std::string first(static_cast<size_t>(std::min<uint64_t>(kLengthBytes, file_bytes)), '\0');
  BRIGADE_RETURN_IF_ERROR(read(0, static_cast<int64_t>(first.size()), first.data()));
  BRIGADE_ASSIGN_OR_RETURN(const uint64_t json_bytes, ParseHeaderBytes(first, file_bytes));
  std::string json(static_cast<size_t>(json_bytes), '\0');
  BRIGADE_RETURN_IF_ERROR(
      read(static_cast<int64_t>(kLengthBytes), static_cast<int64_t>(json_bytes), json.data()));
  return ParseHeader(json, file_bytes);
}

absl::StatusOr<std::string> MakeHeader(const std::vector<TensorInfo>& tensors,
                                       const std::map<std::string, std::string>& metadata,
                                       uint64_t alignment) {
  if (alignment < 8 || (alignment & (alignment - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an alignment of ", alignment, ", no power of two of at least 8"));
  }
  for (const auto& [name, value] : metadata) {
    const absl::Status checked = CheckMetadataName(name);
    if (!checked.ok()) return checked;
  }
  const absl::Status names = CheckNamesDiffer(tensors);
  if (!names.ok()) return names;
  std::string json = "{";
  uint64_t at = 0;
  const char* separator = "";
  if (!metadata.empty()) {
    absl::StrAppend(&json, "\"", kMetadataKey, "\":{");
    for (const auto& [name, value] : metadata) {
      BRIGADE_ASSIGN_OR_RETURN(const std::string key, JsonString(name));
      BRIGADE_ASSIGN_OR_RETURN(const std::string text, JsonString(value));
      absl::StrAppend(&json, std::exchange(separator, ","), key, ":", text);
    }
    json += '}';
    separator = ",";
  }
  for (const TensorInfo& tensor : tensors) {
    const absl::Status name = CheckName(tensor.name);
    if (!name.ok()) return name;
    const absl::StatusOr<uint64_t> bytes = BytesOf(tensor);
    if (!bytes.ok()) return bytes.status();
    uint64_t end = 0;
    if (__builtin_add_overflow(at, *bytes, &end)) {
      return Wrong(tensor.name, "more bytes than 64 bits count");
    }
    BRIGADE_ASSIGN_OR_RETURN(const std::string key, JsonString(tensor.name));
    absl::StrAppend(&json, std::exchange(separator, ","), key, ":{\"dtype\":\"", tensor.type,
                    "\",\"shape\":[", absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", at,
                    ",", end, "]}");
    at = end;
  }
  json += '}';
  const uint64_t blanks = (0 - json.size() - kLengthBytes) & (alignment - 1);
  if (json.size() + blanks > kMostHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a header of ", json.size() + blanks,
                                                   " bytes, of at most ", kMostHeaderBytes));
  }
  json.append(blanks, ' ');
  std::string header;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header.push_back(static_cast<char>(static_cast<uint64_t>(json.size()) >> (8 * i)));
  }
  return header + json;
}

}  // namespace brigade::checkpoint
