// A rank that fails before it has met the others, which are processes that no launcher ends.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/data/samples.h"
#include "brigade/examples/mlp.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/trainer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using ::brigade::testing::StatusIs;
using collectives::testing::Report;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kNobody = -1;
constexpr absl::StatusCode kLate = absl::StatusCode::kDeadlineExceeded;

class Doubles final : public data::Samples {
 public:
  int64_t size() const override { return 12; }
  int64_t input_bytes() const override { return sizeof(float); }
  int64_t target_bytes() const override { return sizeof(float); }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    const float x = static_cast<float>(sample) / 8, y = 2 * x;
    std::memcpy(input, &x, sizeof(x));
    std::memcpy(target, &y, sizeof(y));
    return absl::OkStatus();
  }
};

// By it all that come have begun, on any machine: who is late counts as absent, too.
constexpr absl::Duration kPatience = absl::Seconds(30);

// What Create gives each process, of which `failing` has a job that cannot be.
std::vector<Report> CreateWithout(int failing, absl::Duration timeout) {
  const int port = collectives::testing::FreePort();
  return collectives::testing::RunRanks(
      kRanks, [&](int rank, collectives::testing::Fault& fault) -> absl::Status {
        Job job;
        job.config =
            ParseConfig(R"({"train_batch_size": 3, "optimizer": {"type": "SGD"}})", kRanks).value();
        job.steps = rank == failing ? -1 : 2;
        fault.AwaitAll();
        const auto trainer = Trainer::Create(
            job,
            [](const ModelPlace& place) {
              return examples::Mlp::Create(place, {1, 1}, examples::Loss::kSquaredError);
            },
            {.training = std::make_shared<Doubles>(), .epochs = 1},
            {.launched = true, .rank = rank, .size = kRanks, .master_port = port},
            {.connect_timeout = timeout});
        return trainer.ok() ? (*trainer)->Fit().status() : trainer.status();
      });
}

TEST(AbsentRankTest, TheOthersNameItAtTheDeadline) {
  for (const int failing : {1, 2}) {
    SCOPED_TRACE(absl::StrCat("rank ", failing));
    const std::vector<Report> reports = CreateWithout(failing, kPatience);
    for (int rank = 0; rank < kRanks; ++rank) {
      const absl::Status& status = reports[static_cast<size_t>(rank)].status;
      if (rank == failing) {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1 steps")));
      } else {
        // The time of the others is over at the same moment: one may count as absent too.
        EXPECT_THAT(status, StatusIs(kLate, AnyOf(HasSubstr(absl::StrCat("rank ", failing, " did")),
                                                  HasSubstr("ranks 1 and 2 did"))))
            << "rank " << rank;
      }
    }
  }
}

// By which all find each other.
TEST(AbsentRankTest, TheOthersSayThatRank0IsNotThere) {
  const std::vector<Report> reports = CreateWithout(0, kPatience);
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_THAT(reports[static_cast<size_t>(rank)].status,
                StatusIs(absl::StatusCode::kNotFound,
                         AllOf(HasSubstr("cannot reach the store of rank 0 at"),
                               HasSubstr("MASTER_PORT="), HasSubstr("(tried "))))
        << "rank " << rank;
  }
}

TEST(AbsentRankTest, NobodyIsMissedWhereAllCome) {
  for (const Report& report : CreateWithout(kNobody, collectives::testing::kNever)) {
    EXPECT_OK(report.status);
  }
}

}  // namespace
}  // namespace brigade::train
