#ifndef BRIGADE_PRECISION_HOST_DEVICE_H_
#define BRIGADE_PRECISION_HOST_DEVICE_H_

#if __cplusplus < 201703L
#error "this code needs C++17: compile with -std=c++17 or newer"
// Stops the compiler, as #error does not.
#include <the error above says why>
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Brigade is for little-endian processors: it writes and sends numbers as they are in memory"
#include <the error above says why>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "this code needs compute capability 8.0 or newer: -arch=sm_80 (CMAKE_CUDA_ARCHITECTURES)"
#include <the error above says why>
#endif

// Marks a function that nvcc compiles for the GPU as well; nothing under a host compiler.
#ifdef __CUDACC__
#define BRIGADE_HOST_DEVICE __host__ __device__
#else
#define BRIGADE_HOST_DEVICE
#endif

// A function that must melt into its caller: formulas inside SIMD loops, whose instruction set is
// the caller's.
#define BRIGADE_INLINE BRIGADE_HOST_DEVICE inline __attribute__((always_inline))

#endif  // BRIGADE_PRECISION_HOST_DEVICE_H_
