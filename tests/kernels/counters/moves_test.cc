// Cast, fill and reduce as nvcc compiles them: the CPU's bits, and whole sectors. Flatten is a list
// of casts.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/cast/cast_tile.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/fill/fill_tile.h"
#include "brigade/kernels/reduce/reduce.h"
#include "brigade/kernels/reduce/reduce_tile.h"
#include "brigade/tests/kernels/counters/counted_launch.h"
#include "brigade/tests/kernels/counters/expect_goals.h"
#include "brigade/tests/kernels/testing.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

constexpr int64_t kSize = (int64_t{1} << 16) + 77;

// Values of all kinds, NaN and infinities among them.
template <typename T>
std::vector<T> Typical(uint32_t seed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(seed);
  std::vector<T> values(kSize);
  for (T& value : values) {
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>((uint64_t{random()} << 32) + random());
    } else {
      const float specials[] = {std::nanf(""), -std::nanf(""), kInfinity, -kInfinity};
      value = T(random() % 16 == 0 ? specials[random() % 4] : TypicalValue(random));
    }
  }
  return values;
}

// All bits but the payload of NaN, which no device promises.
template <typename T>
bool SameValues(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) == 0) continue;
    if constexpr (std::is_integral_v<T>) return false;
    if (!std::isnan(static_cast<float>(a[i])) || !std::isnan(static_cast<float>(b[i]))) {
      return false;
    }
  }
  return true;
}

template <typename Source, typename Target, bool kAccumulate>
Counted RunCast(CountedKernels& device, int64_t source_shift, int64_t target_shift) {
  const std::vector<Source> source = Typical<Source>(1);
  std::vector<Target> target = Typical<Target>(2);
  const float scale = 0.3f;
  Target* const device_target = device.Upload("target", target.data(), kSize, target_shift);
  CastArguments<kFewSegments> arguments = {};
  arguments.scale = device.Upload("scale", &scale, 1);
  arguments.batch.segments[0] = {device.Upload("source", source.data(), kSize, source_shift),
                                 device_target, kSize};
  arguments.batch.first_tile[1] =
      CastLayout<Source, Target>(arguments.batch.segments[0]).Tiles(kSize);
  arguments.batch.count = 1;
  const Counted counted = device.Launch(
      absl::StrCat("CastKernel<", TypeName<Source>::kInKernel, ", ", TypeName<Target>::kInKernel,
                   kAccumulate ? ", true, " : ", false, ", kFewSegments, ">"),
      kSize, arguments.batch.tiles(), kTileThreads, arguments);

  const CpuRun cpu = OnCpu(1);
  const CastSegment segment = {source.data(), target.data(), kSize};
  EXPECT_OK(Cast({&segment, 1},
                 {precision::kDType<Source>, precision::kDType<Target>, &scale, kAccumulate},
                 *cpu.stream));
  EXPECT_OK(cpu.stream->Synchronize());
  EXPECT_TRUE(SameValues(device.Download(device_target, kSize), target));
  EXPECT_TRUE(device.SurroundingsAreIntact());
  return counted;
}

template <typename Source, typename Target>
void CountCast() {
  constexpr ElementBytes kPlain = {
      sizeof(Source) + sizeof(Target),
      std::max(sizeof(Source), sizeof(Target)) * (sizeof(Source) == sizeof(Target) ? 2 : 1)};
  constexpr int64_t kTargetIsWide = sizeof(Target) >= sizeof(Source) ? sizeof(Target) : 0;
  constexpr ElementBytes kAdding = {kPlain.all + sizeof(Target), kPlain.wide + kTargetIsWide};
  const std::string mix =
      absl::StrCat(TypeName<Source>::kInTable, " to ", TypeName<Target>::kInTable);
  // Chunks start at the sectors of the narrower array, the target if both are as wide.
  constexpr bool kWidens = sizeof(Source) < sizeof(Target);
  constexpr int64_t kSource = sizeof(Source), kTarget = sizeof(Target);
  CountedKernels device("cast");
  for (const int64_t shift : {0, 1, 13}) {
    const int64_t source_shift = shift % (32 / static_cast<int64_t>(sizeof(Source)));
    const int64_t target_shift = shift % (32 / static_cast<int64_t>(sizeof(Target)));
    ExpectWholeSectors(absl::StrCat("cast ", mix, ", shift ", shift),
                       RunCast<Source, Target, false>(device, source_shift, target_shift), kPlain);
    ExpectWholeSectors(absl::StrCat("add ", mix, ", shift ", shift),
                       RunCast<Source, Target, true>(device, source_shift, target_shift), kAdding);
  }
  ExpectSideBySide(absl::StrCat("cast ", mix, ", shifts that differ"),
                   RunCast<Source, Target, false>(device, 1, 3), kPlain,
                   MostSectors({{sizeof(Source), kWidens ? kSource : 0, kWidens ? 0 : kSource}}),
                   MostSectors({{sizeof(Target), kWidens ? 0 : kTarget, kWidens ? kTarget : 0}}));
}

TEST(MoveCountersTest, CastMovesWholeSectors) {
#define BRIGADE_COUNT(Source, Target) CountCast<Source, Target>();
  BRIGADE_FOR_EACH_CAST_TYPE(BRIGADE_COUNT)
#undef BRIGADE_COUNT
}

