#ifndef BRIGADE_CHECKPOINT_WEIGHT_INDEX_H_
#define BRIGADE_CHECKPOINT_WEIGHT_INDEX_H_

// model.safetensors.index.json, by which weights in several files say which tensor is in which.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/safetensors.h"

namespace brigade::checkpoint {

inline constexpr char kWeightIndexName[] = "model.safetensors.index.json";
inline constexpr size_t kMostWeightIndexBytes = size_t{64} << 20;

struct WeightIndex {
  // Of each tensor the file, in the folder of the index.
  std::map<std::string, std::string> file_of = {};
  // Of the data of all tensors, in bytes.
  std::optional<uint64_t> total_size = {};
};

// Memory       Up to 16 times the text: what is wrong is not kept.
// Errors       InvalidArgument naming the key: for what is no strict JSON, other keys than
//              "metadata" and "weight_map", a tensor that is named twice, has no name or one with a
//              NUL, the name of a file that leads anywhere else (CheckFileName), and a total_size
//              that is no whole number.
absl::StatusOr<WeightIndex> ParseWeightIndex(absl::string_view text);

// Whether the files that an index names, by name, have the tensors that it says, each in that file
// alone, and no others, and whether the total is theirs. InvalidArgument naming the first tensor or
// file that is not so.
absl::Status CheckWeightIndex(const WeightIndex& index,
                              const std::map<std::string, const SafetensorsHeader*>& files);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_WEIGHT_INDEX_H_
