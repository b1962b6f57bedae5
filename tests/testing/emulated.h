#ifndef BRIGADE_TESTS_TESTING_EMULATED_H_
#define BRIGADE_TESTS_TESTING_EMULATED_H_

#include <cstdlib>

namespace brigade::testing {

// Whether the GPU is the emulator, which takes a thousand times as long for an element: a test then
// takes smaller sizes, and no fewer cases. --config=emulated sets it.
inline bool IsEmulated() { return std::getenv("BRIGADE_EMULATED") != nullptr; }

// The size on a GPU, and the one on the emulator.
template <typename T>
T OnGpuOrEmulator(T gpu, T emulator) {
  return IsEmulated() ? emulator : gpu;
}

}  // namespace brigade::testing

#endif  // BRIGADE_TESTS_TESTING_EMULATED_H_
