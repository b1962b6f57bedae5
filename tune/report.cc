#include "brigade/tune/report.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/tune/estimates.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::tune {
namespace {

constexpr double kMega = 1e6;
constexpr size_t kReasons = 12;

double Megabytes(int64_t bytes) { return static_cast<double>(bytes) / kMega; }

std::vector<const Candidate*> TriedOf(const std::vector<Candidate>& candidates) {
  std::vector<const Candidate*> tried;
  for (const Candidate& each : candidates) {
    if (each.was_tried) tried.push_back(&each);
  }
  std::stable_sort(tried.begin(), tried.end(), [](const Candidate* a, const Candidate* b) {
    const auto key = [](const Candidate* c) {
      return c->measured.has_value() ? c->measured->seconds : 1e300;
    };
    return key(a) < key(b);
  });
  return tried;
}

}  // namespace

std::string DescribeSearch(const Search& search) {
  int64_t refused = 0;
  std::vector<std::pair<int64_t, std::string>> reasons;
  for (const auto& [reason, count] : search.refused) {
    refused += count;
    reasons.push_back({count, reason});
  }
  std::sort(reasons.begin(), reasons.end(), std::greater<>());
  std::string text = absl::StrFormat("%d configurations, of which are left out\n", search.points);
  absl::StrAppendFormat(&text, "%8d need more memory than there is\n", search.too_large);
  absl::StrAppendFormat(&text, "%8d cannot be%s\n", refused, reasons.empty() ? "" : ":");
  for (size_t i = 0; i < reasons.size() && i < kReasons; ++i) {
    absl::StrAppendFormat(&text, "%16d %s\n", reasons[i].first, reasons[i].second);
  }
  if (reasons.size() > kReasons) {
    absl::StrAppendFormat(&text, "%16s for %d other reasons\n", "...", reasons.size() - kReasons);
  }
  absl::StrAppendFormat(&text, "%8d fit\n", search.fitting.size());
  return text;
}

std::string ShowMetric(double seconds, const gpt::Job& job, train::TuningMetric metric, int ranks) {
  const auto texts = static_cast<double>(job.config.batch.train_batch_size);
  switch (metric) {
    case train::TuningMetric::kLatency:
      return absl::StrFormat("%.2f ms", seconds * 1e3);
    case train::TuningMetric::kThroughput:
      return absl::StrFormat("%.1f texts/s", texts / seconds);
    case train::TuningMetric::kFlops:
      return absl::StrFormat("%.4f TFLOP/s a rank", gpt::FlopsPerToken(job.model) * texts *
                                                        static_cast<double>(job.model.context) /
                                                        seconds / ranks / 1e12);
  }
  return "";
}

std::string TrialTable(const std::vector<Candidate>& candidates, train::TuningMetric metric,
                       int ranks) {
  std::string text = absl::StrFormat("%10s %10s %14s %14s  %s\n", "measured", "predicted", "bytes",
                                     "of the books", "configuration");
  absl::StrAppendFormat(&text, "%10s %10s %14s %14s\n", "ms a step", "ms a step", "by formula",
                        "when measured");
  for (const Candidate* each : TriedOf(candidates)) {
    const double predicted = each->prediction.seconds.total() * 1e3;
    if (!each->measured.has_value()) {
      absl::StrAppendFormat(&text, "%10s %10.2f %14d %14s  %s: %s\n", "failed", predicted,
                            each->prediction.needs.device_bytes, "", ToString(each->point),
                            std::string(each->failed.message()));
      continue;
    }
    absl::StrAppendFormat(
        &text, "%10.2f %10.2f %14d %14d  %s (%s)\n", each->measured->seconds * 1e3, predicted,
        each->prediction.needs.device_bytes, each->measured->device_bytes, ToString(each->point),
        ShowMetric(each->measured->seconds, each->job, metric, ranks));
  }
  return text;
}

