#include "brigade/examples/gpt/text_batch.h"

#include <cstring>
#include <iterator>

namespace brigade::gpt {

train::BatchShape BatchShapeOf(const PassShape& shape) {
  return {.samples = shape.batch,
          .bytes = shape.batch * (shape.positions() + std::ssize(shape.runs())),
          .losses = shape.rows()};
}

void WriteText(const PassShape& shape, const char* whole, uint8_t* sample) {
  for (const parallel::PositionRun& run : shape.runs()) {
    const auto bytes = static_cast<size_t>(run.count + 1);
    std::memcpy(sample, whole + run.global, bytes);
    sample += bytes;
  }
}

nn::Texts TextsOf(const PassShape& shape, const train::StepBatch& batch, int64_t micro_batch) {
  return {batch.samples_of(micro_batch), shape.batch, shape.positions(), std::ssize(shape.runs())};
}

}  // namespace brigade::gpt
