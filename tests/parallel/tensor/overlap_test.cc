// Products in pieces, whose exchange runs beside other products: the same bits as without, the same
// bytes, and each wait between the two streams is needed.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/tests/parallel/tensor/sharded_mlp.h"
#include "brigade/tests/parallel/tensor/tensor_lab.h"
#include "gmock/gmock.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using internal::WaitPoint;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

// Rows of which eight shards have three each: of two pieces, and of five, which become three.
constexpr Mlp kMlp = {.rows = 24, .inputs = 16, .hidden = 32, .outputs = 24};

template <typename T>
class OverlapTest : public ::testing::Test {
 protected:
  static bool IsSkipped() { return kOnGpu && sizeof(T) == 8; }
};
using Types = ::testing::Types<float, Half, BFloat16, double>;
TYPED_TEST_SUITE(OverlapTest, Types);

TYPED_TEST(OverlapTest, NeitherOverlapNorTheNumberOfRanksChangesABit) {
  using T = TypeParam;
  if (this->IsSkipped()) GTEST_SKIP() << "products of doubles are for the CPU";
  const Values<T> values = RandomValues<T>(kMlp);
  for (const int count : Counts()) {
    for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
      for (const int pieces : {1, 2, 5}) {
        const Results<T> one = RunMlp(kMlp, values, count, 1, {.part = part, .pieces = pieces});
        for (int ranks = 1; ranks <= count; ranks *= 2) {
          for (const bool overlap : {false, true}) {
            SCOPED_TRACE(absl::StrCat(count, " shards, ", ranks, " ranks, part ", part, ", ",
                                      pieces, " pieces", overlap ? ", overlap" : ""));
            ExpectSameBits(RunMlp(kMlp, values, count, ranks,
                                  {.part = part, .pieces = pieces, .overlap = overlap}),
                           one);
          }
        }
      }
    }
  }
}

// With the 16-bit wire bits depend on the ranks, and on nothing else; also with three of them.
TYPED_TEST(OverlapTest, OverlapChangesNoBitOfAnyWireAndNumberOfRanks) {
  using T = TypeParam;
  if (this->IsSkipped()) GTEST_SKIP() << "products of doubles are for the CPU";
  const Mlp mlp = {.rows = 12, .inputs = 12, .hidden = 24, .outputs = 12};
  const Values<T> values = RandomValues<T>(mlp);
  for (const auto& [count, ranks] : {std::pair(4, 2), std::pair(4, 4), std::pair(3, 3)}) {
    for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
      for (const SumWire wire : {SumWire::kFloat32, SumWire::kModel}) {
        SCOPED_TRACE(
            absl::StrCat(count, " shards, ", ranks, " ranks, part ", part, ", wire ", wire));
        How how = {.wire = wire, .part = part, .pieces = 2};
        const Results<T> without = RunMlp(mlp, values, count, ranks, how);
        how.overlap = true;
        ExpectSameBits(RunMlp(mlp, values, count, ranks, how), without);
      }
    }
  }
}

// Small whole numbers, whose sums are exact: each piece has the rows that it should.
TYPED_TEST(OverlapTest, PiecesAreTheWholeProductWhereNothingRounds) {
  using T = TypeParam;
  if (this->IsSkipped()) GTEST_SKIP() << "products of doubles are for the CPU";
  Mlp mlp = kMlp;
  mlp.gelu = false;
  Values<T> values = RandomValues<T>(mlp);
  for (std::vector<T>* const array :
       {&values.x, &values.expand, &values.bias, &values.contract, &values.dy}) {
    // Of which most are 0.
    for (T& value : *array) value = T(static_cast<float>(static_cast<int>(nn::Widen(value) * 1.4)));
  }
  const Results<T> whole = RunMlp(mlp, values, 4, 1);
  for (const int ranks : {1, 2, 4}) {
    for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, part ", part));
      ExpectSameBits(RunMlp(mlp, values, 4, ranks, {.part = part, .pieces = 3, .overlap = true}),
                     whole);
    }
  }
}

// Whatever comes first.
TEST(OverlapOrderTest, DelaysChangeNoBit) {
  if (kOnGpu) GTEST_SKIP() << "delays are of the CPU's streams";
  const Values<BFloat16> values = RandomValues<BFloat16>(kMlp);
  for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
    const Results<BFloat16> one = RunMlp(kMlp, values, 4, 1, {.part = part, .pieces = 3});
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", part ", part));
      ExpectSameBits(RunMlp(kMlp, values, 4, 2,
                            {.part = part,
                             .pieces = 3,
                             .overlap = true,
                             .random_delay = {.seed = 100 * seed, .max_delay_us = 100}}),
                     one);
    }
  }
}

