// Ring attention at several numbers of ranks against plain attention in double, and its books.

#include "brigade/parallel/context/ring_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/parallel/context/zigzag.h"
#include "brigade/tests/nn/plain_attention.h"
#include "brigade/tests/parallel/tensor/tensor_lab.h"
#include "brigade/tests/spec/parallel.h"
#include "gmock/gmock.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename T>
class RingAttentionTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16, double>;
TYPED_TEST_SUITE(RingAttentionTest, Types);

template <typename T>
struct Results {
  std::vector<T> out, dqkv;
  std::vector<nn::Wide<T>> log_sum_exp;
};

// Copies between [outer, positions of all, columns] and a rank's part of it.
template <typename T>
void CopyPart(int64_t outer, int64_t positions, int64_t columns, int ranks, int rank,
              std::vector<T>& whole, std::vector<T>& part, bool to_part) {
  for (int64_t o = 0; o < outer; ++o) {
    for (const PositionRun& run : ZigzagRuns(positions, ranks, rank)) {
      const auto a = whole.begin() + (o * positions + run.global) * columns;
      const auto b = part.begin() + (o * positions / ranks + run.local) * columns;
      to_part ? std::copy_n(a, run.count * columns, b) : std::copy_n(b, run.count * columns, a);
    }
  }
}

struct RingOptions {
  int ranks = 1;
  device::RandomDelay random_delay = {};
  device::RaceChecker* race_checker = nullptr;
  // That the ring is made for, at least those that there are.
  int64_t most_texts = 0;
};

// Both passes, twice; of whole arrays.
template <typename T>
Results<T> Ring(const nn::AttentionShape& shape, const std::vector<T>& qkv,
                const std::vector<T>& dout, const RingOptions& options) {
  const int ranks = options.ranks;
  Results<T> results = {std::vector<T>(dout.size()), std::vector<T>(qkv.size()),
                        std::vector<nn::Wide<T>>(static_cast<size_t>(shape.statistics()))};
  collectives::OnThreads(
      {.size = ranks,
       .random_delay = options.random_delay,
       .race_checker = options.race_checker,
       .device = BRIGADE_LAB_DEVICE},
      [&](collectives::Rank& self) {
        TensorLab lab(self, {ranks, ranks, self.rank});
        const auto cut = [&](std::vector<T> whole, int64_t columns) {
          std::vector<T> part(whole.size() / static_cast<size_t>(ranks));
          CopyPart(shape.batch, shape.context, columns, ranks, self.rank, whole, part, true);
          return lab.Array(part);
        };
        const auto in = cut(qkv, 3 * shape.width), up = cut(dout, shape.width);
        const auto out = lab.Raw<T>(static_cast<int64_t>(up.size()));
        const auto dqkv = lab.Raw<T>(static_cast<int64_t>(in.size()));
        const int64_t before = lab.scratch_bytes();
        nn::AttentionShape most = shape;
        most.batch = std::max(shape.batch, options.most_texts);
        auto ring = RingAttention::Create(most, *self.communicator, *self.context).value();
        EXPECT_EQ(lab.scratch_bytes() - before,
                  RingAttention::Bytes(most, ranks, self.context->device()));
        EXPECT_OK(ring->SetBatch(shape.batch));
        EXPECT_THAT(ring->SetBatch(most.batch + 1),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             absl::StrCat("ring attention: a batch of ", most.batch + 1,
                                          " texts of at most ", most.batch)));
        const auto lse = lab.Raw<nn::Wide<T>>(ring->local_shape().statistics());
        const auto sent_by = [&](const auto& call) {
          const int64_t sent_before = lab.sent_bytes();
          EXPECT_OK(call());
          return lab.sent_bytes() - sent_before;
        };
        const auto hop = [&](const collectives::CollectiveSignature& signature) {
          return collectives::WireBytes(signature, self.rank, ranks);
        };
        const int64_t keys = hop(RingAttention::SignatureOf(shape, ranks)),
                      sums = hop(RingAttention::SignatureOfSums(shape, ranks));
        if (ranks > 1) {
          const int64_t elements = 2 * shape.rows() * shape.width / ranks;
          EXPECT_EQ(keys, elements * static_cast<int64_t>(sizeof(T)));
          EXPECT_EQ(sums, elements * static_cast<int64_t>(sizeof(nn::Wide<T>)));
        }
        const int64_t memory = lab.scratch_bytes(), waits = self.context->host_waits();
        for (int pass = 0; pass < 2; ++pass) {
          EXPECT_EQ(sent_by([&] {
                      return ring->Forward(in.data(), out.data(), lse.data(), lab.stream());
                    }),
                    (ranks - 1) * keys);
          EXPECT_EQ(sent_by([&] {
                      return ring->Backward(in.data(), out.data(), lse.data(), up.data(),
                                            dqkv.data(), lab.stream());
                    }),
                    (ranks - 1) * keys + (ranks > 1 ? ranks * sums : 0));
        }
        EXPECT_EQ(self.context->host_waits(), waits);
        EXPECT_EQ(lab.scratch_bytes(), memory);
        ASSERT_OK(self.communicator->Synchronize(lab.stream()));
        const auto join = [&](auto array, int64_t outer, int64_t columns, auto& whole) {
          auto part = lab.Read(array);
          CopyPart(outer, shape.context, columns, ranks, self.rank, whole, part, false);
        };
        join(out, shape.batch, shape.width, results.out);
        join(dqkv, shape.batch, 3 * shape.width, results.dqkv);
        join(lse, shape.batch * shape.heads, 1, results.log_sum_exp);
        self.AwaitOthers();
      });
  return results;
}

