#include "brigade/collectives/compressed/amax_scale_cuda.h"

#include "brigade/tests/integration/vendoring/programs/program.h"

using namespace brigade::collectives;
using namespace brigade::vendored;

int main() {
  struct Memory {
    float amax;
    AmaxScale result;
  };
  const OnDevice<Memory> memory({3.0f, {}});
  Check(LaunchAmaxScale(&memory->amax, /*terms=*/4, kHalfSumLimit, &memory->result, nullptr));
  const AmaxScale result = memory.Read().result;
  // 4 times 4 times 2^11 are 2^15.
  Expect(result.scale == 0x1p11f && result.unscale == 0x1p-11f, "the scale is 2^11");
}
