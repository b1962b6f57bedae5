#include "brigade/device/tracing/tracer.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ContextOptions TracedBy(Tracer& tracer, std::string name = "rank 0") {
  ContextOptions options = CpuOptions(std::move(name));
  options.tracer = &tracer;
  return options;
}

int64_t NowNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::Status Sleep(Stream& stream, absl::string_view name, int milliseconds) {
  return stream.Enqueue({name, {}}, [milliseconds](ThreadPool&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return absl::OkStatus();
  });
}

// "gate", "wait reduced", ...
std::vector<std::string> Names(const TracedStream& stream) {
  std::vector<std::string> names;
  for (const TracedOperation& operation : stream.operations) {
    names.push_back(operation.kind == TracedOperation::Kind::kWait ? "wait " : "");
    names.back().append(operation.name.data(), operation.name.size());
  }
  return names;
}

// Each begins after the one before it has ended, all between the two moments.
void ExpectInOrderOfTime(const TracedStream& stream, int64_t from_ns, int64_t to_ns) {
  for (const TracedOperation& operation : stream.operations) {
    EXPECT_LE(from_ns, operation.begin_ns) << operation.name;
    EXPECT_LE(operation.begin_ns, operation.end_ns) << operation.name;
    from_ns = operation.end_ns;
  }
  EXPECT_LE(from_ns, to_ns);
}

TEST(TracerTest, NamesWhatAStreamRanInOrderOfTime) {
  Tracer tracer;
  auto context = CreateContext(TracedBy(tracer));
  auto stream = context->CreateStream("compute").value();
  char memory[8] = {};
  const int64_t before = NowNs();
  ASSERT_OK(Sleep(*stream, "adam", 2));
  ASSERT_OK(stream->Copy(memory, memory + 4, 4));
  ASSERT_OK(stream->FillBytes(memory, 0, 8));
  ASSERT_OK(stream->Enqueue({"sum"}, absl::MakeConstSpan({1, 2}),
                            [](absl::Span<const int>, ThreadPool&) { return absl::OkStatus(); }));
  ASSERT_OK(stream->Synchronize());

  const std::vector<TracedStream> traced = tracer.Take();
  ASSERT_THAT(traced, SizeIs(1));
  EXPECT_EQ(traced[0].context, "rank 0");
  EXPECT_EQ(traced[0].stream, "compute");
  EXPECT_EQ(traced[0].dropped, 0);
  EXPECT_THAT(Names(traced[0]), ElementsAre("adam", "copy", "fill_bytes", "sum"));
  ExpectInOrderOfTime(traced[0], before, NowNs());
  const TracedOperation& adam = traced[0].operations[0];
  EXPECT_GE(adam.end_ns - adam.begin_ns, 2'000'000);
}

TEST(TracerTest, TellsWaitingFromWorking) {
  Tracer tracer;
  auto context = CreateContext(TracedBy(tracer));
  auto compute = context->CreateStream("compute").value();
  auto communication = context->CreateStream("communication").value();
  auto written = context->CreateEvent("written").value();
  ASSERT_OK(Sleep(*compute, "backward", 3));
  ASSERT_OK(compute->Record(*written));
  ASSERT_OK(communication->Wait(*written));
  ASSERT_OK(Sleep(*communication, "reduce_scatter", 0));
  ASSERT_OK(communication->Synchronize());
  ASSERT_OK(compute->Synchronize());

  const std::vector<TracedStream> traced = tracer.Take();
  ASSERT_THAT(traced, SizeIs(2));
  EXPECT_THAT(Names(traced[0]), ElementsAre("backward"));  // a record takes no time
  EXPECT_THAT(Names(traced[1]), ElementsAre("wait written", "reduce_scatter"));
  EXPECT_GE(traced[1].operations[0].end_ns, traced[0].operations[0].end_ns);
}

TEST(TracerTest, CountsTheBytesThatOperationsDeclare) {
  Tracer tracer;
  auto context = CreateContext(TracedBy(tracer));
  auto stream = context->CreateStream("compute").value();
  auto done = context->CreateEvent("done").value();
  char memory[64] = {};
  const Access accesses[] = {Reads(memory, 24), Writes(memory + 24, 8), Reads(nullptr, 0)};
  ASSERT_OK(stream->Enqueue({"sum", accesses}, [](ThreadPool&) { return absl::OkStatus(); }));
  // Of a copy both sides.
  ASSERT_OK(stream->Copy(memory, memory + 32, 32));
  ASSERT_OK(stream->FillBytes(memory, 0, 8));
  ASSERT_OK(stream->Record(*done));
  ASSERT_OK(stream->Wait(*done));
  ASSERT_OK(stream->Synchronize());
  const std::vector<TracedStream> traced = tracer.Take();
  std::vector<int64_t> bytes;
  for (const TracedOperation& operation : traced[0].operations) bytes.push_back(operation.bytes);
  EXPECT_THAT(bytes, ElementsAre(32, 64, 8, 0));
}

TEST(TracerTest, LeavesOutWhatWasSkippedAndKeepsWhatFailed) {
  Tracer tracer;
  auto context = CreateContext(TracedBy(tracer));
  auto stream = context->CreateStream("compute").value();
  auto done = context->CreateEvent("done").value();
  Gate gate;
  ASSERT_OK(stream->Record(*done));
  ASSERT_OK(Block(*stream, gate));
  ASSERT_OK(Fail(*stream, "disk on fire"));
  ASSERT_OK(Sleep(*stream, "skipped", 0));
  ASSERT_OK(stream->Wait(*done));  // a failed stream waits all the same
  gate.Open();
  EXPECT_THAT(stream->Synchronize(),
              StatusIs(absl::StatusCode::kDataLoss,
                       "\"broken\" on stream \"compute\" of \"rank 0\": disk on fire"));
  EXPECT_THAT(Names(tracer.Take()[0]), ElementsAre("gate", "broken", "wait done"));
}

