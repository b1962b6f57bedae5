// Documents that share texts, beside the same documents alone.

#include "brigade/nn/segments.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/simd.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/attention_block.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/functions.h"
#include "brigade/nn/rotary.h"
#include "brigade/tests/nn/lab.h"

namespace brigade::nn {
namespace {

using precision::BFloat16;
using precision::DType;
using precision::Half;

// The lengths of the documents of each text.
using Lengths = std::vector<std::vector<int64_t>>;

// Positions and ends of texts that are `gap` numbers further apart than they are long.
class Documents {
 public:
  explicit Documents(const Lengths& lengths, int64_t gap = 3)
      : context(std::accumulate(lengths[0].begin(), lengths[0].end(), int64_t{0})),
        stride_(context + gap) {
    for (size_t text = 0; text < lengths.size(); ++text) {
      int64_t begin = 0;
      for (const int64_t length : lengths[text]) {
        for (int64_t t = 0; t < length; ++t) {
          positions_.push_back(static_cast<int32_t>(t));
          ends_.push_back(static_cast<int32_t>(begin + length));
        }
        all.push_back({static_cast<int64_t>(text) * context + begin, length});
        begin += length;
      }
      EXPECT_EQ(begin, context) << "texts are equally long";
      for (int64_t i = 0; i < gap; ++i) {
        positions_.push_back(-7);
        ends_.push_back(-7);
      }
    }
  }

  Segments In(Lab& lab) const {
    const auto copy = [&](const std::vector<int32_t>& from) {
      const absl::Span<int32_t> to = lab.Raw<int32_t>(std::ssize(from));
      std::copy(from.begin(), from.end(), to.begin());
      return to.data();
    };
    return {copy(positions_), copy(ends_), stride_};
  }

  struct Document {
    int64_t row, length;
  };
  // In order.
  std::vector<Document> all;
  const int64_t context;

