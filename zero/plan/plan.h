#ifndef BRIGADE_ZERO_PLAN_PLAN_H_
#define BRIGADE_ZERO_PLAN_PLAN_H_

// Where every parameter lives: which bucket, where in it, and which rank owns what. The same in all stages.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/precision/dtype.h"

namespace brigade::zero {

struct ParameterSpec {
  std::string name = {};
  int64_t size = 0;                            // elements; 0 is allowed
  std::optional<precision::DType> dtype = {};  // of the working weights; none: PlanOptions::dtype
  int32_t group = 0;                           // of the optimizer
  bool trainable = true;                       // false: frozen; no gradient and no optimizer state
};

// What is used, gathered and released together: a layer.
struct UnitSpec {
  std::string name = {};
  std::vector<ParameterSpec> parameters = {};
  std::vector<std::string> tied = {};  // parameters of other units that this one uses too
};

// In order of use in the forward pass.
using ModelSpec = std::vector<UnitSpec>;

struct PlanOptions {
  int ranks = 1;
  precision::DType dtype = precision::DType::kBFloat16;  // float32, float16 or bfloat16
  int64_t bucket_elements = int64_t{16} << 20;  // a larger parameter gets a bucket of its own
};

// Elements [begin, begin + size) of a bucket.
struct ElementRange {
  int64_t begin = 0;
  int64_t size = 0;
};

struct BucketEntry {
  int parameter = 0;
  ElementRange range = {};
};

struct Bucket {
  int unit = 0;
  precision::DType dtype = precision::DType::kBFloat16;
  bool trainable = true;
  bool tied = false;                  // holds what several units use
  int64_t size = 0;                   // elements with padding
  std::vector<BucketEntry> entries;   // ascending
  std::vector<ElementRange> padding;  // what no parameter has
  std::vector<int> users;             // units, ascending

  int64_t bytes() const { return size * precision::SizeOf(dtype); }
};

struct Parameter {
  ParameterSpec spec;
  int unit = 0;
  int bucket = 0;
  int64_t begin = 0;  // in the bucket
};

struct Unit {
  std::string name;
  std::vector<int> parameters;  // its own, then those tied
  std::vector<int> buckets;     // of them, each once, ascending
  int64_t size = 0;             // elements of its own parameters
};

// Parameters go, in reverse order of use, into buckets that never cross a unit, a type, or the line between trainable
// and frozen; tied ones have their own. Each parameter begins at a multiple of 256 bytes. A bucket is padded so that
// every rank's slice is a multiple of 256 bytes; rank r owns slice r of each bucket.
class Plan {
 public:
  // InvalidArgument naming unit, parameter and value.
  static absl::StatusOr<Plan> Create(const ModelSpec& model, const PlanOptions& options);

  int ranks() const { return ranks_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }  // in order of the spec
  const std::vector<Unit>& units() const { return units_; }                 // likewise
  const std::vector<Bucket>& buckets() const { return buckets_; }           // last unit first

  const Parameter& parameter(int index) const { return parameters_[static_cast<size_t>(index)]; }
  const Unit& unit(int index) const { return units_[static_cast<size_t>(index)]; }
  const Bucket& bucket(int index) const { return buckets_[static_cast<size_t>(index)]; }

  // Elements that a rank owns of a bucket.
  int64_t slice(const Bucket& bucket) const { return bucket.size / ranks_; }

  absl::StatusOr<int> FindParameter(const std::string& name) const;
  absl::StatusOr<int> FindUnit(const std::string& name) const;

  // One line per parameter: everything that ranks must agree on. "h.0.weight [1024] bfloat16, bucket 3 at 512"
  std::string Describe(int parameter) const;

 private:
  int ranks_ = 1;
  std::vector<Parameter> parameters_;
  std::vector<Unit> units_;
  std::vector<Bucket> buckets_;
  std::map<std::string, int> parameter_by_name_;
  std::map<std::string, int> unit_by_name_;
};

// How many pieces of memory of each size (bytes) hold the chosen buckets of any `live_units` units in a row, and those
// of tied parameters at any time.
std::map<int64_t, int> PooledBuffersNeeded(const Plan& plan, int live_units,
                                           const std::function<bool(const Bucket&)>& chosen);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_PLAN_PLAN_H_
