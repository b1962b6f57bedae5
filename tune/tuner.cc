#include "brigade/tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/device/status_macros.h"
#include "brigade/train/comparisons.h"

namespace brigade::tune {
namespace {

// Of what was tried, those so near the best are tried again: in the second round more of them,
// because of one trial half may be what else the machine did.
constexpr double kNear = 1.10;
constexpr double kNearInSecondRound = 2.0;
// How often a budget is made smaller where what follows from it needs more than the rest.
constexpr int kBudgetTries = 3;
// Of a trial of passes: more is a line beyond it.
constexpr int64_t kMostTextsOfTrial = 8;

// What of an error is alike for many: its text in one line, without numbers, but with those of
// words like fp16.
std::string ReasonOf(const absl::Status& status) {
  std::string reason;
  bool in_number = false, in_word = false, in_blank = false;
  for (const char c : status.message()) {
    const bool digit = c >= '0' && c <= '9', blank = c == ' ' || c == '\n';
    in_word = absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_' || (in_word && digit);
    const bool number = digit && !in_word;
    if (!number && !blank) reason += c;
    if (number && !in_number) reason += 'N';
    if (blank && !in_blank) reason += ' ';
    in_number = number;
    in_blank = blank;
  }
  return reason;
}

// A world that is gone ends the search; a config or a plan that cannot be does not.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
         absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status);
}

// What decides about most of a step's time.
auto FamilyOf(const Point& point) {
  const Offload offload = point.offload.value_or(Offload());
  return std::tuple(point.tensor, point.context, point.pipeline, point.stage, point.micro_batch,
                    point.recompute, offload.optimizer, offload.parameters);
}

std::vector<double> RanksOf(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    }
    begin = end;
  }
  return ranks;
}

}  // namespace

int64_t ShortBytes(const Prediction& prediction, const Limits& limits) {
  const auto beyond = [](int64_t bytes, int64_t limit) { return limit > 0 ? bytes - limit : 0; };
  return std::max(
      {beyond(prediction.needs.device_bytes, limits.device_bytes),
       beyond(prediction.host_bytes, limits.host_bytes),
       beyond(prediction.needs.device_bytes + prediction.host_bytes, limits.both_bytes)});
}

absl::StatusOr<Search> FindFitting(const Json& config, const Space& space, const Totals& totals,
                                   const MakeJob& make_job, const Limits& limits, RankModel& model,
                                   const std::atomic<bool>& stop) {
  Search search;
  // Nothing of a candidate that is refused, whose reason may be counted.
  const auto candidate_of = [&](const Point& point,
                                bool counts) -> absl::StatusOr<std::optional<Candidate>> {
    Candidate candidate;
    candidate.point = point;
    candidate.text = WithPoint(config, point, totals).dump(2);
    absl::StatusOr<gpt::Job> job = make_job(candidate.text);
    // Trials compare nothing; the trainer would refuse what is written.
    absl::Status status = job.ok() ? train::CheckComparisons(*job) : job.status();
    if (status.ok()) {
      candidate.job = *std::move(job);
      candidate.job.device_limit_bytes = limits.device_bytes;
      const auto prediction = model.MemoryOf(candidate.job);
      status = prediction.status();
      if (prediction.ok()) candidate.prediction = *prediction;
    }
    if (status.ok()) return candidate;
    if (!IsRefusal(status)) return status;
    if (counts) ++search.refused[ReasonOf(status)];
    return std::nullopt;
  };
  for (const Point& point : PointsOf(space, totals)) {
    if (stop.load(std::memory_order_relaxed)) return absl::CancelledError("interrupted");
    ++search.points;
    BRIGADE_ASSIGN_OR_RETURN(std::optional<Candidate> candidate, candidate_of(point, true));
    if (!candidate.has_value()) continue;
    int64_t beyond = ShortBytes(candidate->prediction, limits);
    if (beyond <= 0) {
      search.fitting.push_back(*std::move(candidate));
      continue;
    }
    ++search.too_large;
    if (!search.smallest.has_value() || beyond < ShortBytes(search.smallest->prediction, limits)) {
      search.smallest = candidate;
    }
    if (point.recompute != "none" || limits.device_bytes == 0) continue;
    int64_t budget = candidate->prediction.needs.activation_bytes;
    for (int i = 0; i < kBudgetTries; ++i) {
      budget -= beyond;
      if (budget <= 0) break;
      Point with_budget = point;
      with_budget.recompute = absl::StrCat("budget:", budget);
      // What a planner refuses is no configuration of its own: the one without a budget counts.
      BRIGADE_ASSIGN_OR_RETURN(std::optional<Candidate> less, candidate_of(with_budget, false));
      if (!less.has_value()) break;
      beyond = ShortBytes(less->prediction, limits);
      if (beyond > 0) continue;
      ++search.points;
      search.fitting.push_back(*std::move(less));
      break;
    }
  }
  return search;
}