std::string OrderReport(const std::vector<Candidate>& candidates) {
  std::vector<double> predicted, measured;
  double best = 0, of_first = 0, first = 0;
  for (const Candidate& each : candidates) {
    if (!each.measured.has_value()) continue;
    const double seconds = each.measured->seconds, model = each.prediction.seconds.total();
    if (predicted.empty() || model < first) {
      first = model;
      of_first = seconds;
    }
    best = predicted.empty() ? seconds : std::min(best, seconds);
    predicted.push_back(model);
    measured.push_back(seconds);
  }
  if (predicted.size() < 2) return "";
  return absl::StrFormat(
      "Predicted order beside the measured one, of %d: rank correlation %.2f; the one predicted "
      "fastest takes %.1f %% longer than the fastest.\n",
      predicted.size(), RankCorrelation(predicted, measured), 100 * (of_first / best - 1));
}

absl::StatusOr<std::string> EstimateTable(const gpt::Job& job) {
  const parallel::GridShape& grid = job.config.grid;
  const int sharers = grid.data * grid.context;
  LiveModel live;
  const zero::ModelSpec spec = gpt::SpecOf(job.model);
  for (const zero::UnitSpec& unit : spec) {
    int64_t size = 0;
    for (const zero::ParameterSpec& parameter : unit.parameters) size += parameter.size;
    live.layer_params.push_back(size);
  }
  const EstimatedModel model = CountOf(live, sharers, 1);
  std::string text = absl::StrFormat(
      "States of %d parameters on %d ranks that share them, MB (10^6) of a rank, without "
      "activations\n%-8s %12s %12s %22s %18s %12s\n",
      model.total_params, sharers, "stage", "ours", "the paper's", "DeepSpeed's estimator",
      "its autotuner", "Accelerate");
  zero::ZeroOptions options = job.config.zero;
  options.offload = {};
  options.live_units = std::max(options.live_units, 1);
  options.shard_ranks = 0;
  options.hpz_ranks = 0;
  options.persistence_threshold = 0;
  options.gradient_compression = {};
  options.accumulation = zero::Accumulation::kEveryMicroBatch;
  BRIGADE_ASSIGN_OR_RETURN(const zero::Plan plan,
                           zero::Plan::Create(spec, {.ranks = sharers,
                                                     .dtype = options.dtype,
                                                     .bucket_elements = options.bucket_elements,
                                                     .tied_apart = options.tied_apart}));
  for (options.stage = 0; options.stage < zero::kStages; ++options.stage) {
    const int64_t ours = zero::Total(zero::MemoryOf(plan, options), device::Tier::kDevice);
    const double paper =
        zero::PaperBytes(static_cast<double>(model.total_params), sharers, options.stage);
    const std::string theirs =
        options.stage == 0
            ? "-"
            : absl::StrFormat(
                  "%.3f", Megabytes(options.stage == 3
                                        ? estimate_zero3_model_states_mem_needs(model, {}).gpu
                                        : estimate_zero2_model_states_mem_needs(model, {}).gpu));
    absl::StrAppendFormat(&text, "%-8d %12.3f %12.3f %22s %18.3f %12.3f\n", options.stage,
                          Megabytes(ours), paper / kMega, theirs,
                          Megabytes(AutotunerBytes(model.total_params, sharers, options.stage)),
                          Megabytes(AccelerateBytes(model.total_params)));
  }
  return text;
}

