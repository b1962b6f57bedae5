// The embedding and the cross entropy of a vocabulary that is cut over tensor shards.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/functions.h"
#include "brigade/parallel/tensor/cross_entropy.h"
#include "brigade/parallel/tensor/embedding.h"
#include "brigade/tests/parallel/tensor/tensor_lab.h"
#include "brigade/tests/spec/parallel.h"
#include "gmock/gmock.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rows that two to eight ranks share, and an odd number.
constexpr int64_t kBatch = 2, kContext = 24, kRows = kBatch * kContext, kWidth = 12;
constexpr int64_t kVocabulary = 48;

// Ids of all shards, their first and last ones too; row 5 has none of the vocabulary.
std::vector<int32_t> Ids() {
  std::vector<int32_t> ids;
  nn::Random random(3, 0);
  for (int64_t i = 0; i < kBatch * (kContext + 1); ++i) {
    ids.push_back(static_cast<int32_t>(random.Next() % kVocabulary));
  }
  for (int32_t i = 0; i < 8; ++i) ids[static_cast<size_t>(8 + i)] = 6 * i + (i % 2 == 0 ? 0 : 5);
  return ids;
}

template <typename T>
class VocabularyTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16, double>;
TYPED_TEST_SUITE(VocabularyTest, Types);

template <typename T>
struct Embedded {
  std::vector<T> x, dtokens, dpositions;
};

// With nn::Embedding on one shard, where `by_nn`.
template <typename T>
Embedded<T> Embed(int count, int ranks, SumPart part, int pieces = 1, bool by_nn = false) {
  const Shard table = {.shape = {kVocabulary, kWidth}, .axis = 0};
  auto tokens = Noise<T>(kVocabulary * kWidth, 1), positions = Noise<T>(kContext * kWidth, 2);
  // -0 + -0 keeps its sign, wherever it lies.
  for (int64_t v = 0; v < kVocabulary; ++v) tokens[static_cast<size_t>(v * kWidth)] = T(-0.0f);
  for (int64_t t = 0; t < kContext; ++t) positions[static_cast<size_t>(t * kWidth)] = T(-0.0f);
  const auto dx = Noise<T>(kRows * kWidth, 3);
  std::vector<int32_t> bad = Ids();
  bad[5] = -7;
  bad[6] = kVocabulary;
  Embedded<T> whole = {std::vector<T>(dx.size()), std::vector<T>(tokens.size()),
                       std::vector<T>(positions.size())};
  OnTensorRanks(count, ranks, [&](TensorLab& lab) {
    constexpr DType kType = precision::kDType<T>;
    auto workspace =
        nn::Workspace::Create(*lab.self().context, kType,
                              {.rows = kRows, .width = kWidth, .vocabulary = kVocabulary})
            .value();
    const auto my_ids = lab.Cut<int32_t>({.shape = {kBatch, kContext + 1}}, bad);
    const auto my_tokens = lab.Cut(table, tokens);
    const auto my_positions = lab.Cut({.shape = {kContext, kWidth}}, positions);
    const auto my_dx = lab.Cut({.shape = {kRows, kWidth}}, dx);
    const RowPieces cut = {kRows, pieces, part, lab.shards()};
    const auto x = lab.Raw<T>(cut.own_rows() * kWidth);
    const auto dtokens = lab.Raw<T>(static_cast<int64_t>(my_tokens.size()));
    const auto dpositions = lab.Raw<T>(kContext * kWidth);
    const nn::TokenIds ids = {my_ids.data(), kBatch, kContext, kVocabulary};
    if (by_nn) {
      ASSERT_OK(nn::Embedding(ids, kType, kWidth, my_tokens.data(), my_positions.data(), x.data(),
                              lab.stream()));
      ASSERT_OK(nn::EmbeddingBackward(ids, kType, kWidth, my_dx.data(), {dtokens.data()},
                                      {dpositions.data()}, workspace, lab.stream()));
    } else {
      const nn::TokenIds window = VocabularyWindow(ids, lab.shards()).value();
      auto sums = ShardSums::Create({.shards = lab.shards(),
                                     .dtype = kType,
                                     .part = part,
                                     .elements = kRows * kWidth,
                                     .pieces = pieces,
                                     .rows = kRows},
                                    lab.self().communicator.get(), *lab.self().context)
                      .value();
      ASSERT_OK(VocabularyEmbedding(window, kWidth, my_tokens.data(), my_positions.data(), x.data(),
                                    *sums, lab.stream()));
      ASSERT_OK(nn::EmbeddingBackward(window, kType, kWidth, my_dx.data(), {dtokens.data()},
                                      {dpositions.data()}, workspace, lab.stream()));
    }
    ASSERT_OK(lab.self().communicator->Synchronize(lab.stream()));
    lab.JoinRows<T>(cut, kWidth, x, whole.x);
    lab.Join<T>(table, dtokens, whole.dtokens);
    lab.JoinRows<T>({.rows = kContext}, kWidth, dpositions, whole.dpositions);
  });
  return whole;
}

