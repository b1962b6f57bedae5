#include "brigade/parallel/plan/published.h"

#include <cmath>
#include <string>

#include "brigade/device/files.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

Machine Read(const std::string& name) {
  const NamedMachine named = *MachineByName(name);
  const auto text = device::ReadFile(named.topology_file);
  EXPECT_OK(text);
  const auto topology = collectives::TopologyFromJson(*text);
  EXPECT_OK(topology);
  return {named.device, named.ranks_per_node, *topology};
}

// Stands on those figures alone that were looked up again.
TEST(PublishedTest, IsPredictedAsWellAsThePageSays) {
  int predictions = 0, fits = 0;
  for (const PublishedRun& run : PublishedRuns()) {
    if (!run.is_checked) continue;
    ASSERT_OK_AND_ASSIGN(const auto prediction, Predict(run, Read(run.machine)));
    const double most = run.is_fitted ? 1 : 15;
    EXPECT_LT(std::abs(prediction.error_percent), most)
        << run.source << " " << run.model << " on " << run.space.ranks;
    ++(run.is_fitted ? fits : predictions);
  }
  EXPECT_EQ(fits, 2);
  EXPECT_EQ(predictions, 5);
}

TEST(PublishedTest, HasTheTotalsThatArePublished) {
  for (const PublishedRun& run : PublishedRuns()) {
    const double petaflops = run.teraflops * run.space.ranks / 1e3;
    if (run.model == "gpt-1t" && run.space.ranks == 3072) {
      EXPECT_NEAR(petaflops, 502, 2);
    }
    if (run.model == "gpt-8.3b") {
      EXPECT_NEAR(petaflops, 15.1, 1e-9);
    }
  }
}

TEST(PublishedTest, LosesByTensorRanksInOneOrder) {
  ASSERT_OK_AND_ASSIGN(const auto percents, PredictTensorEfficiencies(Read("dgx2h_v100")));
  ASSERT_EQ(percents.size(), TensorEfficiencies().size());
  EXPECT_EQ(percents.front(), 100);
  for (size_t i = 1; i < percents.size(); ++i) EXPECT_LT(percents[i], percents[i - 1]);
}

}  // namespace
}  // namespace brigade::parallel
