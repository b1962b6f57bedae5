#include "brigade/device/internal/carried_errors.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device::internal {
namespace {

using ::brigade::testing::StatusIs;

const absl::Status kLost = absl::DataLossError("lost");

uint32_t Load(const std::shared_ptr<uint32_t>& flag) {
  return std::atomic_ref<uint32_t>(*flag).load(std::memory_order_acquire);
}

// A stream's errors, with a word of its own.
struct Stream {
  explicit Stream(std::string name, uint32_t counted = 0)
      : flag(std::make_shared<uint32_t>(counted)),
        errors(std::make_shared<CarriedErrors>(std::move(name), flag)) {}

  std::optional<uint32_t> Wait(const EventRecordRef& record, absl::string_view event = "e") {
    return errors->Wait(record, event, /*has_flag=*/true);
  }
  void Follow(const EventRecordRef& record, absl::string_view event = "e") {
    if (record) errors->Wait(record, event, /*has_flag=*/false);
  }

  std::shared_ptr<uint32_t> flag;
  std::shared_ptr<CarriedErrors> errors;
};

TEST(CarriedErrorsTest, ARecordOfAStreamThatWaitsForNothingCarriesNothing) {
  Stream stream("a");
  EXPECT_FALSE(stream.errors->Record());
  const EventRecordRef finished = EventRecordRef::Create();
  finished->Finish(absl::OkStatus());
  EXPECT_EQ(stream.Wait(finished), std::nullopt);
  EXPECT_FALSE(stream.errors->Record());
}

TEST(CarriedErrorsTest, AKnownErrorArrivesAtOnce) {
  Stream stream("a");
  const EventRecordRef finished = EventRecordRef::Create();
  finished->Finish(kLost);
  EXPECT_EQ(stream.Wait(finished, "ready"), std::nullopt);
  EXPECT_THAT(stream.errors->first().Get(),
              StatusIs(absl::StatusCode::kDataLoss, "lost; reached a through event \"ready\""));
  EXPECT_FALSE(stream.errors->Record()->Wait().ok());
}

TEST(CarriedErrorsTest, TheFlagCountsInTheOrderOfTheWaits) {
  Stream stream("a", /*counted=*/0xffffffff);
  const EventRecordRef first = EventRecordRef::Create(), second = EventRecordRef::Create();
  EXPECT_EQ(stream.Wait(first), 0);
  EXPECT_EQ(stream.Wait(second), 1);
  second->Finish(absl::OkStatus());
  EXPECT_EQ(Load(stream.flag), 0xffffffff);
  first->Finish(absl::OkStatus());
  EXPECT_EQ(Load(stream.flag), 1);
}

TEST(CarriedErrorsTest, ARecordCarriesWhatComesBeforeItAlone) {
  Stream stream("a");
  const EventRecordRef good = EventRecordRef::Create(), bad = EventRecordRef::Create();
  stream.Wait(good);
  const EventRecordRef between = stream.errors->Record();
  stream.Wait(bad);
  const EventRecordRef behind = stream.errors->Record();
  // Of a launch behind all records.
  stream.errors->first().Keep(absl::InternalError("launch"));
  EXPECT_FALSE(between->finished());
  good->Finish(absl::OkStatus());
  EXPECT_OK(between->Wait());
  EXPECT_FALSE(behind->finished());
  bad->Finish(kLost);
  EXPECT_THAT(behind->Wait(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(stream.errors->first().Get(), StatusIs(absl::StatusCode::kInternal, "launch"));
}

TEST(CarriedErrorsTest, AnErrorGoesToAndFroBetweenStreams) {
  Stream a("a"), b("b");
  const EventRecordRef root = EventRecordRef::Create();
  a.Wait(root, "root");
  b.Follow(a.errors->Record(), "first");
  a.Follow(b.errors->Record(), "second");
  const EventRecordRef last = a.errors->Record();
  root->Finish(kLost);
  const auto lost = absl::StatusCode::kDataLoss;
  EXPECT_THAT(a.errors->first().Get(), StatusIs(lost, "lost; reached a through event \"root\""));
  EXPECT_THAT(
      b.errors->first().Get(),
      StatusIs(lost, "lost; reached a through event \"root\"; reached b through event \"first\""));
  EXPECT_TRUE(last->finished());
  EXPECT_THAT(last->Wait(), StatusIs(lost));
}

TEST(CarriedErrorsTest, ClearForgetsWhatHasArrived) {
  Stream stream("a");
  EventRecordRef root = EventRecordRef::Create();
  stream.Wait(root);
  root->Finish(kLost);
  stream.errors->Clear();
  EXPECT_FALSE(stream.errors->Record());
  root = EventRecordRef::Create();
  stream.Wait(root);
  const EventRecordRef record = stream.errors->Record();
  root->Finish(absl::OkStatus());
  EXPECT_OK(record->Wait());
}

TEST(CarriedErrorsTest, LivesUntilItsWaitsAreOver) {
  const EventRecordRef root = EventRecordRef::Create();
  std::weak_ptr<uint32_t> flag;
  {
    Stream stream("a");
    flag = stream.flag;
    stream.Wait(root);
  }
  EXPECT_FALSE(flag.expired());
  root->Finish(absl::OkStatus());
  EXPECT_TRUE(flag.expired());
}

TEST(CarriedErrorsTest, AllocatesNothingInSteadyState) {
  Stream a("a"), b("b");
  const auto run = [&](int waits) {
    std::vector<EventRecordRef> roots(static_cast<size_t>(waits));
    const int64_t before = brigade::testing::CountedAllocations();
    for (EventRecordRef& root : roots) {
      root = EventRecordRef::Create();
      a.Wait(root, "an event with a name that no string holds in itself");
      b.Follow(a.errors->Record(), "another event with a name that no string holds in itself");
    }
    for (const EventRecordRef& root : roots) root->Finish(absl::OkStatus());
    return brigade::testing::CountedAllocations() - before;
  };
  for (int i = 0; i < 100; ++i) run(50);
  EXPECT_EQ(run(50), 0);
  EXPECT_EQ(run(20), 0);
}

// What a device does that has passed a flag: whatever is before it has arrived everywhere.
TEST(CarriedErrorsTest, WhoSeesAFlagSeesTheErrorOnAllStreams) {
  for (int round = 0; round < 2000; ++round) {
    Stream a("a"), b("b"), c("c");
    const EventRecordRef one = EventRecordRef::Create(), two = EventRecordRef::Create();
    a.Wait(one);
    b.Wait(two);
    const EventRecordRef of_a = a.errors->Record(), of_b = b.errors->Record();
    c.Follow(of_a);
    c.Follow(of_b);
    a.Follow(of_b);
    b.Follow(of_a);
    const EventRecordRef last = c.errors->Record();
    std::thread first([&] { one->Finish(absl::OkStatus()); });
    std::thread second([&] { two->Finish(kLost); });
    while (Load(a.flag) != 1 || Load(b.flag) != 1) std::this_thread::yield();
    for (const Stream* stream : {&a, &b, &c}) EXPECT_FALSE(stream->errors->first().ok());
    EXPECT_TRUE(last->finished());
    EXPECT_FALSE(last->Wait().ok());
    first.join();
    second.join();
  }
}

}  // namespace
}  // namespace brigade::device::internal