 private:
  const int64_t stride_;
  std::vector<int32_t> positions_, ends_;
};

template <typename T>
struct Arrays {
  std::vector<T> out, dqkv;
  std::vector<Wide<T>> log_sum_exp;
};

// Both passes, of whole rows of qkv and dout.
template <typename T>
Arrays<T> Run(AttentionShape shape, const std::vector<T>& qkv, const std::vector<T>& dout,
              const Documents* documents = nullptr, int threads = 2) {
  Lab lab;
  auto context =
      device::Context::Create({.device = BRIGADE_LAB_DEVICE, .compute_threads = threads}).value();
  auto stream = context->CreateStream("compute").value();
  shape.dtype = precision::kDType<T>;
  if (documents != nullptr) shape.segments = documents->In(lab);
  const auto in = [&](const std::vector<T>& from) {
    const absl::Span<T> to = lab.Raw<T>(std::ssize(from));
    std::copy(from.begin(), from.end(), to.begin());
    return to;
  };
  const auto x = in(qkv), up = in(dout);
  const auto out = lab.Raw<T>(shape.rows() * shape.width);
  const auto dx = lab.Raw<T>(shape.rows() * 3 * shape.width);
  const auto lse = lab.Raw<Wide<T>>(shape.statistics());
  auto workspace = context
                       ->Allocate(AttentionWorkspaceBytes(shape, context->device()),
                                  device::Purpose::kScratch, "workspace")
                       .value();
  EXPECT_OK(Attention(shape, x.data(), out.data(), lse.data(), *stream));
  EXPECT_OK(AttentionBackward(shape, x.data(), out.data(), lse.data(), up.data(), workspace.data(),
                              dx.data(), *stream));
  EXPECT_OK(stream->Synchronize());
  return {{out.begin(), out.end()}, {dx.begin(), dx.end()}, {lse.begin(), lse.end()}};
}

template <typename T>
std::vector<T> Noise(int64_t size, uint64_t seed) {
  Random random(seed, 0);
  std::vector<T> values(static_cast<size_t>(size));
  for (T& value : values) value = T(static_cast<Wide<T>>(2 * random.Uniform() - 1));
  return values;
}

template <typename T>
std::vector<T> Rows(const std::vector<T>& all, int64_t first, int64_t count, int64_t columns) {
  return {all.begin() + first * columns, all.begin() + (first + count) * columns};
}

template <typename T>
bool Same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Columns of queries, or of keys and values.
template <typename T>
std::vector<T> Part(const std::vector<T>& dqkv, int64_t width, bool queries) {
  std::vector<T> part;
  for (size_t i = 0; i < dqkv.size(); ++i) {
    if ((static_cast<int64_t>(i) % (3 * width) < width) == queries) part.push_back(dqkv[i]);
  }
  return part;
}

template <typename T>
double Farthest(const std::vector<T>& a, const std::vector<T>& b) {
  double farthest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    farthest = std::max(farthest, std::abs(static_cast<double>(Widen(a[i]) - Widen(b[i]))));
  }
  return farthest;
}

// Whether sums of queries' gradients go in the same parts.
enum class Parts { kSame, kOther };

template <typename T>
void ExpectBitsOfDocumentsAlone(const Lengths& lengths, int64_t heads, int64_t head_width,
                                Parts parts) {
  SCOPED_TRACE(
      absl::StrCat(precision::Name(precision::kDType<T>), ", ", heads, " heads of ", head_width));
  const Documents documents(lengths);
  const auto batch = std::ssize(lengths);
  const int64_t width = heads * head_width;
  const AttentionShape shape = {DType::kFloat32, batch, documents.context, heads, width};
  const auto qkv = Noise<T>(shape.rows() * 3 * width, 1), dout = Noise<T>(shape.rows() * width, 2);
  const Arrays<T> packed = Run(shape, qkv, dout, &documents);
  for (const auto& [row, length] : documents.all) {
    SCOPED_TRACE(absl::StrCat(length, " rows from row ", row));
    const AttentionShape own = {DType::kFloat32, 1, length, heads, width};
    const Arrays<T> alone =
        Run<T>(own, Rows(qkv, row, length, 3 * width), Rows(dout, row, length, width));
    EXPECT_TRUE(Same(Rows(packed.out, row, length, width), alone.out));
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t text = row / documents.context;
      const int64_t first = (text * heads + head) * documents.context + row % documents.context;
      EXPECT_TRUE(Same(Rows(packed.log_sum_exp, first, length, 1),
                       Rows(alone.log_sum_exp, head * length, length, 1)));
    }
    const auto gradients = Rows(packed.dqkv, row, length, 3 * width);
    EXPECT_TRUE(Same(Part(gradients, width, false), Part(alone.dqkv, width, false)));
    const auto queries = Part(gradients, width, true), of_alone = Part(alone.dqkv, width, true);
    if (parts == Parts::kSame || kOnGpu) {
      EXPECT_TRUE(Same(queries, of_alone));
    } else {
      // Sums of numbers below 2 in another order, each rounded to T at the end.
      EXPECT_LE(Farthest(queries, of_alone), sizeof(T) == 2 ? 0x1p-7 : 0x1p-19);
    }
  }
}

template <typename T>
class SegmentsTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16, double>;
TYPED_TEST_SUITE(SegmentsTest, Types);

// Around tiles of 32, 64 and 128; begins at tiles and inside them; many in one tile.
const Lengths kLengths =
    kOnGpu
        ? Lengths{{70, 1, 3, 64}, {5, 128, 2, 3}}
        : Lengths{{1, 127, 129, 64, 2, 3, 62, 12}, {300, 31, 1, 1, 1, 66}, {33, 65, 63, 100, 139}};

TYPED_TEST(SegmentsTest, DocumentsHaveTheBitsThatTheyHaveAlone) {
  // From 16 heads on there is one part.
  for (const int64_t width : kOnGpu ? std::vector<int64_t>{32, 128} : std::vector<int64_t>{5, 64}) {
    ExpectBitsOfDocumentsAlone<TypeParam>(kLengths, kOnGpu ? 1 : 16, width, Parts::kSame);
  }
}