std::string DescribeNoFit(const Search& search, const Limits& limits,
                          const std::vector<Help>& helps) {
  std::string text = "No configuration fits.\n";
  if (!search.smallest.has_value()) return text;
  const Candidate& smallest = *search.smallest;
  const RankNeeds& needs = smallest.prediction.needs;
  absl::StrAppendFormat(&text,
                        "The one that needs least, %s, is %d bytes short: rank %d needs %d bytes "
                        "of its device, and may have %d",
                        ToString(smallest.point), ShortBytes(smallest.prediction, limits),
                        smallest.prediction.rank, needs.device_bytes, limits.device_bytes);
  const int64_t host_bytes = smallest.prediction.host_bytes;
  if (limits.host_bytes > 0 && host_bytes > limits.host_bytes) {
    absl::StrAppendFormat(&text, "; of the host %d, and may have %d", host_bytes,
                          limits.host_bytes);
  }
  if (limits.both_bytes > 0 && needs.device_bytes + host_bytes > limits.both_bytes) {
    absl::StrAppendFormat(&text, "; of both, which are one memory, %d, and may have %d",
                          needs.device_bytes + host_bytes, limits.both_bytes);
  }
  absl::StrAppend(&text, ".\nOf the device's: ", DescribeTerms(needs.terms, device::Tier::kDevice),
                  ".\n");
  absl::StrAppend(&text, helps.empty() ? "Nothing that was looked at would help but more memory.\n"
                                       : "What would help, each by itself:\n");
  for (const Help& help : helps) {
    absl::StrAppendFormat(
        &text, "  %-72s %12d bytes: %s\n", help.what, help.device_bytes,
        help.short_bytes <= 0 ? "fits" : absl::StrFormat("%d bytes short", help.short_bytes));
  }
  return text;
}

absl::StatusOr<std::vector<Help>> FindHelp(const TuningSetup& setup,
                                           const gpt::ModelOptions& gpt_model,
                                           const Candidate& smallest, const MakeJob& make_job,
                                           const Limits& limits, RankModel& model) {
  std::vector<Help> helps;
  const int64_t now = ShortBytes(smallest.prediction, limits);
  const auto needs_of = [&](gpt::Job job) -> std::optional<Prediction> {
    job.device_limit_bytes = limits.device_bytes;
    absl::StatusOr<Prediction> prediction = model.MemoryOf(job);
    if (!prediction.ok()) return std::nullopt;
    return *std::move(prediction);
  };
  const auto add = [&](const std::string& what, const std::optional<Prediction>& prediction) {
    if (!prediction.has_value() || ShortBytes(*prediction, limits) >= now) return;
    helps.push_back({what, prediction->needs.device_bytes, ShortBytes(*prediction, limits)});
  };
  const auto least_of = [&](const std::vector<Dimension>& dimensions,
                            std::string& what) -> std::optional<Prediction> {
    Space space;
    for (const Dimension each : dimensions) {
      AddValues(each, setup.config, gpt_model, setup.totals, setup.options, space);
    }
    std::optional<Prediction> least;
    // Other values beside those of the smallest.
    const Json its = Json::parse(smallest.text);
    for (const Point& point : PointsOf(space, setup.totals)) {
      const auto job = make_job(WithPoint(its, point, setup.totals).dump());
      if (!job.ok()) continue;
      const std::optional<Prediction> prediction = needs_of(*job);
      if (!prediction.has_value()) continue;
      if (least.has_value() && ShortBytes(*least, limits) <= ShortBytes(*prediction, limits)) {
        continue;
      }
      least = prediction;
      what = ToString(point);
    }
    return least;
  };
  for (const Dimension each : kAllDimensions) {
    if (std::find(setup.tuned.begin(), setup.tuned.end(), each) != setup.tuned.end()) continue;
    std::string what;
    const std::optional<Prediction> least = least_of({each}, what);
    add(absl::StrCat("--tune=", Name(each), " (", what, ")"), least);
  }
  {
    // State and weights elsewhere need their stage.
    std::string what;
    const std::optional<Prediction> least =
        least_of({Dimension::kStage, Dimension::kOffload, Dimension::kRecompute}, what);
    add(absl::StrCat("--tune=stage,offload,recompute (", what, ")"), least);
  }
  for (const bool of_context : {true, false}) {
    gpt::Job job = smallest.job;
    const int64_t divisor = of_context ? job.model.context : job.model.layers;
    if (divisor < 2) continue;
    (of_context ? job.model.context : job.model.layers) = divisor / 2;
    add(absl::StrFormat("--%s=%d instead of %d", of_context ? "context" : "layers", divisor / 2,
                        divisor),
        needs_of(std::move(job)));
  }
  return helps;
}

}  // namespace brigade::tune
