// What tiled attention costs on a GPU, counted by the emulator: bank conflicts, sectors, and how
// often keys and values are read.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "brigade/emulator/runtime/control.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/attention_cuda.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/nn/lab.h"
#include "gtest/gtest.h"

namespace brigade::nn {
namespace {

using precision::BFloat16;

template <typename T>
T* Zeros(int64_t size) {
  void* data = nullptr;
  const auto bytes = static_cast<size_t>(size) * sizeof(T);
  EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
  EXPECT_EQ(cudaMemset(data, 0, bytes), cudaSuccess);
  return static_cast<T*>(data);
}

// Of the forward pass, the sums, the keys' kernel and the queries'.
std::vector<emulator::LaunchRecord> LaunchesOf(const TiledAttentionShape& shape) {
  const int64_t rows = shape.batch * shape.context, width = shape.heads * shape.head_width;
  auto* const qkv = Zeros<BFloat16>(rows * 3 * width);
  auto* const out = Zeros<BFloat16>(rows * width);
  auto* const dqkv = Zeros<BFloat16>(rows * 3 * width);
  auto* const log_sum_exp = Zeros<float>(rows * shape.heads);
  auto* const delta = Zeros<float>(rows * shape.heads);
  emulator::RecordLaunches(true);
  EXPECT_EQ(LaunchTiledAttention(shape, qkv, out, log_sum_exp, nullptr), cudaSuccess);
  EXPECT_EQ(LaunchTiledAttentionBackward(shape, qkv, out, log_sum_exp, out, delta, dqkv, nullptr),
            cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  emulator::RecordLaunches(false);
  for (void* array : {static_cast<void*>(qkv), static_cast<void*>(out), static_cast<void*>(dqkv),
                      static_cast<void*>(log_sum_exp), static_cast<void*>(delta)}) {
    EXPECT_EQ(cudaFree(array), cudaSuccess);
  }
  return emulator::TakeLaunches();
}

TEST(AttentionCountersTest, TilesAreMovedWholeAndWithoutBankConflicts) {
  for (const int64_t head_width : {32, 64, 96, 128}) {
    const TiledAttentionShape shape = {1, 256, 2, head_width};
    const auto launches = LaunchesOf(shape);
    ASSERT_EQ(launches.size(), 4u);
    for (const auto& launch : launches) {
      std::printf("%lld %s: %lld bank conflicts, %lld of %lld sectors read, %lld of %lld written\n",
                  static_cast<long long>(head_width), launch.kernel.c_str(),
                  static_cast<long long>(launch.bank_conflicts),
                  static_cast<long long>(launch.loads.sectors),
                  static_cast<long long>(launch.loads.least_sectors),
                  static_cast<long long>(launch.stores.sectors),
                  static_cast<long long>(launch.stores.least_sectors));
      // Copies into rows that are no multiple of 128 bytes meet at their ends.
      if (head_width % 64 == 0) {
        EXPECT_EQ(launch.bank_conflicts, 0) << launch.kernel;
      }
    }
    // Queries once, and keys and values of 1 + 2 + 3 + 4 tiles.
    const int64_t tile = 64 * head_width * 2 / 32;
    EXPECT_EQ(launches[0].loads.sectors, 2 * (4 + 2 * 10) * tile);
    for (const auto& launch : launches) {
      EXPECT_EQ(launch.loads.sectors, launch.loads.least_sectors) << launch.kernel;
    }
    for (const size_t i : {0, 2, 3}) {
      EXPECT_EQ(launches[i].stores.sectors, launches[i].stores.least_sectors);
    }
  }
}

// How many kernels of a layer's two passes run on tensor cores.
int TiledKernels(precision::DType dtype, int64_t head_width) {
  Lab lab;
  const AttentionShape shape = {dtype, 1, 3, 2, 2 * head_width};
  const auto array = [&](int64_t size) { return lab.Noise<double>(size).data(); };
  void* const qkv = array(3 * 3 * shape.width);
  void* const out = array(3 * shape.width);
  void* const log_sum_exp = array(shape.statistics());
  emulator::RecordLaunches(true);
  EXPECT_OK(Attention(shape, qkv, out, log_sum_exp, lab.stream()));
  EXPECT_OK(AttentionBackward(shape, qkv, out, log_sum_exp, array(3 * shape.width),
                              array(shape.statistics()), array(3 * 3 * shape.width), lab.stream()));
  EXPECT_OK(lab.stream().Synchronize());
  emulator::RecordLaunches(false);
  int tiled = 0;
  for (const auto& launch : emulator::TakeLaunches()) {
    for (const char* name : {"AttentionKernel", "AttentionBackwardKernel"}) {
      tiled += launch.kernel.find(name) != std::string::npos ? 1 : 0;
    }
  }
  return tiled;
}

TEST(AttentionCountersTest, TensorCoresTake16BitTypesOfTheWidthsThatThereAre) {
  using precision::DType;
  for (const int64_t head_width : {32, 64, 96, 128}) {
    EXPECT_EQ(TiledKernels(DType::kFloat16, head_width), 3);
    EXPECT_EQ(TiledKernels(DType::kBFloat16, head_width), 3);
    EXPECT_EQ(TiledKernels(DType::kFloat32, head_width), 0);
  }
  EXPECT_EQ(TiledKernels(DType::kFloat16, 48), 0);
}

}  // namespace
}  // namespace brigade::nn
