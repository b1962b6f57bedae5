// Training with Adafactor: the specification's bits in every stage, wherever the cuts between ranks
// are; who makes whose factors, what crosses for it, and what memory that takes.

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/golden.h"
#include "brigade/tests/zero/layers.h"
#include "brigade/zero/plan/factor_layout.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/memory_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using internal::FactorLayout;
using internal::MatrixPiece;
using internal::PlannedTensor;
using precision::DType;
using ::testing::HasSubstr;

constexpr auto kAdafactor = optim::OptimizerKind::kAdafactor;

// Of the toy's matrices one has few factors, one many, one three extents, and one is a table.
class AdafactorTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(AdafactorTest, HasTheSpecificationsBitsInEveryStage) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

INSTANTIATE_TEST_SUITE_P(Cases, AdafactorTest, ::testing::ValuesIn(WholeTensorCases(kAdafactor)),
                         [](const auto& info) { return ToString(info.param); });

// Of the gates factors are many.
ModelSpec Layers() { return LayersWith("gate", 64, 3); }

ZeroOptions AdafactorOptions(int stage) {
  ZeroOptions options;
  options.stage = stage;
  options.optimizer.kind = kAdafactor;
  return options;
}

Plan PlanOf(int ranks) {
  const optim::OptimizerOptions optimizer = AdafactorOptions(1).optimizer;
  return Plan::Create(Layers(), {.ranks = ranks,
                                 .tile_elements = optim::TensorTile(optimizer.kind),
                                 .coded = optim::CodesOf(optimizer)})
      .value();
}

// Of a range of a bucket's array, by whoever has which part of it.
void ExpectPieces(const std::vector<MatrixPiece>& pieces, const ElementRange& whole,
                  int64_t slice) {
  int64_t at = whole.begin;
  for (const MatrixPiece& piece : pieces) {
    EXPECT_EQ(piece.range.begin, at);
    EXPECT_GT(piece.range.size, 0);
    EXPECT_EQ(piece.range.begin / slice, piece.rank);
    EXPECT_EQ((piece.range.begin + piece.range.size - 1) / slice, piece.rank);
    at += piece.range.size;
  }
  EXPECT_EQ(at, whole.begin + whole.size);
}

TEST(AdafactorLayoutTest, OwnersHaveAPieceAndWorkIsShared) {
  for (const int ranks : {1, 2, 3, 4, 7, 16}) {
    const Plan plan = PlanOf(ranks);
    const FactorLayout layout(plan, AdafactorOptions(1), 0);
    ASSERT_EQ(layout.tensors().size(), 21);
    std::vector<int64_t> work(static_cast<size_t>(ranks));
    for (const PlannedTensor& tensor : layout.tensors()) {
      const Bucket& bucket = plan.bucket(tensor.bucket);
      const int64_t block = bucket.coded ? 16 : 1, slice = plan.slice(bucket);
      const std::string& name = plan.parameter(tensor.parameter).spec.name;
      EXPECT_EQ(bucket.coded, name.find("norm") == name.npos && name.find("gate") == name.npos);
      EXPECT_EQ(tensor.factors.size, tensor.rows > 1 ? tensor.rows + tensor.columns : 64) << name;
      EXPECT_EQ(tensor.factors.begin * block, tensor.range.begin);
      EXPECT_LE(tensor.factors.size * block, tensor.range.size);
      ExpectPieces(tensor.pieces, tensor.range, slice);
      ExpectPieces(tensor.factor_pieces, tensor.factors, slice / block);
      EXPECT_TRUE(tensor.HasPiece(tensor.owner));
      // Factors rest with ranks that hear of them.
      for (const MatrixPiece& piece : tensor.factor_pieces) {
        EXPECT_TRUE(tensor.HasPiece(piece.rank));
      }
      work[static_cast<size_t>(tensor.owner)] += tensor.range.size;
    }
    int64_t all = 0;
    for (const int64_t each : work) all += each;
    EXPECT_LE(*std::max_element(work.begin(), work.end()), all / ranks + 256 * 64) << ranks;
  }
}

// By the definition, from what each tensor's pieces are.
TEST(AdafactorLayoutTest, WhatCrossesIsWhatOthersHaveAndWhatTheyHear) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const bool scales : {false, true}) {
      SCOPED_TRACE(ranks);
      const Plan plan = PlanOf(ranks);
      ZeroOptions options = AdafactorOptions(2);
      options.optimizer.adafactor.scale_parameter = scales;
      int64_t sent = 0, wanted = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        sent += FactorLayout(plan, options, rank).sent_bytes();
        EXPECT_EQ(FactorLayout(plan, AdafactorOptions(0), rank).sent_bytes(), 0);
      }
      const FactorLayout layout(plan, options, 0);
      for (const PlannedTensor& tensor : layout.tensors()) {
        for (const MatrixPiece& piece : tensor.pieces) {
          if (piece.rank == tensor.owner) continue;
          // bf16 gradients, fp32 masters; the four numbers and the scales.
          wanted += piece.range.size * (scales ? 6 : 2) + 4 * (4 + tensor.factors.size);
        }
        for (const MatrixPiece& piece : tensor.factor_pieces) {
          if (piece.rank != tensor.owner) wanted += 2 * 4 * piece.range.size;
        }
      }
      EXPECT_EQ(sent, wanted);
      EXPECT_EQ(sent == 0, ranks == 1);
    }
  }
}

