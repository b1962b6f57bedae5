// Arrays of more than 2^31 elements, whose kernels must compute places in 64 bits. The CPU computes
// only windows of them: around 0, 2^30, 2^31 and the end; and one of the constant that is
// everywhere else. Tens of GB of GPU memory.

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/reduce/reduce.h"
#include "brigade/kernels/sgd/sgd.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::DType;

constexpr int64_t kSize = (int64_t{1} << 31) + 10007;
constexpr int64_t kWindow = 4096;
// Tiles and vectors begin within them.
constexpr int64_t kWindows[] = {0, (int64_t{1} << 30) - 7, (int64_t{1} << 31) - 2047,
                                kSize - kWindow};
// Number of the window of constants.
constexpr int kConstant = std::size(kWindows);

// Everything on one device: arrays of `size` elements, and the step's state.
class Bench {
 public:
  Bench(device::Device device, int64_t size)
      : context_(device::Context::Create({.device = device}).value()),
        stream_(context_->CreateStream("compute").value()),
        size_(size) {
    char host[1024] = {};
    Layout layout(host);
    StepMemory(layout).Prepare(/*skip=*/0);
    step_ = context_->Allocate(sizeof(host), device::Purpose::kScratch).value();
    EXPECT_OK(stream_->Copy(step_.data(), host, sizeof(host)));
    EXPECT_OK(stream_->Synchronize());
  }

  // False: there is no memory for it.
  bool Add(DType dtype) {
    auto buffer =
        context_->Allocate(size_ * precision::SizeOf(dtype), device::Purpose::kScratch, "huge");
    if (!buffer.ok()) return false;
    buffers_.push_back(*std::move(buffer));
    arrays.push_back(buffers_.back().data());
    const FillSegment all = {arrays.back(), size_};
    EXPECT_OK(Fill({&all, 1}, dtype, 1.0, *stream_));
    return true;
  }

  void Put(int array, int64_t at, DType dtype, const std::vector<char>& window) {
    EXPECT_OK(stream_->Copy(At(array, at, dtype), window.data(), window.size()));
    EXPECT_OK(stream_->Synchronize());
  }
  std::vector<char> Get(int array, int64_t at, DType dtype) {
    std::vector<char> window(kWindow * precision::SizeOf(dtype));
    EXPECT_OK(stream_->Copy(window.data(), At(array, at, dtype), window.size()));
    EXPECT_OK(stream_->Synchronize());
    return window;
  }

  StepMemory step() const {
    Layout layout(static_cast<char*>(step_.data()));
    return StepMemory(layout);
  }
  device::Context& context() { return *context_; }
  device::Stream& stream() { return *stream_; }
  int64_t size() const { return size_; }

  std::vector<void*> arrays;

 private:
  char* At(int array, int64_t at, DType dtype) const {
    return static_cast<char*>(arrays[static_cast<size_t>(array)]) + at * precision::SizeOf(dtype);
  }

  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> stream_;
  const int64_t size_;
  device::Buffer step_;
  std::vector<device::Buffer> buffers_;
};

// Not negative, as Adam's v must be.
std::vector<char> RandomWindow(DType dtype, uint32_t seed) {
  std::vector<char> window(kWindow * precision::SizeOf(dtype));
  if (!precision::IsTrainingFormat(dtype)) {
    std::mt19937 random(seed);
    for (char& byte : window) byte = static_cast<char>(random());
    return window;
  }
  FillFloats(window.data(), dtype, kWindow, seed);
  precision::VisitFloat(dtype, [&](auto tag) {
    auto* const values = reinterpret_cast<decltype(tag)*>(window.data());
    for (int64_t i = 0; i < kWindow; ++i) {
      values[i] = decltype(tag)(std::fabs(static_cast<float>(values[i])));
    }
  });
  return window;
}

// `run` works element by element on arrays of the given types.
void ExpectTheCpusBits(const std::vector<DType>& dtypes,
                       const std::function<absl::Status(Bench&)>& run) {
  Bench gpu(device::Cuda(), kSize);
  Bench cpu(device::Cpu(), kWindow * (kConstant + 1));
  for (size_t a = 0; a < dtypes.size(); ++a) {
    if (!gpu.Add(dtypes[a])) GTEST_SKIP() << "too little memory for " << dtypes.size() << " arrays";
    ASSERT_TRUE(cpu.Add(dtypes[a]));
    for (int w = 0; w < kConstant; ++w) {
      const auto window = RandomWindow(dtypes[a], static_cast<uint32_t>(a * 100 + w));
      gpu.Put(static_cast<int>(a), kWindows[w], dtypes[a], window);
      cpu.Put(static_cast<int>(a), w * kWindow, dtypes[a], window);
    }
  }
  ASSERT_OK(run(gpu));
  ASSERT_OK(run(cpu));
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const int a = static_cast<int>(i);
    for (int w = 0; w < kConstant; ++w) {
      EXPECT_TRUE(gpu.Get(a, kWindows[w], dtypes[i]) == cpu.Get(a, w * kWindow, dtypes[i]))
          << "array " << a << " from element " << kWindows[w];
    }
    const auto constant = cpu.Get(a, kConstant * kWindow, dtypes[i]);
    for (int64_t at = 2 * kWindow; at + kWindow < kWindows[2]; at += kWindows[2] / 61) {
      if (at < kWindows[1] + kWindow && at + kWindow > kWindows[1]) continue;
      ASSERT_TRUE(gpu.Get(a, at, dtypes[i]) == constant) << "array " << a << " from element " << at;
    }
  }
}

