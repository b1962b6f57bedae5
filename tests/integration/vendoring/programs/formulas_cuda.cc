#include <cstddef>
#include <cstdint>

#include "brigade/nn/embedding_math.h"
#include "brigade/nn/pointwise_math.h"
#include "brigade/nn/rows.h"
#include "brigade/nn/token_order.h"
#include "brigade/tests/integration/vendoring/programs/program.h"

using namespace brigade::nn;
using namespace brigade::vendored;

constexpr int64_t kRows = 2, kColumns = 3;

// The rows of a batch by their tokens.
void OrderRows() {
  constexpr int64_t kTokens = 4, kVocabulary = 3;
  struct Memory {
    int64_t first_row[kVocabulary + 1];
    int32_t ids[kTokens + 1];
    uint32_t rows[kTokens], own_rows[kTokens];
    uint8_t keys[kTokens], sorted_keys[kTokens];
  };
  const OnDevice<Memory> memory({{}, {2, 0, 2, 1, 0}, {}, {}, {}, {}});
  size_t bytes = 0;
  Check(SortTemporaryBytes(kTokens, bytes));
  void* temporary = nullptr;
  Check(cudaMalloc(&temporary, bytes));
  Check(LaunchOrderTokens(TokenIds(memory->ids, 1, kTokens, kVocabulary),
                          {memory->rows, memory->first_row, kVocabulary},
                          {memory->keys, memory->sorted_keys, memory->own_rows, temporary, bytes},
                          nullptr));
  const Memory after = memory.Read();
  const uint32_t* const rows = after.rows;
  Expect(rows[0] == 1 && rows[1] == 3 && rows[2] == 0 && rows[3] == 2, "rows in order");
  Expect(after.first_row[2] == 2 && after.first_row[3] == 4, "where a token's rows begin");
}

int main() {
  struct Memory {
    float x[kRows * kColumns], y[kRows * kColumns], sum[kColumns], positions[kColumns];
    float partials[kColumns];
  };
  const OnDevice<Memory> memory({{1, -2, 3, 4, 5, -6}, {}, {}, {}, {}});
  Check(LaunchRows(ReluRows<float>{memory->x, memory->y, kColumns}, kRows, nullptr));
  Check(LaunchParts(SumOfRows<float>{memory->x, memory->sum, false, kRows, kColumns, kColumns}, 1,
                    kColumns, PartsOf(kRows), memory->partials, nullptr));
  // A context of one position.
  Check(LaunchColumns(
      PositionGradient<float>{memory->x, memory->positions, false, kRows, 1, kColumns}, 1, kColumns,
      nullptr));
  const Memory after = memory.Read();
  Expect(after.y[0] == 1 && after.y[1] == 0 && after.y[4] == 5 && after.y[5] == 0, "positive ones");
  Expect(after.sum[0] == 5 && after.sum[1] == 3 && after.sum[2] == -3, "sums of columns");
  Expect(after.positions[0] == 5 && after.positions[2] == -3, "a position's gradient");
  OrderRows();
}
