#include "brigade/kernels/simd.h"

#include <algorithm>
#include <atomic>

#include "hwy/targets.h"

namespace brigade::kernels {
namespace {

// Highway's own kernels and RunSimd follow the same choice, and Highway knows best what a processor
// and its operating system support.
int64_t HighwayTargets(SimdTarget target) {
  const int64_t avx512 = HWY_AVX3 | HWY_AVX3_DL;
  switch (target) {
    case SimdTarget::kAvx512:
      return avx512 | HWY_AVX2 | HWY_SCALAR;
    case SimdTarget::kAvx2:
      return HWY_AVX2 | HWY_SCALAR;
    case SimdTarget::kBaseline:
      break;
  }
  return HWY_SCALAR;
}

SimdTarget Detect() {
  const int64_t supported = hwy::SupportedTargets();
  if ((supported & (HWY_AVX3 | HWY_AVX3_DL)) != 0) return SimdTarget::kAvx512;
  if ((supported & HWY_AVX2) != 0) return SimdTarget::kAvx2;
  return SimdTarget::kBaseline;
}

std::atomic<SimdTarget>& Current() {
  static std::atomic<SimdTarget> current(BestSimdTarget());
  return current;
}

}  // namespace

SimdTarget BestSimdTarget() {
  static const SimdTarget best = Detect();
  return best;
}

SimdTarget CurrentSimdTarget() { return Current().load(std::memory_order_relaxed); }

void SetSimdTarget(SimdTarget target) {
  target = std::min(target, BestSimdTarget());
  Current().store(target, std::memory_order_relaxed);
  // 0 lifts Highway's restriction; elsewhere than on x86-64 there is nothing to restrict.
  hwy::SetSupportedTargetsForTest(target == BestSimdTarget() ? 0 : HighwayTargets(target));
}

bool SimdMultipliesBFloat16() {
#ifdef __x86_64__
  // Highway's targets do not tell.
  static const bool supported = __builtin_cpu_supports("avx512bf16");
  return supported && CurrentSimdTarget() == SimdTarget::kAvx512;
#else
  return false;
#endif
}

}  // namespace brigade::kernels
