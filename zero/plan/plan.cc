#include "brigade/zero/plan/plan.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::zero {
namespace {

constexpr int64_t kAlignmentBytes = 256;
constexpr int64_t kMostElements = int64_t{1} << 50;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Whether a shape, which is not empty, has `size` elements.
bool Holds(const std::vector<int64_t>& shape, int64_t size) {
  int64_t product = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(product, extent, &product)) return false;
  }
  return product == size;
}

std::string Text(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status Check(const UnitSpec& unit, const ParameterSpec& spec, precision::DType dtype,
                   bool tied_apart) {
  const auto wrong = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("unit \"", unit.name, "\", parameter \"", spec.name, "\": ", what...));
  };
  if (spec.name.empty()) return wrong("it has no name");
  if (spec.size < 0 || spec.size > kMostElements) return wrong("size is ", spec.size);
  if (!spec.shape.empty() && !Holds(spec.shape, spec.size)) {
    return wrong("shape is ", Text(spec.shape), ", size is ", spec.size);
  }
  if (spec.group < 0) return wrong("group is ", spec.group);
  if (spec.tied_outside && !tied_apart) {
    return wrong(
        "it is tied_outside, but tied_apart is not set: parts of its gradient that are "
        "added in each micro-batch could not be added over groups");
  }
  if (!precision::IsTrainingFormat(dtype)) return wrong("dtype must be fp32, fp16 or bf16");
  return absl::OkStatus();
}

// What parameters of one bucket have in common: trainable, dtype, tied, tied outside, counted,
// coded.
using Kind = std::tuple<bool, precision::DType, bool, bool, bool, bool>;

Kind KindOf(const Bucket& bucket) {
  return {bucket.trainable,    bucket.dtype,   bucket.tied,
          bucket.tied_outside, bucket.counted, bucket.coded};
}

// Whether its factors fit where they are few.
bool HasFewFactors(const ParameterSpec& spec) {
  return spec.shape.size() == 2 && spec.shape[0] > 1 && spec.shape[1] > 1 &&
         spec.shape[0] + spec.shape[1] <= spec.size / optim::kFactorBlock;
}

bool HasCodes(const ParameterSpec& spec, const std::optional<optim::CodedMoments>& coded) {
  return coded.has_value() && spec.trainable && spec.size > 0 && spec.size >= coded->min_elements &&
         (spec.low_rank || coded->tables) && (!coded->matrices || spec.shape.size() == 2) &&
         (!coded->factored || HasFewFactors(spec));
}

// Of parameters and slices, in elements.
int64_t AlignmentOf(const Bucket& bucket, const PlanOptions& options) {
  return std::max(kAlignmentBytes / precision::SizeOf(bucket.dtype), options.tile_elements);
}

void Append(Bucket& bucket, int parameter, int64_t size, int64_t alignment) {
  const int64_t begin = RoundUp(bucket.size, alignment);
  if (begin > bucket.size) bucket.padding.push_back({bucket.size, begin - bucket.size});
  bucket.entries.push_back({parameter, {begin, size}});
  bucket.size = begin + size;
}

void Pad(Bucket& bucket, int64_t multiple) {
  const int64_t size = RoundUp(bucket.size, multiple);
  if (size > bucket.size) bucket.padding.push_back({bucket.size, size - bucket.size});
  bucket.size = size;
}

}  // namespace