TEST(OverlapOrderTest, AnOmittedWaitIsReported) {
  if (kOnGpu) GTEST_SKIP() << "the race checker names the CPU's calls; a GPU's are the same ones";
  const Values<float> values = RandomValues<float>(kMlp);
  const auto races = [&](SumPart part, std::optional<WaitPoint> omitted) {
    device::RaceChecker checker;
    RunMlp(
        kMlp, values, 4, 2,
        {.part = part, .pieces = 3, .overlap = true, .race_checker = &checker, .omitted = omitted});
    return checker.reports().size();
  };
  for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
    SCOPED_TRACE(absl::StrCat("part ", part));
    EXPECT_EQ(races(part, std::nullopt), 0u);
    EXPECT_GT(races(part, WaitPoint::kPieceReady), 0u);
    EXPECT_GT(races(part, WaitPoint::kSumsReady), 0u);
  }
  EXPECT_GT(races(SumPart::kOwn, WaitPoint::kRowsReady), 0u);
  EXPECT_GT(races(SumPart::kOwn, WaitPoint::kRowsGathered), 0u);
}

// Sums of ones: what the tests below need of products.
absl::Status Ones(const RowRange& rows, int64_t columns, void* partial, DType dtype,
                  device::Stream& stream) {
  return stream.FillBytes(partial, 0, rows.count * columns * precision::SizeOf(dtype));
}

// What is enqueued behind StartSum runs while the other rank has nothing to add yet: by events, for
// that rank's product waits until it has run.
TEST(OverlapOrderTest, WhatComesNextRunsBesideTheSum) {
  if (kOnGpu) GTEST_SKIP() << "work of the test's own is for the CPU's streams";
  std::atomic<bool> has_run = false;
  OnTensorRanks(2, 2, [&](TensorLab& lab) {
    auto sums =
        ShardSums::Create(
            {.shards = lab.shards(), .elements = 8, .pieces = 2, .rows = 4, .overlap = true},
            lab.self().communicator.get(), *lab.self().context)
            .value();
    const auto out = lab.Raw<float>(8);
    if (lab.shards().rank == 1) {
      ASSERT_OK(lab.stream().Enqueue({.name = "late product"}, [&](device::ThreadPool&) {
        while (!has_run) std::this_thread::yield();
        return absl::OkStatus();
      }));
    }
    const auto product = [&](int, const RowRange& rows, void* partial, DType dtype) {
      return Ones(rows, 2, partial, dtype, lab.stream());
    };
    ASSERT_OK(sums->StartSum(4, 2, product, out.data(), lab.stream()));
    if (lab.shards().rank == 0) {
      ASSERT_OK(lab.stream().Enqueue({.name = "next"}, [&](device::ThreadPool&) {
        has_run = true;
        return absl::OkStatus();
      }));
    }
    ASSERT_OK(sums->FinishSum(lab.stream()));
    ASSERT_OK(lab.self().communicator->Synchronize(lab.stream()));
  });
}

TEST(OverlapOrderTest, AnErrorOfOneRankEndsAll) {
  for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
    OnTensorRanks(2, 2, [&](TensorLab& lab) {
      auto sums = ShardSums::Create({.shards = lab.shards(),
                                     .part = part,
                                     .elements = 8,
                                     .pieces = 2,
                                     .rows = 4,
                                     .overlap = true},
                                    lab.self().communicator.get(), *lab.self().context)
                      .value();
      const auto out = lab.Raw<float>(8);
      int calls = 0;
      const auto product = [&](int, const RowRange& rows, void* partial, DType dtype) {
        // Between two pieces.
        if (lab.shards().rank == 1 && ++calls == 2) return absl::DataLossError("bad weights");
        return Ones(rows, 2, partial, dtype, lab.stream());
      };
      absl::Status status = sums->StartSum(4, 2, product, out.data(), lab.stream());
      if (lab.shards().rank == 1) {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bad weights")));
        lab.self().communicator->Abort(status);
      } else {
        status.Update(sums->FinishSum(lab.stream()));
        status.Update(lab.self().communicator->Synchronize(lab.stream()));
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bad weights")));
      }
      lab.stream().Reset().IgnoreError();
    });
  }
}

TEST(OverlapCostTest, PiecesSendAndKeepAsMuchAsTheWhole) {
  const Values<BFloat16> values = RandomValues<BFloat16>(kMlp);
  for (const int ranks : {2, 4}) {
    for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
      for (const SumWire wire : {SumWire::kFloat32, SumWire::kModel}) {
        const ShardSumOptions sums = {.shards = {4, ranks, 0},
                                      .dtype = DType::kBFloat16,
                                      .wire = wire,
                                      .part = part,
                                      .elements = kMlp.rows * kMlp.outputs};
        // Of all ranks: of an all-reduce a rank's block may be a line longer than another's.
        const auto wire_bytes = [&](const collectives::CollectiveSignature& signature) {
          int64_t of_all = 0;
          for (int r = 0; r < ranks; ++r) of_all += collectives::WireBytes(signature, r, ranks);
          return of_all;
        };
        int64_t bytes = wire_bytes(ShardSums::SignatureOf(sums, kMlp.rows * kMlp.outputs)) +
                        wire_bytes(ShardSums::SignatureOf(sums, kMlp.rows * kMlp.inputs));
        if (part == SumPart::kOwn) {
          // Of x twice, and of dy.
          const int64_t gathered = kMlp.rows * (2 * kMlp.inputs + kMlp.outputs);
          bytes += gathered * (ranks - 1) * 2;
        }
        for (const int pieces : {1, 2, 3}) {
          for (const bool overlap : {false, true}) {
            SCOPED_TRACE(absl::StrCat(ranks, " ranks, part ", part, ", wire ", wire, ", ", pieces,
                                      " pieces", overlap ? ", overlap" : ""));
            EXPECT_EQ(RunMlp(kMlp, values, 4, ranks,
                             {.wire = wire, .part = part, .pieces = pieces, .overlap = overlap})
                          .sent_bytes,
                      bytes);
            ShardSumOptions cut = sums;
            cut.pieces = pieces;
            cut.rows = kMlp.rows;
            cut.overlap = overlap;
            EXPECT_EQ(ShardSums::Bytes(cut), ShardSums::Bytes(sums));
          }
        }
      }
    }
  }
}