TYPED_TEST(VocabularyTest, AnEmbeddingHasTheBitsOfOneTableOnAnyRanks) {
  using T = TypeParam;
  const Embedded<T> wanted = Embed<T>(1, 1, SumPart::kAll, 1, /*by_nn=*/true);
  // Rows 5 and 6 have no token.
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    const bool none = i / kWidth == 5 || i / kWidth == 6;
    EXPECT_EQ(std::isnan(nn::Widen(wanted.x[static_cast<size_t>(i)])), none) << i;
  }
  ForEachSharing([&](int count, int ranks) {
    for (const auto& [part, pieces] :
         {std::pair(SumPart::kAll, 1), std::pair(SumPart::kOwn, 1), std::pair(SumPart::kOwn, 4)}) {
      SCOPED_TRACE(
          absl::StrCat(count, " shards, ", ranks, " ranks, part ", part, ", ", pieces, " pieces"));
      const Embedded<T> embedded = Embed<T>(count, ranks, part, pieces);
      for (size_t i = 0; i < wanted.x.size(); ++i) {
        // Payloads of NaN aside.
        if (std::isnan(nn::Widen(wanted.x[i]))) {
          EXPECT_TRUE(std::isnan(nn::Widen(embedded.x[i]))) << i;
        } else {
          EXPECT_EQ(std::memcmp(&embedded.x[i], &wanted.x[i], sizeof(T)), 0) << i;
        }
      }
      EXPECT_TRUE(SameBits(embedded.dtokens, wanted.dtokens));
      EXPECT_TRUE(SameBits(embedded.dpositions, wanted.dpositions));
    }
  });
}

template <typename T>
struct Entropy {
  std::vector<nn::Wide<T>> losses;
  std::vector<T> gradient;
};

constexpr float kSeed = 8.0f;

template <typename T>
std::vector<T> Logits() {
  std::vector<T> logits = Noise<T>(kRows * kVocabulary, 4);
  for (T& z : logits) z = T(nn::Widen(z) * 6);
  return logits;
}

// Of whole logits [rows, vocabulary]; by nn::CrossEntropy on one shard, where `by_nn`.
template <typename T>
Entropy<T> CrossEntropyOf(const std::vector<int32_t>& ids, const std::vector<T>& logits, int count,
                          int ranks, bool by_nn = false) {
  using W = nn::Wide<T>;
  constexpr DType kType = precision::kDType<T>;
  // Shard by shard [rows, vocabulary / shards]: cut by columns.
  const Shard columns = {.shape = {kRows, kVocabulary}, .axis = 1};
  Entropy<T> whole = {std::vector<W>(kRows), std::vector<T>(logits.size())};
  OnTensorRanks(count, ranks, [&](TensorLab& lab) {
    const auto my_ids = lab.Cut<int32_t>({.shape = {kBatch, kContext + 1}}, ids);
    const auto mine = lab.Cut(columns, logits);
    const auto losses = lab.Raw<W>(kRows), statistics = lab.Raw<W>(3 * kRows);
    const auto seed = lab.Array<float>({kSeed});
    const nn::TokenIds all = {my_ids.data(), kBatch, kContext, kVocabulary};
    if (by_nn) {
      ASSERT_OK(nn::CrossEntropy(all, kType, mine.data(), losses.data(), lab.stream()));
      ASSERT_OK(nn::CrossEntropyBackward(all, kType, mine.data(), seed.data(), lab.stream()));
      ASSERT_OK(lab.stream().Synchronize());
    } else {
      const nn::TokenIds window = VocabularyWindow(all, lab.shards()).value();
      collectives::Communicator& group = *lab.self().communicator;
      auto entropy =
          VocabularyCrossEntropy::Create({.shards = lab.shards(), .dtype = kType, .rows = kRows},
                                         &group, *lab.self().context)
              .value();
      const int64_t before = lab.sent_bytes();
      ASSERT_OK(
          entropy->Forward(window, mine.data(), statistics.data(), losses.data(), lab.stream()));
      ASSERT_OK(
          entropy->Backward(window, mine.data(), statistics.data(), seed.data(), lab.stream()));
      ASSERT_OK(group.Synchronize(lab.stream()));
      lab.self().AwaitOthers();
      EXPECT_EQ(lab.sent_bytes() - before,
                3 * (ranks - 1) * kRows * static_cast<int64_t>(sizeof(W)));
    }
    lab.JoinRows<W>({.rows = kRows}, 1, losses, whole.losses);
    lab.Join<T>(columns, mine, whole.gradient);
  });
  return whole;
}

