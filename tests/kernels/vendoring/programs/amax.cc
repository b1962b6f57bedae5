#include "brigade/kernels/amax/amax_math.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/amax/amax_cuda.h"
#else
#include "brigade/kernels/amax/amax_cpu.h"
#endif

namespace brigade::vendored {

void RunAmax() {
  Array<float> array(Values<float>(kSize, 1));
  Array<float> scale({3.0f});
  Array<kernels::AmaxResult> result(std::vector<kernels::AmaxResult>(1));
#ifdef ON_CUDA
  Array<kernels::AmaxWorkspace> workspace(std::vector<kernels::AmaxWorkspace>(1));
  Check(kernels::LaunchAmax(array.data(), kSize, scale.data(), workspace.data(), result.data(),
                            nullptr));
#else
  const int32_t first = kernels::AmaxRange(array.data(), *scale.data(), 0, 1024);
  const int32_t second = kernels::AmaxRange(array.data(), *scale.data(), 1024, kSize);
  *result.data() = kernels::AmaxOf(kernels::LargerBits(first, second));
#endif
  result.Print("amax result");
}

}  // namespace brigade::vendored