TEST(TracerTest, HandsOverOnlyWhatHasEnded) {
  Tracer tracer;
  auto context = CreateContext(TracedBy(tracer));
  auto stream = context->CreateStream("compute").value();
  Gate gate;
  ASSERT_OK(Sleep(*stream, "first", 0));
  ASSERT_OK(Block(*stream, gate));
  gate.AwaitArrival();
  EXPECT_THAT(Names(tracer.Take()[0]), ElementsAre("first"));
  EXPECT_THAT(Names(tracer.Take()[0]), IsEmpty());
  gate.Open();
  ASSERT_OK(stream->Synchronize());
  EXPECT_THAT(Names(tracer.Take()[0]), ElementsAre("gate"));
}

TEST(TracerTest, KeepsNamesWhenTheQueueIsUsedAgain) {
  Tracer tracer;
  auto context = CreateContext(TracedBy(tracer));
  auto stream = context->CreateStream("compute").value();
  ASSERT_OK(Sleep(*stream, "first", 0));
  ASSERT_OK(stream->Synchronize());
  const TracedStream traced = tracer.Take()[0];
  ASSERT_OK(Sleep(*stream, "other", 0));  // lies where "first" lay
  ASSERT_OK(stream->Synchronize());
  EXPECT_THAT(Names(traced), ElementsAre("first"));
}

TEST(TracerTest, CountsWhatItHasNoRoomFor) {
  Tracer tracer(3);
  auto context = CreateContext(TracedBy(tracer));
  auto stream = context->CreateStream("compute").value();
  for (const char* const name : {"a", "b", "c", "d", "e"}) ASSERT_OK(Sleep(*stream, name, 0));
  ASSERT_OK(stream->Synchronize());
  TracedStream full = tracer.Take()[0];
  EXPECT_THAT(Names(full), ElementsAre("a", "b", "c"));
  EXPECT_EQ(full.dropped, 2);

  ASSERT_OK(Sleep(*stream, "f", 0));
  ASSERT_OK(stream->Synchronize());
  TracedStream next = tracer.Take()[0];
  EXPECT_THAT(Names(next), ElementsAre("f"));
  EXPECT_EQ(next.dropped, 0);
}

TEST(TracerTest, KeepsContextsApartAndStreamsBeyondTheirEnd) {
  Tracer tracer;
  std::vector<TracedStream> traced;
  {
    auto first = CreateContext(TracedBy(tracer, "rank 0"));
    auto second = CreateContext(TracedBy(tracer, "rank 1"));
    auto here = first->CreateStream("compute").value();
    auto there = second->CreateStream("compute").value();
    ASSERT_OK(Sleep(*there, "theirs", 0));
    ASSERT_OK(Sleep(*here, "ours", 0));
  }
  traced = tracer.Take();
  ASSERT_THAT(traced, SizeIs(2));
  EXPECT_EQ(traced[0].context, "rank 0");
  EXPECT_THAT(Names(traced[0]), ElementsAre("ours"));
  EXPECT_EQ(traced[1].context, "rank 1");
  EXPECT_THAT(Names(traced[1]), ElementsAre("theirs"));
}

TEST(TracerTest, SeesNothingOfAContextThatDoesNotNameIt) {
  Tracer tracer;
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  ASSERT_OK(Sleep(*stream, "adam", 0));
  ASSERT_OK(stream->Synchronize());
  EXPECT_THAT(tracer.Take(), IsEmpty());
}

TEST(TracerTest, LosesNothingWhenItIsReadWhileStreamsRun) {
  constexpr int kStreams = 3, kOperations = 2000;
  Tracer tracer(kOperations);
  auto context = CreateContext(TracedBy(tracer));
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(context->CreateStream("compute").value());
  const int64_t before = NowNs();
  std::thread host([&] {
    for (int i = 0; i < kOperations; ++i) {
      for (const auto& stream : streams) EXPECT_OK(Sleep(*stream, "short", 0));
    }
  });
  std::vector<TracedStream> whole(kStreams);
  const auto read = [&] {
    const std::vector<TracedStream> part = tracer.Take();
    for (size_t i = 0; i < part.size(); ++i) {
      whole[i].dropped += part[i].dropped;
      whole[i].operations.insert(whole[i].operations.end(), part[i].operations.begin(),
                                 part[i].operations.end());
    }
  };
  for (int i = 0; i < 50; ++i) read();
  host.join();
  for (const auto& stream : streams) ASSERT_OK(stream->Synchronize());
  read();
  for (const TracedStream& stream : whole) {
    EXPECT_THAT(stream.operations, SizeIs(kOperations));
    EXPECT_EQ(stream.dropped, 0);
    ExpectInOrderOfTime(stream, before, NowNs());
  }
}

TEST(TracerTest, AllocatesNothingWhileStreamsRunInSteadyState) {
  Tracer tracer(1000);
  auto context = CreateContext(TracedBy(tracer));
  auto stream = context->CreateStream("compute").value();
  bool ok = true;
  const auto run = [&] {
    for (int i = 0; i < 100; ++i) {
      ok &= Sleep(*stream, "a name that is too long to lie inside of a string", 0).ok();
    }
    ok &= stream->Synchronize().ok();
  };
  run();
  const int64_t before = brigade::testing::CountedAllocations();
  run();
  EXPECT_EQ(brigade::testing::CountedAllocations() - before, 0);
  EXPECT_GT(before, 0);  // the counter counts
  EXPECT_TRUE(ok);
  EXPECT_THAT(tracer.Take()[0].operations, SizeIs(200));
}

}  // namespace
}  // namespace brigade::device