template <typename T>
nn::AttentionShape Shape(int64_t batch, int64_t context, int64_t heads, int64_t head_width) {
  return {precision::kDType<T>, batch, context, heads, heads * head_width};
}

template <typename T>
void ExpectPlain(const nn::AttentionShape& shape, int ranks) {
  SCOPED_TRACE(
      absl::StrCat(ranks, " ranks, context ", shape.context, ", heads of ", shape.head_width()));
  const auto qkv = Noise<T>(3 * shape.rows() * shape.width, 1);
  const auto dout = Noise<T>(shape.rows() * shape.width, 2);
  const std::vector<double> in = InDouble(qkv), up = InDouble(dout);
  const nn::PlainAttention plain(shape, in, up);
  const Results<T> results = Ring(shape, qkv, dout, {.ranks = ranks});
  double largest = 0;
  for (const double lse : plain.log_sum_exp) largest = std::max(largest, std::abs(lse));
  nn::Roundoffs u = nn::RoundoffsOf<T>(shape, kOnGpu);
  if (ranks > 1) u = nn::Merged(u, ranks - 1, largest);
  const auto in_double = [](const auto& value) { return static_cast<double>(nn::Widen(value)); };
  for (int64_t head = 0; head < shape.batch * shape.heads; ++head) {
    for (int64_t i = 0; i < shape.context; ++i) {
      const size_t at = plain.Statistic(head, i);
      ASSERT_NEAR(in_double(results.log_sum_exp[at]), plain.log_sum_exp[at],
                  plain.LogSumExpBound(u, head, i));
      for (int64_t c = 0; c < shape.head_width(); ++c) {
        const size_t o = plain.At(head, i, 0, 1) + static_cast<size_t>(c);
        ASSERT_NEAR(in_double(results.out[o]), plain.out[o], plain.OutBound(u, head, i, c)) << i;
        for (int part = 0; part < 3; ++part) {
          const size_t g = plain.At(head, i, part, 3) + static_cast<size_t>(c);
          ASSERT_NEAR(in_double(results.dqkv[g]), plain.dqkv[g],
                      plain.GradientBound(u, head, i, part, c))
              << "part " << part << " of position " << i;
        }
      }
    }
  }
}

TYPED_TEST(RingAttentionTest, IsPlainAttentionWhateverRanksShareATextsPositions) {
  using T = TypeParam;
  if (testing::IsEmulated()) {
    ExpectPlain<T>(Shape<T>(2, 12, 3, 5), 2);
    ExpectPlain<T>(Shape<T>(1, 36, 1, 32), 3);
    return;
  }
  for (const int ranks : {1, 2, 3, 4}) {
    // Heads that ranks do not divide; chunks of one position, of an odd number, and of more than a
    // tile.
    ExpectPlain<T>(Shape<T>(2, 24, 3, 5), ranks);
    ExpectPlain<T>(Shape<T>(1, 2 * ranks, 1, 32), ranks);
    ExpectPlain<T>(Shape<T>(1, 2 * ranks * 67, 1, 32), ranks);
  }
}

