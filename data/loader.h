#ifndef BRIGADE_DATA_LOADER_H_
#define BRIGADE_DATA_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/data/prefetcher.h"
#include "brigade/data/sampler.h"
#include "brigade/data/samples.h"
#include "brigade/device/requirements.h"

namespace brigade::data {

struct LoaderOptions {
  // Samples of a step on all ranks: micro_batch * ranks * micro-batches.
  int64_t batch = 1;
  DataRank rank = {};
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;
  // 0: without end.
  int64_t epochs = 1;
  // Steps that are made ahead.
  int ahead = 2;
};

// A rank's data of one step.
struct StepData {
  // Where the step begins, and where the next one does: the state to save with what this step has
  // trained.
  DataPosition begin, next;
  // Samples of the step, of all ranks.
  int64_t samples = 0;
  // The losses that count in them: what the sum of all ranks' losses is divided by. A mean over all
  // that count in a step, however they are spread over ranks and micro-batches.
  int64_t counted = 0;
  // Of this step, the same on all ranks; a short step has fewer than others.
  int64_t micro_batches = 0;

  // One micro-batch of this rank.
  struct MicroBatch {
    // LoaderOptions::rank.micro_batch, but less in a short step's last one; 0: it is of other ranks
    // alone.
    int64_t samples = 0;
    // The losses that count.
    int64_t counted = 0;
    // [samples, Samples::input_bytes()] and [samples, Samples::target_bytes()].
    const std::byte* inputs = nullptr;
    const std::byte* targets = nullptr;
  };
  // [micro_batches].
  std::vector<MicroBatch> of;

  // Where they are.
  std::vector<std::byte> memory;
};

// The data of a rank's training, step by step, made ahead on a thread.
//
// Memory       ahead + 1 steps.
// Host waits   As of Prefetcher: none where reading keeps up.
// Errors       Those of the samples, from Next, in the place of the step that they are of.
// Threads      One at a time.
class Loader {
 public:
  // From `from` on, with which any number of ranks may resume. The samples must not change.
  // InvalidArgument naming the option: a batch that is no multiple of ranks times micro_batch, a
  // rank that is none, or what Sampler::Create and Check refuse.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(std::shared_ptr<const Samples> samples,
                                                        const LoaderOptions& options,
                                                        DataPosition from = {});

  // The next step, the caller's until the next call; null behind the last epoch.
  absl::StatusOr<const StepData*> Next() { return steps_->Next(); }

  const Sampler& sampler() const { return sampler_; }
  // How often Next had to wait.
  int64_t waits() const { return steps_->waits(); }

 private:
  explicit Loader(const Sampler& sampler) : sampler_(sampler) {}

  const Sampler sampler_;
  std::unique_ptr<Prefetcher<StepData>> steps_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_LOADER_H_
