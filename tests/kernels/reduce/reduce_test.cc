#include "brigade/kernels/reduce/reduce.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <vector>

#include "brigade/device/address_registry.h"
#include "brigade/device/context.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/kernels/reduce/reduce_tile.h"
#include "brigade/tests/kernels/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};

// What one element must become, by definition: in double for what 16-bit types and integers hold
// exactly.
template <typename T>
T Oracle(ReduceOp op, const std::vector<T>& x) {
  if (x.size() == 1) return x[0];
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::kMin) return *std::min_element(x.begin(), x.end());
    if (op == ReduceOp::kMax) return *std::max_element(x.begin(), x.end());
    uint64_t sum = 0;
    for (const T value : x) sum += static_cast<uint64_t>(value);
    return static_cast<T>(sum);
  } else {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    volatile Wide result = static_cast<Wide>(x[0]);
    for (size_t i = 1; i < x.size(); ++i) {
      const Wide next = static_cast<Wide>(x[i]);
      if (op == ReduceOp::kSum) {
        result = result + next;
      } else if (std::isnan(next) || (op == ReduceOp::kMin ? next < result : next > result)) {
        result = next;
      }
    }
    if constexpr (std::is_same_v<T, double>) {
      return result;
    } else {
      return T(spec::Round(kFormat<T>, result));
    }
  }
}

template <typename T>
bool Same(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a == b;
  } else {
    const auto x = static_cast<double>(static_cast<ReduceWide<T>>(a));
    const auto y = static_cast<double>(static_cast<ReduceWide<T>>(b));
    return (std::isnan(x) && std::isnan(y)) || std::memcmp(&x, &y, sizeof(x)) == 0;
  }
}

template <typename T>
T RandomValue(std::mt19937& random) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>((uint64_t{random()} << 32) + random());
  } else {
    const float special[] = {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY, -0.0f};
    if (random() % 50 == 0) return T(special[random() % 4]);
    return T(TypicalValue(random));
  }
}

template <typename T>
class ReduceTypedTest : public ::testing::Test {
 protected:
  // Arrays at offsets that differ unless `aligned`.
  void Make(size_t sources, size_t targets, int64_t size, bool aligned, uint32_t seed) {
    std::mt19937 random(seed);
    sources_.clear();
    targets_.clear();
    for (size_t k = 0; k < sources; ++k) {
      sources_.emplace_back(size, aligned ? 3 : static_cast<int64_t>(random() % 9));
      for (int64_t i = 0; i < size; ++i) sources_[k][i] = RandomValue<T>(random);
    }
    for (size_t k = 0; k < targets; ++k) {
      targets_.emplace_back(size, aligned ? 3 : static_cast<int64_t>(random() % 9));
    }
    from_.clear();
    to_.clear();
    for (auto& array : sources_) from_.push_back(array.data());
    for (auto& array : targets_) to_.push_back(array.data());
  }

  std::vector<T> Wanted(ReduceOp op) {
    std::vector<T> wanted;
    for (int64_t i = 0; i < sources_[0].size(); ++i) {
      std::vector<T> x;
      for (auto& source : sources_) x.push_back(source[i]);
      wanted.push_back(Oracle(op, x));
    }
    return wanted;
  }

  void Expect(const GuardedArray<T>& array, const std::vector<T>& wanted, const std::string& how) {
    EXPECT_TRUE(array.GuardsAreIntact()) << how;
    for (int64_t i = 0; i < array.size(); ++i) {
      ASSERT_TRUE(Same(array[i], wanted[i])) << how << ", element " << i << " of " << array.size();
    }
  }

  // What a kernel does with sources [begin, end), by its threads one after the other. Returns
  // whether they took groups.
  bool RunPass(ReduceOp op, size_t begin, size_t end, const ReduceCarry& carry) {
    ReduceArrays arrays = {};
    arrays.source_count = static_cast<int32_t>(end - begin);
    arrays.target_count = static_cast<int32_t>(to_.size());
    arrays.size = sources_[0].size();
    arrays.carry = carry;
    std::copy(from_.begin() + begin, from_.begin() + end, arrays.sources);
    std::copy(to_.begin(), to_.end(), arrays.targets);
    const bool carries = carry.in != nullptr || carry.out != nullptr;
    return carries ? RunThreads<true>(op, arrays) : RunThreads<false>(op, arrays);
  }

