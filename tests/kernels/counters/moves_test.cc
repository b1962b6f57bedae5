// Cast, fill and reduce as nvcc compiles them: the CPU's bits, and whole sectors. Flatten is a list
// of casts.

#include <algorithm>
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

template <typename T>
std::vector<T> Typical(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<T> values(kSize);
  for (T& value : values) {
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>((uint64_t{random()} << 32) + random());
    } else {
      value = T(TypicalValue(random));
    }
  }
  return values;
}

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
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
  EXPECT_TRUE(SameBytes(device.Download(device_target, kSize), target));
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
                   RunCast<Source, Target, false>(device, 1, 3), kPlain);
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
    EXPECT_TRUE(SameBytes(device.Download(data, kSize), std::vector<T>(kSize, value)));
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

// Sums of two sources; with a carry, those and the sums of a pass before.
template <typename T, bool kCarries>
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
      device.Launch(absl::StrCat("ReduceKernel<(brigade::kernels::ReduceOp)0, ",
                                 TypeName<T>::kInKernel, kCarries ? ", true>" : ", false>"),
                    kSize, layout.Tiles(kSize), kTileThreads, arrays, layout, int64_t{0});
  std::vector<T> wanted(kSize);
  for (int64_t i = 0; i < kSize; ++i) {
    Wide sum = kCarries ? carry[i] : static_cast<Wide>(a[i]);
    if (kCarries) sum = ReduceElement<ReduceOp::kSum>(sum, static_cast<Wide>(a[i]));
    wanted[i] = T(ReduceElement<ReduceOp::kSum>(sum, static_cast<Wide>(b[i])));
  }
  EXPECT_TRUE(SameBytes(device.Download(target, kSize), wanted));
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
  // Bytes side by side touch two sectors where one would do.
  if (sizeof(T) > 1) {
    ExpectSideBySide(absl::StrCat("reduce ", type, ", shifts that differ"),
                     RunReduce<T, false>(device, 1, 2), kPlain);
  }
}

TEST(MoveCountersTest, ReduceMovesWholeSectors) {
#define BRIGADE_COUNT(T) CountReduce<T>();
  BRIGADE_FOR_EACH_REDUCE_TYPE(BRIGADE_COUNT)
#undef BRIGADE_COUNT
}

}  // namespace
}  // namespace brigade::kernels