absl::StatusOr<Plan> Plan::Create(const ModelSpec& model, const PlanOptions& options) {
  if (options.ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("ranks is ", options.ranks));
  }
  if (options.shard_groups < 1) {
    return absl::InvalidArgumentError(absl::StrCat("shard_groups is ", options.shard_groups));
  }
  if (options.bucket_elements < 1) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_elements is ", options.bucket_elements));
  }
  if (options.tile_elements < 1 || (options.tile_elements & (options.tile_elements - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tile_elements is ", options.tile_elements, ", must be a power of two"));
  }
  Plan plan;
  plan.ranks_ = options.ranks;
  plan.shard_groups_ = options.shard_groups;
  plan.tied_apart_ = options.tied_apart;
  std::set<std::string> units;
  std::map<std::string, int> parameters;
  for (const UnitSpec& spec : model) {
    const int index = static_cast<int>(plan.units_.size());
    if (!units.insert(spec.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two units are called \"", spec.name, "\""));
    }
    Unit unit = {spec.name, {}, {}, 0};
    for (const ParameterSpec& parameter : spec.parameters) {
      Parameter planned = {parameter, index, 0, 0, 0, HasCodes(parameter, options.coded)};
      planned.spec.dtype = parameter.dtype.value_or(options.dtype);
      absl::Status status = Check(spec, parameter, *planned.spec.dtype, options.tied_apart);
      if (!status.ok()) return status;
      if (planned.spec.shape.empty()) planned.spec.shape = {parameter.size};
      const int number = static_cast<int>(plan.parameters_.size());
      if (!parameters.try_emplace(parameter.name, number).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("two parameters are called \"", parameter.name, "\""));
      }
      unit.parameters.push_back(number);
      unit.size += parameter.size;
      plan.parameters_.push_back(std::move(planned));
    }
    plan.units_.push_back(std::move(unit));
  }

  std::vector<std::set<int>> users(plan.parameters_.size());
  for (size_t i = 0; i < plan.parameters_.size(); ++i) users[i] = {plan.parameters_[i].unit};
  for (size_t u = 0; u < model.size(); ++u) {
    for (const std::string& name : model[u].tied) {
      const auto found = parameters.find(name);
      if (found == parameters.end() ||
          !users[static_cast<size_t>(found->second)].insert(static_cast<int>(u)).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("unit \"", model[u].name, "\" is tied to \"", name, "\", which ",
                         found == parameters.end() ? "does not exist" : "it already uses"));
      }
      plan.units_[u].parameters.push_back(found->second);
    }
  }

  for (size_t u = model.size(); u-- > 0;) {
    std::map<Kind, int> open;  // bucket of each kind that is being filled
    const std::vector<ParameterSpec>& own = model[u].parameters;
    for (size_t i = own.size(); i-- > 0;) {
      const int number = plan.units_[u].parameters[i];
      Parameter& parameter = plan.parameters_[static_cast<size_t>(number)];
      const std::set<int>& used_by = users[static_cast<size_t>(number)];
      Bucket fresh = {static_cast<int>(u),
                      *parameter.spec.dtype,
                      parameter.spec.trainable,
                      used_by.size() > 1,
                      parameter.spec.tied_outside,
                      parameter.spec.counted || !parameter.spec.trainable,
                      parameter.coded,
                      0,
                      {},
                      {},
                      {}};
      const Kind kind = KindOf(fresh);
      const auto found = open.find(kind);
      const bool fits =
          found != open.end() && !parameter.spec.tied_outside &&
          plan.buckets_[static_cast<size_t>(found->second)].size + parameter.spec.size <=
              options.bucket_elements;
      if (!fits) {
        open[kind] = static_cast<int>(plan.buckets_.size());
        plan.buckets_.push_back(std::move(fresh));
      }
      parameter.bucket = open[kind];
      Bucket& bucket = plan.buckets_[static_cast<size_t>(parameter.bucket)];
      Append(bucket, number, parameter.spec.size, AlignmentOf(bucket, options));
      parameter.begin = bucket.entries.back().range.begin;
      parameter.entry = bucket.entries.size() - 1;
      std::set<int> all(bucket.users.begin(), bucket.users.end());
      all.insert(used_by.begin(), used_by.end());
      bucket.users.assign(all.begin(), all.end());
    }
  }
  for (size_t b = 0; b < plan.buckets_.size(); ++b) {
    Pad(plan.buckets_[b],
        AlignmentOf(plan.buckets_[b], options) * options.ranks * options.shard_groups);
    for (const int unit : plan.buckets_[b].users) {
      plan.units_[static_cast<size_t>(unit)].buckets.push_back(static_cast<int>(b));
    }
  }
  if (options.tied_apart) plan.ListGradients();
  return plan;
}

void Plan::ListGradients() {
  gradients_ = buckets_;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    if (!bucket.tied || !bucket.trainable) continue;
    for (const int user : bucket.users) {
      if (user != bucket.unit) gradients_.push_back(bucket);
      Bucket& part = user == bucket.unit ? gradients_[b] : gradients_.back();
      part.unit = user;
      part.users = {user};
    }
  }
}

int Plan::GradientOf(int unit, int index) const {
  if (!tied_apart_ || unit == bucket(index).unit) return index;
  for (size_t g = buckets_.size(); g < gradients_.size(); ++g) {
    const Bucket& part = gradients_[g];
    if (part.unit == unit && BucketOf(part) == index) return static_cast<int>(g);
  }
  return index;
}

std::string Plan::Describe(int parameter) const {
  const Parameter& p = parameters_[static_cast<size_t>(parameter)];
  return absl::StrCat(
      p.spec.name, " ", Text(p.spec.shape), " ", precision::ShortName(*p.spec.dtype),
      p.spec.trainable ? "" : " frozen", p.spec.low_rank ? "" : " without factors",
      p.coded ? " with moments of its own kind" : "", p.spec.counted ? "" : " not counted",
      p.spec.tied_outside ? " tied outside" : "", ", group ", p.spec.group, ", unit \"",
      units_[static_cast<size_t>(p.unit)].name, "\", bucket ", p.bucket, " at ", p.begin);
}

std::map<int64_t, int> PooledBuffersNeeded(absl::Span<const Bucket> buckets,
                                           absl::Span<const int> uses, int live_units,
                                           const std::function<bool(const Bucket&)>& chosen) {
  std::map<int64_t, int> needed;
  for (size_t first = 0; first < uses.size(); ++first) {
    const auto near = uses.subspan(first, static_cast<size_t>(live_units));
    std::map<int64_t, int> live;
    for (const Bucket& bucket : buckets) {
      const bool is_live = bucket.users.size() > 1 || absl::c_linear_search(near, bucket.unit);
      if (is_live && chosen(bucket)) ++live[bucket.bytes()];
    }
    for (const auto& [bytes, count] : live) needed[bytes] = std::max(needed[bytes], count);
  }
  return needed;
}

}  // namespace brigade::zero
