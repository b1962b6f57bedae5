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

// Tensors of typical values and a bucket with gaps between their places.
template <typename Tensor, typename Element>
struct Flattening {
  explicit Flattening(const std::vector<int64_t>& sizes) : bucket_array(Lay(sizes), 0) {
    std::mt19937 random(61);
    FillTypical(bucket_array, random);
    for (size_t i = 0; i < sizes.size(); ++i) {
      tensors.emplace_back(sizes[i], static_cast<int64_t>(i % 5));
      FillTypical(tensors.back(), random);
      slots.push_back({tensors.back().data(), sizes[i], offsets[i]});
    }
    bucket = {bucket_array.data(), bucket_array.size(), precision::kDType<Element>};
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
  GuardedArray<Element> bucket_array;
  std::deque<GuardedArray<Tensor>> tensors;
  std::vector<BucketSlot> slots;
  Bucket bucket;
  FlattenOptions options;
};

TEST(FlattenTest, PutsTensorsIntoTheirPlacesAndLeavesTheGaps) {
  OnEveryCpu([](device::Stream& stream, const std::string& how) {
    Flattening<float, BFloat16> f(InterestingSizes());
    std::vector<float> wanted = Values(f.bucket_array);
    for (size_t i = 0; i < f.slots.size(); ++i) {
      for (int64_t j = 0; j < f.slots[i].size; ++j) {
        wanted[f.offsets[i] + j] = spec::Round(spec::Format::kBFloat16, f.tensors[i][j]);
      }
    }
    ASSERT_OK(Flatten(f.slots, f.options, f.bucket, stream));
    ASSERT_OK(stream.Synchronize());
    EXPECT_TRUE(Matches(f.bucket_array, wanted)) << how;
  });
}

TEST(FlattenTest, AccumulatesWithAScaleInto32Bits) {
  const CpuRun cpu = OnCpu(2);
  Flattening<BFloat16, float> f(InterestingSizes());
  const float scale = 0.125f;
  f.options.scale = &scale;
  f.options.accumulate = true;
  std::vector<float> wanted = Values(f.bucket_array);
  for (size_t i = 0; i < f.slots.size(); ++i) {
    for (int64_t j = 0; j < f.slots[i].size; ++j) {
      const float product = static_cast<float>(f.tensors[i][j]) * scale;
      wanted[f.offsets[i] + j] += product;
    }
  }
  ASSERT_OK(Flatten(f.slots, f.options, f.bucket, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_TRUE(Matches(f.bucket_array, wanted));
}

TEST(FlattenTest, UnflattenBringsBackWhatFlattenStored) {
  const CpuRun cpu = OnCpu(2);
  Flattening<BFloat16, BFloat16> f(InterestingSizes());
  std::vector<std::vector<float>> wanted;
  for (const auto& tensor : f.tensors) wanted.push_back(Values(tensor));
  ASSERT_OK(Flatten(f.slots, f.options, f.bucket, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  for (auto& tensor : f.tensors) {
    for (int64_t j = 0; j < tensor.size(); ++j) tensor[j] = BFloat16(7.0f);
  }
  ASSERT_OK(Unflatten(f.bucket, f.slots, f.options, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(Matches(f.tensors[i], wanted[i])) << i;
}

TEST(FlattenTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  for (const bool into_bucket : {true, false}) {
    BadArrays arrays(into_bucket ? "flatten" : "unflatten");
    Bucket bucket = {nullptr, 10, DType::kFloat32};
    std::vector<BucketSlot> slots = {{nullptr, 10, 0}};
    FlattenOptions options;
    options.tensor_dtype = DType::kFloat16;
    arrays.Add("bucket of segment 0", bucket.data, 10, 4, 4,
               into_bucket ? BadArrays::kWritten : BadArrays::kRead);
    arrays.NameOfNull("bucket of segment 0", "bucket");
    arrays.Add("tensor of segment 0", slots[0].tensor, 10, 2, 2,
               into_bucket ? BadArrays::kRead : BadArrays::kWritten);
    arrays.Add("scale", options.scale, 1, BadArrays::kReadUnlessNull);
    arrays.ExpectRefused(*cpu.stream, [&] {
      return into_bucket ? Flatten(slots, options, bucket, *cpu.stream)
                         : Unflatten(bucket, slots, options, *cpu.stream);
    });
  }
}

TEST(FlattenTest, UnflattenRejectsTensorsThatOverlap) {
  const CpuRun cpu = OnCpu(1);
  Flattening<float, float> f({10, 20});
  const std::vector<float> before = Values(f.tensors[1]);
  f.slots[0].tensor = f.tensors[1].data() + 19;
  f.slots[0].size = 1;
  EXPECT_THAT(Unflatten(f.bucket, f.slots, f.options, *cpu.stream),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("unflatten: tensor of segment 1 and tensor of segment 0 overlap "
                                 "in 4 bytes")));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_TRUE(Matches(f.tensors[1], before));
}

TEST(FlattenTest, RejectsPlacesOutsideOfTheBucketAndOverlappingOnes) {
  const CpuRun cpu = OnCpu(1);
  Flattening<float, float> f({10, 20});
  const std::vector<float> before = Values(f.bucket_array);
  const auto expect = [&](const char* message) {
    EXPECT_THAT(Flatten(f.slots, f.options, f.bucket, *cpu.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  f.slots[1].bucket_offset = f.bucket.size - 19;
  expect("flatten: segment 1 takes 20 elements from 18 on, but the bucket has 37");
  f.slots[1].bucket_offset = -1;
  expect("from -1 on");
  f.slots[1].bucket_offset = f.slots[0].bucket_offset + 9;
  expect("flatten: bucket of segment 0 and bucket of segment 1 overlap in 4 bytes");
  f.slots[1].bucket_offset = f.offsets[1];
  f.slots[1].size = -20;
  expect("segment 1 takes -20 elements");
  f.slots[1].size = 20;
  // 2^62 floats past its begin an address is the begin again.
  const int64_t size = f.bucket.size;
  f.bucket.size = std::numeric_limits<int64_t>::max();
  f.slots[1].bucket_offset = int64_t{1} << 62;
  expect("bucket has 9223372036854775807 elements, more than any address space");
  f.slots[1].bucket_offset = f.offsets[1];
  f.bucket.size = size;
  f.bucket.dtype = DType::kUint8;
  expect("dtype of bucket is uint8");
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_TRUE(Matches(f.bucket_array, before));
}

}  // namespace
}  // namespace brigade::kernels
