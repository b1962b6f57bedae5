// Ranks whose streams are held up at random: the bits stay, and the race checker has nothing to
// report. The seeds come from the command line: 32 of them in every run, 1,000 in the soak test.

#include <cstdlib>
#include <vector>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

uint64_t last_seed = 0;

// One training-like exchange; returns all ranks' results.
std::vector<float> Trajectory(uint64_t seed, device::RaceChecker& checker) {
  const RanksOptions options = {.size = 3,
                                .random_delay = {.seed = seed, .max_delay_us = seed == 0 ? 0 : 150},
                                .race_checker = &checker};
  std::vector<float> result(3 * 40);
  OnThreads(options, [&](Rank& self) {
    std::vector<float> gradients(120), shard(40), parameters(120);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = 1.0f / static_cast<float>(3 * i + static_cast<size_t>(self.rank) + 1);
    }
    Communicator& group = *self.communicator;
    for (const Algorithm algorithm : kAlgorithms) {
      ASSERT_OK(group.AllReduce(gradients.data(), gradients.data(), 120, kFloat32, By(algorithm),
                                *self.stream));
      ASSERT_OK(group.ReduceScatter(gradients.data(), shard.data(), 40, kFloat32, By(algorithm),
                                    *self.stream));
      ASSERT_OK(group.AllGather(shard.data(), parameters.data(), 40, kFloat32, {algorithm},
                                *self.stream));
      ASSERT_OK(group.AllToAll(parameters.data(), gradients.data(), 40, kFloat32, *self.stream));
    }
    ASSERT_OK(self.stream->Synchronize());
    std::copy_n(gradients.begin(), 40, result.begin() + 40 * self.rank);
  });
  return result;
}

TEST(RandomDelayTest, ChangesNoBit) {
  device::RaceChecker checker;
  const std::vector<float> wanted = Trajectory(0, checker);
  for (uint64_t seed = 1; seed <= last_seed; ++seed) {
    ASSERT_EQ(Trajectory(seed, checker), wanted) << "seed " << seed;
  }
  EXPECT_GE(last_seed, 32u);
  EXPECT_THAT(checker.reports(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace brigade::collectives

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc == 2) brigade::collectives::last_seed = std::strtoull(argv[1], nullptr, 10);
  return RUN_ALL_TESTS();
}
