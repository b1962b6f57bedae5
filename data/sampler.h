#ifndef BRIGADE_DATA_SAMPLER_H_
#define BRIGADE_DATA_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/requirements.h"

namespace brigade::data {

struct SamplerOptions {
  // Of the data set.
  int64_t samples = 0;
  // Samples of a step, of all ranks and micro-batches together.
  int64_t batch = 0;
  uint64_t seed = 0;
  // False: every epoch goes from the first sample to the last.
  bool shuffle = true;
  // The samples behind an epoch's last whole batch are left out of it; others in each epoch. False:
  // they are a short step.
  bool drop_last = false;
};

// How far a training has come in its data, which is all that a resume needs: the samples that it
// has taken of an epoch. The next step begins there, with any number of ranks and any batch.
struct DataPosition {
  int64_t epoch = 0;
  int64_t sample = 0;

  bool operator==(const DataPosition&) const = default;
};

// A rank of the data-parallel group, and how many samples it takes at once.
struct DataRank {
  int rank = 0;
  int ranks = 1;
  int64_t micro_batch = 1;
};

// Which samples a step takes, and which rank which of them: a function of seed, position and ranks,
// without a state. Any number of ranks takes the same samples in a step.
//
// A step's samples go in order to micro-batches, in each of these to ranks: sample number
// (m * ranks + r) * micro_batch + i of the step is the i-th of rank r in micro-batch m. So a short
// step has fewer micro-batches, and only its last one lacks samples.
class Sampler {
 public:
  // Stands for a sample that a short step lacks.
  static constexpr int64_t kNone = -1;

  // InvalidArgument naming the option: no samples, no batch, or with drop_last a batch that is
  // larger than the data set.
  static absl::StatusOr<Sampler> Create(const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }
  // With this batch, from an epoch's begin.
  int64_t StepsPerEpoch() const;
  // Where step `step` begins, from 0 on, if every step before had this batch.
  DataPosition AtStep(int64_t step) const;

  // Of a step that begins at a position: how many samples it takes, 1 to `batch`, and where the
  // next one begins. A position at the end of an epoch is the begin of the next one.
  DataPosition Begin(DataPosition position) const;
  int64_t StepSize(DataPosition position) const;
  DataPosition After(DataPosition position) const;
  // InvalidArgument for a position that this data set does not have: a checkpoint of another one.
  absl::Status Check(DataPosition position) const;

  // All samples of the step, in order.
  std::vector<int64_t> Samples(DataPosition position) const;
  // How many micro-batches the step has, the same on all ranks: at least 1.
  int64_t MicroBatches(DataPosition position, const DataRank& rank) const;
  // The rank's samples of the step, micro_batch for each micro-batch; kNone behind the last one.
  std::vector<int64_t> Samples(DataPosition position, const DataRank& rank) const;

 private:
  explicit Sampler(const SamplerOptions& options) : options_(options) {}

  // Samples that an epoch takes.
  int64_t Taken() const;

  SamplerOptions options_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_SAMPLER_H_