TYPED_TEST(SegmentsTest, WithFewHeadsQueriesGradientsAreSummedInOtherParts) {
  if (kOnGpu) GTEST_SKIP() << "has no parts";
  ExpectBitsOfDocumentsAlone<TypeParam>(kLengths, 1, 24, Parts::kOther);
}

TYPED_TEST(SegmentsTest, TheWarpsRowsHaveThemToo) {
  if (!kOnGpu) GTEST_SKIP() << "of widths without tiles on the GPU";
  ExpectBitsOfDocumentsAlone<TypeParam>({{5, 1, 9}, {3, 3, 9}}, 2, 7, Parts::kSame);
}

TYPED_TEST(SegmentsTest, EveryInstructionSetHasThem) {
  if (kOnGpu) GTEST_SKIP() << "for the CPU";
  for (const auto target : {kernels::SimdTarget::kBaseline, kernels::SimdTarget::kAvx2}) {
    kernels::SetSimdTarget(target);
    ExpectBitsOfDocumentsAlone<TypeParam>(kLengths, 16, 12, Parts::kSame);
  }
  kernels::SetSimdTarget(kernels::BestSimdTarget());
}

TYPED_TEST(SegmentsTest, OneForEachTextHasTheBitsOfNone) {
  using T = TypeParam;
  for (const int64_t context : kOnGpu ? std::vector<int64_t>{65} : std::vector<int64_t>{1, 200}) {
    const Documents documents({{context}, {context}}, /*gap=*/0);
    const AttentionShape shape = {DType::kFloat32, 2, context, 2, 64};
    const auto qkv = Noise<T>(shape.rows() * 192, 1), dout = Noise<T>(shape.rows() * 64, 2);
    const Arrays<T> with = Run(shape, qkv, dout, &documents), without = Run(shape, qkv, dout);
    EXPECT_TRUE(Same(with.out, without.out));
    EXPECT_TRUE(Same(with.log_sum_exp, without.log_sum_exp));
    EXPECT_TRUE(Same(with.dqkv, without.dqkv));
  }
}

TYPED_TEST(SegmentsTest, NaNsOfOneStayInIt) {
  using T = TypeParam;
  const Lengths lengths = kOnGpu ? Lengths{{9, 3, 20}} : Lengths{{61, 3, 70, 5}};
  const Documents documents(lengths);
  const int64_t heads = 3, width = 3 * 32;
  const AttentionShape shape = {DType::kFloat32, 1, documents.context, heads, width};
  auto qkv = Noise<T>(shape.rows() * 3 * width, 1), dout = Noise<T>(shape.rows() * width, 2);
  const auto [row, length] = documents.all[1];
  for (int64_t i = row; i < row + length; ++i) {
    std::fill_n(qkv.begin() + i * 3 * width, 3 * width,
                T(std::numeric_limits<Wide<T>>::quiet_NaN()));
  }
  const Arrays<T> arrays = Run(shape, qkv, dout, &documents);
  for (int64_t i = 0; i < shape.rows(); ++i) {
    const bool is_of = i >= row && i < row + length;
    for (int64_t c = 0; c < width; ++c) {
      ASSERT_EQ(std::isnan(static_cast<double>(Widen(arrays.out[i * width + c]))), is_of) << i;
    }
    for (int64_t c = 0; c < 3 * width; ++c) {
      ASSERT_EQ(std::isnan(static_cast<double>(Widen(arrays.dqkv[i * 3 * width + c]))), is_of) << i;
    }
  }
}

