// Arrays of more than 2^31 elements, whose kernels must compute places in 64 bits. The CPU computes
// only windows of them: around 0, 2^30, 2^31 and the end; and one of the constant that is
// everywhere else. Tens of GB of GPU memory.

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/reduce/reduce.h"
#include "brigade/kernels/sgd/sgd.h"
#include "brigade/kernels/sign_pack/sign_pack.h"
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

// Ones of either sign in the windows, among ones: what codes and signs keep exactly.
std::vector<char> SignedOnes(uint32_t seed) {
  std::vector<char> window(kWindow * sizeof(precision::BFloat16));
  auto* const values = reinterpret_cast<precision::BFloat16*>(window.data());
  std::mt19937 random(seed);
  for (int64_t i = 0; i < kWindow; ++i) {
    values[i] = precision::BFloat16(random() % 2 == 0 ? 1.0f : -1.0f);
  }
  return window;
}

// From arrays[0] to a message and back to arrays[1], both of bf16: the same again. Device memory:
// 4 bytes an element, and the message's.
void ExpectToComeBack(device::Device device, int64_t size, int64_t message_bytes,
                      const std::function<absl::Status(Bench&, void* message)>& there_and_back) {
  Bench bench(device, size);
  auto message = bench.context().Allocate(message_bytes, device::Purpose::kScratch, "message");
  if (!message.ok() || !bench.Add(DType::kBFloat16) || !bench.Add(DType::kBFloat16)) {
    GTEST_SKIP() << "too little memory";
  }
  std::vector<int64_t> begins;
  for (const int64_t begin : kWindows) {
    if (begin + kWindow <= size) begins.push_back(begin);
  }
  begins.push_back(size - kWindow);
  for (size_t w = 0; w < begins.size(); ++w) {
    bench.Put(0, begins[w], DType::kBFloat16, SignedOnes(static_cast<uint32_t>(w)));
  }
  ASSERT_OK(there_and_back(bench, message->data()));
  for (const int64_t begin : begins) {
    EXPECT_TRUE(bench.Get(1, begin, DType::kBFloat16) == bench.Get(0, begin, DType::kBFloat16))
        << "from element " << begin;
  }
  for (int64_t at = 0; at + kWindow < size; at += size / 61) {
    ASSERT_TRUE(bench.Get(1, at, DType::kBFloat16) == bench.Get(0, at, DType::kBFloat16))
        << "from element " << at;
  }
}

void ExpectCodesToComeBack(device::Device device, int64_t size) {
  for (const QuantFormat format : {QuantFormat::kInt8, QuantFormat::kInt4}) {
    ExpectToComeBack(device, size, QuantBytes(size, format),
                     [&](Bench& bench, void* message) -> absl::Status {
                       const BlockQuantOptions options = {DType::kBFloat16, format};
                       const QuantizeSegment there = {bench.arrays[0], message, bench.size()};
                       const DequantizeSegment back = {message, bench.arrays[1], bench.size()};
                       absl::Status status = BlockQuantize({&there, 1}, options, bench.stream());
                       status.Update(BlockDequantize({&back, 1}, options, bench.stream()));
                       return status;
                     });
  }
}

// Signs of ones, whose scale is 1 and which leave nothing out.
void ExpectSignsToComeBack(device::Device device, int64_t size) {
  ExpectToComeBack(device, size, SignBytes(size), [&](Bench& bench, void* message) -> absl::Status {
    const auto allocate = [&](int64_t bytes) {
      return bench.context().Allocate(bytes, device::Purpose::kScratch, "signs").value();
    };
    const auto error = allocate(size * static_cast<int64_t>(sizeof(float)));
    const SignPackSegment there = {bench.arrays[0], error.as<float>().data(), message, size};
    const auto doubles =
        allocate(SignPackWorkspaceSize({&there, 1}) * static_cast<int64_t>(sizeof(double)));
    const auto scale = allocate(sizeof(float));
    const SignUnpackSegment back = {message, bench.arrays[1], size};
    absl::Status status = bench.stream().FillBytes(error.data(), 0, error.bytes());
    status.Update(SignPack({&there, 1}, {DType::kBFloat16}, doubles.as<double>(),
                           scale.as<float>().data(), bench.stream()));
    status.Update(SignUnpack({&back, 1}, {DType::kBFloat16, {}}, bench.stream()));
    // The memory goes with this call.
    status.Update(bench.stream().Synchronize());
    return status;
  });
}

TEST(HugeGpuTest, CodesOfOnesComeBack) { ExpectCodesToComeBack(device::Cuda(), kSize); }
TEST(HugeGpuTest, SignsOfOnesComeBack) { ExpectSignsToComeBack(device::Cuda(), kSize); }
// That they would, by the CPU's, of few elements.
TEST(HugeGpuTest, WhatIsSmallComesBackOnTheCpu) {
  ExpectCodesToComeBack(device::Cpu(), 10007);
  ExpectSignsToComeBack(device::Cpu(), 10007);
}

}  // namespace
}  // namespace brigade::kernels
