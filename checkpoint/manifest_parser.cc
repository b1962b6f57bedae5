#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/manifest_format.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

using device::Quoted;
using internal::SumText;

constexpr absl::string_view kString = "string", kNumber = "number", kObject = "object",
                            kArray = "array";

// What is open: an object with members of its own, an object of fields, or an array.
enum class Place : uint8_t {
  kOutside,
  kManifest,
  kFields,
  kFiles,
  kFile,
  kTensors,
  kTensor,
  kPieces,
  kPiece,
  kExtents,
  kExtent,
};

struct Member {
  Place of;
  absl::string_view name;
  absl::string_view type;
  // Of an array.
  Place opens = Place::kOutside;
};
constexpr Member kMembers[] = {
    {Place::kManifest, "format", kString},
    {Place::kManifest, "version", kNumber},
    {Place::kManifest, "state", kObject},
    {Place::kManifest, "rates", kObject},
    {Place::kManifest, "options", kObject},
    {Place::kManifest, "training", kObject},
    {Place::kManifest, "parameters", kObject},
    {Place::kManifest, "file_bytes", kNumber},
    {Place::kManifest, "files", kArray, Place::kFiles},
    {Place::kManifest, "pieces", kArray, Place::kPieces},
    {Place::kManifest, "crc32c", kString},
    {Place::kFile, "name", kString},
    {Place::kFile, "bytes", kNumber},
    {Place::kFile, "crc32c", kString},
    {Place::kFile, "tensors", kArray, Place::kTensors},
    {Place::kTensor, "name", kString},
    {Place::kTensor, "crc32c", kString},
    {Place::kPiece, "name", kString},
    {Place::kPiece, "bytes", kNumber},
    {Place::kPiece, "crc32c", kString},
    {Place::kPiece, "extents", kArray, Place::kExtents},
};

// Where a place is.
Place Around(Place place) {
  switch (place) {
    case Place::kOutside:
    case Place::kManifest:
      return Place::kOutside;
    case Place::kFields:
    case Place::kFiles:
    case Place::kPieces:
      return Place::kManifest;
    case Place::kFile:
      return Place::kFiles;
    case Place::kTensors:
      return Place::kFile;
    case Place::kTensor:
      return Place::kTensors;
    case Place::kPiece:
      return Place::kPieces;
    case Place::kExtents:
      return Place::kPiece;
    case Place::kExtent:
      return Place::kExtents;
  }
  return Place::kOutside;
}