// A quarter of a byte an element, and each array of the buffer where no other of its bucket is.
TEST(AdafactorLayoutTest, MemoryIsThatOfTheFormula) {
  const Plan plan = PlanOf(7);
  const ZeroOptions options = AdafactorOptions(1);
  for (int rank = 0; rank < 7; ++rank) {
    const FactorLayout layout(plan, options, rank);
    int64_t few = 0, others = 0;
    for (const Bucket& bucket : plan.buckets()) {
      if (!bucket.trainable) continue;
      (bucket.coded ? few : others) += plan.slice(bucket);
    }
    constexpr auto kState = device::Purpose::kOptimizerState;
    EXPECT_EQ(Total(MemoryOf(plan, options, rank), device::Tier::kDevice, kState),
              few * 4 + few / 4 + others * 8);
    int64_t largest = 0;
    std::vector<std::pair<int64_t, int64_t>> arrays;
    for (size_t t = 0; t < layout.tensors().size(); ++t) {
      const PlannedTensor& tensor = layout.tensors()[t];
      if (t > 0 && layout.tensors()[t - 1].bucket != tensor.bucket) arrays.clear();
      const FactorLayout::Place& place = layout.place(t);
      const bool is_own = tensor.owner == rank;
      EXPECT_EQ(place.scales >= 0, tensor.HasPiece(rank));
      EXPECT_EQ(place.workspace >= 0, is_own);
      EXPECT_EQ(place.grad >= 0, is_own && tensor.is_cut());
      EXPECT_EQ(place.master >= 0, is_own && tensor.is_cut());
      EXPECT_EQ(place.factors >= 0, is_own && tensor.is_cut());
      for (const auto& [at, bytes] :
           {std::pair(place.scales, 4 * (4 + tensor.factors.size)),
            std::pair(place.workspace,
                      8 * kernels::AdafactorWorkspaceSize(tensor.rows, tensor.columns)),
            std::pair(place.grad, 2 * tensor.range.size),
            std::pair(place.master, 4 * tensor.range.size),
            std::pair(place.factors, 4 * tensor.factors.size)}) {
        if (at < 0) continue;
        EXPECT_EQ(at % 256, 0);
        for (const auto& [other, size] : arrays) {
          EXPECT_TRUE(at + bytes <= other || other + size <= at);
        }
        arrays.emplace_back(at, bytes);
        largest = std::max(largest, (at + bytes + 255) / 256 * 256);
      }
    }
    EXPECT_EQ(layout.bytes(), largest);
  }
}

TEST(AdafactorOptionsTest, RefuseWhatNeedsSlicesAlone) {
  ZeroOptions options = AdafactorOptions(2);
  EXPECT_OK(Validate(options));
  options.offload.optimizer_state = device::Tier::kHost;
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("offload.optimizer_state is host, but the optimizer is "
                                 "Adafactor")));
  options = AdafactorOptions(1);
  options.gradient_compression = CompressionOptions{};
  EXPECT_THAT(Validate(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("the optimizer is Adafactor")));
  options = AdafactorOptions(1);
  options.optimizer.adafactor.clip_threshold = 0;
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("clip_threshold is 0")));
}

TEST(AdafactorOptionsTest, RanksAgreeOnThem) {
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& self) {
    ZeroOptions options = AdafactorOptions(1);
    if (self.rank == 1) options.optimizer.adafactor.decay_rate = -0.5;
    EXPECT_THAT(CreateZero(Layers(), options, self).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("decay_rate -0.5")));
  });
}

TEST(AdafactorStateTest, FactorsAreFew) {
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& self) {
    auto zero = CreateZero(Layers(), AdafactorOptions(1), self).value();
    EXPECT_THAT(zero->AttachState({}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is Adafactor")));
    EXPECT_EQ(zero->state_arrays(), 2);
    for (size_t b = 0; b < zero->plan().buckets().size(); ++b) {
      const Bucket& bucket = zero->plan().buckets()[b];
      if (!bucket.trainable) continue;
      EXPECT_EQ(zero->StateArrayType(static_cast<int>(b), 1).block, bucket.coded ? 16 : 1);
    }
  });
}

}  // namespace
}  // namespace brigade::zero
