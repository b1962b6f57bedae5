#ifndef BRIGADE_DEVICE_REQUIREMENTS_H_
#define BRIGADE_DEVICE_REQUIREMENTS_H_

// What headers need that are not C++17, and formats of files and messages: included for its errors.
// Kernels that are compiled without device/ have their own in precision/host_device.h.

#if __cplusplus < 202002L
#error "Brigade needs C++20: build --cxxopt=-std=c++20 in your .bazelrc"
// Stops the compiler, as #error does not.
#include <the error above says why>
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Brigade is for little-endian processors: it writes and sends numbers as they are in memory"
#include <the error above says why>
#endif

#endif  // BRIGADE_DEVICE_REQUIREMENTS_H_
