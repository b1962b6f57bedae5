#ifndef BRIGADE_DATA_LOADER_H_
#define BRIGADE_DATA_LOADER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/data/dataset.h"
#include "brigade/data/prefetcher.h"
#include "brigade/data/sampler.h"
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
  // The labels that count in them: what the sum of all ranks' losses is divided by. A mean over the
  // tokens of a step, however they are spread over ranks and micro-batches.
  int64_t counted = 0;
  // Of this step, the same on all ranks; a short step has fewer than others.
  int64_t micro_batches = 0;
  // Of this rank's micro-batches, the labels that count. 0: nothing of it weighs.
  std::vector<int64_t> counted_of;

  // All micro-batches, [micro_batches, micro_batch, context], ids with context + 1: data::Row. A
  // sample that a short step lacks is padding. Memory is for the most that a step may have.
  std::vector<int32_t> ids, labels, positions, segments;

  int64_t micro_batch = 0;
  int64_t context = 0;
  // Of micro-batch m.
  absl::Span<const int32_t> ids_of(int64_t m) const { return Of(ids, m, context + 1); }
  absl::Span<const int32_t> labels_of(int64_t m) const { return Of(labels, m, context); }
  absl::Span<const int32_t> positions_of(int64_t m) const { return Of(positions, m, context); }
  absl::Span<const int32_t> segments_of(int64_t m) const { return Of(segments, m, context); }

 private:
  absl::Span<const int32_t> Of(const std::vector<int32_t>& all, int64_t m, int64_t width) const {
    const auto size = static_cast<size_t>(micro_batch * width);
    return absl::MakeConstSpan(all).subspan(static_cast<size_t>(m) * size, size);
  }
};

// The data of a rank's training, step by step, made ahead on a thread.
//
// Memory       ahead + 1 steps of 16 bytes a position.
// Host waits   As of Prefetcher: none where reading keeps up.
// Errors       Those of the data set, from Next, in the place of the step that they are of.
// Threads      One at a time.
class Loader {
 public:
  // From `from` on, with which any number of ranks may resume. The data set must not change.
  // InvalidArgument naming the option: a batch that is no multiple of ranks times micro_batch, a
  // rank that is none, or what Sampler::Create and Check refuse.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(std::shared_ptr<const Dataset> dataset,
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
