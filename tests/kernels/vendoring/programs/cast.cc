#include "brigade/kernels/cast/cast_math.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/cast/cast_cuda.h"
#else
#include "brigade/kernels/cast/cast_cpu.h"
#endif

namespace brigade::vendored {

using precision::BFloat16;

void RunCast() {
  Array<float> source(Values<float>(kSize, 1));
  Array<BFloat16> target(Values<BFloat16>(kSize, 2));
  Array<float> scale({0.75f});
  kernels::CastSegment segment = {};
  segment.source = source.data();
  segment.target = target.data();
  segment.size = kSize;
#ifdef ON_CUDA
  Check(kernels::LaunchCast<float, BFloat16>(&segment, 1, scale.data(), true, nullptr));
#else
  kernels::CastRange<float, BFloat16>(segment, scale.data(), /*accumulate=*/true,
                                      /*past_caches=*/false, 0, kSize);
#endif
  target.Print("cast target");
}

}  // namespace brigade::vendored