  template <bool kCarries>
  static bool RunThreads(ReduceOp op, const ReduceArrays& arrays) {
    const auto layout = ReduceLayout<T, kCarries>(arrays);
    VisitReduceOp(op, [&](auto constant) {
      ForEachGpuThread(layout.Tiles(arrays.size), kTileThreads, [&](int64_t tile, int thread) {
        ReduceThread<decltype(constant)::value, T, kCarries>(arrays, layout, tile, thread);
      });
    });
    return layout.whole();
  }

  std::deque<GuardedArray<T>> sources_, targets_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
};

using Types = ::testing::Types<float, Half, BFloat16, double, int32_t, int64_t, uint8_t>;
TYPED_TEST_SUITE(ReduceTypedTest, Types);

TYPED_TEST(ReduceTypedTest, IsTheSpecificationOnEveryTargetAndThreadCount) {
  SimdTargets restore;
  for (const int threads : {1, 3}) {
    CpuRun cpu = OnCpu(threads);
    for (const SimdTarget simd : SimdTargets::All()) {
      SetSimdTarget(simd);
      for (const size_t sources : {1, 2, 3, 7}) {
        for (const ReduceOp op : kOps) {
          // 20001 elements are several shares; 0 and 1 have none or no whole vector.
          for (const int64_t size : {0, 1, 1537, 20001}) {
            this->Make(sources, sources % 3 + 1, size, size % 2 == 0, static_cast<uint32_t>(size));
            ASSERT_OK(Reduce(this->from_, this->to_, size, {precision::kDType<TypeParam>, op},
                             *cpu.stream));
            ASSERT_OK(cpu.stream->Synchronize());
            const auto wanted = this->Wanted(op);
            for (auto& target : this->targets_) {
              this->Expect(target, wanted, absl::StrCat(sources, " sources"));
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(ReduceTypedTest, StreamsLargeTargetsButNotThoseInPlace) {
  CpuRun cpu = OnCpu(2);
  // Together the targets are large. Blocks are short where these lie alike in their lines.
  for (const bool aligned : {false, true}) {
    this->Make(3, 2, (int64_t{4} << 20) / 3 / sizeof(TypeParam) + 77, aligned, 1);
    const auto wanted = this->Wanted(ReduceOp::kSum);
    this->to_.push_back(this->sources_[1].data());
    ASSERT_OK(Reduce(this->from_, this->to_, this->sources_[0].size(),
                     {precision::kDType<TypeParam>, ReduceOp::kSum}, *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());
    for (const auto* target : {&this->targets_[0], &this->targets_[1], &this->sources_[1]}) {
      this->Expect(*target, wanted, absl::StrCat("large, aligned ", aligned));
    }
  }
}

TYPED_TEST(ReduceTypedTest, MoreSourcesThanOnePassTakesGiveTheSameBits) {
  using Wide = ReduceWide<TypeParam>;
  SimdTargets restore;
  CpuRun cpu = OnCpu(3);
  const auto reduce = [&](ReduceOp op, GuardedArray<Wide>& partials) {
    ASSERT_OK(Reduce(this->from_, this->to_, partials.size(),
                     {precision::kDType<TypeParam>, op, partials.data()}, *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());
    EXPECT_TRUE(partials.GuardsAreIntact());
  };
  // 6201 elements are two shares.
  for (const auto& [sources, size] : {std::pair(65, 1), {127, 1537}, {128, 6201}, {200, 777}}) {
    this->Make(sources, 2, size, sources % 2 == 0, static_cast<uint32_t>(sources));
    for (const ReduceOp op : kOps) {
      const auto wanted = this->Wanted(op);
      for (const SimdTarget simd : SimdTargets::All()) {
        SetSimdTarget(simd);
        GuardedArray<Wide> partials(size, sources % 5);
        reduce(op, partials);
        for (auto& target : this->targets_) {
          this->Expect(target, wanted, absl::StrCat(sources, " sources"));
        }
      }
    }
  }
  // In place, where the target is a source of the first pass, of a later one, and the last.
  for (const size_t place : {0, 70, 199}) {
    this->Make(200, 1, 777, false, static_cast<uint32_t>(place));
    const auto wanted = this->Wanted(ReduceOp::kSum);
    this->to_.push_back(this->sources_[place].data());
    GuardedArray<Wide> partials(777, 1);
    reduce(ReduceOp::kSum, partials);
    this->Expect(this->targets_[0], wanted, "beside a target in place");
    this->Expect(this->sources_[place], wanted, absl::StrCat("in place of source ", place));
  }
}

TYPED_TEST(ReduceTypedTest, GpuThreadsDoTheSame) {
  for (const bool aligned : {true, false}) {
    for (const size_t sources : {1, 2, 5}) {
      for (const ReduceOp op : kOps) {
        for (const int64_t size : {1, 8, 255, 2047, 4097, 5003}) {
          this->Make(sources, 2, size, aligned, 7);
          const bool whole = this->RunPass(op, 0, sources, {});
          EXPECT_TRUE(!aligned || whole);
          const auto wanted = this->Wanted(op);
          for (auto& target : this->targets_) this->Expect(target, wanted, "GPU thread");
        }
      }
    }
  }
}

TYPED_TEST(ReduceTypedTest, GpuThreadsCarryFromPassToPass) {
  using Wide = ReduceWide<TypeParam>;
  constexpr int64_t kSize = 2051;
  for (const bool aligned : {true, false}) {
    for (const int64_t offset : {3, 1}) {
      for (const ReduceOp op : kOps) {
        this->Make(9, 2, kSize, aligned, 11);
        const auto wanted = this->Wanted(op);
        GuardedArray<Wide> partials(kSize, offset);
        Wide* const sums = partials.data();
        // The partials fit the arrays where they begin as many elements past a boundary.
        const bool fits = aligned && (offset == 3 || sizeof(Wide) == 8);
        EXPECT_EQ(this->RunPass(op, 0, 4, {nullptr, sums}), fits);
        EXPECT_EQ(this->RunPass(op, 4, 8, {sums, sums}), fits);
        for (size_t i = 0; i < 2; ++i) {
          for (int64_t j = 0; j < kSize; ++j) ASSERT_EQ(Wide(this->targets_[i][j]), Wide(0));
        }
        EXPECT_EQ(this->RunPass(op, 8, 9, {sums, nullptr}), fits);
        EXPECT_TRUE(partials.GuardsAreIntact());
        for (auto& target : this->targets_) this->Expect(target, wanted, "GPU thread");
      }
    }
  }
}

TEST(ReduceTest, PartialsAreOfTheTypeThatIsAddedIn) {
  EXPECT_EQ(ReducePartialsBytes(64, 1000, DType::kFloat32), 0);
  EXPECT_EQ(ReducePartialsBytes(65, 1000, DType::kFloat32), 4000);
  EXPECT_EQ(ReducePartialsBytes(65, 1000, DType::kBFloat16), 4000);
  EXPECT_EQ(ReducePartialsBytes(200, 1000, DType::kFloat16), 4000);
  EXPECT_EQ(ReducePartialsBytes(65, 1000, DType::kFloat64), 8000);
  EXPECT_EQ(ReducePartialsBytes(65, 1000, DType::kUint8), 1000);
  EXPECT_EQ(ReducePartialsBytes(65, 0, DType::kInt64), 0);
}

TEST(ReduceTest, DeclaresEveryPasssSourcesAndThePartials) {
  device::RaceChecker checker;
  auto context =
      device::Context::Create({.compute_threads = 1, .checks = true, .race_checker = &checker})
          .value();
  const auto stream = context->CreateStream("compute").value();
  const auto other = context->CreateStream("other").value();
  std::vector<float> arrays(66 * 8), partials(8), target(8);
  std::vector<const void*> sources;
  for (int i = 0; i < 66; ++i) sources.push_back(arrays.data() + i * 8);
  for (float* const touched : {arrays.data(), arrays.data() + 65 * 8, partials.data()}) {
    ASSERT_OK(Reduce(sources, {target.data()}, 8, {.partials = partials.data()}, *stream));
    // It only says so.
    ASSERT_OK(other->Enqueue({"write", {device::Writes(touched, 4)}},
                             [](device::ThreadPool&) { return absl::OkStatus(); }));
    EXPECT_FALSE(checker.reports().empty());
    static_cast<void>(stream->Reset());
    static_cast<void>(other->Reset());
    checker.ClearReports();
  }
}

class ReduceErrorTest : public ::testing::Test {
 protected:
  ReduceErrorTest() : cpu_(OnCpu(1)) {}

  absl::Status Call(std::vector<const void*> sources, std::vector<void*> targets, int64_t size) {
    return Reduce(sources, targets, size, {}, *cpu_.stream);
  }

  CpuRun cpu_;
  float a_[8] = {1, 2, 3}, b_[8] = {}, c_[8] = {};
};

TEST_F(ReduceErrorTest, NamesTheArgument) {
  const auto invalid = [](auto matcher) {
    return StatusIs(absl::StatusCode::kInvalidArgument, matcher);
  };
  EXPECT_THAT(Call({}, {c_}, 8), invalid(HasSubstr("there are 0 sources")));
  EXPECT_THAT(Call({a_}, {}, 8), invalid(HasSubstr("there are 0 targets")));
  EXPECT_THAT(Call({a_}, std::vector<void*>(65, c_), 8),
              invalid(HasSubstr("there are 65 targets")));
  EXPECT_THAT(Call({a_, b_}, {c_}, -3), invalid(HasSubstr("negative size -3")));
  EXPECT_THAT(Call({a_, nullptr}, {c_}, 8),
              invalid(HasSubstr("source of segment 1 is null with 8 elements")));
  EXPECT_THAT(Call({a_, reinterpret_cast<char*>(b_) + 1}, {c_}, 4),
              invalid(HasSubstr("not a multiple of its element's 4 bytes")));
  EXPECT_THAT(Call({a_, b_}, {a_ + 4}, 4), ::brigade::testing::IsOk());
  EXPECT_THAT(Call({a_, b_}, {a_ + 1}, 4),
              invalid(AllOf(HasSubstr("source of segment 0"), HasSubstr("overlap in 12 bytes"))));
  EXPECT_THAT(Call({a_, b_}, {c_, c_ + 2}, 4), invalid(HasSubstr("overlap in 8 bytes")));
  EXPECT_THAT(Reduce({a_}, {c_}, 4, {static_cast<DType>(99), ReduceOp::kSum}, *cpu_.stream),
              invalid(HasSubstr("dtype invalid")));
  EXPECT_THAT(Reduce({a_}, {c_}, 4, {DType::kInt32, static_cast<ReduceOp>(3)}, *cpu_.stream),
              invalid(HasSubstr("operation 3")));
  float partials[8];
  const auto many = [&](void* target, void* workspace, DType dtype) {
    std::vector<const void*> sources(65, a_);
    sources[64] = b_;
    return Reduce(sources, {target}, 4, {dtype, ReduceOp::kSum, workspace}, *cpu_.stream);
  };
  EXPECT_OK(many(c_, partials, DType::kFloat32));
  EXPECT_OK(many(b_, partials, DType::kFloat32));
  EXPECT_THAT(many(c_, nullptr, DType::kFloat32),
              invalid(HasSubstr("partials is null with 4 elements")));
  EXPECT_THAT(many(c_, reinterpret_cast<char*>(partials) + 2, DType::kBFloat16),
              invalid(HasSubstr("partials is at address")));
  EXPECT_THAT(many(c_, c_, DType::kFloat32),
              invalid(AllOf(HasSubstr("partials"), HasSubstr("overlap in 16 bytes"))));
  EXPECT_THAT(many(c_, b_ + 3, DType::kFloat32),
              invalid(AllOf(HasSubstr("source of segment 64"), HasSubstr("overlap in 4 bytes"))));
  EXPECT_OK(Reduce(std::vector<const void*>(65), {nullptr}, 0, {}, *cpu_.stream));
  device::AddressRegistry::Global().Add(b_, sizeof(b_), device::Cuda(0), /*owned=*/false);
  EXPECT_THAT(Call({a_, b_}, {c_}, 8),
              invalid(HasSubstr("source of segment 1 is in memory of cuda:0")));
  device::AddressRegistry::Global().Remove(b_, sizeof(b_), /*owned=*/false);
  ASSERT_OK(cpu_.stream->Synchronize());
}

}  // namespace
}  // namespace brigade::kernels