TEST(HugeGpuTest, AdamGivesTheCpusBits) {
  ExpectTheCpusBits(
      {DType::kFloat32, DType::kFloat32, DType::kFloat32, DType::kBFloat16, DType::kBFloat16},
      [](Bench& bench) {
        const auto& a = bench.arrays;
        const AdamSegment all = {static_cast<float*>(a[0]),
                                 static_cast<float*>(a[1]),
                                 static_cast<float*>(a[2]),
                                 a[3],
                                 a[4],
                                 bench.size(),
                                 0};
        const AdamGroup group = {0.9, 0.999, 1e-8, 0.01};
        AdamOptions options;
        options.grad_dtype = DType::kBFloat16;
        options.copy_dtype = DType::kBFloat16;
        options.groups = {&group, 1};
        options.state = bench.step().state;
        options.group_steps = bench.step().group_steps;
        return Adam({&all, 1}, options, bench.stream());
      });
}

TEST(HugeGpuTest, SgdGivesTheCpusBits) {
  ExpectTheCpusBits({DType::kFloat32, DType::kFloat32, DType::kFloat16}, [](Bench& bench) {
    const auto& a = bench.arrays;
    const SgdSegment all = {
        static_cast<float*>(a[0]), static_cast<float*>(a[1]), a[2], nullptr, bench.size(), 0};
    const SgdGroup group = {.momentum = 0.9, .dampening = 0.1};
    SgdOptions options;
    options.grad_dtype = DType::kFloat16;
    options.groups = {&group, 1};
    options.state = bench.step().state;
    options.group_steps = bench.step().group_steps;
    return Sgd({&all, 1}, options, bench.stream());
  });
}

TEST(HugeGpuTest, CastGivesTheCpusBits) {
  ExpectTheCpusBits({DType::kFloat16, DType::kFloat32}, [](Bench& bench) {
    const CastSegment all = {bench.arrays[0], bench.arrays[1], bench.size()};
    return Cast({&all, 1}, {DType::kFloat16, DType::kFloat32, nullptr, /*accumulate=*/true},
                bench.stream());
  });
}

TEST(HugeGpuTest, ReduceGivesTheCpusBits) {
  for (const DType dtype : {DType::kUint8, DType::kBFloat16}) {
    ExpectTheCpusBits({dtype, dtype, dtype}, [&](Bench& bench) {
      return Reduce({bench.arrays[0], bench.arrays[1]}, {bench.arrays[2]}, bench.size(), {dtype},
                    bench.stream());
    });
  }
}

// Ones add up exactly; the last element is looked at as well.
TEST(HugeGpuTest, GradCheckCountsEveryElement) {
  Bench gpu(device::Cuda(), kSize);
  if (!gpu.Add(DType::kBFloat16)) GTEST_SKIP() << "too little memory";
  auto memory = gpu.context().Allocate(8 * (kSize / 8192 + 2), device::Purpose::kScratch).value();
  auto stats = gpu.context().Allocate(sizeof(GradStats), device::Purpose::kScratch).value();
  const GradSegment all = {gpu.arrays[0], kSize};
  const auto check = [&] {
    GradStats found = {};
    EXPECT_OK(GradCheck({&all, 1}, DType::kBFloat16, memory.as<double>(),
                        static_cast<GradStats*>(stats.data()), gpu.stream()));
    EXPECT_OK(gpu.stream().Copy(&found, stats.data(), sizeof(found)));
    EXPECT_OK(gpu.stream().Synchronize());
    return found;
  };
  GradStats found = check();
  EXPECT_EQ(found.sum_of_squares, static_cast<double>(kSize));
  EXPECT_TRUE(found.all_finite);
  const precision::BFloat16 infinity(std::numeric_limits<float>::infinity());
  EXPECT_OK(gpu.stream().Copy(static_cast<precision::BFloat16*>(gpu.arrays[0]) + kSize - 1,
                              &infinity, sizeof(infinity)));
  found = check();
  EXPECT_FALSE(found.all_finite);
}

}  // namespace
}  // namespace brigade::kernels
