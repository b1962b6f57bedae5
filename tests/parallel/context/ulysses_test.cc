#include "brigade/parallel/context/ulysses.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/parallel/tensor/tensor_lab.h"
#include "gmock/gmock.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

// 16 heads of all texts on each of four ranks: gradients of queries are of one part.
constexpr int64_t kBatch = 4, kContext = 12, kHeads = 16, kHeadWidth = 8;
constexpr int64_t kWidth = kHeads * kHeadWidth, kRows = kBatch * kContext;

template <typename T>
class UlyssesTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16, double>;
TYPED_TEST_SUITE(UlyssesTest, Types);

template <typename T>
struct Results {
  std::vector<T> out, dqkv;
};

// Positions are cut: axis 1 of [batch, context, columns].
Shard Positions(int64_t columns) { return {.shape = {kBatch, kContext, columns}, .axis = 1}; }

// By nn::Attention alone.
template <typename T>
Results<T> Whole(const std::vector<T>& qkv, const std::vector<T>& dout) {
  Results<T> results = {std::vector<T>(dout.size()), std::vector<T>(qkv.size())};
  OnTensorRanks(1, 1, [&](TensorLab& lab) {
    const nn::AttentionShape shape = {precision::kDType<T>, kBatch, kContext, kHeads, kWidth};
    const auto in = lab.Cut(Positions(3 * kWidth), qkv), up = lab.Cut(Positions(kWidth), dout);
    const auto out = lab.Raw<T>(kRows * kWidth), dqkv = lab.Raw<T>(3 * kRows * kWidth);
    const auto lse = lab.Raw<nn::Wide<T>>(shape.statistics());
    const auto workspace =
        lab.Raw<double>(nn::AttentionWorkspaceBytes(shape, lab.self().context->device()) / 8 + 1);
    ASSERT_OK(nn::Attention(shape, in.data(), out.data(), lse.data(), lab.stream()));
    ASSERT_OK(nn::AttentionBackward(shape, in.data(), out.data(), lse.data(), up.data(),
                                    workspace.data(), dqkv.data(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    results = {lab.Read(out), lab.Read(dqkv)};
  });
  return results;
}

template <typename T>
Results<T> Exchanged(const std::vector<T>& qkv, const std::vector<T>& dout, int ranks,
                     int64_t most_texts = kBatch) {
  Results<T> results = {std::vector<T>(dout.size()), std::vector<T>(qkv.size())};
  OnTensorRanks(ranks, ranks, [&](TensorLab& lab) {
    collectives::Communicator& group = *lab.self().communicator;
    const nn::AttentionShape shape = {precision::kDType<T>, kBatch, kContext, kHeads, kWidth};
    const auto in = lab.Cut(Positions(3 * kWidth), qkv), up = lab.Cut(Positions(kWidth), dout);
    const auto out = lab.Raw<T>(kRows * kWidth / ranks);
    const auto dqkv = lab.Raw<T>(3 * kRows * kWidth / ranks);
    const int64_t before = lab.scratch_bytes();
    nn::AttentionShape most = shape;
    most.batch = most_texts;
    auto ulysses = Ulysses::Create(most, group, *lab.self().context).value();
    EXPECT_EQ(lab.scratch_bytes() - before,
              Ulysses::Bytes(most, ranks, lab.self().context->device()));
    EXPECT_OK(ulysses->SetBatch(kBatch));
    EXPECT_THAT(ulysses->SetBatch(most_texts + 1),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("ulysses: a batch of ", most_texts + 1, " texts of at most ",
                                      most_texts)));
    const auto saved_qkv = lab.Raw<T>(3 * kRows * kWidth / ranks);
    const auto saved_out = lab.Raw<T>(kRows * kWidth / ranks);
    const auto lse = lab.Raw<nn::Wide<T>>(ulysses->local_shape().statistics());
    const Ulysses::Saved saved = {saved_qkv.data(), saved_out.data(), lse.data()};
    const int64_t sent_before = lab.sent_bytes();
    ASSERT_OK(ulysses->GatherQkv(in.data(), saved, lab.stream()));
    ASSERT_OK(ulysses->Attend(saved, out.data(), lab.stream()));
    ASSERT_OK(ulysses->Backward(up.data(), saved, dqkv.data(), lab.stream()));
    ASSERT_OK(group.Synchronize(lab.stream()));
    lab.self().AwaitOthers();
    // Four columns' width there and back, twice: 8 (c - 1) / c^2 of what one rank would have.
    EXPECT_EQ(lab.sent_bytes() - sent_before,
              8 * (ranks - 1) * kRows * kWidth / ranks / ranks * static_cast<int64_t>(sizeof(T)));
    lab.Join<T>(Positions(kWidth), out, results.out);
    lab.Join<T>(Positions(3 * kWidth), dqkv, results.dqkv);
  });
  return results;
}

TYPED_TEST(UlyssesTest, HasTheBitsOfAttentionOnOneRank) {
  using T = TypeParam;
  const auto qkv = Noise<T>(3 * kRows * kWidth, 1), dout = Noise<T>(kRows * kWidth, 2);
  const Results<T> whole = Whole(qkv, dout);
  for (const int ranks : {1, 2, 4}) {
    if (testing::IsEmulated() && ranks != 2) continue;
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    const Results<T> results = Exchanged(qkv, dout, ranks);
    EXPECT_TRUE(SameBits(results.out, whole.out));
    EXPECT_TRUE(SameBits(results.dqkv, whole.dqkv));
    // Of one that was made for more texts.
    const Results<T> fewer = Exchanged(qkv, dout, ranks, kBatch + 3);
    EXPECT_TRUE(SameBits(fewer.out, whole.out));
    EXPECT_TRUE(SameBits(fewer.dqkv, whole.dqkv));
  }
}

TEST(UlyssesErrorTest, WhatRanksDoNotDivideIsNamed) {
  OnTensorRanks(2, 2, [](TensorLab& lab) {
    const auto create = [&](int64_t context, int64_t heads) {
      return Ulysses::Create({DType::kFloat32, 1, context, heads, heads * 8},
                             *lab.self().communicator, *lab.self().context);
    };
    EXPECT_THAT(create(8, 3), StatusIs(absl::StatusCode::kInvalidArgument,
                                       "ulysses: 3 heads cannot be cut over 2 context ranks"));
    EXPECT_THAT(create(7, 2), StatusIs(absl::StatusCode::kInvalidArgument,
                                       "ulysses: 7 positions cannot be cut over 2 context ranks"));
    EXPECT_THAT(create(8, 0), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 heads")));
    EXPECT_OK(create(8, 2));
    EXPECT_THAT(Ulysses::Create({DType::kFloat32, 1, 8, 2, 17}, *lab.self().communicator,
                                *lab.self().context),
                StatusIs(absl::StatusCode::kInvalidArgument, "ulysses: width is 17 for 2 heads"));
  });
}

}  // namespace
}  // namespace brigade::parallel
