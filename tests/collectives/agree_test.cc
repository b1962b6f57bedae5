#include "brigade/collectives/agree.h"

#include <string>
#include <vector>

#include "brigade/tests/collectives/ranks.h"
#include "gmock/gmock.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kMost = 511;

// What each rank gets from AgreeOnStatus if rank r gives mine[r].
std::vector<absl::Status> AgreedOn(const std::vector<absl::Status>& mine) {
  std::vector<absl::Status> agreed(mine.size());
  OnThreads({.size = static_cast<int>(mine.size())}, [&](Rank& self) {
    const auto rank = static_cast<size_t>(self.rank);
    agreed[rank] = AgreeOnStatus(mine[rank], *self.communicator);
    // Nobody has left before the others have it.
    EXPECT_OK(self.communicator->AllGatherHost({}));
  });
  return agreed;
}

TEST(AgreeOnStatusTest, IsOkIfAllRanksGiveOk) {
  for (const size_t size : {1, 2, 3}) {
    EXPECT_THAT(AgreedOn(std::vector<absl::Status>(size)),
                ::testing::Each(::testing::Eq(absl::OkStatus())));
  }
}

TEST(AgreeOnStatusTest, OneRanksErrorReachesAll) {
  const absl::Status full = absl::ResourceExhaustedError("the disk is full");
  const absl::Status told = absl::ResourceExhaustedError("rank 2: the disk is full");
  EXPECT_THAT(AgreedOn({{}, {}, full}), ElementsAre(told, told, full));
  EXPECT_THAT(AgreedOn({full}), ElementsAre(full));
}

TEST(AgreeOnStatusTest, OfSeveralErrorsEachRankKeepsItsOwnAndTheOthersGetTheFirst) {
  const absl::Status first = absl::NotFoundError("no folder");
  const absl::Status second = absl::AbortedError("stopped");
  const absl::Status told = absl::NotFoundError("rank 1: no folder");
  EXPECT_THAT(AgreedOn({{}, first, second, {}}), ElementsAre(told, first, second, told));
}

TEST(AgreeOnStatusTest, TellsAsMuchOfAMessageAsThereIsRoomFor) {
  for (const size_t length : {size_t{0}, size_t{1}, kMost - 1, kMost, kMost + 1, 5 * kMost}) {
    const std::string message(length, 'x');
    const absl::Status own = absl::InternalError(message);
    EXPECT_THAT(AgreedOn({{}, own}),
                ElementsAre(absl::InternalError("rank 1: " + message.substr(0, kMost)), own));
  }
}

TEST(AgreeOnStatusTest, ForeignBytesArePrintable) {
  EXPECT_THAT(AgreedOn({absl::DataLossError("\x1b[2J\n\xff ends"), {}})[1],
              absl::DataLossError("rank 0: \\x1b[2J\\x0a\\xff ends"));
  EXPECT_THAT(AgreedOn({absl::DataLossError(std::string("before\0after", 12)), {}})[1],
              absl::DataLossError("rank 0: before"));
  // Each of these bytes takes four.
  const absl::Status long_one = AgreedOn({absl::DataLossError(std::string(600, '\x1b')), {}})[1];
  EXPECT_LE(long_one.message().size(), 1810u);
  EXPECT_THAT(long_one, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("\\x1b...")));
}

TEST(AgreeOnStatusTest, TheCommunicatorsErrorIsGiven) {
  OnThreads({.size = 2}, [](Rank& self) {
    self.AwaitOthers();
    self.communicator->Abort(absl::CancelledError("enough"));
    EXPECT_THAT(AgreeOnStatus(absl::OkStatus(), *self.communicator),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
    EXPECT_THAT(AllGatherBytes("", *self.communicator),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
  });
}

void ExpectGathered(const std::vector<std::string>& bytes) {
  OnThreads({.size = static_cast<int>(bytes.size())}, [&](Rank& self) {
    const auto all = AllGatherBytes(bytes[static_cast<size_t>(self.rank)], *self.communicator);
    ASSERT_OK(all);
    EXPECT_EQ(*all, bytes);
  });
}

TEST(AllGatherBytesTest, GivesTheBytesOfAllRanksOfAnyLength) {
  ExpectGathered({"abc", "", std::string(1000, 'x')});
  ExpectGathered({std::string("\0\xff\0", 3), std::string(1, '\0'), "\n"});
  // Around a word.
  ExpectGathered({"1234567", "12345678", "123456789", "123456789012345"});
}

TEST(AllGatherBytesTest, AllMayBeEmpty) {
  ExpectGathered({"", "", ""});
  ExpectGathered({""});
}

TEST(AllGatherBytesTest, OneRankGetsItsOwn) { ExpectGathered({"alone"}); }

// What each rank gets from AgreeOnLines if rank r gives lines[r].
std::vector<absl::Status> AgreedOn(const std::vector<std::vector<std::string>>& lines) {
  std::vector<absl::Status> agreed(lines.size());
  OnThreads({.size = static_cast<int>(lines.size())}, [&](Rank& self) {
    const auto rank = static_cast<size_t>(self.rank);
    agreed[rank] = AgreeOnLines(lines[rank], *self.communicator);
    EXPECT_OK(self.communicator->AllGatherHost({}));
  });
  return agreed;
}

TEST(AgreeOnLinesTest, IsOkIfAllRanksHaveTheSame) {
  for (const std::vector<std::string>& lines :
       std::vector<std::vector<std::string>>{{}, {""}, {"a", "b"}}) {
    EXPECT_THAT(AgreedOn({lines, lines, lines}), ::testing::Each(absl::OkStatus()));
  }
}

TEST(AgreeOnLinesTest, NamesTheFirstThatDiffersOnAllRanks) {
  const auto differs = [](const std::string& text) {
    return ::testing::Each(StatusIs(absl::StatusCode::kInvalidArgument,
                                    ::testing::StrEq("ranks disagree: rank 0 has " + text)));
  };
  EXPECT_THAT(AgreedOn({{"a", "b", "c"}, {"a", "b", "c"}, {"a", "x", "y"}}),
              differs("b; rank 2 has x"));
  EXPECT_THAT(AgreedOn({{"a"}, {"a", "b"}}), differs("nothing; rank 1 has b"));
  EXPECT_THAT(AgreedOn({{"a"}, {}, {"b"}}), differs("a; rank 1 has nothing"));
  EXPECT_THAT(AgreedOn({{std::string(900, 'x')}, {"\n"}}),
              differs(std::string(793, 'x') + "...; rank 1 has \\x0a"));
}

}  // namespace
}  // namespace brigade::collectives