void KeepLargestMicroBatches(int64_t count, std::vector<Candidate>& candidates) {
  std::set<int64_t, std::greater<>> sizes;
  const auto size_of = [](const Candidate& candidate) {
    return candidate.job.config.batch.train_micro_batch_size_per_gpu;
  };
  for (const Candidate& candidate : candidates) sizes.insert(size_of(candidate));
  if (static_cast<int64_t>(sizes.size()) <= count) return;
  auto least = sizes.begin();
  std::advance(least, count - 1);
  std::erase_if(candidates, [&](const Candidate& each) { return size_of(each) < *least; });
}

absl::Status PredictTimes(const gpt::Corpus& corpus, World& world, train::Recorder& recorder,
                          Figures& figures, RankModel& model, std::vector<Candidate>& candidates,
                          const std::atomic<bool>& stop) {
  if (candidates.empty()) return absl::OkStatus();
  // --device_link, which all have alike.
  if (const int64_t link = candidates[0].job.device_link; link > 0) {
    figures.link_bytes_per_s = std::min(figures.link_bytes_per_s, static_cast<double>(link));
  }
  const auto interrupted = [&] { return stop.load(std::memory_order_relaxed); };
  std::map<RankModel::SharedKey, std::pair<int64_t, int64_t>> sizes;
  std::map<RankModel::SharedKey, const Candidate*> examples;
  for (const Candidate& candidate : candidates) {
    const RankModel::SharedKey key = RankModel::KeyOf(candidate.job);
    const int64_t batch = candidate.job.config.batch.train_micro_batch_size_per_gpu;
    const auto [it, is_new] = sizes.try_emplace(key, batch, batch);
    it->second.first = std::min(it->second.first, batch);
    it->second.second = std::max(it->second.second, batch);
    if (is_new) examples[key] = &candidate;
  }
  for (const auto& [key, range] : sizes) {
    if (interrupted()) return absl::CancelledError("interrupted");
    gpt::Job job = examples[key]->job;
    job.corpus = corpus;
    const int64_t large = std::max(range.first, std::min(range.second, kMostTextsOfTrial));
    BRIGADE_ASSIGN_OR_RETURN(const MeasuredCosts costs,
                             MeasureCosts(job, range.first, large, world, recorder));
    model.SetCosts(key, costs);
  }
  // Of the smallest: how long an element's update takes.
  const auto smallest = std::min_element(
      candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return a.prediction.needs.device_bytes < b.prediction.needs.device_bytes;
      });
  if (interrupted()) return absl::CancelledError("interrupted");
  gpt::Job probe = smallest->job;
  probe.corpus = corpus;
  const auto tried = Try(probe, world.size(), {.first = 2, .last = 3}, stop);
  if (tried.ok() && tried->optimizer_seconds > 0) {
    figures.update_s = 1;
    BRIGADE_ASSIGN_OR_RETURN(const Prediction elements, model.Predict(smallest->job));
    // Without the sums of micro-batches, which are no elements.
    figures.update_s = 2;
    BRIGADE_ASSIGN_OR_RETURN(const Prediction twice, model.Predict(smallest->job));
    const double count = twice.seconds.update - elements.seconds.update;
    figures.update_s = count > 0 ? tried->optimizer_seconds / count : 0;
  } else if (absl::IsCancelled(tried.status())) {
    return tried.status();
  }
  for (Candidate& candidate : candidates) {
    if (interrupted()) return absl::CancelledError("interrupted");
    BRIGADE_ASSIGN_OR_RETURN(candidate.prediction, model.Predict(candidate.job));
  }
  return absl::OkStatus();
}

