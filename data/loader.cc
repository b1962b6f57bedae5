#include "brigade/data/loader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {
namespace {

absl::Status Check(const LoaderOptions& options, int64_t context) {
  const DataRank& rank = options.rank;
  if (rank.ranks < 1 || rank.rank < 0 || rank.rank >= rank.ranks) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank.rank, " of ", rank.ranks));
  }
  if (rank.micro_batch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a micro_batch of ", rank.micro_batch, " samples; it needs at least one"));
  }
  // So that a product of them fits, and a step's memory.
  constexpr int64_t kMost = int64_t{1} << 40;
  if (options.batch < 1 || options.batch > kMost / (context + 1) || rank.micro_batch > kMost) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", options.batch, " samples of ",
                                                   context, " positions; 1 to ",
                                                   kMost / (context + 1), " samples can be"));
  }
  const int64_t of_all = rank.micro_batch * rank.ranks;
  if (options.batch % of_all != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", options.batch,
                                                   " samples is no multiple of micro_batch times ",
                                                   "ranks, ", rank.micro_batch, " * ", rank.ranks));
  }
  if (options.epochs < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.epochs, " epochs; 0, which is without end, or more"));
  }
  constexpr int kMostAhead = 1024;
  if (options.ahead < 1 || options.ahead > kMostAhead) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.ahead, " steps ahead; 1 to ", kMostAhead, " can be"));
  }
  return absl::OkStatus();
}

void SetPadding(const Row& row) {
  std::fill(row.ids.begin(), row.ids.end(), 0);
  std::fill(row.labels.begin(), row.labels.end(), kIgnored);
  std::fill(row.positions.begin(), row.positions.end(), 0);
  std::fill(row.segments.begin(), row.segments.end(), kPadding);
}

// What the thread has.
struct Reading {
  absl::StatusOr<bool> Fill(StepData& step);
  absl::Status Fill(StepData& step, absl::Span<const int64_t> samples) const;

  std::shared_ptr<const Dataset> dataset;
  Sampler sampler;
  LoaderOptions options;
  DataPosition at;
};

absl::StatusOr<bool> Reading::Fill(StepData& step) {
  step.begin = sampler.Begin(at);
  if (options.epochs != 0 && step.begin.epoch >= options.epochs) return false;
  step.next = at = sampler.After(step.begin);
  step.counted = 0;
  const std::vector<int64_t> all = sampler.Samples(step.begin);
  step.samples = static_cast<int64_t>(all.size());
  for (const int64_t sample : all) step.counted += dataset->CountedLabels(sample);
  step.micro_batches = sampler.MicroBatches(step.begin, options.rank);
  BRIGADE_RETURN_IF_ERROR(Fill(step, sampler.Samples(step.begin, options.rank)));
  return true;
}

absl::Status Reading::Fill(StepData& step, absl::Span<const int64_t> samples) const {
  const auto context = static_cast<size_t>(step.context);
  step.counted_of.assign(static_cast<size_t>(step.micro_batches), 0);
  for (size_t i = 0; i < samples.size(); ++i) {
    const Row row = {absl::MakeSpan(step.ids).subspan(i * (context + 1), context + 1),
                     absl::MakeSpan(step.labels).subspan(i * context, context),
                     absl::MakeSpan(step.positions).subspan(i * context, context),
                     absl::MakeSpan(step.segments).subspan(i * context, context)};
    if (samples[i] == Sampler::kNone) {
      SetPadding(row);
      continue;
    }
    BRIGADE_RETURN_IF_ERROR(dataset->Read(samples[i], row));
    step.counted_of[i / static_cast<size_t>(step.micro_batch)] +=
        dataset->CountedLabels(samples[i]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(std::shared_ptr<const Dataset> dataset,
                                                       const LoaderOptions& options,
                                                       DataPosition from) {
  BRIGADE_RETURN_IF_ERROR(Check(options, dataset->context()));
  BRIGADE_ASSIGN_OR_RETURN(const Sampler sampler,
                           Sampler::Create({.samples = dataset->size(),
                                            .batch = options.batch,
                                            .seed = options.seed,
                                            .shuffle = options.shuffle,
                                            .drop_last = options.drop_last}));
  BRIGADE_RETURN_IF_ERROR(sampler.Check(from));
  const auto rows = static_cast<size_t>(options.batch / options.rank.ranks);
  const int64_t most = device::MostFileBytes() / (options.ahead + 1);
  const int64_t bytes_of_row = (4 * dataset->context() + 1) * int64_t{sizeof(int32_t)};
  if (options.batch / options.rank.ranks > most / bytes_of_row) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options.ahead + 1, " steps of ", rows, " samples of ", dataset->context(),
                     " positions take more than a quarter of the machine's memory"));
  }
  const auto context = static_cast<size_t>(dataset->context());
  std::vector<StepData> steps(static_cast<size_t>(options.ahead) + 1);
  for (StepData& step : steps) {
    step.micro_batch = options.rank.micro_batch;
    step.context = dataset->context();
    step.ids.resize(rows * (context + 1));
    for (std::vector<int32_t>* each : {&step.labels, &step.positions, &step.segments}) {
      each->resize(rows * context);
    }
  }
  std::unique_ptr<Loader> loader(new Loader(sampler));
  auto reading = std::make_shared<Reading>(Reading{std::move(dataset), sampler, options, from});
  BRIGADE_ASSIGN_OR_RETURN(
      loader->steps_, Prefetcher<StepData>::Create(std::move(steps), [reading](StepData& step) {
        return reading->Fill(step);
      }));
  return loader;
}

}  // namespace brigade::data
