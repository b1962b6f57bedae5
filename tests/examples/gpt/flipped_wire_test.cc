// One bit flips on a wire of the GPT's training.

#include "brigade/tests/train/flipped_wire.h"

#include "brigade/examples/gpt/task.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using train::WireEngine;

Job OfStage(int stage) {
  return JobOf({.data = train::kWireRanks}, /*shards=*/4, stage, "bf16",
               R"("optimizer": {"type": "SGD", "params": {"lr": 0.5}},
                  "communication_data_type": "fp32")");
}

TEST(FlippedWireTest, OfAGptIsNamedOnThreadsAndInMessages) {
  const Job job = OfStage(0);
  train::ExpectWireFlipsAreNamed(OfStage, Task(job), {WireEngine::kThreads, WireEngine::kMessages});
}

TEST(FlippedWireTest, OfAGptIsNamedOverGloo) {
  const Job job = OfStage(0);
  train::ExpectWireFlipsAreNamed(OfStage, Task(job), {WireEngine::kGloo});
}

}  // namespace
}  // namespace brigade::gpt
