#include "brigade/tune/space.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace brigade::tune {
namespace {

constexpr absl::string_view kNames[kDimensions] = {
    "stage",     "micro_batch", "bucket", "live_units", "algorithm",
    "recompute", "offload",     "tensor", "context",    "pipeline"};

// [Dimension]: keys that say it, with blanks between.
constexpr absl::string_view kKeys[kDimensions] = {
    "zero_optimization.stage",
    "train_micro_batch_size_per_gpu gradient_accumulation_steps",
    "zero_optimization.reduce_bucket_size",
    "brigade.live_units zero_optimization.stage3_prefetch_bucket_size "
    "zero_optimization.prefetch_bucket_size",
    "brigade.algorithm",
    "brigade.recompute activation_checkpointing pipeline.activation_checkpoint_interval",
    "zero_optimization.offload_optimizer.device zero_optimization.offload_param.device",
    "tensor_parallel.autotp_size tensor_parallel.tp.tp_size "
    "tensor_parallel.tensor_parallel.tp_size",
    "sequence_parallel_size",
    "pipeline.stages",
};

// Where none is given the config has its own.
template <typename T>
std::vector<std::optional<T>> Values(const std::vector<T>& values) {
  if (values.empty()) return {std::nullopt};
  return {values.begin(), values.end()};
}

// The object at a path, made where there is none, or "auto", or null.
Json& ObjectAt(Json& config, const std::string& key) {
  Json& object = config[key];
  if (!object.is_object()) object = Json::object();
  return object;
}

void EraseFrom(Json& config, const std::string& section, const std::string& key) {
  const auto it = config.find(section);
  if (it != config.end() && it->is_object()) it->erase(key);
}

// Where a path has the value "auto".
void EraseAuto(Json& config, absl::string_view path) {
  Json* at = &config;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (size_t n = 0; n + 1 < names.size(); ++n) {
    const auto it = at->find(names[n]);
    if (it == at->end() || !it->is_object()) return;
    at = &*it;
  }
  const auto it = at->find(names.back());
  if (it != at->end() && *it == Json("auto")) at->erase(it);
}

}  // namespace

absl::string_view Name(Dimension dimension) { return kNames[static_cast<size_t>(dimension)]; }

absl::StatusOr<std::vector<Dimension>> ParseDimensions(absl::string_view name) {
  if (name == "all")
    return std::vector<Dimension>(std::begin(kAllDimensions), std::end(kAllDimensions));
  if (name == "grid") {
    return std::vector<Dimension>{Dimension::kTensor, Dimension::kContext, Dimension::kPipeline};
  }
  for (const Dimension each : kAllDimensions) {
    if (name == Name(each)) return std::vector<Dimension>{each};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is none of ", absl::StrJoin(kNames, ", "), ", grid and all"));
}

std::string ToString(const Point& point) {
  std::vector<std::string> parts;
  const auto add = [&parts](absl::string_view name, const auto& value) {
    if (value.has_value()) parts.push_back(absl::StrCat(name, name.empty() ? "" : " ", *value));
  };
  add("tensor", point.tensor);
  add("context", point.context);
  add("pipeline", point.pipeline);
  add("stage", point.stage);
  add("micro-batch", point.micro_batch);
  add("bucket", point.bucket);
  add("live units", point.live_units);
  add("algorithm", point.algorithm);
  add("recompute", point.recompute);
  if (point.offload.has_value()) {
    parts.push_back(absl::StrCat("offload ", point.offload->optimizer,
                                 point.offload->parameters == "none" ? "" : " all"));
  }
  return parts.empty() ? "the config as it is" : absl::StrJoin(parts, ", ");
}

std::vector<int64_t> DivisorsOf(int64_t number, int64_t least, int64_t most) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= most && d <= number / d; ++d) {
    if (number % d != 0) continue;
    divisors.push_back(d);
    if (d != number / d) divisors.push_back(number / d);
  }
  std::sort(divisors.begin(), divisors.end());
  std::erase_if(divisors, [&](int64_t d) { return d < least || d > most; });
  return divisors;
}

