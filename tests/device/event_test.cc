#include "brigade/device/event.h"

#include <memory>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

TEST(EventTest, NeverRecordedOrdersNothingAndSaysSo) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  auto event = context->CreateEvent("ready").value();
  const auto failed = absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(stream->Wait(*event),
              StatusIs(failed,
                       "stream \"compute\" waits for event \"ready\", which was never "
                       "recorded"));
  EXPECT_THAT(event->Synchronize(), StatusIs(failed, "event \"ready\" was never recorded"));
  EXPECT_THAT(event->Query(), StatusIs(failed, "event \"ready\" was never recorded"));
  EXPECT_OK(stream->Synchronize());
  EXPECT_EQ(context->host_waits(), 1);
}

TEST(EventTest, QueryTellsBeforeFromAfter) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  auto event = context->CreateEvent("ready").value();
  Gate gate;
  ASSERT_OK(Block(*stream, gate));
  ASSERT_OK(stream->Record(*event));
  EXPECT_EQ(event->Query().value(), false);
  gate.Open();
  ASSERT_OK(event->Synchronize());
  EXPECT_EQ(event->Query().value(), true);
}

TEST(EventTest, AWaitBindsTheRecordAtTheTimeOfTheCall) {
  auto context = CreateContext(CpuOptions());
  auto producer = context->CreateStream("producer").value();
  auto consumer = context->CreateStream("consumer").value();
  auto event = context->CreateEvent("ready").value();
  Gate gate;
  ASSERT_OK(producer->Record(*event));
  ASSERT_OK(consumer->Wait(*event));
  // Recorded anew behind a gate: if the wait moved along, the consumer would not end before it
  // opens.
  ASSERT_OK(Block(*producer, gate));
  ASSERT_OK(producer->Record(*event));
  EXPECT_OK(consumer->Synchronize());
  gate.Open();
  EXPECT_OK(producer->Synchronize());
}

TEST(EventTest, MayBeRecordedOnAnyStreamInTurn) {
  auto context = CreateContext(CpuOptions());
  auto held = context->CreateStream("held").value();
  auto free = context->CreateStream("free").value();
  auto event = context->CreateEvent("ready").value();
  Gate gate;
  ASSERT_OK(Block(*held, gate));
  ASSERT_OK(held->Record(*event));
  ASSERT_OK(free->Record(*event));
  EXPECT_OK(event->Synchronize());
  gate.Open();
  EXPECT_OK(held->Synchronize());
}

TEST(EventTest, LetsManyHostThreadsWait) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  auto event = context->CreateEvent("ready").value();
  Gate gate;
  int value = 0;
  ASSERT_OK(Block(*stream, gate));
  ASSERT_OK(stream->Enqueue({"set", {}}, [&value](ThreadPool&) {
    value = 7;
    return absl::OkStatus();
  }));
  ASSERT_OK(stream->Record(*event));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      EXPECT_OK(event->Synchronize());
      EXPECT_EQ(value, 7);
    });
  }
  gate.AwaitArrival();
  gate.Open();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(context->host_waits(), 4);
}

}  // namespace
}  // namespace brigade::device
