#include "brigade/collectives/compressed/sparse_mean_cuda.h"

#include <cstdint>

#include "brigade/tests/integration/vendoring/programs/program.h"

using namespace brigade::collectives;
using namespace brigade::vendored;

int main() {
  struct Message {
    int32_t indices[2];
    float values[2];
  };
  struct Memory {
    Message messages[2];
    float mean[4];
    int32_t non_finite;
  };
  const OnDevice<Memory> memory({{{{0, 3}, {1, 2}}, {{1, 3}, {4, 8}}}, {9, 9, 9, 9}, 0});
  SparseMessages messages;
  messages.data = memory->messages[0].indices;
  messages.ranks = 2;
  messages.k = 2;
  Check(LaunchSparseMean(messages, 0.5f, memory->mean, 4, &memory->non_finite, nullptr));
  const Memory after = memory.Read();
  const float* const mean = after.mean;
  Expect(mean[0] == 0.5f && mean[1] == 2 && mean[2] == 0 && mean[3] == 5, "the mean");
  Expect(after.non_finite == 0, "all are finite");
}