TYPED_TEST(SegmentsTest, BitsDoNotDependOnTheNumberOfThreads) {
  using T = TypeParam;
  if (kOnGpu) GTEST_SKIP() << "for the CPU";
  const Documents documents(kLengths);
  const AttentionShape shape = {DType::kFloat32, 3, documents.context, 2, 48};
  const auto qkv = Noise<T>(shape.rows() * 144, 1), dout = Noise<T>(shape.rows() * 48, 2);
  const Arrays<T> one = Run(shape, qkv, dout, &documents, 1);
  for (const int threads : {2, 3}) {
    const Arrays<T> several = Run(shape, qkv, dout, &documents, threads);
    EXPECT_TRUE(Same(one.out, several.out));
    EXPECT_TRUE(Same(one.dqkv, several.dqkv));
  }
}

TYPED_TEST(SegmentsTest, NumbersThatAreNoneReachNothingElse) {
  using T = TypeParam;
  // Tiles of such numbers may have rows in common, which emulator and sanitizers call a race: one
  // thread.
  if (kOnGpu) GTEST_SKIP() << "for the CPU";
  Lab lab;
  const auto alone = device::Context::Create({.compute_threads = 1}).value();
  const auto stream = alone->CreateStream("compute").value();
  const int64_t context = 200;
  AttentionShape shape = {precision::kDType<T>, 2, context, 1, 32};
  const auto positions = lab.Raw<int32_t>(2 * context), ends = lab.Raw<int32_t>(2 * context);
  Random random(3, 0);
  for (const int64_t most : {int64_t{1} << 32, 2 * context}) {
    const auto any = [&] {
      return static_cast<int32_t>(static_cast<int64_t>(random.Next() % most) - most / 2);
    };
    for (int32_t& position : positions) position = any();
    for (int32_t& end : ends) end = any();
    shape.segments = {positions.data(), ends.data(), context};
    const auto qkv = lab.Noise<T>(shape.rows() * 96), dout = lab.Noise<T>(shape.rows() * 32);
    // With what must stay around them.
    constexpr int64_t kGuard = 64;
    const auto guarded = [&](int64_t size) {
      const absl::Span<T> array = lab.Raw<T>(size + 2 * kGuard);
      std::fill(array.begin(), array.end(), T(7));
      return array;
    };
    const auto out = guarded(shape.rows() * 32), dqkv = guarded(shape.rows() * 96);
    const auto lse = lab.Raw<Wide<T>>(shape.statistics());
    auto workspace = lab.context()
                         .Allocate(AttentionWorkspaceBytes(shape, lab.context().device()),
                                   device::Purpose::kScratch, "workspace")
                         .value();
    ASSERT_OK(Attention(shape, qkv.data(), out.data() + kGuard, lse.data(), *stream));
    ASSERT_OK(AttentionBackward(shape, qkv.data(), out.data() + kGuard, lse.data(), dout.data(),
                                workspace.data(), dqkv.data() + kGuard, *stream));
    ASSERT_OK(stream->Synchronize());
    for (const absl::Span<T> array : {out, dqkv}) {
      for (int64_t i = 0; i < kGuard; ++i) {
        ASSERT_EQ(Widen(array[i]), 7);
        ASSERT_EQ(Widen(array[array.size() - 1 - i]), 7);
      }
    }
  }
}

