#include "brigade/data/sampler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/data/permutation.h"

namespace brigade::data {

absl::StatusOr<Sampler> Sampler::Create(const SamplerOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 62;
  if (options.samples < 1 || options.samples > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data set has ", options.samples, " samples; it needs at least one"));
  }
  if (options.batch < 1 || options.batch > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", options.batch, " samples; it needs at least one"));
  }
  if (options.drop_last && options.batch > options.samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data set has ", options.samples, " samples, fewer than a batch of ",
                     options.batch, ", and with drop_last an epoch is of whole batches"));
  }
  return Sampler(options);
}

int64_t Sampler::Taken() const {
  return options_.drop_last ? options_.samples / options_.batch * options_.batch : options_.samples;
}

int64_t Sampler::StepsPerEpoch() const {
  return Taken() / options_.batch + (Taken() % options_.batch != 0 ? 1 : 0);
}

DataPosition Sampler::AtStep(int64_t step) const {
  const int64_t steps = StepsPerEpoch();
  return {step / steps, step % steps * options_.batch};
}

DataPosition Sampler::Begin(DataPosition position) const {
  // With drop_last and another batch before, what is left may be less than a batch.
  const int64_t left = options_.samples - position.sample;
  const bool is_over = options_.drop_last ? left < options_.batch : left <= 0;
  return is_over ? DataPosition{position.epoch + 1, 0} : position;
}

int64_t Sampler::StepSize(DataPosition position) const {
  return std::min(options_.batch, options_.samples - Begin(position).sample);
}

DataPosition Sampler::After(DataPosition position) const {
  const DataPosition begin = Begin(position);
  return Begin({begin.epoch, begin.sample + StepSize(begin)});
}

absl::Status Sampler::Check(DataPosition position) const {
  if (position.epoch >= 0 && position.sample >= 0 && position.sample <= options_.samples) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "sample ", position.sample, " of epoch ", position.epoch, " is no position in a data set of ",
      options_.samples, " samples: it is that of another one"));
}

std::vector<int64_t> Sampler::Samples(DataPosition position) const {
  const DataPosition begin = Begin(position);
  const Permutation order(options_.samples, options_.seed, static_cast<uint64_t>(begin.epoch));
  std::vector<int64_t> samples(static_cast<size_t>(StepSize(begin)));
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t place = begin.sample + static_cast<int64_t>(i);
    samples[i] = options_.shuffle ? order.At(place) : place;
  }
  return samples;
}

int64_t Sampler::MicroBatches(DataPosition position, const DataRank& rank) const {
  const int64_t of_all = rank.micro_batch * rank.ranks;
  return (StepSize(position) + of_all - 1) / of_all;
}

std::vector<int64_t> Sampler::Samples(DataPosition position, const DataRank& rank) const {
  const std::vector<int64_t> all = Samples(position);
  const int64_t micro_batches = MicroBatches(position, rank);
  std::vector<int64_t> mine(static_cast<size_t>(micro_batches * rank.micro_batch), kNone);
  for (int64_t m = 0; m < micro_batches; ++m) {
    const int64_t first = (m * rank.ranks + rank.rank) * rank.micro_batch;
    for (int64_t i = 0; i < rank.micro_batch; ++i) {
      if (first + i >= static_cast<int64_t>(all.size())) break;
      mine[static_cast<size_t>(m * rank.micro_batch + i)] = all[static_cast<size_t>(first + i)];
    }
  }
  return mine;
}

}  // namespace brigade::data