// Makes a manifest of its text, and keeps nothing else.
class ManifestHandler : public JsonHandler {
 public:
  Manifest Take() { return std::move(manifest_); }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("boolean"); }
  bool number_integer(number_integer_t) override { return Unexpected(kNumber); }
  bool number_float(number_float_t, const string_t&) override { return Unexpected(kNumber); }

  bool number_unsigned(number_unsigned_t number) override {
    const bool fits = number <= uint64_t{std::numeric_limits<int64_t>::max()};
    const auto value = static_cast<int64_t>(number);
    if (place_ == Place::kExtent) return (fits && AddToExtent(value)) || Unexpected(kNumber);
    if (!Awaits(kNumber)) return Unexpected(kNumber);
    if (!fits) return Fail(Where(), ": ", Quoted(member_->name), " is ", number);
    if (member_->name != "version") {
      Bytes() = value;
      return true;
    }
    // Of another one nothing else is looked at.
    return value == internal::kVersion ||
           Fail(absl::UnimplementedError(
               absl::StrCat("version ", value, " is not known; ", internal::kVersion, " is")));
  }

  bool string(string_t& text) override {
    if (place_ == Place::kFields) {
      *field_ = std::move(text);
      return true;
    }
    if (!Awaits(kString)) return Unexpected(kString);
    if (member_->name == "name") {
      Name() = std::move(text);
      return true;
    }
    if (member_->name == "format") {
      return text == internal::kFormat || Fail(Where(), ": \"format\" is ", Quoted(text));
    }
    uint32_t& sum = Sum();
    return (absl::SimpleHexAtoi(text, &sum) && SumText(sum) == text) ||
           Fail(Where(), ": \"crc32c\" is ", Quoted(text));
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kManifest;
    } else if (place_ == Place::kFiles) {
      manifest_.files.emplace_back();
      place_ = Place::kFile;
    } else if (place_ == Place::kTensors) {
      file().tensors.emplace_back();
      place_ = Place::kTensor;
    } else if (place_ == Place::kPieces) {
      manifest_.pieces.emplace_back();
      place_ = Place::kPiece;
    } else if (Awaits(kObject)) {
      fields_ = &FieldsOf(member_->name);
      place_ = Place::kFields;
      return true;
    } else {
      return Unexpected(kObject);
    }
    Has(place_) = 0;
    return true;
  }

  bool key(string_t& text) override {
    if (place_ == Place::kFields) {
      const auto [field, is_new] = fields_->try_emplace(std::move(text));
      field_ = &field->second;
      field_name_ = field->first;
      return is_new || Fail(member_->name, ": ", Quoted(field_name_), " is given twice");
    }
    member_ = std::find_if(std::begin(kMembers), std::end(kMembers), [&](const Member& each) {
      return each.of == place_ && each.name == text;
    });
    if (member_ == std::end(kMembers)) {
      return Fail(Where(), " has a key that is not known: ", Quoted(text));
    }
    const uint32_t bit = uint32_t{1} << (member_ - std::begin(kMembers));
    if ((Has(place_) & bit) != 0) return Fail(Where(), ": ", Quoted(text), " is given twice");
    Has(place_) |= bit;
    return true;
  }

  bool end_object() override {
    for (const Member& each : kMembers) {
      const uint32_t bit = uint32_t{1} << (&each - std::begin(kMembers));
      if (each.of == place_ && (Has(place_) & bit) == 0 && each.opens != Place::kPieces) {
        return Fail(Where(), ": ", Quoted(each.name), " is missing");
      }
    }
    place_ = Around(place_);
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kExtents) {
      piece().extents.emplace_back();
      numbers_ = 0;
      place_ = Place::kExtent;
      return true;
    }
    if (!Awaits(kArray)) return Unexpected(kArray);
    place_ = member_->opens;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kExtent && numbers_ != 3) return Unexpected(kArray);
    if (place_ == Place::kPieces && manifest_.pieces.empty()) {
      return Fail("\"pieces\" holds nothing");
    }
    place_ = Around(place_);
    return true;
  }

 private:
  // Whether a value of this type comes next.
  bool Awaits(absl::string_view type) const {
    return member_ != nullptr && member_->of == place_ && member_->type == type;
  }

  bool Unexpected(absl::string_view type) {
    switch (place_) {
      case Place::kOutside:
        return Fail("the manifest is no object");
      case Place::kFields:
        return Fail(member_->name, ": ", Quoted(field_name_), " is no text");
      case Place::kFiles:
        return Fail("file ", manifest_.files.size(), " is no object");
      case Place::kTensors:
        return Fail("tensor ", file().tensors.size(), " of ", Where(Place::kFile), " is no object");
      case Place::kPieces:
        return Fail("piece file ", manifest_.pieces.size(), " is no object");
      case Place::kExtents:
        return Fail(internal::WrongExtent(piece(), piece().extents.size()));
      case Place::kExtent:
        return Fail(internal::WrongExtent(piece(), piece().extents.size() - 1));
      default:
        return Fail(Where(), ": ", Quoted(member_->name), " is ", type);
    }
  }

  bool AddToExtent(int64_t number) {
    PieceFile::Extent& extent = piece().extents.back();
    switch (numbers_++) {
      case 0:
        extent.file = static_cast<int>(number);
        return number <= std::numeric_limits<int>::max();
      case 1:
        extent.offset = number;
        return true;
      case 2:
        extent.bytes = number;
        return true;
      default:
        return false;
    }
  }

  // The objects that are open.
  Manifest::File& file() { return manifest_.files.back(); }
  PieceFile& piece() { return manifest_.pieces.back(); }
  std::string& Name() {
    if (place_ == Place::kTensor) return file().tensors.back().name;
    return place_ == Place::kFile ? file().name : piece().name;
  }
  int64_t& Bytes() {
    if (place_ == Place::kManifest) return manifest_.file_bytes;
    return place_ == Place::kFile ? file().bytes : piece().bytes;
  }
  uint32_t& Sum() {
    if (place_ == Place::kManifest) return sum_;
    if (place_ == Place::kTensor) return file().tensors.back().crc32c;
    return place_ == Place::kFile ? file().crc32c : piece().crc32c;
  }
  Fields& FieldsOf(absl::string_view name) {
    if (name == "state") return manifest_.state;
    if (name == "rates") return manifest_.rates;
    if (name == "options") return manifest_.options;
    return name == "training" ? manifest_.training : manifest_.parameters;
  }
  // In an error.
  std::string Where() { return Where(place_); }
  std::string Where(Place place) {
    if (place == Place::kFile) return absl::StrCat("file ", manifest_.files.size() - 1);
    if (place == Place::kPiece) return absl::StrCat("piece file ", manifest_.pieces.size() - 1);
    if (place != Place::kTensor) return "the manifest";
    return absl::StrCat("tensor ", file().tensors.size() - 1, " of ", Where(Place::kFile));
  }

  // Which members an object has, a bit each.
  uint32_t& Has(Place place) { return has_[static_cast<size_t>(place)]; }

  Manifest manifest_;
  Place place_ = Place::kOutside;
  std::array<uint32_t, static_cast<size_t>(Place::kExtent) + 1> has_ = {};
  // That of the last key.
  const Member* member_ = nullptr;
  // The fields that are open, and that of the last key.
  Fields* fields_ = nullptr;
  absl::string_view field_name_;
  std::string* field_ = nullptr;
  // Of the extent that is open.
  int numbers_ = 0;
  // The manifest's own, which is compared before.
  uint32_t sum_ = 0;
};

}  // namespace

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  using internal::kSumBegin, internal::kSumDigits, internal::kSumEnd;
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
  if (text.size() > kMostManifestBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a manifest of ", text.size(), " bytes, of at most ", kMostManifestBytes));
  }
  ManifestHandler handler;
  BRIGADE_RETURN_IF_ERROR(ReadJson(text, handler));
  Manifest manifest = handler.Take();
  BRIGADE_RETURN_IF_ERROR(internal::CheckManifest(manifest));
  return manifest;
}

}  // namespace brigade::checkpoint