TYPED_TEST(SegmentsTest, PositionsBeginAnewInTablesAndRotations) {
  using T = TypeParam;
  Lab lab;
  const Documents documents({{4, 1, 6}, {2, 2, 7}});
  const int64_t context = documents.context, rows = 2 * context, width = 8;
  const Segments segments = documents.In(lab);
  const auto ids = lab.Raw<int32_t>(rows);
  for (int64_t i = 0; i < rows; ++i) ids[i] = static_cast<int32_t>(i * 5 % 13);
  const auto tokens = lab.Noise<T>(13 * width), positions = lab.Noise<T>(context * width);
  const auto x = lab.Raw<T>(rows * width), alone = lab.Raw<T>(rows * width);
  const DType dtype = precision::kDType<T>;
  const auto of = [&](const int32_t* first, int64_t batch, int64_t length) {
    return TokenIds::WithLabels(first, nullptr, batch, length, 13);
  };
  ASSERT_OK(Embedding(of(ids.data(), 2, context), dtype, width, tokens.data(), positions.data(),
                      x.data(), lab.stream(), segments));
  ASSERT_OK_AND_ASSIGN(
      const RotaryTable table,
      RotaryTable::Create(lab.context(), {dtype, context, /*head_width=*/width, 10000}));
  RotaryShape shape = {dtype, 2, context, 1, width};
  shape.segments = segments;
  ASSERT_OK(Rotary(shape, table, x.data(), lab.stream()));
  for (const auto& [row, length] : documents.all) {
    T* const to = alone.data() + row * width;
    ASSERT_OK(Embedding(of(ids.data() + row, 1, length), dtype, width, tokens.data(),
                        positions.data(), to, lab.stream()));
    ASSERT_OK(Rotary({dtype, 1, length, 1, width}, table, to, lab.stream()));
  }
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_EQ(std::memcmp(x.data(), alone.data(), x.size() * sizeof(T)), 0);
  // And back to where the rotation began.
  ASSERT_OK(RotaryBackward(shape, table, x.data(), lab.stream()));
  ASSERT_OK(Embedding(of(ids.data(), 2, context), dtype, width, tokens.data(), positions.data(),
                      alone.data(), lab.stream(), segments));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_LE(Farthest<T>({x.begin(), x.end()}, {alone.begin(), alone.end()}),
            sizeof(T) == 2 ? 0x1p-6 : 0x1p-20);
}

TEST(SegmentTileTest, EveryPositionIsInOneTile) {
  if (kOnGpu) GTEST_SKIP() << "of the host";
  Random random(5, 0);
  constexpr int64_t kTile = 8;
  for (int repetition = 0; repetition < 200; ++repetition) {
    std::vector<int64_t> lengths;
    const auto most = static_cast<uint64_t>(1 + random.Next() % 30);
    for (int i = 0; i < 10; ++i) lengths.push_back(static_cast<int64_t>(1 + random.Next() % most));
    const Documents documents({lengths}, 0);
    Lab lab;
    const Segments segments = documents.In(lab);
    std::vector<int> seen(static_cast<size_t>(documents.context));
    for (int64_t slot = 0; slot * kTile < documents.context; ++slot) {
      SegmentTile<kTile>::ForSlot(
          segments, 0, documents.context, slot, [&](const SegmentTile<kTile>& tile) {
            EXPECT_EQ(tile.first % kTile, 0);
            EXPECT_EQ((tile.begin + tile.first) / kTile, slot);
            for (int64_t t = tile.begin + tile.first;
                 t < std::min<int64_t>(tile.begin + tile.first + kTile, tile.end); ++t) {
              EXPECT_EQ(segments.Begin(0, t), tile.begin);
              ++seen[static_cast<size_t>(t)];
            }
          });
    }
    EXPECT_EQ(std::ranges::count(seen, 1), documents.context);
  }
}

TEST(SegmentsErrorsTest, WhatTheyLackIsRefused) {
  Lab lab;
  const int32_t numbers[8] = {};
  AttentionShape shape = {DType::kFloat32, 2, 4, 1, 8};
  shape.segments = {numbers, nullptr, 4};
  EXPECT_EQ(Attention(shape, nullptr, nullptr, nullptr, lab.stream()),
            absl::InvalidArgumentError("attention: segments without ends"));
  shape.segments = {numbers, numbers, 3};
  EXPECT_EQ(
      AttentionBackward(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, lab.stream()),
      absl::InvalidArgumentError("attention_backward: segments of texts that are 3 positions "
                                 "apart, and have 4"));
  shape.segments = {numbers, numbers, 4};
  EXPECT_EQ(AttentionOfBlock({.shape = shape, .queries = 4, .keys = 4, .causal = true}, nullptr,
                             nullptr, nullptr, nullptr, lab.stream()),
            absl::InvalidArgumentError(
                "attention_of_block: segments; a block has one, of all its positions"));
}

}  // namespace
}  // namespace brigade::nn
