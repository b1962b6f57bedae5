// Ranks whose compute and collectives are held up at random, in memory that is poisoned when it is
// freed: the bits stay, and the race checker has nothing to report. The number of seeds comes from
// the command line: 32 in every run, 500 in the soak test.

#include <cstdlib>

#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

uint64_t last_seed = 0;

using Parameters = std::vector<std::vector<float>>;

Parameters Trained(uint64_t seed, const Home& home, int micro_batches,
                   device::RaceChecker& checker) {
  Parameters result;
  ZeroOptions options;
  home.Set(options);
  options.dtype = precision::DType::kFloat16;
  options.bucket_elements = 1000;
  options.micro_batches = micro_batches;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 14;
  const device::RandomDelay delay = {.seed = seed, .max_delay_us = seed == 0 ? 0 : 100};
  collectives::OnThreads({.size = 3, .random_delay = delay, .race_checker = &checker},
                         [&](collectives::Rank& self) {
                           auto zero = CreateZero(ToyModel(), options, self);
                           ASSERT_OK(zero);
                           ASSERT_OK(InitializeToy(**zero));
                           ToyTrainer trainer(**zero, self);
                           for (int step = 0; step < 4; ++step) ASSERT_OK(trainer.Step());
                           ASSERT_OK(self.stream->Synchronize());
                           auto exported = Exported(**zero);
                           ASSERT_OK(exported);
                           if (self.rank == 0) result = *std::move(exported);
                         });
  return result;
}

TEST(DelayTest, ChangesNoBit) {
  device::RaceChecker checker;
  Parameters wanted[3];
  for (int micro_batches = 1; micro_batches <= 2; ++micro_batches) {
    wanted[micro_batches] = Trained(0, {}, micro_batches, checker);
    ASSERT_FALSE(wanted[micro_batches].empty());
  }
  EXPECT_NE(wanted[1], wanted[2]);
  const std::vector<Home> homes = Homes();
  for (uint64_t seed = 1; seed <= last_seed; ++seed) {
    const Home& home = homes[seed % homes.size()];
    const int micro_batches = 1 + static_cast<int>(seed / homes.size() % 2);
    ASSERT_EQ(Trained(seed, home, micro_batches, checker), wanted[micro_batches])
        << "seed " << seed << ", " << ToString(home);
  }
  EXPECT_GE(last_seed, 32u);
  EXPECT_TRUE(checker.reports().empty());
}

}  // namespace
}  // namespace brigade::zero

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc == 2) brigade::zero::last_seed = std::strtoull(argv[1], nullptr, 10);
  return RUN_ALL_TESTS();
}