std::vector<size_t> OrderOfTrials(const std::vector<Candidate>& candidates, train::TunerType type,
                                  uint64_t seed) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (type == train::TunerType::kRandom) {
    std::mt19937_64 random(seed);
    std::shuffle(order.begin(), order.end(), random);
  } else if (type == train::TunerType::kModelBased) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return candidates[a].prediction.seconds.total() < candidates[b].prediction.seconds.total();
    });
    std::set<decltype(FamilyOf(Point()))> families;
    std::vector<size_t> first, others;
    for (const size_t each : order) {
      (families.insert(FamilyOf(candidates[each].point)).second ? first : others).push_back(each);
    }
    order = std::move(first);
    order.insert(order.end(), others.begin(), others.end());
  }
  return order;
}

Trial TrialsOnThreads(int ranks, const TrialSteps& steps, const gpt::Corpus& corpus,
                      const Limits& limits, const std::atomic<bool>& stop) {
  return [=, &corpus, &stop](const Candidate& candidate) {
    gpt::Job job = candidate.job;
    job.corpus = corpus;
    job.device_limit_bytes = limits.device_bytes;
    return Try(job, ranks, steps, stop);
  };
}

void RunTrials(const std::vector<size_t>& order, const TrialPlan& plan, const Trial& trial,
               std::vector<Candidate>& candidates, const std::atomic<bool>& stop,
               const std::function<void(size_t)>& after_each) {
  const auto stopped = [&stop] { return stop.load(std::memory_order_relaxed); };
  // False: no more of them.
  const auto try_one = [&](size_t index) {
    Candidate& candidate = candidates[index];
    const absl::StatusOr<Measured> measured = trial(candidate);
    if (absl::IsCancelled(measured.status())) return false;
    candidate.was_tried = true;
    if (!measured.ok()) {
      candidate.failed = measured.status();
    } else if (!candidate.measured.has_value() || measured->seconds < candidate.measured->seconds) {
      candidate.measured = *measured;
    }
    after_each(index);
    return true;
  };
  std::vector<size_t> tried;
  int64_t without_better = 0;
  for (const size_t index : order) {
    if (std::ssize(tried) >= plan.trials || without_better >= plan.early_stopping || stopped()) {
      break;
    }
    const std::optional<size_t> before = BestOf(candidates);
    if (!try_one(index)) return;
    tried.push_back(index);
    without_better = BestOf(candidates) == before && before.has_value() ? without_better + 1 : 0;
  }
  for (int round = 1; round < plan.rounds; ++round) {
    const double near = round == 1 ? kNearInSecondRound : kNear;
    for (const size_t index : tried) {
      const std::optional<size_t> best = BestOf(candidates);
      if (!best.has_value() || stopped()) return;
      const std::optional<Measured>& its = candidates[index].measured;
      if (!its.has_value() || its->seconds > near * candidates[*best].measured->seconds) continue;
      if (!try_one(index)) return;
    }
  }
}

std::optional<size_t> BestOf(const std::vector<Candidate>& candidates) {
  std::optional<size_t> best;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const std::optional<Measured>& its = candidates[i].measured;
    if (!its.has_value()) continue;
    if (!best.has_value() || its->seconds < candidates[*best].measured->seconds) best = i;
  }
  return best;
}

double RankCorrelation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = RanksOf(a), y = RanksOf(b);
  if (x.size() < 2 || x.size() != y.size()) return 0;
  const double mean = static_cast<double>(x.size() - 1) / 2;
  double both = 0, of_x = 0, of_y = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    both += (x[i] - mean) * (y[i] - mean);
    of_x += (x[i] - mean) * (x[i] - mean);
    of_y += (y[i] - mean) * (y[i] - mean);
  }
  return of_x > 0 && of_y > 0 ? both / std::sqrt(of_x * of_y) : 0;
}

}  // namespace brigade::tune
