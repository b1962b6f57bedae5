#ifndef BRIGADE_TESTS_KERNELS_TESTING_H_
#define BRIGADE_TESTS_KERNELS_TESTING_H_

// What the tests of kernels share: arrays with guarded ends at any alignment, inputs, comparison of
// bits, and the ways to run a kernel.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/kernels/simd.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/spec/formats.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::kernels {

// `size` elements that begin `offset` elements past a 64-byte boundary, between guards that must
// survive.
template <typename T>
class GuardedArray {
 public:
  GuardedArray(int64_t size, int64_t offset)
      : size_(size), bytes_((size + offset) * sizeof(T) + 3 * kGuard, kPattern) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuard;
    first_ =
        (begin + 63) / 64 * 64 - reinterpret_cast<uintptr_t>(bytes_.data()) + offset * sizeof(T);
    for (int64_t i = 0; i < size; ++i) data()[i] = T();
  }

  T* data() { return reinterpret_cast<T*>(bytes_.data() + first_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + first_); }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }

  bool GuardsAreIntact() const {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if (i == first_) i += size_ * sizeof(T);
      if (i < bytes_.size() && bytes_[i] != kPattern) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr unsigned char kPattern = 0xa5;

  int64_t size_;
  std::vector<unsigned char> bytes_;
  size_t first_;
};

template <typename T>
constexpr spec::Format kFormat = std::is_same_v<T, float>             ? spec::Format::kFloat32
                                 : std::is_same_v<T, precision::Half> ? spec::Format::kFloat16
                                                                      : spec::Format::kBFloat16;

// The same bits, or both NaN: payloads are not promised.
inline bool SameBits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Compares an array of any floating-point format with the specification's floats.
template <typename T>
::testing::AssertionResult Matches(const GuardedArray<T>& actual,
                                   const std::vector<float>& wanted) {
  if (!actual.GuardsAreIntact()) return ::testing::AssertionFailure() << "wrote past its ends";
  for (int64_t i = 0; i < actual.size(); ++i) {
    const float value = static_cast<float>(actual[i]);
    if (!SameBits(value, wanted[i])) {
      return ::testing::AssertionFailure() << "element " << i << " of " << actual.size() << " is "
                                           << value << ", not " << wanted[i];
    }
  }
  return ::testing::AssertionSuccess();
}

template <typename T>
std::vector<float> Values(const GuardedArray<T>& array) {
  std::vector<float> values(array.size());
  for (int64_t i = 0; i < array.size(); ++i) values[i] = static_cast<float>(array[i]);
  return values;
}

// Normal variables, with zeros, subnormals and values of every magnitude among them.
inline float TypicalValue(std::mt19937& random) {
  std::normal_distribution<float> normal;
  const float x = normal(random);
  switch (random() % 16) {
    case 0:
      return std::copysign(0.0f, x);
    case 1:
      return x * std::ldexp(1.0f, static_cast<int>(random() % 200) - 140);
    default:
      return x;
  }
}

template <typename T>
void FillTypical(GuardedArray<T>& array, std::mt19937& random, float size = 1.0f) {
  for (int64_t i = 0; i < array.size(); ++i) array[i] = T(size * TypicalValue(random));
}

// Sizes at which tiles, vectors and lists change their way: empty ones first, in the middle and
// last.
inline std::vector<int64_t> InterestingSizes() {
  return {0, 1, 31, 32, 33, 2047, 2048, 2049, 0, 0, 7, 8, 9, 4095, 4096, 4097, 10001, 3, 0};
}

// Every SIMD target that this processor has, and the one in force before on destruction.
class SimdTargets {
 public:
  ~SimdTargets() { SetSimdTarget(BestSimdTarget()); }
  static std::vector<SimdTarget> All() {
    std::vector<SimdTarget> targets;
    for (const SimdTarget target :
         {SimdTarget::kBaseline, SimdTarget::kSve, SimdTarget::kAvx2, SimdTarget::kAvx512}) {
      SetSimdTarget(target);
      if (CurrentSimdTarget() == target) targets.push_back(target);
    }
    SetSimdTarget(BestSimdTarget());
    return targets;
  }
};

struct CpuRun {
  std::unique_ptr<device::Context> context;
  std::unique_ptr<device::Stream> stream;
};

inline CpuRun OnCpu(int threads) {
  device::ContextOptions options;
  options.compute_threads = threads;
  CpuRun run;
  run.context = device::Context::Create(options).value();
  run.stream = run.context->CreateStream("compute").value();
  return run;
}

// Calls run(stream, description) with every combination of SIMD target and thread count.
template <typename Run>
void OnEveryCpu(const Run& run) {
  SimdTargets restore;
  for (const int threads : {1, 3}) {
    const CpuRun cpu = OnCpu(threads);
    for (const SimdTarget target : SimdTargets::All()) {
      SetSimdTarget(target);
      run(*cpu.stream, "threads " + std::to_string(threads) + ", SIMD target " +
                           std::to_string(static_cast<int>(target)));
    }
  }
}

// Runs what GPU threads do on the host: body(tile, thread) for every thread of every tile.
template <typename Body>
void ForEachGpuThread(int64_t tiles, int threads, const Body& body) {
  for (int64_t tile = 0; tile < tiles; ++tile) {
    for (int thread = 0; thread < threads; ++thread) body(tile, thread);
  }
}

}  // namespace brigade::kernels

#endif  // BRIGADE_TESTS_KERNELS_TESTING_H_
