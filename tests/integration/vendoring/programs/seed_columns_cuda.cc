#include "brigade/collectives/compressed/seed_columns_cuda.h"

#include <cstdint>

#include "brigade/tests/integration/vendoring/programs/program.h"

using namespace brigade::collectives;
using namespace brigade::vendored;

int main() {
  struct Memory {
    int64_t begins[3];
    float data[4];
  };
  const OnDevice<Memory> memory({{0, 2, 4}, {0, 5, 0, 0}});
  ColumnList columns;
  columns.data = memory->data;
  columns.begins = memory->begins;
  columns.count = 2;
  Check(LaunchSeedColumns(columns, nullptr));
  const Memory after = memory.Read();
  Expect(after.data[0] == 0 && after.data[1] == 5, "a column with a direction keeps it");
  Expect(after.data[2] == ColumnSeed(1, 0) && after.data[3] == ColumnSeed(1, 1),
         "a column of zeros has the formula's");
}