TYPED_TEST(VocabularyTest, CrossEntropyHasTheSameBitsOnAnyRanks) {
  using T = TypeParam;
  const std::vector<T> logits = Logits<T>();
  for (const int count : Counts()) {
    const Entropy<T> one = CrossEntropyOf(Ids(), logits, count, 1, count == 1);
    for (int ranks = 1; ranks <= count; ranks *= 2) {
      SCOPED_TRACE(absl::StrCat(count, " shards, ", ranks, " ranks"));
      const Entropy<T> entropy = CrossEntropyOf(Ids(), logits, count, ranks);
      EXPECT_TRUE(SameBits(entropy.losses, one.losses));
      EXPECT_TRUE(SameBits(entropy.gradient, one.gradient));
    }
  }
}

// Ids with labels, of which some are ignored: the gradient is that of the sum of losses.
TYPED_TEST(VocabularyTest, IgnoredLabelsHaveNoLossAndNoGradient) {
  using T = TypeParam;
  using W = nn::Wide<T>;
  constexpr DType kType = precision::kDType<T>;
  const std::vector<T> logits = Logits<T>();
  std::vector<int32_t> labels(kRows);
  for (int64_t r = 0; r < kRows; ++r) {
    labels[static_cast<size_t>(r)] =
        r % 3 == 1 ? nn::TokenIds::kIgnoredLabel : static_cast<int32_t>(7 * r % kVocabulary);
  }
  labels[6] = kVocabulary;
  const Shard columns = {.shape = {kRows, kVocabulary}, .axis = 1};
  const auto run = [&](int count, int ranks, bool by_nn) {
    Entropy<T> whole = {std::vector<W>(kRows), std::vector<T>(logits.size())};
    OnTensorRanks(count, ranks, [&](TensorLab& lab) {
      const auto ids = lab.Array(labels);
      const auto mine = lab.Cut(columns, logits);
      const auto losses = lab.Raw<W>(kRows), statistics = lab.Raw<W>(3 * kRows);
      const auto seed = lab.Array<float>({kSeed});
      const auto all =
          nn::TokenIds::WithLabels(ids.data(), ids.data(), kBatch, kContext, kVocabulary);
      if (by_nn) {
        ASSERT_OK(nn::CrossEntropy(all, kType, mine.data(), losses.data(), lab.stream()));
        ASSERT_OK(nn::CrossEntropyBackward(all, kType, mine.data(), seed.data(), lab.stream()));
      } else {
        const nn::TokenIds window = VocabularyWindow(all, lab.shards()).value();
        auto entropy =
            VocabularyCrossEntropy::Create({.shards = lab.shards(), .dtype = kType, .rows = kRows},
                                           lab.self().communicator.get(), *lab.self().context)
                .value();
        ASSERT_OK(
            entropy->Forward(window, mine.data(), statistics.data(), losses.data(), lab.stream()));
        ASSERT_OK(
            entropy->Backward(window, mine.data(), statistics.data(), seed.data(), lab.stream()));
      }
      ASSERT_OK(lab.self().communicator->Synchronize(lab.stream()));
      lab.JoinRows<W>({.rows = kRows}, 1, losses, whole.losses);
      lab.Join<T>(columns, mine, whole.gradient);
    });
    return whole;
  };
  const Entropy<T> by_nn = run(1, 1, /*by_nn=*/true);
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(by_nn.losses[static_cast<size_t>(r)] == W(0), r % 3 == 1) << r;
  }
  const Entropy<T> one = run(1, 1, false);
  EXPECT_TRUE(SameBits(one.losses, by_nn.losses));
  EXPECT_TRUE(SameBits(one.gradient, by_nn.gradient));
  const Entropy<T> four = run(4, 1, false);
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const Entropy<T> entropy = run(4, ranks, false);
    EXPECT_TRUE(SameBits(entropy.losses, four.losses));
    EXPECT_TRUE(SameBits(entropy.gradient, four.gradient));
  }
  const double of_float = 64 * 12 * std::max(UnitRoundoff<W>(), 0x1p-50);
  for (int64_t i = 0; i < kRows * kVocabulary; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto wanted = static_cast<double>(nn::Widen(by_nn.gradient[at]));
    const auto found = static_cast<double>(nn::Widen(four.gradient[at]));
    // Row 6 has no target.
    EXPECT_EQ(std::isnan(wanted), i / kVocabulary == 6) << i;
    EXPECT_EQ(std::isnan(found), std::isnan(wanted)) << i;
    if (std::isnan(wanted)) continue;
    EXPECT_NEAR(found, wanted, (4 * UnitRoundoff<T>() + of_float) * kSeed) << i;
    EXPECT_TRUE(found == 0 || i / kVocabulary % 3 != 1) << i;
  }
}

