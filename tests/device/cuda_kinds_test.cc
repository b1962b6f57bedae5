// Events that order streams of the CPU and CUDA streams: docs/device.md, rules 4, 5, 10, 11, 13,
// 14 and 19 over two kinds of devices.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kBytes = 1 << 12;

// Holds a stream of either kind until it is opened.
absl::Status Hold(Stream& stream, Gate& gate) {
  if (stream.device().kind == DeviceKind::kCpu) return Block(stream, gate);
  return stream.Launch({"gate", {}}, [&gate](void* native) {
    return CudaStatus(cudaLaunchHostFunc(
                          static_cast<cudaStream_t>(native),
                          [](void* data) { static_cast<Gate*>(data)->Pass(); }, &gate),
                      "cudaLaunchHostFunc");
  });
}

absl::Status FailLaunch(Stream& stream) {
  return stream.Launch({"broken", {}}, [](void*) { return absl::DataLossError("disk on fire"); });
}

absl::Status RunOnLane(Stream& stream, absl::string_view name, std::vector<Access> accesses,
                       std::function<void()> work) {
  return stream.Enqueue({name, accesses}, [work = std::move(work)](ThreadPool&) {
    work();
    return absl::OkStatus();
  });
}

// A rank: a GPU's context and one of the CPU beside it, with gradients going down and weights up.
class Rank {
 public:
  explicit Rank(RaceChecker& checker, RandomDelay delay = {}, Tracer* tracer = nullptr) {
    ContextOptions options = CheckedOptions(checker, "rank 0");
    options.device = Cuda(0);
    options.tracer = tracer;
    gpu = CreateContext(options);
    options = CheckedOptions(checker, "host 0");
    options.random_delay = delay;
    options.tracer = tracer;
    cpu = CreateContext(options);
    down = gpu->CreateStream("down").value();
    up = gpu->CreateStream("up").value();
    lane = cpu->CreateStream("lane").value();
    reduced = gpu->CreateEvent("reduced").value();
    uploaded = gpu->CreateEvent("uploaded").value();
    updated = cpu->CreateEvent("updated").value();
  }

  int64_t host_waits() const { return gpu->host_waits() + cpu->host_waits(); }
  Buffer Device(absl::string_view name) {
    return gpu->Allocate(kBytes, Purpose::kScratch, name).value();
  }
  Buffer Host(absl::string_view name) {
    return gpu->AllocateHost(kBytes, Purpose::kScratch, name).value();
  }

  std::unique_ptr<Context> gpu, cpu;
  std::unique_ptr<Stream> down, up, lane;
  std::unique_ptr<Event> reduced, uploaded, updated;
};

class CudaKindsTest : public ::testing::Test {
 protected:
  RaceChecker checker_;
  Rank rank_{checker_};
};