std::vector<Point> PointsOf(const Space& space, const Totals& totals) {
  std::vector<Point> points;
  for (const auto& tensor : Values(space.tensor)) {
    for (const auto& context : Values(space.context)) {
      for (const auto& pipeline : Values(space.pipeline)) {
        const int64_t of_text = int64_t{tensor.value_or(totals.tensor)} *
                                context.value_or(totals.context) *
                                pipeline.value_or(totals.pipeline);
        const int64_t data = totals.ranks / of_text;
        if (totals.ranks % of_text != 0 || totals.batch % data != 0) continue;
        const bool shares = data * context.value_or(totals.context) > 1;
        std::vector<std::optional<int64_t>> micro_batches = {std::nullopt};
        if (space.tunes_micro_batch) {
          micro_batches =
              Values(DivisorsOf(totals.batch / data, space.min_micro_batch, space.max_micro_batch));
          if (micro_batches.size() == 1 && !micro_batches[0].has_value()) continue;
        }
        for (const auto& stage : Values(space.stages)) {
          const int its = stage.value_or(totals.stage.value_or(0));
          for (const auto& micro_batch : micro_batches) {
            for (const auto& offload : Values(space.offload)) {
              const bool offloads = offload.has_value() && offload->optimizer != "none";
              const bool has_parameters = offload.has_value() && offload->parameters != "none";
              if (has_parameters && its < 3) continue;
              // Of a rank that shares nothing the stages differ in what may be offloaded alone.
              if (stage.has_value() && !shares && its != (has_parameters ? 3 : offloads ? 1 : 0)) {
                continue;
              }
              const bool gathers = its >= 2 && shares;
              for (const auto& live_units :
                   gathers ? Values(space.live_units) : Values(std::vector<int>())) {
                for (const auto& bucket : Values(space.buckets)) {
                  for (const auto& algorithm :
                       shares ? Values(space.algorithms) : Values(std::vector<std::string>())) {
                    for (const auto& recompute : Values(space.recompute)) {
                      points.push_back({.stage = stage,
                                        .micro_batch = micro_batch,
                                        .bucket = bucket,
                                        .live_units = live_units,
                                        .algorithm = algorithm,
                                        .recompute = recompute,
                                        .offload = offload,
                                        .tensor = tensor,
                                        .context = context,
                                        .pipeline = pipeline});
                    }
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return points;
}

const Json* FindGiven(const Json& config, absl::string_view path) {
  const Json* at = &config;
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    if (!at->is_object()) return nullptr;
    const auto it = at->find(std::string(name));
    if (it == at->end()) return nullptr;
    at = &*it;
  }
  return at->is_null() || *at == Json("auto") ? nullptr : at;
}

bool IsGiven(const Json& config, Dimension dimension) {
  for (const absl::string_view path : absl::StrSplit(kKeys[static_cast<size_t>(dimension)], ' ')) {
    if (FindGiven(config, path) != nullptr) return true;
  }
  return false;
}

bool IsAuto(const Json& config, Dimension dimension) {
  for (const absl::string_view path : absl::StrSplit(kKeys[static_cast<size_t>(dimension)], ' ')) {
    Json without = config;
    EraseAuto(without, path);
    if (without != config) return true;
  }
  return false;
}

Json WithPoint(const Json& config, const Point& point, const Totals& totals) {
  Json with = config;
  const auto grid = [&](const std::optional<int>& value, const char* section, const char* key) {
    if (!value.has_value()) return;
    if (section == nullptr) {
      with[key] = *value;
    } else {
      ObjectAt(with, section)[key] = *value;
    }
  };
  if (point.tensor.has_value()) {
    // The key has two other names.
    for (const char* const inner : {"tp", "tensor_parallel"}) {
      EraseFrom(with, "tensor_parallel", inner);
    }
  }
  grid(point.tensor, "tensor_parallel", "autotp_size");
  grid(point.context, nullptr, "sequence_parallel_size");
  grid(point.pipeline, "pipeline", "stages");
  if (point.stage.has_value()) ObjectAt(with, "zero_optimization")["stage"] = *point.stage;
  if (point.micro_batch.has_value()) {
    const int64_t of_text = int64_t{point.tensor.value_or(totals.tensor)} *
                            point.context.value_or(totals.context) *
                            point.pipeline.value_or(totals.pipeline);
    with["train_batch_size"] = totals.batch;
    with["train_micro_batch_size_per_gpu"] = *point.micro_batch;
    with["gradient_accumulation_steps"] =
        totals.batch / (totals.ranks / of_text) / *point.micro_batch;
  }
  const bool has_grid =
      point.tensor.has_value() || point.context.has_value() || point.pipeline.has_value();
  if (!point.micro_batch.has_value() && has_grid) {
    // As many passes as the batch is with the grid's data ranks.
    with["train_batch_size"] = totals.batch;
    if (FindGiven(with, "train_micro_batch_size_per_gpu") != nullptr) {
      with.erase("gradient_accumulation_steps");
    }
  }
  if (point.bucket.has_value()) {
    ObjectAt(with, "zero_optimization")["reduce_bucket_size"] = *point.bucket;
  }
  if (point.live_units.has_value()) {
    ObjectAt(with, "brigade")["live_units"] = *point.live_units;
    for (const char* const key : {"stage3_prefetch_bucket_size", "prefetch_bucket_size"}) {
      EraseFrom(with, "zero_optimization", key);
    }
  } else if (point.stage.has_value() && *point.stage < 2) {
    // It is refused where all units are there.
    EraseFrom(with, "brigade", "live_units");
  }
  if (point.algorithm.has_value()) ObjectAt(with, "brigade")["algorithm"] = *point.algorithm;
  if (point.recompute.has_value()) {
    ObjectAt(with, "brigade")["recompute"] = *point.recompute;
    EraseFrom(with, "pipeline", "activation_checkpoint_interval");
    // Refused, or without effect, where nothing is made again.
    if (*point.recompute == "none") EraseFrom(with, "brigade", "recompute_times");
  }
  if (point.offload.has_value()) {
    Json& zero = ObjectAt(with, "zero_optimization");
    const auto set = [&zero](const char* section, const std::string& device) {
      if (device == "none" && !zero.contains(section)) return;
      ObjectAt(zero, section)["device"] = device;
    };
    set("offload_optimizer", point.offload->optimizer);
    set("offload_param", point.offload->parameters);
  }
  // What is left is of no effect, or what the config does without the key.
  for (const absl::string_view keys : kKeys) {
    for (const absl::string_view path : absl::StrSplit(keys, ' ')) EraseAuto(with, path);
  }
  return with;
}

}  // namespace brigade::tune
