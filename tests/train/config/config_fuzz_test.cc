// A config of any bytes: what is read is valid, or the error says something. Reaches the parser of
// JSON, the reader of its table of keys, and the rules between keys.

#include <string>

#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/tests/fuzzing/checks.h"
#include "brigade/train/config/config.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/batch_sizes.h"

namespace brigade::train {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int kRanks = 4;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<TrainConfig> config = ParseConfig(text, kRanks, "/no_folder");
  if (!config.ok()) {
    // A line for each refusal, up to 100, one before them and one behind.
    testing::CheckError(config.status(), /*most_lines=*/102);
    return 0;
  }
  const zero::BatchSizes& batch = config->batch;
  FUZZ_CHECK(zero::Validate(config->zero).ok());
  FUZZ_CHECK(config->grid.ranks() == kRanks);
  FUZZ_CHECK(parallel::Validate(config->pipeline_shape()).ok());
  const auto completed = zero::CompleteBatchSizes(batch, config->grid.data);
  FUZZ_CHECK(completed.ok() && *completed == batch);
  FUZZ_CHECK(config->zero.micro_batches == batch.gradient_accumulation_steps);
  return 0;
}

}  // namespace brigade::train