TEST_F(CudaKindsTest, TheCpuWaitsForCuda) {
  Buffer gradients = rank_.Device("gradients"), host = rank_.Host("gradients on the host");
  std::vector<uint8_t> seen(kBytes);
  Gate gate;
  ASSERT_OK(Hold(*rank_.down, gate));
  ASSERT_OK(rank_.down->FillBytes(gradients.data(), 7, kBytes));
  ASSERT_OK(rank_.down->Copy(host.data(), gradients.data(), kBytes));
  ASSERT_OK(rank_.down->Record(*rank_.reduced));
  ASSERT_OK(rank_.lane->Wait(*rank_.reduced));
  ASSERT_OK(rank_.lane->Copy(seen.data(), host.data(), kBytes));
  ASSERT_OK(rank_.lane->Record(*rank_.updated));
  gate.AwaitArrival();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(rank_.updated->Query().value(), false);
  EXPECT_EQ(rank_.host_waits(), 0);
  gate.Open();
  ASSERT_OK(rank_.lane->Synchronize());
  EXPECT_THAT(seen, Each(7));
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(CudaKindsTest, CudaWaitsForTheCpu) {
  Buffer weights = rank_.Device("weights"), host = rank_.Host("weights on the host");
  Buffer scratch = rank_.Device("scratch");
  Gate gate;
  ASSERT_OK(Hold(*rank_.lane, gate));
  ASSERT_OK(rank_.lane->FillBytes(host.data(), 9, kBytes));
  ASSERT_OK(rank_.lane->Record(*rank_.updated));
  ASSERT_OK(rank_.up->Wait(*rank_.updated));
  ASSERT_OK(rank_.up->Copy(weights.data(), host.data(), kBytes));
  ASSERT_OK(rank_.up->Record(*rank_.uploaded));
  // What is not behind the wait goes on.
  ASSERT_OK(rank_.down->FillBytes(scratch.data(), 1, kBytes));
  ASSERT_OK(rank_.down->Synchronize());
  gate.AwaitArrival();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(rank_.uploaded->Query().value(), false);
  gate.Open();
  ASSERT_OK(rank_.up->Synchronize());
  std::vector<uint8_t> seen(kBytes);
  ASSERT_EQ(cudaMemcpy(seen.data(), weights.data(), kBytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_THAT(seen, Each(9));
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(CudaKindsTest, AReachedRecordHoldsNobodyBack) {
  ASSERT_OK(rank_.down->Record(*rank_.reduced));
  ASSERT_OK(rank_.lane->Record(*rank_.updated));
  ASSERT_OK(rank_.down->Synchronize());
  ASSERT_OK(rank_.lane->Synchronize());
  ASSERT_OK(rank_.lane->Wait(*rank_.reduced));
  ASSERT_OK(rank_.up->Wait(*rank_.updated));
  EXPECT_OK(rank_.lane->Synchronize());
  EXPECT_OK(rank_.up->Synchronize());
}

// From a stream of one kind to one of the other.
struct Direction {
  Stream* from;
  Stream* other_from;
  Event* event;
  Stream* to;
};

class CudaKindsBothWaysTest : public CudaKindsTest, public ::testing::WithParamInterface<bool> {
 protected:
  std::unique_ptr<Stream> second_lane_ = rank_.cpu->CreateStream("second lane").value();
  Direction way_ =
      GetParam()
          ? Direction{rank_.down.get(), rank_.up.get(), rank_.reduced.get(), rank_.lane.get()}
          : Direction{rank_.lane.get(), second_lane_.get(), rank_.updated.get(), rank_.up.get()};
};

INSTANTIATE_TEST_SUITE_P(Ways, CudaKindsBothWaysTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? std::string("CudaToCpu") : std::string("CpuToCuda");
});

TEST_P(CudaKindsBothWaysTest, AnEventThatWasNeverRecordedIsRefused) {
  EXPECT_THAT(way_.to->Wait(*way_.event),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("never recorded")));
  EXPECT_OK(way_.to->Synchronize());
}

TEST_P(CudaKindsBothWaysTest, AWaitDoesNotMoveToALaterRecord) {
  ASSERT_OK(way_.from->Record(*way_.event));
  ASSERT_OK(way_.to->Wait(*way_.event));
  Gate gate;
  ASSERT_OK(Hold(*way_.from, gate));
  ASSERT_OK(way_.from->Record(*way_.event));
  EXPECT_OK(way_.to->Synchronize());
  gate.Open();
  EXPECT_OK(way_.from->Synchronize());
}

TEST_P(CudaKindsBothWaysTest, ALaterRecordThatIsReachedDoesNotEndAWait) {
  Gate gate;
  ASSERT_OK(Hold(*way_.from, gate));
  ASSERT_OK(way_.from->Record(*way_.event));
  ASSERT_OK(way_.to->Wait(*way_.event));
  auto done = (GetParam() ? rank_.cpu : rank_.gpu)->CreateEvent("done").value();
  ASSERT_OK(way_.to->Record(*done));
  ASSERT_OK(way_.other_from->Record(*way_.event));
  ASSERT_OK(way_.event->Synchronize());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(done->Query().value(), false);
  gate.Open();
  EXPECT_OK(way_.to->Synchronize());
}

TEST_P(CudaKindsBothWaysTest, AnEventMayGoBeforeItsWaitIsOver) {
  Gate gate;
  ASSERT_OK(Hold(*way_.from, gate));
  auto gone = (GetParam() ? rank_.gpu : rank_.cpu)->CreateEvent("gone").value();
  auto done = (GetParam() ? rank_.cpu : rank_.gpu)->CreateEvent("done").value();
  ASSERT_OK(way_.from->Record(*gone));
  ASSERT_OK(way_.to->Wait(*gone));
  gone.reset();
  ASSERT_OK(way_.to->Record(*done));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(done->Query().value(), false);
  gate.Open();
  EXPECT_OK(way_.to->Synchronize());
}

TEST_P(CudaKindsBothWaysTest, StreamsEventsAndContextsEndInAnyOrder) {
  for (const bool from_first : {true, false}) {
    Rank rank(checker_);
    Gate gate;
    std::unique_ptr<Stream>& from = GetParam() ? rank.down : rank.lane;
    std::unique_ptr<Stream>& to = GetParam() ? rank.lane : rank.up;
    Event& event = GetParam() ? *rank.reduced : *rank.updated;
    ASSERT_OK(Hold(*from, gate));
    ASSERT_OK(from->Record(event));
    ASSERT_OK(to->Wait(event));
    auto opener = std::async(std::launch::async, [&gate] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate.Open();
    });
    rank.gpu.reset();
    rank.cpu.reset();
    rank.reduced.reset();
    rank.updated.reset();
    (from_first ? from : to).reset();
    opener.get();
  }
}

// A stream that is destroyed finishes what is queued, also for those who wait for it.
TEST_P(CudaKindsBothWaysTest, AStreamThatEndsReachesItsRecords) {
  Rank rank(checker_);
  std::unique_ptr<Stream>& from = GetParam() ? rank.down : rank.lane;
  Stream& to = GetParam() ? *rank.lane : *rank.up;
  Event& event = GetParam() ? *rank.reduced : *rank.updated;
  Gate gate;
  ASSERT_OK(Hold(*from, gate));
  ASSERT_OK(from->Record(event));
  ASSERT_OK(to.Wait(event));
  gate.Open();
  from.reset();
  EXPECT_OK(to.Synchronize());
}

TEST_P(CudaKindsBothWaysTest, AMissingWaitIsReportedAndAWaitIsNot) {
  for (const bool waits : {false, true}) {
    checker_.ClearReports();
    Buffer shared = rank_.Host("shared");
    ASSERT_OK(way_.from->FillBytes(shared.data(), 1, kBytes));
    ASSERT_OK(way_.from->Record(*way_.event));
    if (waits) {
      ASSERT_OK(way_.to->Wait(*way_.event));
    }
    ASSERT_OK(way_.to->FillBytes(shared.data(), 2, kBytes));
    if (waits) {
      EXPECT_OK(way_.to->Synchronize());
    } else {
      EXPECT_THAT(way_.to->Synchronize(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                   HasSubstr("\"shared\"; no event orders them")));
    }
    EXPECT_THAT(checker_.reports(), SizeIs(waits ? 0 : 1));
    ASSERT_OK(way_.from->Synchronize());
    ASSERT_OK(way_.to->Reset());
  }
}

// The other way round it is the CUDA stream that is captured, which the checker does not see.
TEST_F(CudaKindsTest, AWaitThatIsRefusedOrdersNothing) {
  cudaStream_t theirs = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking), cudaSuccess);
  Buffer shared = rank_.Host("shared");
  auto borrowed = rank_.gpu->BorrowStream(theirs, "theirs").value();
  ASSERT_OK(borrowed->FillBytes(shared.data(), 1, kBytes));
  ASSERT_EQ(cudaStreamBeginCapture(theirs, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_OK(borrowed->Record(*rank_.reduced));
  EXPECT_THAT(rank_.lane->Wait(*rank_.reduced), StatusIs(absl::StatusCode::kFailedPrecondition));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(theirs, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_OK(rank_.lane->FillBytes(shared.data(), 2, kBytes));
  EXPECT_THAT(rank_.lane->Synchronize(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no event orders them")));
  ASSERT_OK(borrowed->Synchronize());
  borrowed.reset();
  ASSERT_EQ(cudaStreamDestroy(theirs), cudaSuccess);
}

TEST_P(CudaKindsBothWaysTest, WaitsAreTraced) {
  Tracer tracer;
  RaceChecker checker;
  Rank rank(checker, {}, &tracer);
  Stream& from = GetParam() ? *rank.down : *rank.lane;
  Stream& to = GetParam() ? *rank.lane : *rank.up;
  Event& event = GetParam() ? *rank.reduced : *rank.updated;
  Gate gate;
  ASSERT_OK(Hold(from, gate));
  ASSERT_OK(from.Record(event));
  ASSERT_OK(to.Wait(event));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  gate.Open();
  ASSERT_OK(to.Synchronize());
  ASSERT_OK(from.Synchronize());
  // One for what is over, too.
  ASSERT_OK(to.Wait(event));
  ASSERT_OK(to.Synchronize());
  int waits = 0;
  for (const TracedStream& traced : tracer.Take()) {
    if (traced.stream != to.name()) continue;
    for (const TracedOperation& operation : traced.operations) {
      waits += operation.kind == TracedOperation::Kind::kWait ? 1 : 0;
      EXPECT_EQ(operation.name, event.name());
      if (waits == 1) {
        EXPECT_GE(operation.end_ns - operation.begin_ns, 10'000'000);
      }
    }
  }
  EXPECT_EQ(waits, 2);
}

// Each step's gradient comes down, the lane makes a weight of it, which goes up into a history.
class Steps {
 public:
  Steps(Rank& rank, int steps)
      : rank_(rank),
        gradient_(rank.Device("gradient")),
        weight_(rank.Device("weight")),
        history_(rank.gpu->Allocate(int64_t{steps} * kLine, Purpose::kScratch, "history").value()),
        host_gradient_(rank.Host("gradient on the host")),
        host_weight_(rank.Host("weight on the host")) {}

  static uint8_t Gradient(int step) { return static_cast<uint8_t>(step % 251); }

  absl::Status Run(int step) {
    Stream& down = *rank_.down;
    Stream& up = *rank_.up;
    Stream& lane = *rank_.lane;
    auto* const seen = host_gradient_.as<uint8_t>().data();
    auto* const made = host_weight_.as<uint8_t>().data();
    // The weight before goes into the gradient's place: what the lane reads has gone all the way.
    if (step > 0) BRIGADE_RETURN_IF_ERROR(down.Wait(*rank_.uploaded));
    BRIGADE_RETURN_IF_ERROR(down.Copy(gradient_.data(), weight_.data(), kLine));
    BRIGADE_RETURN_IF_ERROR(down.FillBytes(gradient_.data(), Gradient(step), 1));
    BRIGADE_RETURN_IF_ERROR(down.Copy(seen, gradient_.data(), kLine));
    BRIGADE_RETURN_IF_ERROR(down.Record(*rank_.reduced));
    BRIGADE_RETURN_IF_ERROR(lane.Wait(*rank_.reduced));
    BRIGADE_RETURN_IF_ERROR(RunOnLane(
        lane, "update", {Reads(seen, kLine), Writes(made, kLine)}, [this, seen, made, step] {
          const bool is_right =
              seen[0] == Gradient(step) && (step == 0 || seen[1] == Gradient(step - 1));
          if (!is_right) ++wrong_;
          for (int i = 1; i < kLine; ++i) made[i] = seen[0];
        }));
    BRIGADE_RETURN_IF_ERROR(lane.Record(*rank_.updated));
    BRIGADE_RETURN_IF_ERROR(up.Wait(*rank_.updated));
    BRIGADE_RETURN_IF_ERROR(up.Copy(weight_.data(), made, kLine));
    BRIGADE_RETURN_IF_ERROR(
        up.Copy(history_.as<uint8_t>().data() + step * kLine, weight_.data(), kLine));
    return up.Record(*rank_.uploaded);
  }

  void ExpectRight(int steps) {
    EXPECT_EQ(wrong_, 0);
    std::vector<uint8_t> history(static_cast<size_t>(steps * kLine));
    ASSERT_EQ(cudaMemcpy(history.data(), history_.data(), history.size(), cudaMemcpyDefault),
              cudaSuccess);
    for (int step = 0; step < steps; ++step) {
      EXPECT_EQ(history[static_cast<size_t>(step * kLine + 1)], Gradient(step)) << step;
    }
  }

 private:
  static constexpr int kLine = 16;

  Rank& rank_;
  Buffer gradient_, weight_, history_, host_gradient_, host_weight_;
  std::atomic<int> wrong_{0};
};

// A GPU's queue takes about a thousand launches: the host, far ahead, then stands in a call of
// CUDA's, and the lane must go on beside it.
TEST_F(CudaKindsTest, AThousandStepsWithTheHostFarAhead) {
  constexpr int kSteps = 1000;
  Steps steps(rank_, kSteps);
  Gate gate;
  ASSERT_OK(Hold(*rank_.lane, gate));
  auto opener = std::async(std::launch::async, [&gate] {
    gate.AwaitArrival();
    // Long enough to enqueue all steps, or to fill the queue.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    gate.Open();
  });
  for (int step = 0; step < kSteps; ++step) ASSERT_OK(steps.Run(step));
  opener.get();
  EXPECT_EQ(rank_.host_waits(), 0);
  ASSERT_OK(rank_.up->Synchronize());
  ASSERT_OK(rank_.lane->Synchronize());
  steps.ExpectRight(kSteps);
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(CudaKindsTest, OrderHoldsUnderRandomDelays) {
  constexpr int kSteps = 12;
  for (uint64_t seed = 1; seed <= 32; ++seed) {
    RaceChecker checker;
    Rank rank(checker, {seed, 300});
    Steps steps(rank, kSteps);
    for (int step = 0; step < kSteps; ++step) ASSERT_OK(steps.Run(step));
    ASSERT_OK(rank.up->Synchronize());
    steps.ExpectRight(kSteps);
    EXPECT_THAT(checker.reports(), IsEmpty()) << seed;
  }
}

constexpr char kBrokenLane[] = "\"broken\" on stream \"lane\" of \"host 0\": disk on fire";
constexpr char kBrokenDown[] = "\"broken\" on stream \"down\" of \"rank 0\": disk on fire";

TEST_F(CudaKindsTest, AnErrorOfTheCpuTravelsOnOverCudaAndBack) {
  auto other = rank_.gpu->CreateStream("other").value();
  auto second = rank_.cpu->CreateStream("second lane").value();
  auto before = rank_.gpu->CreateEvent("before").value();
  auto passed = rank_.gpu->CreateEvent("passed").value();
  Gate gate;
  ASSERT_OK(Hold(*rank_.lane, gate));
  ASSERT_OK(Fail(*rank_.lane, "disk on fire"));
  ASSERT_OK(rank_.lane->Record(*rank_.updated));
  ASSERT_OK(rank_.up->Record(*before));
  ASSERT_OK(rank_.up->Wait(*rank_.updated));
  ASSERT_OK(rank_.up->Record(*rank_.uploaded));
  ASSERT_OK(other->Wait(*rank_.uploaded));
  ASSERT_OK(other->Record(*passed));
  ASSERT_OK(second->Wait(*passed));
  // The records carry what nobody knows yet.
  EXPECT_OK(rank_.up->status());
  EXPECT_EQ(rank_.host_waits(), 0);
  gate.AwaitArrival();
  gate.Open();

  const auto lost = absl::StatusCode::kDataLoss;
  const std::string to_up =
      std::string(kBrokenLane) + "; reached stream \"up\" of \"rank 0\" through event \"updated\"";
  const std::string to_other =
      to_up + "; reached stream \"other\" of \"rank 0\" through event \"uploaded\"";
  EXPECT_THAT(passed->Synchronize(),
              StatusIs(lost, to_other + "; reached the host through event \"passed\""));
  EXPECT_THAT(rank_.uploaded->Query(),
              StatusIs(lost, to_up + "; reached the host through event \"uploaded\""));
  EXPECT_THAT(rank_.up->Synchronize(), StatusIs(lost, to_up));
  EXPECT_THAT(other->Synchronize(), StatusIs(lost, to_other));
  EXPECT_THAT(second->Synchronize(),
              StatusIs(lost, to_other + "; reached stream \"second lane\" of \"host 0\" through "
                                        "event \"passed\""));
  EXPECT_OK(before->Synchronize());
  EXPECT_OK(rank_.down->Synchronize());
  // New work is refused with it.
  EXPECT_THAT(rank_.up->FillBytes(rank_.Device("").data(), 1, kBytes), StatusIs(lost, to_up));
}

TEST_F(CudaKindsTest, AnErrorIsThereWhenTheStreamIsSynchronized) {
  for (int round = 0; round < 200; ++round) {
    ASSERT_OK(Fail(*rank_.lane, "disk on fire"));
    ASSERT_OK(rank_.lane->Record(*rank_.updated));
    ASSERT_OK(rank_.up->Wait(*rank_.updated));
    ASSERT_OK(rank_.up->Record(*rank_.uploaded));
    ASSERT_OK(rank_.down->Wait(*rank_.uploaded));
    ASSERT_FALSE(rank_.down->Synchronize().ok()) << round;
    ASSERT_FALSE(rank_.up->Synchronize().ok()) << round;
    for (Stream* stream : {rank_.lane.get(), rank_.up.get(), rank_.down.get()}) {
      ASSERT_OK(stream->Reset());
      ASSERT_OK(stream->Synchronize());
    }
  }
}

TEST_F(CudaKindsTest, AnErrorOfCudaReachesTheCpu) {
  EXPECT_FALSE(FailLaunch(*rank_.down).ok());
  ASSERT_OK(rank_.down->Record(*rank_.reduced));
  ASSERT_OK(rank_.lane->Wait(*rank_.reduced));
  bool ran = false;
  RunOnLane(*rank_.lane, "update", {}, [&ran] { ran = true; }).IgnoreError();
  ASSERT_OK(rank_.lane->Record(*rank_.updated));
  ASSERT_OK(rank_.up->Wait(*rank_.updated));
  const std::string to_lane = std::string(kBrokenDown) +
                              "; reached stream \"lane\" of \"host 0\" through event \"reduced\"";
  const auto lost = absl::StatusCode::kDataLoss;
  EXPECT_THAT(rank_.lane->Synchronize(), StatusIs(lost, to_lane));
  EXPECT_FALSE(ran);
  EXPECT_THAT(rank_.up->Synchronize(),
              StatusIs(lost, to_lane + "; reached stream \"up\" of \"rank 0\" through event "
                                       "\"updated\""));
}

TEST_F(CudaKindsTest, ARecordKeepsItsErrorOverResetAndALaterOneIsClean) {
  auto after = rank_.gpu->CreateEvent("after").value();
  ASSERT_OK(Fail(*rank_.lane, "disk on fire"));
  ASSERT_OK(rank_.lane->Record(*rank_.updated));
  ASSERT_OK(rank_.up->Wait(*rank_.updated));
  ASSERT_OK(rank_.up->Record(*rank_.uploaded));
  ASSERT_OK(rank_.up->Reset());
  ASSERT_OK(rank_.up->Record(*after));
  EXPECT_THAT(rank_.uploaded->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_OK(after->Synchronize());
  // The event of the CPU still carries it.
  ASSERT_OK(rank_.up->Wait(*rank_.updated));
  EXPECT_THAT(rank_.up->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(CudaKindsTest, AFailedStreamOfEitherKindStillWaits) {
  Gate gate;
  EXPECT_FALSE(FailLaunch(*rank_.up).ok());
  ASSERT_OK(Hold(*rank_.lane, gate));
  ASSERT_OK(rank_.lane->Record(*rank_.updated));
  ASSERT_OK(rank_.up->Wait(*rank_.updated));
  ASSERT_OK(rank_.up->Record(*rank_.uploaded));
  gate.AwaitArrival();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(rank_.uploaded->Query().value_or(true), false);
  gate.Open();
  EXPECT_THAT(rank_.uploaded->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(CudaKindsTest, ABorrowedStreamMayEndWhileItWaits) {
  cudaStream_t theirs = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking), cudaSuccess);
  Buffer host = rank_.Host("host");
  Gate gate;
  ASSERT_OK(Hold(*rank_.lane, gate));
  ASSERT_OK(rank_.lane->Record(*rank_.updated));
  auto borrowed = rank_.gpu->BorrowStream(theirs, "theirs").value();
  ASSERT_OK(borrowed->Wait(*rank_.updated));
  borrowed.reset();
  EXPECT_EQ(cudaStreamQuery(theirs), cudaErrorNotReady);
  // Its word is not given to another stream meanwhile, to be raised for that one. (These are not
  // awaited: on a GPU some of so many share the queue in which the first one waits.)
  std::vector<std::unique_ptr<Stream>> others;
  auto second = rank_.cpu->CreateStream("second lane").value();
  for (int i = 0; i < 100; ++i) {
    others.push_back(rank_.gpu->CreateStream("other").value());
    ASSERT_OK(second->Record(*rank_.updated));
    ASSERT_OK(others.back()->Wait(*rank_.updated));
  }
  ASSERT_OK(second->Synchronize());
  EXPECT_EQ(cudaStreamQuery(theirs), cudaErrorNotReady);
  static_cast<void>(cudaGetLastError());
  gate.Open();
  EXPECT_EQ(cudaStreamSynchronize(theirs), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(theirs), cudaSuccess);
}

// Ranks that share a GPU: one frees memory, which waits for the whole device, while the other's
// streams wait for each other.
TEST_F(CudaKindsTest, FreesOfAnotherContextDoNotLockUpWaits) {
  constexpr int kSteps = 100;
  RaceChecker checker;
  Rank other(checker);
  std::atomic<bool> over{false};
  auto frees = std::async(std::launch::async, [&] {
    while (!over) EXPECT_OK(other.gpu->Allocate(kBytes, Purpose::kScratch));
  });
  Steps steps(rank_, kSteps);
  for (int step = 0; step < kSteps; ++step) ASSERT_OK(steps.Run(step));
  EXPECT_OK(rank_.up->Synchronize());
  over = true;
  frees.get();
  steps.ExpectRight(kSteps);
}

}  // namespace
}  // namespace brigade::device
