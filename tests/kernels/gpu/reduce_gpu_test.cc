// Reductions on a GPU against the same calls on the CPU: all types, operations and ways to lay
// arrays out.

#include <string>
#include <type_traits>
#include <vector>

#include "brigade/kernels/reduce/reduce.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::DType;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                            DType::kInt32,   DType::kInt64,   DType::kUint8};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};

void FillAny(void* data, DType dtype, int64_t size, uint32_t seed) {
  if (precision::IsTrainingFormat(dtype)) return FillFloats(data, dtype, size, seed);
  std::mt19937_64 random(seed);
  precision::VisitAny(dtype, [&](auto tag) {
    using T = decltype(tag);
    for (int64_t i = 0; i < size; ++i) {
      if constexpr (std::is_integral_v<T>) {
        static_cast<T*>(data)[i] = static_cast<T>(random());
      } else if constexpr (std::is_same_v<T, double>) {
        static_cast<T*>(data)[i] = std::ldexp(static_cast<double>(random()), -60) - 8.0;
      }
    }
  });
}

struct Arrays {
  std::vector<const void*> sources;
  std::vector<void*> targets;
};

// Arrays that begin `shift` elements past a boundary, each one `spread` more than the one before.
Arrays Lay(Layout& layout, DType dtype, int sources, int targets, int64_t size, int shift,
           int spread) {
  Arrays arrays;
  const auto take = [&](int i) {
    return layout.Take<char>(size, (shift + i * spread) % 17, precision::SizeOf(dtype));
  };
  for (int i = 0; i < sources; ++i) arrays.sources.push_back(take(i));
  for (int i = 0; i < targets; ++i) arrays.targets.push_back(take(sources + i));
  return arrays;
}

class ReduceGpuTest : public ::testing::TestWithParam<DType> {};

// One call after the other on the same block, which is compared once.
TEST_P(ReduceGpuTest, GivesTheCpusBitsForEverySizeAndAlignment) {
  const DType dtype = GetParam();
  const uint32_t first_seed = std::random_device()();
  SCOPED_TRACE(first_seed);
  const auto for_each = [&](char* base, auto&& body) {
    Layout layout(base);
    uint32_t seed = first_seed;
    for (const int sources : {1, 2, 3, 8}) {
      for (const int64_t size : InterestingSizes()) {
        for (const auto& [shift, spread] : {std::pair(0, 0), {1, 0}, {3, 5}}) {
          body(Lay(layout, dtype, sources, sources % 3 + 1, size, shift, spread), size, seed++);
        }
      }
    }
    const int64_t bytes = brigade::testing::OnGpuOrEmulator(int64_t{2} << 20, int64_t{1} << 17);
    const int64_t large = bytes / precision::SizeOf(dtype) + 13;
    body(Lay(layout, dtype, 3, 1, large, 1, 1), large, seed);
  };
  for (const ReduceOp op : kOps) {
    const BeforeAndAfter memory = ExpectSameOnBoth(
        absl::StrCat("reduce ", precision::Name(dtype), ", op ", static_cast<int>(op)),
        [&](char* base) {
          for_each(base, [&](const Arrays& arrays, int64_t size, uint32_t seed) {
            for (size_t i = 0; i < arrays.sources.size(); ++i) {
              FillAny(const_cast<void*>(arrays.sources[i]), dtype, size,
                      seed * 8 + static_cast<uint32_t>(i));
            }
          });
        },
        [&](char* base, device::Stream& stream) {
          absl::Status status;
          for_each(base, [&](const Arrays& arrays, int64_t size, uint32_t) {
            status.Update(Reduce(arrays.sources, arrays.targets, size, {dtype, op}, stream));
          });
          return status;
        });
    EXPECT_FALSE(memory.after == memory.before);
  }
}

TEST_P(ReduceGpuTest, GivesTheCpusBitsInPlaceAndWithAsManyArraysAsThereMayBe) {
  const DType dtype = GetParam();
  constexpr int64_t kSize = 4099;
  const auto lay = [&](char* base) {
    Layout layout(base);
    return Lay(layout, dtype, kMaxReduceArrays, kMaxReduceArrays - 1, kSize, 2, 3);
  };
  for (const ReduceOp op : kOps) {
    ExpectSameOnBoth(
        absl::StrCat("reduce in place ", precision::Name(dtype)),
        [&](char* base) {
          for (const void* source : lay(base).sources) {
            FillAny(const_cast<void*>(source), dtype, kSize, std::random_device()());
          }
        },
        [&](char* base, device::Stream& stream) {
          Arrays arrays = lay(base);
          arrays.targets.push_back(const_cast<void*>(arrays.sources[5]));
          return Reduce(arrays.sources, arrays.targets, kSize, {dtype, op}, stream);
        });
  }
}

TEST_P(ReduceGpuTest, GivesTheCpusBitsOfMoreSourcesThanOnePassTakes) {
  const DType dtype = GetParam();
  constexpr int64_t kSize = 4099;
  for (const int sources : {65, 127, 128, 200}) {
    for (const auto& [shift, spread] : {std::pair(0, 0), {3, 0}, {2, 3}}) {
      for (const ReduceOp op : kOps) {
        Arrays arrays;
        void* partials = nullptr;
        const auto lay = [&](char* base) {
          Layout layout(base);
          arrays = Lay(layout, dtype, sources, 1, kSize, shift, spread);
          partials = layout.Take<double>(kSize);
          arrays.targets.push_back(const_cast<void*>(arrays.sources[64]));
        };
        ExpectSameOnBoth(
            absl::StrCat("reduce ", sources, " of ", precision::Name(dtype)),
            [&](char* base) {
              lay(base);
              for (const void* source : arrays.sources) {
                FillAny(const_cast<void*>(source), dtype, kSize, std::random_device()());
              }
            },
            [&](char* base, device::Stream& stream) {
              lay(base);
              return Reduce(arrays.sources, arrays.targets, kSize, {dtype, op, partials}, stream);
            });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ReduceGpuTest, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(precision::Name(info.param)); });

}  // namespace
}  // namespace brigade::kernels
