#ifndef BRIGADE_TESTS_NN_LAB_H_
#define BRIGADE_TESTS_NN_LAB_H_

// A stream, arrays, and the comparison of a gradient with finite differences.
// The same tests run on the CPU and, by BRIGADE_LAB_DEVICE of their target, on a GPU.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "brigade/device/context.h"
#include "brigade/kernels/simd.h"
#include "brigade/nn/random.h"
#include "brigade/nn/workspace.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

#ifndef BRIGADE_LAB_DEVICE
#define BRIGADE_LAB_DEVICE device::Cpu()
#endif

namespace brigade::nn {

inline const bool kOnGpu = (BRIGADE_LAB_DEVICE).kind == device::DeviceKind::kCuda;

class Lab {
 public:
  static constexpr int64_t kRows = 1000, kSums = 2 * 1025, kWidth = 768;

  explicit Lab(device::Device device = BRIGADE_LAB_DEVICE)
      : context_(device::Context::Create({.device = device, .compute_threads = 2}).value()),
        stream_(context_->CreateStream("compute").value()),
        workspace_(Workspace::Create(*context_, precision::DType::kFloat64,
                                     {.rows = kRows, .sums = kSums, .width = kWidth})
                       .value()) {}

  device::Context& context() { return *context_; }
  device::Stream& stream() { return *stream_; }
  // For kRows rows, kSums sums and embeddings of kWidth, of any type.
  const Workspace& workspace() const { return workspace_; }

  // Memory with its 0xFF of birth, so that what a layer does not write shows. Of the host, which
  // GPUs reach too.
  template <typename T>
  absl::Span<T> Raw(int64_t size) {
    arrays_.push_back(
        context_->AllocateHost(size * sizeof(T), device::Purpose::kScratch, "array").value());
    return arrays_.back().as<T>();
  }

  // In [-1, 1), different in each call.
  template <typename T>
  absl::Span<T> Noise(int64_t size) {
    const absl::Span<T> array = Raw<T>(size);
    Random random(7, arrays_.size());
    for (T& value : array) value = T(2 * random.Uniform() - 1);
    return array;
  }

  absl::Span<uint8_t> Bytes(int64_t size, int letters = 256) {
    const absl::Span<uint8_t> array = Raw<uint8_t>(size);
    Random random(8, arrays_.size());
    for (uint8_t& value : array) value = static_cast<uint8_t>(random.Next() % letters);
    return array;
  }

 private:
  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> stream_;
  Workspace workspace_;
  std::vector<device::Buffer> arrays_;
};

// What run(lab) returns, the same bits twice on this test's device, and on the CPU with every
// instruction set.
template <typename T>
std::vector<T> SameBits(const std::function<absl::Span<T>(Lab&)>& run) {
  std::vector<T> first;
  bool is_first = true;
  const auto compare = [&](const device::Device& device) {
    Lab lab(device);
    const absl::Span<T> result = run(lab);
    EXPECT_OK(lab.stream().Synchronize());
    if (is_first) first.assign(result.begin(), result.end());
    is_first = false;
    ASSERT_EQ(result.size(), first.size());
    // Of an empty one both addresses may be null, which memcmp takes from nobody.
    if (first.empty()) return;
    EXPECT_EQ(std::memcmp(result.data(), first.data(), first.size() * sizeof(T)), 0);
  };
  compare(BRIGADE_LAB_DEVICE);
  compare(BRIGADE_LAB_DEVICE);
  for (const auto target : {kernels::SimdTarget::kBaseline, kernels::SimdTarget::kSve,
                            kernels::SimdTarget::kAvx2, kernels::SimdTarget::kAvx512}) {
    kernels::SetSimdTarget(target);
    compare(device::Cpu());
  }
  kernels::SetSimdTarget(kernels::BestSimdTarget());
  return first;
}

inline double Dot(absl::Span<const double> a, absl::Span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// gradient[i] is the derivative of f by x[i], which f reads: compared with central differences.
inline void ExpectGradient(absl::Span<double> x, absl::Span<const double> gradient,
                           const std::function<double()>& f) {
  // Errors of about 1e-10 from the third derivative, 1e-11 from rounding.
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = before + kStep;
    const double above = f();
    x[i] = before - kStep;
    const double below = f();
    x[i] = before;
    const double difference = (above - below) / (2 * kStep);
    ASSERT_NEAR(gradient[i], difference, 1e-8 * (1 + std::abs(difference))) << "element " << i;
  }
}

}  // namespace brigade::nn

#endif  // BRIGADE_TESTS_NN_LAB_H_