// A ring that was made for more texts.
TYPED_TEST(RingAttentionTest, FewerTextsHaveTheBitsThatTheyHaveAlone) {
  using T = TypeParam;
  const nn::AttentionShape shape = Shape<T>(2, 24, 3, 5);
  const auto qkv = Noise<T>(3 * shape.rows() * shape.width, 1);
  const auto dout = Noise<T>(shape.rows() * shape.width, 2);
  const Results<T> alone = Ring(shape, qkv, dout, {.ranks = 2});
  const Results<T> fewer = Ring(shape, qkv, dout, {.ranks = 2, .most_texts = 5});
  EXPECT_TRUE(SameBits(fewer.out, alone.out));
  EXPECT_TRUE(SameBits(fewer.dqkv, alone.dqkv));
  EXPECT_TRUE(SameBits(fewer.log_sum_exp, alone.log_sum_exp));
}

// The specification's order of merges, in double.
TEST(RingAttentionSpecTest, HasTheOrderOfMergesOfTheSpecification) {
  using T = double;
  const int64_t context = 24;
  const nn::AttentionShape shape = Shape<T>(1, context, 1, 1);
  const auto qkv = Noise<T>(3 * context, 3);
  for (const int ranks : {2, 3, 4}) {
    if (testing::IsEmulated() && ranks > 2) break;
    const Results<T> results = Ring(shape, qkv, Noise<T>(context, 4), {.ranks = ranks});
    for (int64_t query = 0; query < context; ++query) {
      std::vector<double> scores, values;
      for (int64_t key = 0; key < context; ++key) {
        scores.push_back(qkv[static_cast<size_t>(3 * query)] *
                         qkv[static_cast<size_t>(3 * key + 1)]);
        values.push_back(qkv[static_cast<size_t>(3 * key + 2)]);
      }
      const auto at = static_cast<size_t>(query);
      const spec::AttentionPart part = spec::RingAttentionOf(scores, values, at, ranks);
      // Of 24 keys.
      EXPECT_NEAR(results.out[at], part.out, 64 * 0x1p-53) << query;
      EXPECT_NEAR(results.log_sum_exp[at], part.log_sum_exp, 64 * 0x1p-53) << query;
    }
  }
}