TEST(OverlapCostTest, CallsAllocateNothing) {
  OnTensorRanks(4, 2, [](TensorLab& lab) {
    const int64_t before = lab.scratch_bytes();
    const ShardSumOptions options = {.shards = lab.shards(),
                                     .dtype = DType::kBFloat16,
                                     .part = SumPart::kOwn,
                                     .elements = 96,
                                     .pieces = 3,
                                     .rows = 12,
                                     .overlap = true};
    auto sums =
        ShardSums::Create(options, lab.self().communicator.get(), *lab.self().context).value();
    const int64_t created = lab.scratch_bytes();
    if (!kOnGpu) {
      // Threads need no workspace of the communicator.
      EXPECT_EQ(created - before, ShardSums::Bytes(options));
    }
    const auto own = lab.Raw<BFloat16>(48), all = lab.Raw<BFloat16>(96),
               out = lab.Raw<BFloat16>(48);
    const int64_t with_arrays = lab.scratch_bytes();
    ASSERT_OK(lab.stream().FillBytes(own.data(), 0, 96));
    ASSERT_OK(sums->GatherRows(own.data(), all.data(), 12, 8, lab.stream()));
    ASSERT_OK(sums->AwaitRows(lab.stream()));
    const auto product = [&](int, const RowRange& rows, void* partial, DType dtype) {
      return Ones(rows, 8, partial, dtype, lab.stream());
    };
    ASSERT_OK(sums->Sum(12, 8, product, out.data(), lab.stream()));
    ASSERT_OK(sums->SumOfOne(12, 8, product, out.data(), lab.stream()));
    ASSERT_OK(lab.self().communicator->Synchronize(lab.stream()));
    EXPECT_EQ(lab.scratch_bytes(), with_arrays);
    lab.self().AwaitOthers();
  });
}

TEST(OverlapErrorTest, WrongUsesAreNamed) {
  OnTensorRanks(4, 2, [](TensorLab& lab) {
    const auto create = [&](ShardSumOptions options) {
      options.shards = lab.shards();
      return ShardSums::Create(options, lab.self().communicator.get(), *lab.self().context);
    };
    const auto invalid = [](const std::string& text) {
      return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
    };
    EXPECT_THAT(create({.pieces = 0}).status(), invalid("pieces is 0; it must be 1 to 256"));
    EXPECT_THAT(create({.pieces = 257}).status(), invalid("pieces is 257; it must be 1 to 256"));
    EXPECT_THAT(create({.elements = 12, .pieces = 2}).status(),
                invalid("2 pieces need rows, of which 12 elements are; rows is 0"));
    EXPECT_THAT(create({.elements = 12, .pieces = 2, .rows = 5}).status(),
                invalid("2 pieces need rows, of which 12 elements are; rows is 5"));
    auto sums = create({.part = SumPart::kOwn, .elements = 24, .pieces = 2, .rows = 12}).value();
    const auto nothing = [](int, const RowRange&, void*, DType) { return absl::OkStatus(); };
    const auto out = lab.Raw<float>(24);
    // Two ranks divide ten rows; pieces must be the same for four.
    for (const auto& [rows, columns] : {std::pair(10, 2), std::pair(-4, 2), std::pair(16, 2)}) {
      EXPECT_THAT(sums->Sum(rows, columns, nothing, out.data(), lab.stream()),
                  invalid(absl::StrCat("[", rows, ", ", columns,
                                       "] on 2 ranks; at most 24 elements, in 2 pieces of at most "
                                       "16, of rows that the 4 shards divide")));
      EXPECT_THAT(sums->GatherRows(nullptr, out.data(), rows, columns, lab.stream()),
                  invalid("in 2 pieces"));
    }
    // One piece of four rows would be larger than those of twelve.
    EXPECT_THAT(sums->Sum(4, 6, nothing, out.data(), lab.stream()),
                invalid("[4, 6] on 2 ranks; at most 24 elements, in 2 pieces of at most 16"));
    EXPECT_THAT(
        create({.elements = 8}).value()->GatherRows(nullptr, out.data(), 4, 2, lab.stream()),
        invalid("each rank has all rows, so none are gathered"));
    lab.self().AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::parallel
