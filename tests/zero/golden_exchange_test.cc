// Gradients that ranks exchange in Step give the specification's bits in stages 0 to 2: by every
// method, from the first step on and from a later one, over micro-batches, in chunks, with tied
// parameters apart, over skipped steps, and over every engine.

#include <cstdint>
#include <utility>
#include <vector>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/golden.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using precision::DType;

class GoldenExchangeTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenExchangeTest, EveryStageGivesTheSpecificationsBits) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

CompressionOptions CompressionFrom(int64_t start_step, GradientCompression method) {
  return {.method = method, .start_step = start_step, .rank = 2, .density = 0.03};
}

std::vector<GoldenCase> Cases() {
  std::vector<GoldenCase> cases;
  for (const GradientCompression method : kGradientCompressions) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
        for (const int micro_batches : {1, 3}) {
          for (const int64_t start_step : {0, 12}) {
            GoldenCase c = {.ranks = ranks, .dtype = dtype, .micro_batches = micro_batches};
            c.gradient_compression = CompressionFrom(start_step, method);
            cases.push_back(c);
            c.reload_at = 21;
            cases.push_back(c);
            c.reload_at = -1;
            if (ranks != 3) continue;
            c.optimizer = optim::OptimizerKind::kSgd;
            cases.push_back(c);
          }
        }
      }
    }
  }
  for (const int ranks : {1, 2, 3, 4}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
      for (const int micro_batches : {1, 3}) {
        GoldenCase c = {.ranks = ranks,
                        .dtype = dtype,
                        .optimizer = optim::OptimizerKind::kOneBitAdam,
                        .micro_batches = micro_batches};
        c.freeze_step = 12;
        cases.push_back(c);
        for (const int reload_at : {5, 12, 31}) {
          c.reload_at = reload_at;
          cases.push_back(c);
        }
      }
    }
  }
  for (const int ranks : {1, 2, 3, 4}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
      for (const int micro_batches : {1, 3}) {
        GoldenCase c = {.ranks = ranks,
                        .dtype = dtype,
                        .optimizer = optim::OptimizerKind::kZeroOneAdam,
                        .micro_batches = micro_batches};
        c.freeze_step = 15;
        // Ranks that meet in each step, and in the last case in every third one at most, which the
        // step that is skipped here is one of.
        for (const int reload_at : {-1, 8, 15, 35}) {
          c.reload_at = reload_at;
          for (const auto& [scaler, clipper] :
               {std::pair(1, 1), std::pair(4, 8), std::pair(7, 5)}) {
            if (clipper == 1 && reload_at == 8) continue;
            c.local_step_scaler = scaler, c.local_step_clipper = clipper;
            cases.push_back(c);
          }
        }
        c.freeze_step = 100;
        c.var_update_scaler = 5;
        cases.push_back(c);
      }
    }
  }
  for (const GradientCompression method : kGradientCompressions) {
    GoldenCase c = {.ranks = 2, .dtype = DType::kBFloat16, .micro_batches = 2};
    c.gradient_compression = CompressionFrom(9, method);
    // Until then as said here.
    c.accumulation = Accumulation::kAtBoundary;
    c.communication_dtype = DType::kFloat16;
    cases.push_back(c);
    c.tied_apart = true;
    cases.push_back(c);
    c.chunks = {0, 2, 4};
    cases.push_back(c);
    c.has_runs = true;
    cases.push_back(c);
  }
  // Signs in two hops: of places that have as many elements, and of others.
  for (const auto& [ranks, node_ranks] : {std::pair(4, 2), std::pair(6, 3), std::pair(6, 2)}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
      for (const int micro_batches : {1, 3}) {
        for (const int reload_at : {-1, 21}) {
          GoldenCase c = {.ranks = ranks, .dtype = dtype, .micro_batches = micro_batches};
          c.node_ranks = node_ranks;
          c.reload_at = reload_at;
          GoldenCase moments = c;
          c.gradient_compression =
              CompressionFrom(micro_batches == 1 ? 0 : 12, GradientCompression::kOneBit);
          cases.push_back(c);
          moments.optimizer = optim::OptimizerKind::kOneBitAdam;
          moments.freeze_step = 12;
          cases.push_back(moments);
          moments.optimizer = optim::OptimizerKind::kZeroOneAdam;
          cases.push_back(moments);
          moments.local_step_clipper = 4;
          cases.push_back(moments);
        }
      }
    }
  }
  // Factors and elements of other sizes, up to all of them.
  for (const int32_t rank : {1, 7}) {
    GoldenCase c = {.ranks = 3, .dtype = DType::kBFloat16, .bucket_elements = 100'000 * rank};
    c.gradient_compression = {.method = GradientCompression::kPowerSgd, .rank = rank,
                              .iterations = rank == 1 ? 1 : 3};
    cases.push_back(c);
  }
  for (const double density : {1e-9, 1.0}) {
    GoldenCase c = {.ranks = 4, .dtype = DType::kFloat32};
    c.bucket_elements = density == 1.0 ? 100'000 : 2000;
    c.gradient_compression = {.method = GradientCompression::kTopK,
                              .start_step = density == 1.0 ? 1 : 2,
                              .density = density};
    cases.push_back(c);
  }
  return cases;
}