// By nn::Attention alone.
template <typename T>
Results<T> Whole(const nn::AttentionShape& shape, const std::vector<T>& qkv,
                 const std::vector<T>& dout) {
  Results<T> results;
  OnTensorRanks(1, 1, [&](TensorLab& lab) {
    const auto in = lab.Array(qkv), up = lab.Array(dout);
    const auto out = lab.Raw<T>(static_cast<int64_t>(dout.size()));
    const auto dqkv = lab.Raw<T>(static_cast<int64_t>(qkv.size()));
    const auto lse = lab.Raw<nn::Wide<T>>(shape.statistics());
    const auto workspace =
        lab.Raw<double>(nn::AttentionWorkspaceBytes(shape, lab.self().context->device()) / 8 + 1);
    ASSERT_OK(nn::Attention(shape, in.data(), out.data(), lse.data(), lab.stream()));
    ASSERT_OK(nn::AttentionBackward(shape, in.data(), out.data(), lse.data(), up.data(),
                                    workspace.data(), dqkv.data(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    results = {lab.Read(out), lab.Read(dqkv), lab.Read(lse)};
  });
  return results;
}

TYPED_TEST(RingAttentionTest, OneRankHasTheBitsOfAttentionAndSoHasTheTextsBeginOnMore) {
  using T = TypeParam;
  const int64_t context = testing::IsEmulated() ? 12 : 2 * 4 * 67;
  const nn::AttentionShape shape = Shape<T>(1, context, 2, 32);
  const auto qkv = Noise<T>(3 * shape.rows() * shape.width, 1);
  const auto dout = Noise<T>(shape.rows() * shape.width, 2);
  const Results<T> whole = Whole(shape, qkv, dout);
  const Results<T> one = Ring(shape, qkv, dout, {.ranks = 1});
  EXPECT_TRUE(SameBits(one.out, whole.out));
  EXPECT_TRUE(SameBits(one.dqkv, whole.dqkv));
  EXPECT_TRUE(SameBits(one.log_sum_exp, whole.log_sum_exp));
  for (const int ranks : {2, 4}) {
    if (testing::IsEmulated() && ranks > 2) break;
    const Results<T> shared = Ring(shape, qkv, dout, {.ranks = ranks});
    const auto begin = [&](const auto& values, int64_t columns) {
      return std::vector(values.begin(), values.begin() + context / (2 * ranks) * columns);
    };
    EXPECT_TRUE(SameBits(begin(shared.out, shape.width), begin(whole.out, shape.width)));
    EXPECT_TRUE(SameBits(begin(shared.log_sum_exp, 1), begin(whole.log_sum_exp, 1)));
  }
}

TYPED_TEST(RingAttentionTest, BitsAreTheSameWhateverStreamsAreHeldUp) {
  using T = TypeParam;
  if (kOnGpu) GTEST_SKIP() << "for the CPU";
  const nn::AttentionShape shape = Shape<T>(2, 24, 3, 8);
  const auto qkv = Noise<T>(3 * shape.rows() * shape.width, 1);
  const auto dout = Noise<T>(shape.rows() * shape.width, 2);
  for (const int ranks : {2, 3, 4}) {
    const Results<T> wanted = Ring(shape, qkv, dout, {.ranks = ranks});
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      device::RaceChecker checker;
      const Results<T> results = Ring(shape, qkv, dout,
                                      {.ranks = ranks,
                                       .random_delay = {.seed = seed, .max_delay_us = 150},
                                       .race_checker = &checker});
      EXPECT_THAT(checker.reports(), IsEmpty());
      EXPECT_TRUE(SameBits(results.out, wanted.out)) << seed;
      EXPECT_TRUE(SameBits(results.dqkv, wanted.dqkv)) << seed;
      EXPECT_TRUE(SameBits(results.log_sum_exp, wanted.log_sum_exp)) << seed;
    }
  }
}

TEST(RingAttentionTypesTest, ABatchOfNoneIsNothingToDo) {
  const nn::AttentionShape shape = {DType::kFloat16, 0, 8, 1, 4};
  OnTensorRanks(2, 2, [&](TensorLab& lab) {
    auto ring = RingAttention::Create(shape, *lab.self().communicator, *lab.self().context);
    ASSERT_OK(ring);
    EXPECT_OK((*ring)->Forward(nullptr, nullptr, nullptr, lab.stream()));
    EXPECT_OK((*ring)->Backward(nullptr, nullptr, nullptr, nullptr, nullptr, lab.stream()));
    EXPECT_EQ(lab.sent_bytes(), 0);
  });
}

TEST(RingAttentionErrorTest, WhatRanksCannotShareIsNamed) {
  OnTensorRanks(2, 2, [](TensorLab& lab) {
    const auto create = [&](int64_t context, int64_t heads, int64_t width) {
      return RingAttention::Create({DType::kFloat32, 1, context, heads, width},
                                   *lab.self().communicator, *lab.self().context);
    };
    EXPECT_THAT(create(6, 3, 24),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "ring attention: 6 positions cannot be cut into two chunks for each of 2 "
                         "context ranks"));
    EXPECT_THAT(create(8, 2, 17), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "ring attention: width is 17 for 2 heads"));
    EXPECT_THAT(create(8, 0, 16), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "ring attention: width is 16 for 0 heads"));
    // Heads that the ranks do not divide.
    EXPECT_OK(create(8, 3, 24));
  });
}

TEST(RingAttentionErrorTest, RanksWithOtherTextsAreNamed) {
  if (kOnGpu) GTEST_SKIP() << "for the CPU";
  OnTensorRanks(2, 2, [](TensorLab& lab) {
    const int64_t context = lab.self().rank == 0 ? 8 : 12;
    const nn::AttentionShape shape = {DType::kFloat32, 1, context, 1, 4};
    auto ring = RingAttention::Create(shape, *lab.self().communicator, *lab.self().context).value();
    const auto qkv = lab.Raw<float>(shape.rows() * 12), out = lab.Raw<float>(shape.rows() * 4),
               lse = lab.Raw<float>(shape.rows());
    absl::Status status = ring->Forward(qkv.data(), out.data(), lse.data(), lab.stream());
    status.Update(lab.self().communicator->Synchronize(lab.stream()));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shift")));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("32")));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("48")));
    lab.stream().Reset().IgnoreError();
    lab.self().AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::parallel
