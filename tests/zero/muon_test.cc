// Training with Muon: the specification's bits in every stage, wherever the cuts between ranks are;
// who makes which matrix orthogonal, and what crosses for it.

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/golden.h"
#include "brigade/tests/zero/layers.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/matrix_layout.h"
#include "brigade/zero/plan/memory_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using internal::MatrixLayout;
using internal::MatrixPiece;
using internal::PlannedMatrix;
using precision::DType;
using ::testing::HasSubstr;

constexpr auto kMuon = optim::OptimizerKind::kMuon;

// Of the toy's matrices two have two extents, others three, and one is a table.
class MuonTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(MuonTest, HasTheSpecificationsBitsInEveryStage) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

INSTANTIATE_TEST_SUITE_P(Cases, MuonTest, ::testing::ValuesIn(WholeTensorCases(kMuon)),
                         [](const auto& info) { return ToString(info.param); });

ModelSpec Layers() { return LayersWith("out", 64, 64); }

ZeroOptions MuonOptions(int stage) {
  ZeroOptions options;
  options.stage = stage;
  options.optimizer.kind = kMuon;
  options.optimizer.groups[0].momentum = 0.95;
  return options;
}

Plan PlanOf(int ranks) {
  return Plan::Create(Layers(), {.ranks = ranks, .coded = optim::CodesOf(MuonOptions(1).optimizer)})
      .value();
}

TEST(MuonLayoutTest, MatricesHaveBucketsOfTheirOwnAndOwnersThatHaveAPiece) {
  for (const int ranks : {1, 2, 3, 4, 7, 16}) {
    const Plan plan = PlanOf(ranks);
    const MatrixLayout layout(plan, MuonOptions(1), 0);
    ASSERT_EQ(layout.matrices().size(), 16);
    std::vector<double> work(static_cast<size_t>(ranks));
    for (const PlannedMatrix& matrix : layout.matrices()) {
      EXPECT_TRUE(plan.bucket(matrix.bucket).coded);
      EXPECT_FALSE(plan.parameter(matrix.parameter).spec.name == "wte");
      int64_t at = matrix.range.begin;
      bool owner_has_piece = false;
      for (const MatrixPiece& piece : matrix.pieces) {
        EXPECT_EQ(piece.range.begin, at);
        at += piece.range.size;
        EXPECT_GT(piece.range.size, 0);
        EXPECT_EQ(piece.range.begin / plan.slice(plan.bucket(matrix.bucket)), piece.rank);
        owner_has_piece = owner_has_piece || piece.rank == matrix.owner;
      }
      EXPECT_EQ(at, matrix.range.begin + matrix.range.size);
      EXPECT_TRUE(owner_has_piece);
      work[static_cast<size_t>(matrix.owner)] +=
          static_cast<double>(matrix.rows * matrix.columns) *
          static_cast<double>(std::min(matrix.rows, matrix.columns));
    }
    // None has much more than its share, or the largest matrix.
    double all = 0;
    for (const double each : work) all += each;
    const double largest = 256.0 * 64 * 64;
    EXPECT_LE(*std::max_element(work.begin(), work.end()), all / ranks + largest) << ranks;
  }
}

TEST(MuonLayoutTest, WhatCrossesIsTwiceWhatOthersHave) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    SCOPED_TRACE(ranks);
    const Plan plan = PlanOf(ranks);
    int64_t sent = 0, cut = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const MatrixLayout layout(plan, MuonOptions(2), rank);
      sent += layout.sent_bytes();
      EXPECT_EQ(MatrixLayout(plan, MuonOptions(0), rank).sent_bytes(), 0);
      if (rank > 0) continue;
      for (const PlannedMatrix& matrix : layout.matrices()) {
        for (const MatrixPiece& piece : matrix.pieces) {
          if (piece.rank != matrix.owner) cut += piece.range.size;
        }
      }
    }
    EXPECT_EQ(sent, 2 * 4 * cut);
    // A third of a layer ends where a matrix does.
    EXPECT_EQ(sent == 0, ranks == 1 || ranks == 3);
  }
}

// Momenta of 4 bytes instead of 8, and each array of the buffer where no other is.
TEST(MuonLayoutTest, MemoryIsThatOfTheFormula) {
  const Plan plan = PlanOf(7);
  const ZeroOptions options = MuonOptions(1);
  for (int rank = 0; rank < 7; ++rank) {
    const MatrixLayout layout(plan, options, rank);
    std::set<std::pair<int64_t, int64_t>> arrays;
    int64_t matrices = 0, others = 0, workspace = 0, whole = 0;
    for (const Bucket& bucket : plan.buckets()) {
      if (!bucket.trainable) continue;
      (bucket.coded ? matrices : others) += plan.slice(bucket);
    }
    for (size_t m = 0; m < layout.matrices().size(); ++m) {
      const PlannedMatrix& matrix = layout.matrices()[m];
      EXPECT_EQ(layout.whole_at(m) >= 0, matrix.owner == rank && matrix.is_cut());
      if (matrix.owner != rank) continue;
      if (matrix.is_cut()) whole += matrix.range.size;
      workspace = std::max(workspace, kernels::MuonWorkspaceSize(matrix.rows, matrix.columns));
    }
    EXPECT_EQ(layout.bytes(), 4 * (matrices + whole + (workspace + 63) / 64 * 64));
    constexpr auto kState = device::Purpose::kOptimizerState;
    EXPECT_EQ(Total(MemoryOf(plan, options, rank), device::Tier::kDevice, kState),
              matrices * 8 + others * 12);
  }
}

TEST(MuonOptionsTest, RefuseWhatNeedsSlicesAlone) {
  ZeroOptions options = MuonOptions(2);
  EXPECT_OK(Validate(options));
  options.offload.optimizer_state = device::Tier::kHost;
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("offload.optimizer_state is host, but the optimizer is Muon")));
  options = MuonOptions(1);
  options.gradient_compression = CompressionOptions{};
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the optimizer is Muon")));
  options = MuonOptions(1);
  options.optimizer.muon.steps = 0;
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("muon.steps is 0")));
  options = MuonOptions(1);
  options.optimizer.groups[0].momentum = 1;
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("momentum of group 0 is 1")));
}

TEST(MuonOptionsTest, RanksAgreeOnThem) {
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& self) {
    ZeroOptions options = MuonOptions(1);
    if (self.rank == 1) options.optimizer.muon.scale = kernels::MuonScale::kMatchRmsAdamW;
    EXPECT_THAT(CreateZero(Layers(), options, self).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("scale 1")));
  });
}

TEST(MuonStateTest, MatricesHaveOneMoment) {
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& self) {
    auto zero = CreateZero(Layers(), MuonOptions(1), self).value();
    EXPECT_THAT(zero->AttachState({}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is Muon")));
    for (size_t b = 0; b < zero->plan().buckets().size(); ++b) {
      const Bucket& bucket = zero->plan().buckets()[b];
      if (!bucket.trainable) continue;
      const int index = static_cast<int>(b);
      EXPECT_OK(zero->StateArray(index, 1));
      EXPECT_EQ(zero->StateArray(index, 2).ok(), !bucket.coded);
    }
  });
}

}  // namespace
}  // namespace brigade::zero
