#include "brigade/nn/attention_cuda.h"

#include <cmath>
#include <cstdint>

#include "brigade/precision/float16.h"
#include "brigade/tests/integration/vendoring/programs/program.h"

using namespace brigade::nn;
using namespace brigade::vendored;
using brigade::precision::Half;

constexpr int64_t kContext = 3, kWidth = 32;

struct Memory {
  // Queries, keys and values side by side.
  alignas(kTiledAttentionAlignment) Half qkv[kContext][3][kWidth];
  alignas(kTiledAttentionAlignment) Half out[kContext][kWidth];
  alignas(kTiledAttentionAlignment) Half dout[kContext][kWidth];
  alignas(kTiledAttentionAlignment) Half dqkv[kContext][3][kWidth];
  float log_sum_exp[kContext], delta[kContext];
};

int main() {
  // With queries of 0 a position takes the mean of the values up to its own: 1, 2, 3.
  static Memory start = {};
  for (int64_t i = 0; i < kContext; ++i) {
    for (int64_t j = 0; j < kWidth; ++j) {
      start.qkv[i][2][j] = Half(static_cast<float>(1 + 2 * i));
      start.dout[i][j] = Half(i == 0 ? 1.0f : 0.0f);
    }
  }
  const OnDevice<Memory> memory(start);
  TiledAttentionShape shape;
  shape.batch = shape.heads = 1;
  shape.context = kContext;
  shape.head_width = kWidth;
  Check(
      LaunchTiledAttention(shape, memory->qkv[0][0], memory->out[0], memory->log_sum_exp, nullptr));
  Check(LaunchTiledAttentionBackward(shape, memory->qkv[0][0], memory->out[0], memory->log_sum_exp,
                                     memory->dout[0], memory->delta, memory->dqkv[0][0], nullptr));
  static Memory after;
  after = memory.Read();
  for (int64_t i = 0; i < kContext; ++i) {
    const float mean = static_cast<float>(1 + i);
    for (int64_t j = 0; j < kWidth; ++j) {
      Expect(std::abs(static_cast<float>(after.out[i][j]) - mean) < 0.01f, "the mean");
      Expect(static_cast<float>(after.dqkv[i][2][j]) == (i == 0 ? 1.0f : 0.0f),
             "the first value alone has a gradient");
    }
    Expect(std::abs(after.log_sum_exp[i] - std::log(mean)) < 1e-5f, "the sum of exponentials");
  }
}
