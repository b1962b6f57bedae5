#include "brigade/checkpoint/weight_index.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

using device::Quoted;

template <typename... What>
absl::Status Wrong(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

// Makes an index of its text, and keeps nothing else.
class IndexHandler : public JsonHandler {
 public:
  bool has_map() const { return has_map_; }
  WeightIndex Take() { return std::move(index_); }

  bool null() override { return Other(); }
  bool boolean(bool) override { return Other(); }
  bool number_integer(number_integer_t) override { return Other(); }
  bool number_float(number_float_t, const string_t&) override { return Other(); }

  bool number_unsigned(number_unsigned_t number) override {
    if (!IsTotal()) return Other();
    index_.total_size = number;
    return true;
  }

  bool string(string_t& text) override {
    if (place_ != Place::kMap) return Other();
    const absl::Status name = CheckFileName(text);
    if (!name.ok()) return Fail(name);
    *file_ = std::move(text);
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kIndex;
    } else if (place_ == Place::kIndex) {
      place_ = key_ == kMap ? Place::kMap : Place::kMetadata;
    } else {
      return Open();
    }
    return true;
  }
  bool end_object() override {
    if (within_ > 0) return Close();
    place_ = place_ == Place::kIndex ? Place::kOutside : Place::kIndex;
    return true;
  }
  bool start_array(std::size_t) override { return Open(); }
  bool end_array() override { return Close(); }

  bool key(string_t& text) override {
    if (within_ > 0) return true;
    if (place_ == Place::kMap) return StartEntry(text);
    key_ = std::move(text);
    if (place_ == Place::kMetadata) {
      return !index_.total_size.has_value() || key_ != kTotal || IsTwice();
    }
    bool* const has = key_ == kMap ? &has_map_ : key_ == kMetadata ? &has_metadata_ : nullptr;
    if (has == nullptr) return Fail(Quoted(key_), " is not known");
    return !std::exchange(*has, true) || IsTwice();
  }

 private:
  enum class Place { kOutside, kIndex, kMetadata, kMap };
  static constexpr absl::string_view kMetadata = "metadata", kMap = "weight_map",
                                     kTotal = "total_size";

  // Whether its value comes next.
  bool IsTotal() const { return place_ == Place::kMetadata && within_ == 0 && key_ == kTotal; }
  bool IsTwice() { return Fail(Quoted(key_), " is given twice"); }

  bool StartEntry(string_t& name) {
    if (name.empty() || name.find('\0') != std::string::npos) {
      return Fail(Quoted(name), " is no name of a tensor");
    }
    const auto [entry, is_new] = index_.file_of.try_emplace(std::move(name));
    file_ = &entry->second;
    key_ = entry->first;
    return is_new || IsTwice();
  }

  // A value that is nothing of the index: of the metadata any may be.
  bool Other() {
    if (place_ == Place::kOutside) return Fail("the index is no object");
    if (place_ == Place::kIndex) return Fail(Quoted(key_), " is no object");
    if (place_ == Place::kMap) return Fail("the file of ", Quoted(key_), " is no text");
    return !IsTotal() || Fail("\"total_size\" is no number of bytes");
  }
  bool Open() {
    if (!Other()) return false;
    ++within_;
    return true;
  }
  bool Close() {
    --within_;
    return true;
  }

  WeightIndex index_;
  Place place_ = Place::kOutside;
  std::string key_;
  // Of the last name of the map.
  std::string* file_ = nullptr;
  // Objects and arrays that are open in the metadata.
  int64_t within_ = 0;
  bool has_map_ = false;
  bool has_metadata_ = false;
};

}  // namespace

absl::StatusOr<WeightIndex> ParseWeightIndex(absl::string_view text) {
  if (text.size() > kMostWeightIndexBytes) {
    return Wrong("an index of ", text.size(), " bytes, of at most ", kMostWeightIndexBytes);
  }
  IndexHandler handler;
  BRIGADE_RETURN_IF_ERROR(ReadJson(text, handler));
  if (!handler.has_map()) return Wrong("\"weight_map\" is missing");
  return handler.Take();
}

absl::Status CheckWeightIndex(const WeightIndex& index,
                              const std::map<std::string, const SafetensorsHeader*>& files) {
  uint64_t bytes = 0;
  // Where each is found.
  std::map<absl::string_view, absl::string_view> found;
  for (const auto& [file, header] : files) {
    for (const TensorInfo& tensor : header->tensors) {
      const auto [first, is_new] = found.emplace(tensor.name, file);
      if (!is_new) {
        return Wrong(Quoted(tensor.name), " is in ", Quoted(first->second), " and in ",
                     Quoted(file));
      }
      const auto entry = index.file_of.find(tensor.name);
      if (entry == index.file_of.end()) {
        return Wrong(Quoted(tensor.name), " of ", Quoted(file), " is not in the index");
      }
      // Each file has a size that a file can have: no overflow.
      bytes += tensor.end - tensor.begin;
    }
  }
  for (const auto& [name, file] : index.file_of) {
    const auto entry = found.find(name);
    if (entry == found.end() || entry->second != file) {
      return Wrong(Quoted(name), " is not in ", Quoted(file), ", where the index has it");
    }
  }
  if (index.total_size.value_or(bytes) != bytes) {
    return Wrong("the tensors have ", bytes, " bytes, \"total_size\" is ", *index.total_size);
  }
  return absl::OkStatus();
}

}  // namespace brigade::checkpoint
