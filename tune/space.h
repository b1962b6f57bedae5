#ifndef BRIGADE_TUNE_SPACE_H_
#define BRIGADE_TUNE_SPACE_H_

// What of a config is tuned, and what it is tuned to: each point of the space is a config like the
// user's, with other values of some keys, in which the batch of a step stays what it was.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace brigade::tune {

// With the order of a file's keys.
using Json = nlohmann::ordered_json;

enum class Dimension : uint8_t {
  kStage,
  kMicroBatch,
  kBucket,
  kLiveUnits,
  kAlgorithm,
  kRecompute,
  kOffload,
  kTensor,
  kContext,
  kPipeline,
};
inline constexpr int kDimensions = 10;
inline constexpr Dimension kAllDimensions[kDimensions] = {
    Dimension::kStage,     Dimension::kMicroBatch, Dimension::kBucket,  Dimension::kLiveUnits,
    Dimension::kAlgorithm, Dimension::kRecompute,  Dimension::kOffload, Dimension::kTensor,
    Dimension::kContext,   Dimension::kPipeline};

// "stage", "micro_batch", "bucket", "live_units", "algorithm", "recompute", "offload", "tensor",
// "context", "pipeline".
absl::string_view Name(Dimension dimension);
// InvalidArgument naming the text and what it may be; of "grid" there are three, of "all" all.
absl::StatusOr<std::vector<Dimension>> ParseDimensions(absl::string_view name);

// Of the optimizer's state and of the weights, as offload_optimizer.device and offload_param.device
// have them: "none", "cpu", "nvme".
struct Offload {
  std::string optimizer = "none";
  std::string parameters = "none";

  friend bool operator==(const Offload&, const Offload&) = default;
};

// What differs from the user's config; what is not given is as there. Live units are of stages from
// 2 on: where these are tuned, others have none.
struct Point {
  std::optional<int> stage = {};
  std::optional<int64_t> micro_batch = {};
  std::optional<int64_t> bucket = {};
  std::optional<int> live_units = {};
  std::optional<std::string> algorithm = {};
  // As brigade.recompute has it.
  std::optional<std::string> recompute = {};
  std::optional<Offload> offload = {};
  std::optional<int> tensor = {};
  std::optional<int> context = {};
  std::optional<int> pipeline = {};

  friend bool operator==(const Point&, const Point&) = default;
};

// "stage 2, micro-batch 4, bucket 65536, ring, recompute block".
std::string ToString(const Point& point);

// The values of each dimension; of one that is not tuned none.
struct Space {
  std::vector<int> stages = {};
  // Of the largest and the smallest; those of a grid are those that divide its batch of a rank.
  bool tunes_micro_batch = false;
  int64_t min_micro_batch = 1;
  int64_t max_micro_batch = 1;
  std::vector<int64_t> buckets = {};
  std::vector<int> live_units = {};
  std::vector<std::string> algorithms = {};
  std::vector<std::string> recompute = {};
  std::vector<Offload> offload = {};
  std::vector<int> tensor = {}, context = {}, pipeline = {};
};

// All divisors of a number from `least` to `most`, the smallest first.
std::vector<int64_t> DivisorsOf(int64_t number, int64_t least, int64_t most);

// Ranks and texts of a step, which stay.
struct Totals {
  int ranks = 1;
  int64_t batch = 1;
  // What the config says of axes that are not tuned.
  int tensor = 1, context = 1, pipeline = 1;
  // And of what else decides whether others are worth a try.
  std::optional<int> stage = {};
};

// All points, grid by grid, without those that differ in nothing that has an effect: stages of
// ranks that share nothing, live units where all units are there. Values that do not go together
// are in it: a config says so when it is read.
std::vector<Point> PointsOf(const Space& space, const Totals& totals);

// What of a user's config is given: keys that have another value than "auto" and null.
bool IsGiven(const Json& config, Dimension dimension);

// Whether one of them is "auto".
bool IsAuto(const Json& config, Dimension dimension);

// The value of "zero_optimization.stage"; null where there is none, where it is null, or "auto".
const Json* FindGiven(const Json& config, absl::string_view path);

// The user's config with a point's values, and with those of the batch: all other keys, and their
// order, are the user's.
Json WithPoint(const Json& config, const Point& point, const Totals& totals);

}  // namespace brigade::tune

#endif  // BRIGADE_TUNE_SPACE_H_
