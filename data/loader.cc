#include "brigade/data/loader.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/device/round_up.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {
namespace {

// Inputs and targets of micro-batches begin at multiples of it.
constexpr int64_t kAlignment = 256;
// So that products with it fit.
constexpr int64_t kMostBytes = int64_t{1} << 60;

int64_t Aligned(int64_t bytes) { return device::RoundUp(bytes, kAlignment); }

absl::Status Check(const LoaderOptions& options, const Samples& samples) {
  for (const int64_t bytes : {samples.input_bytes(), samples.target_bytes()}) {
    if (bytes < 0 || bytes > kMostBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a sample of ", bytes, " bytes"));
    }
  }
  const DataRank& rank = options.rank;
  if (rank.ranks < 1 || rank.rank < 0 || rank.rank >= rank.ranks) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank.rank, " of ", rank.ranks));
  }
  if (rank.micro_batch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a micro_batch of ", rank.micro_batch, " samples; it needs at least one"));
  }
  const int64_t most = kMostBytes / (samples.input_bytes() + samples.target_bytes() + kAlignment);
  if (options.batch < 1 || options.batch > most || rank.micro_batch > most) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", options.batch, " samples of ",
                                                   samples.input_bytes() + samples.target_bytes(),
                                                   " bytes; 1 to ", most, " samples can be"));
  }
  if (rank.micro_batch > options.batch / rank.ranks ||
      options.batch % (rank.micro_batch * rank.ranks) != 0) {
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

// What the thread has.
struct Reading {
  absl::StatusOr<bool> Fill(StepData& step);
  absl::Status Fill(StepData& step, absl::Span<const int64_t> samples) const;

  std::shared_ptr<const Samples> dataset;
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
  for (const int64_t sample : all) step.counted += dataset->CountedLosses(sample);
  step.micro_batches = sampler.MicroBatches(step.begin, options.rank);
  BRIGADE_RETURN_IF_ERROR(Fill(step, sampler.Samples(step.begin, options.rank)));
  return true;
}

absl::Status Reading::Fill(StepData& step, absl::Span<const int64_t> samples) const {
  const auto micro_batch = static_cast<size_t>(options.rank.micro_batch);
  const auto inputs = static_cast<size_t>(dataset->input_bytes());
  const auto targets = static_cast<size_t>(dataset->target_bytes());
  std::byte* memory = step.memory.data();
  step.of.assign(static_cast<size_t>(step.micro_batches), {});
  for (StepData::MicroBatch& of : step.of) {
    std::byte* const input = memory;
    std::byte* const target = input + Aligned(static_cast<int64_t>(micro_batch * inputs));
    memory = target + Aligned(static_cast<int64_t>(micro_batch * targets));
    of.inputs = input;
    of.targets = target;
    for (size_t i = 0; i < micro_batch; ++i) {
      const int64_t sample = samples[i];
      // None comes behind one that is none.
      if (sample == Sampler::kNone) break;
      BRIGADE_RETURN_IF_ERROR(dataset->Read(sample, input + i * inputs, target + i * targets));
      ++of.samples;
      of.counted += dataset->CountedLosses(sample);
    }
    samples.remove_prefix(micro_batch);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(std::shared_ptr<const Samples> samples,
                                                       const LoaderOptions& options,
                                                       DataPosition from) {
  BRIGADE_RETURN_IF_ERROR(Check(options, *samples));
  BRIGADE_ASSIGN_OR_RETURN(const Sampler sampler,
                           Sampler::Create({.samples = samples->size(),
                                            .batch = options.batch,
                                            .seed = options.seed,
                                            .shuffle = options.shuffle,
                                            .drop_last = options.drop_last}));
  BRIGADE_RETURN_IF_ERROR(sampler.Check(from));
  const int64_t of_micro_batch = Aligned(options.rank.micro_batch * samples->input_bytes()) +
                                 Aligned(options.rank.micro_batch * samples->target_bytes());
  const int64_t micro_batches = options.batch / (options.rank.ranks * options.rank.micro_batch);
  const int64_t most = device::MostFileBytes() / (options.ahead + 1);
  if (of_micro_batch > 0 && micro_batches > most / of_micro_batch) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options.ahead + 1, " steps of ", micro_batches, " micro-batches of ",
                     of_micro_batch, " bytes take more than a quarter of the machine's memory"));
  }
  std::vector<StepData> steps(static_cast<size_t>(options.ahead) + 1);
  for (StepData& step : steps) {
    step.memory.resize(static_cast<size_t>(micro_batches * of_micro_batch));
  }
  std::unique_ptr<Loader> loader(new Loader(sampler));
  auto reading = std::make_shared<Reading>(Reading{std::move(samples), sampler, options, from});
  BRIGADE_ASSIGN_OR_RETURN(
      loader->steps_, Prefetcher<StepData>::Create(std::move(steps), [reading](StepData& step) {
        return reading->Fill(step);
      }));
  return loader;
}

}  // namespace brigade::data
