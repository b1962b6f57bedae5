// Destruction with work outstanding, in every order: docs/device.md, rules 12 to 17.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

// Long enough for a destructor that does not wait to be gone before the work has run.
absl::Status SleepThenSet(Stream& stream, std::atomic<int>& value) {
  return stream.Enqueue({"slow", {}}, [&value](ThreadPool&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++value;
    return absl::OkStatus();
  });
}

TEST(LifetimeTest, StreamFinishesItsWorkBeforeItGoes) {
  std::atomic<int> done{0};
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  ASSERT_OK(SleepThenSet(*stream, done));
  ASSERT_OK(SleepThenSet(*stream, done));
  stream.reset();
  EXPECT_EQ(done.load(), 2);
  EXPECT_EQ(context->host_waits(), 1);
}

TEST(LifetimeTest, BufferWaitsForTheWorkOfItsContext) {
  std::atomic<int> done{0};
  auto context = CreateContext(CpuOptions());
  auto first = context->CreateStream("first").value();
  auto second = context->CreateStream("second").value();
  Buffer buffer = context->Allocate(64, Purpose::kScratch).value();
  ASSERT_OK(SleepThenSet(*first, done));
  ASSERT_OK(SleepThenSet(*second, done));
  buffer = Buffer();
  EXPECT_EQ(done.load(), 2);
  EXPECT_EQ(context->host_waits(), 1);
}

TEST(LifetimeTest, BufferOfAnIdleContextWaitsForNothing) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  auto event = context->CreateEvent("done").value();
  for (int i = 0; i < 100; ++i) {
    Buffer buffer = context->Allocate(64, Purpose::kScratch).value();
    ASSERT_OK(stream->FillBytes(buffer.data(), 0, 64));
    ASSERT_OK(stream->Record(*event));
    // Once the event says that the work is over, the free must not find it unfinished.
    ASSERT_OK(event->Synchronize());
  }
  EXPECT_EQ(context->host_waits(), 100);
}

TEST(LifetimeTest, BorrowedBufferWaitsForNothing) {
  Gate gate;
  int theirs = 0;
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  ASSERT_OK(Block(*stream, gate));
  { const Buffer borrowed = context->Borrow(&theirs, sizeof(theirs)).value(); }
  EXPECT_EQ(context->host_waits(), 0);
  gate.Open();
}

TEST(LifetimeTest, EventMayGoWhileItIsWaitedFor) {
  Gate gate;
  std::atomic<int> order{0};
  int consumed_at = 0;
  auto context = CreateContext(CpuOptions());
  auto producer = context->CreateStream("producer").value();
  auto consumer = context->CreateStream("consumer").value();
  auto event = context->CreateEvent("ready").value();
  ASSERT_OK(Block(*producer, gate));
  ASSERT_OK(producer->Enqueue({"produce", {}}, [&order](ThreadPool&) {
    ++order;
    return absl::OkStatus();
  }));
  ASSERT_OK(producer->Record(*event));
  ASSERT_OK(consumer->Wait(*event));
  event.reset();
  ASSERT_OK(consumer->Enqueue({"consume", {}}, [&](ThreadPool&) {
    consumed_at = order.load();
    return absl::OkStatus();
  }));
  gate.AwaitArrival();
  gate.Open();
  ASSERT_OK(consumer->Synchronize());
  EXPECT_EQ(consumed_at, 1);
}

// Context, stream, event and buffer in all 24 orders, each time with work outstanding that writes
// the buffer unless its stream went first.
TEST(LifetimeTest, EveryOrderOfDestructionIsLegal) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    for (const bool checks : {false, true}) {
      RaceChecker checker;
      std::atomic<int> done{0};
      auto context = CreateContext(checks ? CheckedOptions(checker) : CpuOptions());
      auto stream = context->CreateStream("compute").value();
      auto event = context->CreateEvent("done").value();
      std::optional<Buffer> buffer = context->Allocate(1024, Purpose::kScratch, "scratch").value();
      ASSERT_OK(stream->Enqueue({"slow", {Writes(buffer->data(), 1024)}},
                                [&done, bytes = buffer->as<uint8_t>()](ThreadPool&) {
                                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                  std::fill(bytes.begin(), bytes.end(), uint8_t{1});
                                  ++done;
                                  return absl::OkStatus();
                                }));
      ASSERT_OK(stream->Record(*event));
      for (const int which : order) {
        if (which == 0) context.reset();
        if (which == 1) stream.reset();
        if (which == 2) event.reset();
        if (which == 3) buffer.reset();
      }
      EXPECT_EQ(done.load(), 1);
      EXPECT_TRUE(checker.reports().empty());
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(LifetimeTest, WorkMayOwnABufferWhichGoesBackLater) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  Buffer buffer = context->Allocate(1000, Purpose::kScratch).value();
  ASSERT_OK(stream->Enqueue({"last use", {}}, [owned = std::move(buffer)](ThreadPool&) {
    return owned.bytes() == 1000 ? absl::OkStatus() : absl::InternalError("lost");
  }));
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(context->memory_stats().current_bytes(), 1000);
  const Buffer next = context->Allocate(1, Purpose::kScratch).value();
  EXPECT_EQ(context->memory_stats().current_bytes(), 1);
}

TEST(LifetimeTest, TheLastBufferOfAContextMayDieOnAnothersWorker) {
  auto other = CreateContext(CpuOptions("rank 1"));
  auto stream = other->CreateStream("compute").value();
  auto context = CreateContext(CpuOptions("rank 0"));
  Buffer buffer = context->Allocate(1000, Purpose::kScratch).value();
  context.reset();
  ASSERT_OK(stream->Enqueue({"last use", {}},
                            [owned = std::move(buffer)](ThreadPool&) { return absl::OkStatus(); }));
  EXPECT_OK(stream->Synchronize());  // a leak would be the sanitizer's to report
}

}  // namespace
}  // namespace brigade::device
