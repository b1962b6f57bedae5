#include "brigade/kernels/flatten/flatten.h"

#include <deque>
#include <limits>
#include <vector>

#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using ::testing::HasSubstr;

// Tensors of typical values and a flat buffer with gaps between their places.
template <typename Tensor, typename Element>
struct Flattening {
  explicit Flattening(const std::vector<int64_t>& sizes) : flat_array(Lay(sizes), 0) {
    std::mt19937 random(61);
    FillTypical(flat_array, random);
    for (size_t i = 0; i < sizes.size(); ++i) {
      tensors.emplace_back(sizes[i], static_cast<int64_t>(i % 5));
      FillTypical(tensors.back(), random);
      slots.push_back({tensors.back().data(), sizes[i], offsets[i]});
    }
    flat = {flat_array.data(), flat_array.size(), precision::kDType<Element>};
    options.tensor_dtype = precision::kDType<Tensor>;
  }

  int64_t Lay(const std::vector<int64_t>& sizes) {
    int64_t end = 3;
    for (const int64_t size : sizes) {
      offsets.push_back(end);
      end += size + size % 4;
    }
    return end + 2;
  }

  std::vector<int64_t> offsets;
  GuardedArray<Element> flat_array;
  std::deque<GuardedArray<Tensor>> tensors;
  std::vector<FlatSlot> slots;
  FlatBuffer flat;
  FlattenOptions options;
};

TEST(FlattenTest, PutsTensorsIntoTheirPlacesAndLeavesTheGaps) {
  OnEveryCpu([](device::Stream& stream, const std::string& how) {
    Flattening<float, BFloat16> f(InterestingSizes());
    std::vector<float> wanted = Values(f.flat_array);
    for (size_t i = 0; i < f.slots.size(); ++i) {
      for (int64_t j = 0; j < f.slots[i].size; ++j) {
        wanted[f.offsets[i] + j] = spec::Round(spec::Format::kBFloat16, f.tensors[i][j]);
      }
    }
    ASSERT_OK(Flatten(f.slots, f.options, f.flat, stream));
    ASSERT_OK(stream.Synchronize());
    EXPECT_TRUE(Matches(f.flat_array, wanted)) << how;
  });
}

TEST(FlattenTest, AccumulatesWithAScaleInto32Bits) {
  const CpuRun cpu = OnCpu(2);
  Flattening<BFloat16, float> f(InterestingSizes());
  const float scale = 0.125f;
  f.options.scale = &scale;
  f.options.accumulate = true;
  std::vector<float> wanted = Values(f.flat_array);
  for (size_t i = 0; i < f.slots.size(); ++i) {
    for (int64_t j = 0; j < f.slots[i].size; ++j) {
      const float product = static_cast<float>(f.tensors[i][j]) * scale;
      wanted[f.offsets[i] + j] += product;
    }
  }
  ASSERT_OK(Flatten(f.slots, f.options, f.flat, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_TRUE(Matches(f.flat_array, wanted));
}

TEST(FlattenTest, UnflattenBringsBackWhatFlattenStored) {
  const CpuRun cpu = OnCpu(2);
  Flattening<BFloat16, BFloat16> f(InterestingSizes());
  std::vector<std::vector<float>> wanted;
  for (const auto& tensor : f.tensors) wanted.push_back(Values(tensor));
  ASSERT_OK(Flatten(f.slots, f.options, f.flat, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  for (auto& tensor : f.tensors) {
    for (int64_t j = 0; j < tensor.size(); ++j) tensor[j] = BFloat16(7.0f);
  }
  ASSERT_OK(Unflatten(f.flat, f.slots, f.options, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(Matches(f.tensors[i], wanted[i])) << i;
}

TEST(FlattenTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  for (const bool into_flat : {true, false}) {
    BadArrays arrays(into_flat ? "flatten" : "unflatten");
    FlatBuffer flat = {nullptr, 10, DType::kFloat32};
    std::vector<FlatSlot> slots = {{nullptr, 10, 0}};
    FlattenOptions options;
    options.tensor_dtype = DType::kFloat16;
    arrays.Add("flat buffer of segment 0", flat.data, 10, 4, 4,
               into_flat ? BadArrays::kWritten : BadArrays::kRead);
    arrays.NameOfNull("flat buffer of segment 0", "flat buffer");
    arrays.Add("tensor of segment 0", slots[0].tensor, 10, 2, 2,
               into_flat ? BadArrays::kRead : BadArrays::kWritten);
    arrays.Add("scale", options.scale, 1, BadArrays::kReadUnlessNull);
    arrays.ExpectRefused(*cpu.stream, [&] {
      return into_flat ? Flatten(slots, options, flat, *cpu.stream)
                       : Unflatten(flat, slots, options, *cpu.stream);
    });
  }
}

TEST(FlattenTest, UnflattenRejectsTensorsThatOverlap) {
  const CpuRun cpu = OnCpu(1);
  Flattening<float, float> f({10, 20});
  const std::vector<float> before = Values(f.tensors[1]);
  f.slots[0].tensor = f.tensors[1].data() + 19;
  f.slots[0].size = 1;
  EXPECT_THAT(Unflatten(f.flat, f.slots, f.options, *cpu.stream),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("unflatten: tensor of segment 1 and tensor of segment 0 overlap "
                                 "in 4 bytes")));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_TRUE(Matches(f.tensors[1], before));
}

TEST(FlattenTest, RejectsPlacesOutsideOfTheFlatBufferAndOverlappingOnes) {
  const CpuRun cpu = OnCpu(1);
  Flattening<float, float> f({10, 20});
  const std::vector<float> before = Values(f.flat_array);
  const auto expect = [&](const char* message) {
    EXPECT_THAT(Flatten(f.slots, f.options, f.flat, *cpu.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  f.slots[1].offset = f.flat.size - 19;
  expect("flatten: segment 1 takes 20 elements from 18 on, but the flat buffer has 37");
  f.slots[1].offset = -1;
  expect("from -1 on");
  f.slots[1].offset = f.slots[0].offset + 9;
  expect("flatten: flat buffer of segment 0 and flat buffer of segment 1 overlap in 4 bytes");
  f.slots[1].offset = f.offsets[1];
  f.slots[1].size = -20;
  expect("segment 1 takes -20 elements");
  f.slots[1].size = 20;
  // 2^62 floats past its begin an address is the begin again.
  const int64_t size = f.flat.size;
  f.flat.size = std::numeric_limits<int64_t>::max();
  f.slots[1].offset = int64_t{1} << 62;
  expect("flat buffer has 9223372036854775807 elements, more than any address space");
  f.slots[1].offset = f.offsets[1];
  f.flat.size = size;
  f.flat.dtype = DType::kUint8;
  expect("dtype of flat buffer is uint8");
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_TRUE(Matches(f.flat_array, before));
}

}  // namespace
}  // namespace brigade::kernels
