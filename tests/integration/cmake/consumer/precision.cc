// 0.1 rounded to 16 bits.
#include <cstdio>

#include "brigade/precision/dtype.h"
#include "brigade/precision/float16.h"

int main() {
  const float rounded = static_cast<float>(brigade::precision::Half(0.1f));
  std::printf("%.9g\n", rounded);
  const bool named = brigade::precision::Name(brigade::precision::DType::kBFloat16) == "bfloat16";
  return rounded == 0.0999755859375f && named ? 0 : 1;
}