GoldenCase OneBitAdamOnEngines() {
  GoldenCase c = {.ranks = 4, .dtype = DType::kBFloat16};
  c.optimizer = optim::OptimizerKind::kOneBitAdam;
  c.freeze_step = 7;
  return c;
}

// With tensors of several tiles.
GoldenCase OneBitLambOnEngines() {
  GoldenCase c = OneBitAdamOnEngines();
  c.optimizer = optim::OptimizerKind::kOneBitLamb;
  c.bucket_elements = 30'000;
  return c;
}

GoldenCase OnEngines(GradientCompression method) {
  GoldenCase c = {.ranks = 4, .dtype = DType::kFloat16, .micro_batches = 2};
  c.gradient_compression = CompressionFrom(5, method);
  return c;
}

std::vector<GoldenCase> CasesOnEngines() {
  std::vector<GoldenCase> cases = {OneBitAdamOnEngines(), OneBitAdamOnEngines()};
  cases.back().optimizer = optim::OptimizerKind::kZeroOneAdam;
  for (const GradientCompression method : kGradientCompressions) cases.push_back(OnEngines(method));
  cases.push_back(OnEngines(GradientCompression::kOneBit));
  cases.back().node_ranks = 2;
  return cases;
}

void ExpectBits(const std::vector<GoldenCase>& cases, const collectives::RanksOptions& options,
                int stage, const collectives::CreateEngineFn& engines) {
  std::vector<Trajectory> wanted;
  for (const GoldenCase& each : cases) wanted.push_back(Specified(each));
  collectives::OnRanks(options, engines, [&](collectives::Rank& self) {
    for (size_t i = 0; i < cases.size(); ++i) {
      Trajectory trained;
      EXPECT_OK(Train(self, OptionsOf(cases[i], stage), InjectionsOf(cases[i]), trained));
      EXPECT_OK(Compare(trained, wanted[i])) << "stage " << stage << ", rank " << self.rank;
      self.AwaitOthers();
    }
  });
}

TEST(ExchangeOnEnginesTest, GlooGivesTheSpecificationsBits) {
  const collectives::RanksOptions options = {.size = 4};
  std::vector<GoldenCase> cases = CasesOnEngines();
  cases.push_back(OneBitLambOnEngines());
  ExpectBits(cases, options, 2, collectives::testing::GlooEngines(options));
}

class ExchangeOnNcclTest : public collectives::NcclTest {};

TEST_F(ExchangeOnNcclTest, NcclGivesTheSpecificationsBits) {
  const collectives::RanksOptions options = {.size = 4};
  std::vector<GoldenCase> cases = CasesOnEngines();
  cases.push_back(OneBitLambOnEngines());
  ExpectBits(cases, options, 1, collectives::NcclEngines(options));
}

TEST(ExchangeOnEnginesTest, DelaysChangeNoBit) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    device::RaceChecker checker;
    const collectives::RanksOptions options = {
        .size = 4, .random_delay = {.seed = seed, .max_delay_us = 100}, .race_checker = &checker};
    ExpectBits(CasesOnEngines(), options, static_cast<int>(seed % 3),
               collectives::ThreadEngines(options));
    EXPECT_TRUE(checker.reports().empty());
  }
}

const auto name_of = [](const auto& info) { return ToString(info.param); };
INSTANTIATE_TEST_SUITE_P(Cases, GoldenExchangeTest, ::testing::ValuesIn(Cases()), name_of);

}  // namespace
}  // namespace brigade::zero