template <typename T>
void CountFill() {
  for (const int64_t shift : {0, 1, 3}) {
    CountedKernels device("fill");
    auto* const data =
        static_cast<T*>(device.Allocate("data", kSize * sizeof(T), shift * sizeof(T)));
    FillArguments<kFewSegments> arguments = {};
    const T value(77);
    for (size_t i = 0; i < sizeof(FillPattern); i += sizeof(T)) {
      std::memcpy(reinterpret_cast<char*>(&arguments.pattern) + i, &value, sizeof(T));
    }
    arguments.element_bytes = sizeof(T);
    arguments.batch.segments[0] = {data, kSize};
    arguments.batch.first_tile[1] = FillTiles(arguments.batch.segments[0], sizeof(T));
    arguments.batch.count = 1;
    const Counted counted = device.Launch(absl::StrCat("FillKernel<", kFewSegments, ">"), kSize,
                                          arguments.batch.tiles(), kTileThreads, arguments);
    EXPECT_TRUE(SameValues(device.Download(data, kSize), std::vector<T>(kSize, value)));
    EXPECT_TRUE(device.SurroundingsAreIntact());
    ExpectWholeSectors(absl::StrCat("fill ", TypeName<T>::kInTable, ", shift ", shift), counted,
                       {sizeof(T), sizeof(T)});
  }
}

TEST(MoveCountersTest, FillMovesWholeSectors) {
  CountFill<uint8_t>();
  CountFill<precision::Half>();
  CountFill<float>();
  CountFill<double>();
}

// Of two sources; with a carry, those and the result of a pass before.
template <typename T, bool kCarries, ReduceOp kOp = ReduceOp::kSum>
Counted RunReduce(CountedKernels& device, int64_t shift, int64_t target_shift) {
  using Wide = ReduceWide<T>;
  const std::vector<T> a = Typical<T>(3), b = Typical<T>(4);
  const std::vector<Wide> carry = Typical<Wide>(5);
  T* const target =
      static_cast<T*>(device.Allocate("target", kSize * sizeof(T), target_shift * sizeof(T)));
  ReduceArrays arrays = {};
  arrays.sources[0] = device.Upload("a", a.data(), kSize, shift);
  arrays.sources[1] = device.Upload("b", b.data(), kSize, shift);
  arrays.targets[0] = target;
  arrays.source_count = 2;
  arrays.target_count = 1;
  arrays.size = kSize;
  if (kCarries) {
    arrays.carry.in = device.Upload("carry", carry.data(), kSize,
                                    shift % (32 / static_cast<int64_t>(sizeof(Wide))));
  }
  const auto layout = ReduceLayout<T, kCarries>(arrays);
  const Counted counted =
      device.Launch(absl::StrCat("ReduceKernel<(brigade::kernels::ReduceOp)", kOp, ", ",
                                 TypeName<T>::kInKernel, kCarries ? ", true>" : ", false>"),
                    kSize, layout.Tiles(kSize), kTileThreads, arrays, layout);
  std::vector<T> wanted(kSize);
  for (int64_t i = 0; i < kSize; ++i) {
    Wide sum = kCarries ? carry[i] : static_cast<Wide>(a[i]);
    if (kCarries) sum = ReduceElement<kOp>(sum, static_cast<Wide>(a[i]));
    wanted[i] = T(ReduceElement<kOp>(sum, static_cast<Wide>(b[i])));
  }
  EXPECT_TRUE(SameValues(device.Download(target, kSize), wanted));
  EXPECT_TRUE(device.SurroundingsAreIntact());
  return counted;
}

template <typename T>
void CountReduce() {
  constexpr ElementBytes kPlain = {3 * sizeof(T), 3 * sizeof(T)};
  constexpr int64_t kWide = sizeof(ReduceWide<T>);
  constexpr ElementBytes kCarrying = {kPlain.all + kWide,
                                      kWide + (kWide == sizeof(T) ? kPlain.wide : 0)};
  const std::string type = TypeName<T>::kInTable;
  CountedKernels device("reduce");
  for (const int64_t shift : {0, 1, 3}) {
    ExpectWholeSectors(absl::StrCat("reduce ", type, ", shift ", shift),
                       RunReduce<T, false>(device, shift, shift), kPlain);
  }
  ExpectWholeSectors(absl::StrCat("reduce ", type, ", with a carry"),
                     RunReduce<T, true>(device, 3, 3), kCarrying);
  // The same code but for the operation.
  RunReduce<T, false, ReduceOp::kMin>(device, 1, 1);
  RunReduce<T, true, ReduceOp::kMax>(device, 1, 2);
  // Bytes side by side touch two sectors where one would do.
  if (sizeof(T) > 1) {
    ExpectSideBySide(absl::StrCat("reduce ", type, ", shifts that differ"),
                     RunReduce<T, false>(device, 1, 2), kPlain, 1.0,
                     MostSectors({{sizeof(T), 0, sizeof(T)}}));
  }
}

TEST(MoveCountersTest, ReduceMovesWholeSectors) {
#define BRIGADE_COUNT(T) CountReduce<T>();
  BRIGADE_FOR_EACH_REDUCE_TYPE(BRIGADE_COUNT)
#undef BRIGADE_COUNT
}

}  // namespace
}  // namespace brigade::kernels
