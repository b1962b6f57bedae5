// Where rank 5 of a grid is.
#include <cstdio>

#include "brigade/parallel/grid.h"

int main() {
  const brigade::parallel::GridShape shape = {.tensor = 2, .data = 2, .pipeline = 2};
  const brigade::parallel::Coordinates rank_5 = {.tensor = 1, .data = 0, .pipeline = 1};
  std::printf("%s\n", brigade::parallel::ToString(shape).c_str());
  return brigade::parallel::CoordinatesOf(shape, 5) == rank_5 ? 0 : 1;
}