// Beside the specification in double: sums of up to 48 exponentials, of logits below 6.
template <typename T>
void ExpectTheSpecifications(const std::vector<T>& logits, int count, int ranks) {
  const std::vector<double> z = InDouble(logits);
  const std::vector<int32_t> ids = Ids();
  const int64_t each = kVocabulary / count;
  const Entropy<T> entropy = CrossEntropyOf(ids, logits, count, ranks);
  const double of_float = 64 * 12 * std::max(UnitRoundoff<nn::Wide<T>>(), 0x1p-50);
  for (int64_t r = 0; r < kRows; ++r) {
    const int64_t target = ids[static_cast<size_t>(r + r / kContext + 1)];
    spec::SoftmaxPart whole = {};
    for (int64_t s = 0; s < count; ++s) {
      const auto begin = z.begin() + r * kVocabulary + s * each;
      const spec::SoftmaxPart part = spec::PartOf({begin, begin + each}, target - s * each);
      whole = s == 0 ? part : spec::Join(whole, part);
    }
    const double loss = spec::LossOf(whole);
    if (std::isinf(loss)) {
      EXPECT_EQ(static_cast<double>(entropy.losses[static_cast<size_t>(r)]), loss);
    } else {
      EXPECT_NEAR(static_cast<double>(entropy.losses[static_cast<size_t>(r)]), loss, of_float);
    }
    for (int64_t c = 0; c < kVocabulary; ++c) {
      const auto i = static_cast<size_t>(r * kVocabulary + c);
      const double wanted =
          (std::exp(z[i] - whole.max) / whole.sum - (c == target ? 1 : 0)) * kSeed / kRows;
      EXPECT_NEAR(static_cast<double>(nn::Widen(entropy.gradient[i])), wanted,
                  2 * UnitRoundoff<T>() * kSeed / kRows + of_float);
    }
  }
}

TYPED_TEST(VocabularyTest, CrossEntropyIsTheSpecificationsInDouble) {
  ForEachSharing([&](int count, int ranks) {
    SCOPED_TRACE(absl::StrCat(count, " shards, ", ranks, " ranks"));
    ExpectTheSpecifications(Logits<TypeParam>(), count, ranks);
  });
}

// As of a vocabulary with padding: a shard that has nothing else adds nothing.
TYPED_TEST(VocabularyTest, AShardOfLogitsOfMinusInfinityAddsNothing) {
  using T = TypeParam;
  std::vector<T> logits = Logits<T>();
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 3 * kVocabulary / 4; c < kVocabulary; ++c) {
      logits[static_cast<size_t>(r * kVocabulary + c)] =
          T(-std::numeric_limits<nn::Wide<T>>::infinity());
    }
  }
  for (const auto& [count, ranks] : {std::pair(4, 4), std::pair(8, 2), std::pair(4, 1)}) {
    SCOPED_TRACE(absl::StrCat(count, " shards, ", ranks, " ranks"));
    ExpectTheSpecifications(logits, count, ranks);
  }
}

