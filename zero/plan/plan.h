#ifndef BRIGADE_ZERO_PLAN_PLAN_H_
#define BRIGADE_ZERO_PLAN_PLAN_H_

// Where every parameter is: its bucket, its place in the bucket, and which rank owns which slice.
// The same in all stages.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/precision/dtype.h"

namespace brigade::zero {

struct ParameterSpec {
  std::string name = {};
  // Elements; 0 is allowed.
  int64_t size = 0;
  // The type of the working weights; none: PlanOptions::dtype.
  std::optional<precision::DType> dtype = {};
  // The index of the optimizer's ParameterGroup.
  int32_t group = 0;
  // False: frozen, without a gradient and optimizer state.
  bool trainable = true;
  // Row-major, for those who read checkpoints; its product is `size`. Empty: [size].
  std::vector<int64_t> shape = {};
  // Whether its gradient counts in the norm, and is looked at for overflow, in this group. False
  // where another group of the world has the same parameter, with a gradient of the same bits, and
  // counts it (ZeroOptions::model_ranks).
  bool counted = true;
  // Whether GradientCompression::kPowerSgd may make factors of its gradient, if it is a matrix.
  // False where that has no few directions in which it is largest: a table whose rows are looked
  // up.
  bool low_rank = true;
  // Another group of the world has the same parameter as its own (first and last stage of a
  // pipeline). The gradients of both, each complete, are added up in Step; one of the two is
  // counted. Needs PlanOptions::tied_apart.
  bool tied_outside = false;
};

// Parameters that are used, gathered and released together: a layer.
struct UnitSpec {
  std::string name = {};
  std::vector<ParameterSpec> parameters = {};
  // Names of parameters of other units that this unit uses too.
  std::vector<std::string> tied = {};
};

// In order of use in the forward pass.
using ModelSpec = std::vector<UnitSpec>;

struct PlanOptions {
  int ranks = 1;
  // The default of the parameters: float32, float16 or bfloat16.
  precision::DType dtype = precision::DType::kBFloat16;
  // A larger parameter gets a bucket of its own.
  int64_t bucket_elements = int64_t{16} << 20;
  // Whether the units that use a tied parameter have gradients of their own
  // (ZeroOptions::tied_apart).
  bool tied_apart = false;
  // Groups of `ranks` that have a whole state each (ZeroOptions::shard_ranks).
  int shard_groups = 1;
  // Parameters and slices begin at multiples of so many elements, a power of two
  // (optim::TensorTile).
  int64_t tile_elements = 1;
  // With moments that are codes: the elements of a parameter from which on it has them, and whether
  // tables have (ParameterSpec::low_rank false). Of Muon: which are matrices. Of Adafactor: whose
  // factors are few. None: there are none of these.
  std::optional<optim::CodedMoments> coded = {};
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
  // Holds a parameter that several units use.
  bool tied = false;
  // Holds the one parameter that another group has too.
  bool tied_outside = false;
  bool counted = true;
  // Its parameters' moments are codes; of Muon, they are matrices; of Adafactor, factors are few.
  bool coded = false;
  // Elements with padding.
  int64_t size = 0;
  // In ascending order of their ranges.
  std::vector<BucketEntry> entries;
  // The elements that belong to no parameter.
  std::vector<ElementRange> padding;
  // The units that use the bucket, ascending.
  std::vector<int> users;

  int64_t bytes() const { return size * precision::SizeOf(dtype); }
};

struct Parameter {
  // With type and shape.
  ParameterSpec spec;
  int unit = 0;
  int bucket = 0;
  // The first element in the bucket, and the place among its entries.
  int64_t begin = 0;
  size_t entry = 0;
  // Its moments are codes; of Muon, it is a matrix; of Adafactor, its factors are few.
  bool coded = false;
};

struct Unit {
  std::string name;
  // The unit's own parameters, then those tied.
  std::vector<int> parameters;
  // The buckets of these parameters, each once, ascending.
  std::vector<int> buckets;
  // Elements of its own parameters.
  int64_t size = 0;
};

// Parameters go, in reverse order of use, into buckets. A bucket holds parameters of one unit and
// one type, either trainable or frozen; tied parameters, those that are not counted, and those
// whose moments are codes, or which are Muon's matrices, where others are not, have buckets of
// their own, and so has each that is tied outside: it lies alike in both groups, whatever else they
// hold. Each parameter begins at a multiple of 256 bytes, and of a tile. A bucket is padded so that
// every rank's slice is such a multiple; rank r owns slice r of each bucket. With several groups
// every group's part of a slice is such a multiple: the padding is that of one group of all their
// ranks.
class Plan {
 public:
  // InvalidArgument naming unit, parameter and value.
  static absl::StatusOr<Plan> Create(const ModelSpec& model, const PlanOptions& options);

  int ranks() const { return ranks_; }
  // Groups of so many ranks, with a whole state each.
  int shard_groups() const { return shard_groups_; }
  // In order of the spec.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Unit>& units() const { return units_; }
  // The last unit's come first.
  const std::vector<Bucket>& buckets() const { return buckets_; }

  const Parameter& parameter(int index) const { return parameters_[static_cast<size_t>(index)]; }
  const Unit& unit(int index) const { return units_[static_cast<size_t>(index)]; }
  const Bucket& bucket(int index) const { return buckets_[static_cast<size_t>(index)]; }

  // The buckets as arrays of gradients, with the units that write to them as users: those of
  // buckets(), in their order; then, with tied_apart, the parts of the gradients of tied buckets.
  // There the array in its bucket's place is that of the unit that owns it, and each further user
  // has a part, of the same layout.
  const std::vector<Bucket>& gradients() const { return tied_apart_ ? gradients_ : buckets_; }
  const Bucket& gradient(int index) const { return gradients()[static_cast<size_t>(index)]; }
  // The bucket whose gradient that is, or is a part of.
  int BucketOf(const Bucket& gradient) const {
    return parameter(gradient.entries.front().parameter).bucket;
  }
  // Where a unit that uses the bucket writes its gradients.
  int GradientOf(int unit, int bucket) const;
  // Whether that gradient is complete only in Step, which adds it to others.
  bool IsAddedUp(const Bucket& gradient) const {
    return tied_apart_ && gradient.trainable && (gradient.tied || gradient.tied_outside);
  }

  // Elements that a rank owns of a bucket.
  int64_t slice(const Bucket& bucket) const { return bucket.size / ranks_; }
  // Elements of its slice whose gradients a rank checks: group k has part k of each slice, so that
  // each element is checked once.
  int64_t checked(const Bucket& bucket) const { return slice(bucket) / shard_groups_; }

  // One line per parameter, with everything that must be the same on all ranks:
  // "h.0.weight [4, 256] bf16, group 0, unit "h.0", bucket 3 at 512".
  std::string Describe(int parameter) const;

 private:
  void ListGradients();

  int ranks_ = 1;
  int shard_groups_ = 1;
  bool tied_apart_ = false;
  std::vector<Parameter> parameters_;
  std::vector<Unit> units_;
  std::vector<Bucket> buckets_;
  // With tied_apart.
  std::vector<Bucket> gradients_;
};

// The number of buffers of each size (in bytes) that hold the chosen buckets of any `live_units`
// consecutive uses of units, in the order of `uses`, and those with several users at any time.
std::map<int64_t, int> PooledBuffersNeeded(absl::Span<const Bucket> buckets,
                                           absl::Span<const int> uses, int live_units,
                                           const std::function<bool(const Bucket&)>& chosen);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_PLAN_PLAN_H_
