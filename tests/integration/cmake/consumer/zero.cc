// Bytes of a rank: stage 3 of 7.5e9 parameters on 64 ranks.
#include <cstdio>

#include "brigade/zero/plan/memory_model.h"

int main() {
  const double bytes = brigade::zero::PaperBytes(7.5e9, 64, 3);
  std::printf("%g\n", bytes);
  return bytes == 1.875e9 ? 0 : 1;
}
