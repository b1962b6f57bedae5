// What oneDNN is asked beneath Blas; nothing where the build or the machine has none.

#include "brigade/nn/blas_onednn.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "brigade/kernels/simd.h"
#include "gtest/gtest.h"

namespace brigade::nn {
namespace {

using precision::DType;

constexpr int64_t kMuch = int64_t{1} << 26;

GemmArguments Product(DType dtype, int64_t m, int64_t n, int64_t k) {
  return {.dtype = dtype,
          .m = m,
          .n = n,
          .k = k,
          .a = {nullptr, k},
          .b = {nullptr, n},
          .c = {nullptr, n}};
}

class BlasOneDnnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (onednn_ == nullptr) GTEST_SKIP() << "no oneDNN, or no AVX-512";
  }
  const OneDnn* const onednn_ = OneDnn::Get();
};

// Under ThreadSanitizer too, which does not see into oneDNN (nn/blas_onednn.cc). The first of all:
// of what one thread has made before others begin there is nothing to report.
TEST_F(BlasOneDnnTest, ThreadsPrepareAndMultiplyTheSameShapesAtOnce) {
  constexpr int64_t kSize = 64, kScratch = int64_t{1} << 20;
  constexpr uint16_t kOne = 0x3f80, kSixtyFour = 0x4280;  // bfloat16
  std::atomic<int> wrong = 0;
  const auto multiply = [&] {
    for (const int64_t m : {16, 64, 128, 16, 64, 128}) {
      GemmArguments arguments = Product(DType::kFloat32, m, kSize, kSize);
      const auto elements = static_cast<size_t>(m * kSize);
      const std::vector<float> a(elements, 1), b(kSize * kSize, 1);
      std::vector<float> c(elements);
      const absl::Status multiplied =
          onednn_->Multiply(arguments, a.data(), kSize, b.data(), kSize, 0, c.data(), kSize);
      wrong += !multiplied.ok() || c != std::vector<float>(elements, kSize);
      if (!onednn_->Multiplies(DType::kBFloat16)) continue;
      arguments.dtype = DType::kBFloat16;
      const std::unique_ptr<OneDnn::Product> product = onednn_->Prepare(arguments, kScratch);
      const std::vector<uint16_t> half_a(elements, kOne), half_b(kSize * kSize, kOne);
      std::vector<uint16_t> half_c(elements);
      struct alignas(64) Line {
        char bytes[64];
      };
      std::vector<Line> scratch(kScratch / 64);
      wrong += product == nullptr ||
               !product->Run(half_a.data(), half_b.data(), half_c.data(), scratch.data()).ok() ||
               half_c != std::vector<uint16_t>(elements, kSixtyFour);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(multiply);
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(BlasOneDnnTest, MultipliesWhatTheProcessorMultiplies) {
  EXPECT_EQ(onednn_->Multiplies(DType::kBFloat16), kernels::SimdMultipliesBFloat16());
  EXPECT_FALSE(onednn_->Multiplies(DType::kFloat32));
  EXPECT_FALSE(onednn_->Multiplies(DType::kFloat64));
}

// All of a linear layer's, at the sizes of the example's models and of Llama's layers.
TEST_F(BlasOneDnnTest, HasCodeForTheProductsOfLinearLayersWithinTheirWorkspace) {
  if (!onednn_->Multiplies(DType::kBFloat16)) GTEST_SKIP() << "no bfloat16";
  for (const int64_t rows : {16, 128, 2048}) {
    for (const auto& [inputs, outputs] :
         {std::pair<int64_t, int64_t>{128, 384}, {512, 2048}, {2048, 512}, {512, 256}}) {
      GemmArguments forward = Product(DType::kBFloat16, rows, outputs, inputs);
      forward.b = {nullptr, inputs, true};
      const GemmArguments dx = Product(DType::kBFloat16, rows, inputs, outputs);
      GemmArguments dweight = Product(DType::kBFloat16, outputs, inputs, rows);
      dweight.a = {nullptr, outputs, true};
      for (GemmArguments product : {forward, dx, dweight}) {
        for (const bool accumulate : {false, true}) {
          product.accumulate = accumulate;
          const int64_t scratch =
              Blas::WorkspaceBytes(product.dtype, product.m, product.n, product.k);
          EXPECT_NE(onednn_->Prepare(product, scratch), nullptr)
              << product.m << " x " << product.n << " x " << product.k;
        }
      }
    }
  }
}

TEST_F(BlasOneDnnTest, HasCodeForRowsWithGaps) {
  if (!onednn_->Multiplies(DType::kBFloat16)) GTEST_SKIP() << "no bfloat16";
  GemmArguments product = Product(DType::kBFloat16, 128, 96, 64);
  product.a.leading += 32;
  product.b.leading += 32;
  product.c.leading += 32;
  EXPECT_NE(onednn_->Prepare(product, kMuch), nullptr);
}

TEST_F(BlasOneDnnTest, HasNoneThatNeedsMoreScratch) {
  if (!onednn_->Multiplies(DType::kBFloat16)) GTEST_SKIP() << "no bfloat16";
  EXPECT_NE(onednn_->Prepare(Product(DType::kBFloat16, 64, 64, 64), kMuch), nullptr);
  EXPECT_EQ(onednn_->Prepare(Product(DType::kBFloat16, 64, 64, 64), 100), nullptr);
}

// oneDNN has a loop for it, hundreds of times as slow as a conversion.
TEST_F(BlasOneDnnTest, TakesNoLoopOfReference) {
  if (onednn_->Multiplies(DType::kFloat16)) GTEST_SKIP() << "the processor multiplies float16";
  EXPECT_EQ(onednn_->Prepare(Product(DType::kFloat16, 64, 64, 64), kMuch), nullptr);
}

}  // namespace
}  // namespace brigade::nn
