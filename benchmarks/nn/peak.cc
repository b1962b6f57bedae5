#include "brigade/benchmarks/nn/peak.h"

#include <cmath>

#include "brigade/kernels/simd.h"
#include "brigade/nn/tile_operands.h"

namespace brigade::benchmarks {
namespace {

// Enough independent sums to hide how long one takes, and few enough for the registers.
constexpr int kSums = 14;

template <typename Op>
BRIGADE_INLINE void Multiply(double operations) {
  alignas(64) typename Op::Word a = {}, b[Op::kLanes] = {};
  typename Op::V starts[kSums] = {};
  // Not known to the compiler, which would leave out what is equal.
  asm volatile("" : : "r"(&a), "r"(b), "r"(starts) : "memory");
  typename Op::V sums[kSums];
#pragma GCC unroll 16
  for (int s = 0; s < kSums; ++s) sums[s] = starts[s];
  const auto steps =
      static_cast<int64_t>(std::ceil(operations / (2 * kSums * Op::kLanes * Op::kDepth)));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) Op::MultiplyAdd(sums[s], &a, b);
  }
#pragma GCC unroll 16
  for (int s = 0; s < kSums; ++s) starts[s] = sums[s];
  asm volatile("" : : "r"(starts) : "memory");
}

}  // namespace

absl::Status EnqueuePeak(precision::DType dtype, double operations, int threads,
                         device::Stream& stream) {
  return stream.Enqueue({"peak"}, [=](device::ThreadPool& pool) {
    // In several parts for each thread: one of them may be interrupted.
    const int64_t parts = 8 * threads;
    pool.ParallelFor(parts, [&](int64_t) {
      const double part = operations / static_cast<double>(parts);
      kernels::RunSimdWithTag([&](auto tag) BRIGADE_SIMD_BODY {
        constexpr kernels::SimdTarget kTarget = decltype(tag)::kValue;
        if constexpr (kTarget == kernels::SimdTarget::kAvx512) {
          if (dtype == precision::DType::kBFloat16 && nn::PairOperands::Available()) {
            Multiply<nn::PairOperands>(part);
            return;
          }
        }
        Multiply<nn::WideOperands<float, kTarget>>(part);
      });
    });
    return absl::OkStatus();
  });
}

}  // namespace brigade::benchmarks
