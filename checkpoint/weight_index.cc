#include "brigade/checkpoint/weight_index.h"

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "nlohmann/json.hpp"

namespace brigade::checkpoint {
namespace {

using Json = nlohmann::json;

std::string Quoted(absl::string_view name) {
  return absl::StrCat("\"", device::Printable(name, 200), "\"");
}

template <typename... What>
absl::Status Wrong(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

absl::Status ReadMetadata(const Json& metadata, WeightIndex& index) {
  if (!metadata.is_object()) return Wrong("\"metadata\" is no object");
  const auto total = metadata.find("total_size");
  if (total == metadata.end()) return absl::OkStatus();
  if (!total->is_number_unsigned()) return Wrong("\"total_size\" is no number of bytes");
  index.total_size = total->get<uint64_t>();
  return absl::OkStatus();
}

absl::Status ReadMap(const Json& map, WeightIndex& index) {
  if (!map.is_object()) return Wrong("\"weight_map\" is no object");
  for (const auto& [name, file] : map.items()) {
    if (name.empty() || name.find('\0') != std::string::npos) {
      return Wrong(Quoted(name), " is no name of a tensor");
    }
    if (!file.is_string()) return Wrong("the file of ", Quoted(name), " is no text");
    BRIGADE_RETURN_IF_ERROR(CheckFileName(file.get_ref<const std::string&>()));
    index.file_of[name] = file.get<std::string>();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WeightIndex> ParseWeightIndex(absl::string_view text) {
  BRIGADE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.bytes = kMostWeightIndexBytes}));
  if (!json.is_object()) return Wrong("the index is no object");
  WeightIndex index;
  bool has_map = false;
  for (const auto& [key, value] : json.items()) {
    if (key == "metadata") {
      BRIGADE_RETURN_IF_ERROR(ReadMetadata(value, index));
    } else if (key == "weight_map") {
      BRIGADE_RETURN_IF_ERROR(ReadMap(value, index));
      has_map = true;
    } else {
      return Wrong(Quoted(key), " is not known");
    }
  }
  if (!has_map) return Wrong("\"weight_map\" is missing");
  return index;
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
