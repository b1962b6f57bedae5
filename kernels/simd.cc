#include "brigade/kernels/simd.h"

#include <algorithm>
#include <atomic>

#ifdef __x86_64__
#include <cpuid.h>
#endif
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

namespace brigade::kernels {
namespace {

#ifdef __x86_64__
// What x86-64-v3 has beside what the compilers' __builtin_cpu_supports knows by name, in clang 14
// as well. Instructions on ordinary registers, or on vectors that AVX2 has: the operating system
// need not agree.
bool HasRestOfV3() {
  unsigned a, b, c, d;
  constexpr unsigned kMovbe = 1u << 22, kF16c = 1u << 29, kLzcnt = 1u << 5;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kMovbe) == 0 || (c & kF16c) == 0) return false;
  return __get_cpuid(0x80000001u, &a, &b, &c, &d) != 0 && (c & kLzcnt) != 0;
}
#endif

SimdTarget Detect() {
#ifdef __x86_64__
  // These ask for the operating system's support, too.
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") && HasRestOfV3();
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4) return SimdTarget::kAvx512;
  if (v3) return SimdTarget::kAvx2;
#endif
#ifdef __aarch64__
  constexpr unsigned long kSve = 1ul << 22;  // HWCAP_SVE of the kernel's asm/hwcap.h
  if ((getauxval(AT_HWCAP) & kSve) != 0) return SimdTarget::kSve;
#endif
  return SimdTarget::kBaseline;
}

std::atomic<SimdTarget>& Current() {
  static std::atomic<SimdTarget> current(BestSimdTarget());
  return current;
}

std::atomic<bool> may_look_up_bytes = true;

}  // namespace

SimdTarget BestSimdTarget() {
  static const SimdTarget best = Detect();
  return best;
}

SimdTarget CurrentSimdTarget() { return Current().load(std::memory_order_relaxed); }

void SetSimdTarget(SimdTarget target) {
  target = std::min(target, BestSimdTarget());
  // Of another processor.
  if (target == SimdTarget::kSve && BestSimdTarget() > target) target = SimdTarget::kBaseline;
  Current().store(target, std::memory_order_relaxed);
}

bool SimdMultipliesBFloat16() {
#ifdef __x86_64__
  static const bool supported = __builtin_cpu_supports("avx512bf16");
  return supported && CurrentSimdTarget() == SimdTarget::kAvx512;
#else
  return false;
#endif
}

bool SimdLooksUpBytes() {
#ifdef __x86_64__
  static const bool supported = __builtin_cpu_supports("avx512vbmi");
  return supported && CurrentSimdTarget() == SimdTarget::kAvx512 &&
         may_look_up_bytes.load(std::memory_order_relaxed);
#else
  return false;
#endif
}

void SetSimdLooksUpBytes(bool allowed) {
  may_look_up_bytes.store(allowed, std::memory_order_relaxed);
}

}  // namespace brigade::kernels
