#include "brigade/optim/freeze_moment_cuda.h"

#include <limits>

#include "brigade/tests/integration/vendoring/programs/program.h"

using namespace brigade::optim;
using namespace brigade::vendored;

int main() {
  struct Memory {
    float moment[3];
  };
  const Memory start = {{0, 2, 0}};
  const OnDevice<Memory> memory(start);
  Check(LaunchFreezeMoment(memory->moment, 2, nullptr));
  const Memory after = memory.Read();
  Expect(after.moment[0] == std::numeric_limits<float>::infinity(), "0 becomes infinity");
  Expect(after.moment[1] == 2, "others stay");
  Expect(after.moment[2] == 0, "what is behind the size stays");
}
