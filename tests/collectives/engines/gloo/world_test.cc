// From what a launcher says to a sum, in processes of their own.

#include "brigade/collectives/engines/gloo/world.h"

#include <cstdlib>
#include <string>

#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"

namespace brigade::collectives::testing {
namespace {

constexpr int kSize = 3;

// A rank as a user writes it, its variables being set.
absl::Status SumOnes(int rank, const GlooWorldOptions& options) {
  auto launch_info = LaunchInfoFromEnvironment();
  BRIGADE_RETURN_IF_ERROR(launch_info.status());
  if (launch_info->rank != rank) return Wrong("the environment is another's");
  const auto context = NewRankContext(rank, {});
  Rank self = {rank, launch_info->size, nullptr, context->CreateStream("compute").value(), nullptr};
  auto world = JoinGlooWorld(*launch_info, options, *context);
  BRIGADE_RETURN_IF_ERROR(world.status());
  Arrays arrays;
  return AddOnes(**world, self, arrays, 100);
}

void SetEnvironment(int rank, int port) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(kSize).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}

TEST(GlooWorldTest, MeetsAtTheMasterOfTheEnvironment) {
  const int port = FreePort();
  for (const Report& report : RunRanks(kSize, absl::Seconds(40), [&](int rank, Fault&) {
         SetEnvironment(rank, port);
         return SumOnes(rank, {});
       })) {
    EXPECT_OK(report.status);
  }
}

TEST(GlooWorldTest, MeetsInAFolder) {
  GlooWorldOptions options;
  options.folder = std::string(std::getenv("TEST_TMPDIR")) + "/world_test_store";
  for (const Report& report : RunRanks(kSize, absl::Seconds(40), [&](int rank, Fault&) {
         SetEnvironment(rank, 1);  // where nobody listens
         return SumOnes(rank, options);
       })) {
    EXPECT_OK(report.status);
  }
}

TEST(GlooWorldTest, ARankThatIsNotStartedIsNamed) {
  const int port = FreePort();
  GlooWorldOptions options;
  options.connect_timeout = absl::Seconds(3) * kSlowness;
  const auto reports = RunRanks(kSize, absl::Seconds(40), [&](int rank, Fault&) {
    SetEnvironment(rank, port);
    return rank == 1 ? absl::OkStatus() : SumOnes(rank, options);
  });
  using ::brigade::testing::StatusIs;
  using ::testing::HasSubstr;
  // Rank 2's time is over at the same moment: it may count as not there either.
  const auto named =
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               ::testing::AnyOf(HasSubstr("rank 1 did"), HasSubstr("ranks 1 and 2 did")));
  EXPECT_THAT(reports[0].status, named);
  EXPECT_THAT(reports[2].status, named);
}

TEST(GlooWorldTest, OneRankNeedsNobody) {
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  EXPECT_OK(SumOnes(0, {}));
}

}  // namespace
}  // namespace brigade::collectives::testing
