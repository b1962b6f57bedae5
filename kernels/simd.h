#ifndef BRIGADE_KERNELS_SIMD_H_
#define BRIGADE_KERNELS_SIMD_H_

// Runs one loop body, compiled for several instruction sets, on the best that the processor has.
//
// The body is a plain loop that the compiler vectorises. It is inlined into one function per
// instruction set; which one runs does not change any bit of the result, because the formulas round
// explicitly (precision/rounding.h). The body must be an always-inline callable, or it would keep
// the baseline's instructions: write `[&](...) BRIGADE_SIMD_BODY { ... }`.

namespace brigade::kernels {

#define BRIGADE_SIMD_BODY __attribute__((always_inline))

// Stands before a loop whose iterations do not depend on each other, for the vectoriser, which
// cannot know that its arrays do not overlap. clang is told how many iterations to interleave: by
// itself it takes 4 or 1, which made loops with conversions up to 15 % slower than g++'s.
#ifdef __clang__
#define BRIGADE_SIMD_LOOP _Pragma("clang loop vectorize(assume_safety) interleave_count(2)")
#else
#define BRIGADE_SIMD_LOOP _Pragma("GCC ivdep")
#endif

// The same of a loop over floats whose sums are doubles. By itself clang takes as many elements as
// there are doubles in a register, which makes two divisions and roots of half a register out of
// each: they take as long as whole ones (a loop of five for each element 1.7 times).
#if defined(__clang__) && defined(__x86_64__)
#define BRIGADE_SIMD_LOOP_TO_DOUBLES \
  _Pragma("clang loop vectorize(assume_safety) vectorize_width(16) interleave_count(1)")
#else
#define BRIGADE_SIMD_LOOP_TO_DOUBLES BRIGADE_SIMD_LOOP
#endif

// In ascending order of capability. kBaseline is what the compiler takes every processor to have:
// SSE2 on x86-64, NEON on 64-bit Arm, which may have kSve as well. The others are x86-64's.
enum class SimdTarget { kBaseline, kSve, kAvx2, kAvx512 };

// The best target of this processor, or the one set by SetSimdTarget.
SimdTarget CurrentSimdTarget();

// The best target of this processor.
SimdTarget BestSimdTarget();

// For tests and comparisons: from now on use `target`, or the best one if the processor lacks it.
// Not synchronised with kernels in flight: those finish with either.
void SetSimdTarget(SimdTarget target);

// Whether kAvx512 is in use and the processor has AVX512_BF16 as well, which multiplies pairs of
// bfloat16.
bool SimdMultipliesBFloat16();

// Whether kAvx512 is in use and the processor has AVX512_VBMI as well, which looks up bytes in
// tables of registers.
bool SimdLooksUpBytes();

// For tests: whether SimdLooksUpBytes may be true.
void SetSimdLooksUpBytes(bool allowed);

namespace simd_internal {

template <typename Body>
__attribute__((noinline)) void RunBaseline(const Body& body) {
  body();
}

#ifdef __x86_64__
template <typename Body>
__attribute__((noinline, target("arch=x86-64-v3"))) void RunAvx2(const Body& body) {
  body();
}

// Compilers prefer 256-bit vectors for x86-64-v4; the kernels are written for whole lines. g++ has
// an option for that; clang prefers whole lines where the same instructions are named one by one.
#ifdef __clang__
#define BRIGADE_TARGET_AVX512 \
  "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe"
#else
#define BRIGADE_TARGET_AVX512 "arch=x86-64-v4,prefer-vector-width=512"
#endif
template <typename Body>
__attribute__((noinline, target(BRIGADE_TARGET_AVX512))) void RunAvx512(const Body& body) {
  body();
}
#undef BRIGADE_TARGET_AVX512
#endif

#ifdef __aarch64__
#ifdef __clang__
#define BRIGADE_TARGET_SVE "sve"
#else
#define BRIGADE_TARGET_SVE "+sve"
#endif
template <typename Body>
__attribute__((noinline, target(BRIGADE_TARGET_SVE))) void RunSve(const Body& body) {
  body();
}
#undef BRIGADE_TARGET_SVE
#endif

}  // namespace simd_internal

// A target as a type.
template <SimdTarget kTarget>
struct SimdTag {
  static constexpr SimdTarget kValue = kTarget;
};

// The same for a body whose types depend on the instruction set: calls body(SimdTag<target>()).
template <typename Body>
void RunSimdWithTag(const Body& body) {
#ifdef __x86_64__
  switch (CurrentSimdTarget()) {
    case SimdTarget::kAvx512:
      return simd_internal::RunAvx512(
          [&]() BRIGADE_SIMD_BODY { body(SimdTag<SimdTarget::kAvx512>()); });
    case SimdTarget::kAvx2:
      return simd_internal::RunAvx2([&]()
                                        BRIGADE_SIMD_BODY { body(SimdTag<SimdTarget::kAvx2>()); });
    case SimdTarget::kSve:
    case SimdTarget::kBaseline:
      break;
  }
#endif
#ifdef __aarch64__
  if (CurrentSimdTarget() == SimdTarget::kSve) {
    return simd_internal::RunSve([&]() BRIGADE_SIMD_BODY { body(SimdTag<SimdTarget::kSve>()); });
  }
#endif
  simd_internal::RunBaseline([&]() BRIGADE_SIMD_BODY { body(SimdTag<SimdTarget::kBaseline>()); });
}

template <typename Body>
void RunSimd(const Body& body) {
  RunSimdWithTag([&](auto) BRIGADE_SIMD_BODY { body(); });
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SIMD_H_
