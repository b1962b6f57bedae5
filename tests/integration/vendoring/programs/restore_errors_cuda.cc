#include "brigade/collectives/compressed/restore_errors_cuda.h"

#include <cstdint>

#include "brigade/tests/integration/vendoring/programs/program.h"

using namespace brigade::collectives;
using namespace brigade::vendored;

int main() {
  struct Memory {
    float saved[3], error[3];
    int32_t skip;
  };
  const OnDevice<Memory> memory({{1, 2, 3}, {4, 5, 6}, 1});
  ErrorExchange exchange;
  Check(LaunchRestoreErrors(exchange, memory->saved, memory->error, 3, nullptr));
  Expect(memory.Read().error[2] == 6, "an exchange that counts changes no error");
  exchange.skip = &memory->skip;
  Check(LaunchRestoreErrors(exchange, memory->saved, memory->error, 2, nullptr));
  const Memory after = memory.Read();
  Expect(after.error[0] == 1 && after.error[1] == 2, "errors are as saved");
  Expect(after.error[2] == 6, "what is behind the size stays");
}