// Logits 0, ln 2 | ln 3, ln 4 and target 2: loss ln(10 / 3), gradient 0.1 0.2 -0.7 0.4.
TEST(VocabularyCrossEntropyTest, GivesTheKnownAnswer) {
  OnTensorRanks(2, 2, [](TensorLab& lab) {
    const auto ids = lab.Array<int32_t>({0, 2});
    const auto seed = lab.Array<float>({1}), losses = lab.Raw<float>(1),
               statistics = lab.Raw<float>(3);
    const auto first = static_cast<float>(2 * lab.shards().rank + 1);
    const auto z = lab.Array<float>({std::log(first), std::log(first + 1)});
    const nn::TokenIds window = VocabularyWindow({ids.data(), 1, 1, 4}, lab.shards()).value();
    auto entropy =
        VocabularyCrossEntropy::Create({.shards = lab.shards(), .rows = 1},
                                       lab.self().communicator.get(), *lab.self().context)
            .value();
    ASSERT_OK(entropy->Forward(window, z.data(), statistics.data(), losses.data(), lab.stream()));
    ASSERT_OK(entropy->Backward(window, z.data(), statistics.data(), seed.data(), lab.stream()));
    ASSERT_OK(lab.self().communicator->Synchronize(lab.stream()));
    EXPECT_NEAR(lab.Read(losses)[0], 1.203973, 1e-6);
    const float wanted[] = {0.1f, 0.2f, -0.7f, 0.4f};
    const std::vector<float> dz = lab.Read(z);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(dz[i], wanted[2 * static_cast<size_t>(lab.shards().rank) + i], 1e-6);
    }
  });
}

TEST(VocabularyCrossEntropyTest, AnIdThatIsNoneGivesNan) {
  std::vector<int32_t> ids = Ids();
  ids[3] = kVocabulary;
  const Entropy<float> entropy = CrossEntropyOf(ids, Logits<float>(), 4, 2);
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(std::isnan(entropy.losses[static_cast<size_t>(r)]), r == 2) << r;
    for (int64_t c = 0; c < kVocabulary; ++c) {
      EXPECT_EQ(std::isnan(entropy.gradient[static_cast<size_t>(r * kVocabulary + c)]), r == 2);
    }
  }
}

TEST(VocabularyCrossEntropyTest, WrongUsesAreNamed) {
  OnTensorRanks(2, 2, [](TensorLab& lab) {
    const auto invalid = [](const std::string& text) {
      return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
    };
    const auto ids = lab.Raw<int32_t>(10);
    EXPECT_THAT(VocabularyWindow({ids.data(), 1, 9, 5}, lab.shards()),
                invalid("a vocabulary of 5 cannot be cut into 2 shards"));
    const auto create = [&](const VocabularyCrossEntropyOptions& options) {
      return VocabularyCrossEntropy::Create(options, lab.self().communicator.get(),
                                            *lab.self().context);
    };
    EXPECT_THAT(create({.shards = {4, 4, 0}}), invalid("they are of rank 0 of 4"));
    EXPECT_THAT(create({.shards = lab.shards(), .dtype = DType::kInt32}), invalid("int32"));
    EXPECT_THAT(create({.shards = lab.shards(), .rows = -1}), invalid("rows is -1"));
    auto entropy = create({.shards = lab.shards(), .rows = 8}).value();
    const auto window = VocabularyWindow({ids.data(), 1, 9, 4}, lab.shards()).value();
    const auto z = lab.Raw<float>(18), losses = lab.Raw<float>(9), statistics = lab.Raw<float>(30);
    EXPECT_THAT(entropy->Forward(window, z.data(), statistics.data(), losses.data(), lab.stream()),
                invalid(absl::StrCat("9 rows, ids ", 2 * lab.shards().rank, " to ",
                                     2 * lab.shards().rank + 2, " of 4, on rank ",
                                     lab.shards().rank, " of 2 with 2 shards; it is for 8 rows")));
    // The ids themselves, without a window, and another rank's.
    const nn::TokenIds all = {ids.data(), 1, 8, 4};
    EXPECT_THAT(entropy->Forward(all, z.data(), statistics.data(), losses.data(), lab.stream()),
                invalid("8 rows, ids 0 to 4 of 4"));
    EXPECT_THAT(entropy->Forward(all.Window(2 - 2 * lab.shards().rank, 2), z.data(),
                                 statistics.data(), losses.data(), lab.stream()),
                invalid("8 rows, ids "));
    EXPECT_THAT(
        nn::CrossEntropy(all.Window(0, 2), DType::kFloat32, z.data(), losses.data(), lab.stream()),
        invalid("cross_entropy: the ids are a window of 2 on a vocabulary of 4"));
    EXPECT_THAT(nn::CrossEntropyBackward(all.Window(0, 2), DType::kFloat32, z.data(), losses.data(),
                                         lab.stream()),
                invalid("cross_entropy_backward: the ids are a window"));
  });
}

}  // namespace
}  // namespace brigade::parallel
