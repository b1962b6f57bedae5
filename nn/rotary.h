#ifndef BRIGADE_NN_ROTARY_H_
#define BRIGADE_NN_ROTARY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/nn/segments.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// How a model that was trained with short contexts is used with longer ones, as Llama 3 has it: a
// frequency f of a wave of at most original_positions / high_frequency_factor positions stays, one
// of at least original_positions / low_frequency_factor becomes f / factor, and what is between is
// between. With both factors 0 every frequency becomes f / factor.
//
// Source       Grattafiori et al. 2024 (arXiv 2407.21783); transformers, modeling_rope_utils.py.
struct RotaryScaling {
  double factor = 1;
  double low_frequency_factor = 0;
  double high_frequency_factor = 0;
  double original_positions = 0;
};

// The cosine and the sine of position * frequency_i, frequency_i = base^(-2 i / head_width), for
// each position and each i in [0, head_width / 2): shared by all layers of a model.
//
// Precision    Computed in double on the host and rounded once, to float, or not at all for
//              float64: every device of one machine has the same bits.
// Memory       positions * head_width numbers, scratch, at Create.
class RotaryTable {
 public:
  struct Options {
    // Of the layers that use it.
    precision::DType dtype = precision::DType::kFloat32;
    int64_t positions = 0;
    // Even.
    int64_t head_width = 0;
    double base = 10000;
    // Of the frequencies.
    std::optional<RotaryScaling> scaling = std::nullopt;
    // Which position each row of the table is of, [positions], where these are some of a text's;
    // empty: its number.
    std::vector<int64_t> rows = {};
  };

  // Waits for the copy to the device. InvalidArgument naming the option.
  static absl::StatusOr<RotaryTable> Create(device::Context& context, const Options& options);
  // Of the scratch.
  static int64_t Bytes(const Options& options);

  const Options& options() const { return options_; }
  // [positions, 2, head_width / 2], device memory: cosines, then sines.
  const device::Buffer& memory() const { return memory_; }

 private:
  Options options_;
  device::Buffer memory_;
};

// A matrix of queries and keys in rows, [batch * context, columns].
struct RotaryShape {
  precision::DType dtype;
  int64_t batch;
  int64_t context;
  // That are rotated, side by side from the beginning of each row: of queries and of keys.
  int64_t heads;
  // From one row to the next: 3 * width where values follow.
  int64_t columns;
  // Of the first row of each sequence.
  int64_t first_position = 0;
  // Where a sequence has several, the first row of each has that position.
  Segments segments = {};
};

// Rotary position embedding, in place: turns each pair (x_i, x_j) of a head by the angle of its
// row's position. Pairs are halves, j = i + head_width / 2, as in GPT-NeoX and Llama; not
// neighbours, as in the paper and GPT-J, whose weights must be permuted.
//
// Precision    Formulas in float, double for float64; each element is rounded once.
// Traffic      2 * batch * context * heads * head_width elements.
// Stream       Enqueued; allocates nothing, never waits.
// Determinism  Same bits on every device.
// Errors       InvalidArgument for a table of another type or device or with too few positions, for
//              heads that are wider than a row, and naming what segments lack.
// Source       Su et al. 2021 (arXiv 2104.09864).
absl::Status Rotary(const RotaryShape& shape, const RotaryTable& table, void* x,
                    device::Stream& stream);

// In place: the gradient of what Rotary gave becomes that of what it was given, by the rotation
// back.
absl::Status RotaryBackward(const RotaryShape& shape, const RotaryTable& table, void* dx,
                            device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ROTARY_H_
