#ifndef BRIGADE_PRECISION_ROUNDING_H_
#define BRIGADE_PRECISION_ROUNDING_H_

// Arithmetic that rounds to nearest even exactly where it is written, on the CPU and on the GPU:
// the alphabet of every formula in kernels/. A product and a sum are fused only by `Fma`.
//
// The host side holds under -ffp-contract=off, which Bazel's macros set and CMake's targets hand on
// to their users, and in the default floating-point environment (a thread that flushes subnormals
// to zero loses them). The device side holds under any flag of nvcc but -ftz=true, with which no
// file that includes this compiles.

// -ffast-math, and the options that it is made of as far as a compiler tells of them; clang does of
// -ffinite-math-only alone, with which nothing ever overflows.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#error "the formulas need IEEE arithmetic: compile without -ffast-math and what it is made of"
// Stops the compiler, as #error does not.
#include <the error above says why>
#endif

#include "brigade/precision/host_device.h"

namespace brigade::precision {

#ifdef __CUDA_ARCH__

// No macro tells of -ftz=true, which --use_fast_math implies, but nvcc puts a constant in the place
// of this call, for libdevice as for us. Then either nothing is left of the branch, or it leads to
// a label that is nowhere, and ptxas ends:
// "Unknown symbol 'compile_without_use_fast_math_and_ftz'".
extern "C" __device__ int __nvvm_reflect(const char* name);
// In each file that includes this, whatever it computes with; ptxas drops it.
__attribute__((used)) static __device__ void RequireIeee() {
  if (__nvvm_reflect("__CUDA_FTZ") != 0) {
    asm volatile("bra compile_without_use_fast_math_and_ftz;");
  }
}

__device__ inline float Add(float a, float b) { return __fadd_rn(a, b); }
__device__ inline float Sub(float a, float b) { return __fsub_rn(a, b); }
__device__ inline float Mul(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float Div(float a, float b) { return __fdiv_rn(a, b); }
__device__ inline float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline float Sqrt(float a) { return __fsqrt_rn(a); }
__device__ inline double Add(double a, double b) { return __dadd_rn(a, b); }
__device__ inline double Sub(double a, double b) { return __dsub_rn(a, b); }
__device__ inline double Mul(double a, double b) { return __dmul_rn(a, b); }
__device__ inline double Div(double a, double b) { return __ddiv_rn(a, b); }
__device__ inline double Fma(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ inline double Sqrt(double a) { return __dsqrt_rn(a); }

#else

template <typename T>
BRIGADE_INLINE T Add(T a, T b) {
  return a + b;
}
template <typename T>
BRIGADE_INLINE T Sub(T a, T b) {
  return a - b;
}
template <typename T>
BRIGADE_INLINE T Mul(T a, T b) {
  return a * b;
}
template <typename T>
BRIGADE_INLINE T Div(T a, T b) {
  return a / b;
}
BRIGADE_INLINE float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
BRIGADE_INLINE double Fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
BRIGADE_INLINE float Sqrt(float a) { return __builtin_sqrtf(a); }
BRIGADE_INLINE double Sqrt(double a) { return __builtin_sqrt(a); }

#endif

}  // namespace brigade::precision

#endif  // BRIGADE_PRECISION_ROUNDING_H_
