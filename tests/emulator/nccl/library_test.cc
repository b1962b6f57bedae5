// libnccl.so.2 as a program finds it, with ranks in one process and in two.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "brigade/collectives/engines/nccl/api.h"
#include "brigade/emulator/runtime/control.h"
#include "brigade/tests/emulator/device_array.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::emulator {

namespace {

using collectives::LoadNccl;
using collectives::NcclApi;
using collectives::NcclComm;
using collectives::NcclConfig;
using collectives::NcclOp;
using collectives::NcclResult;
using collectives::NcclType;
using collectives::NcclUniqueId;

// What one of two ranks does; each returns how many expectations did not hold.
class TwoRanks {
 public:
  TwoRanks(const NcclUniqueId& id, int rank) : api_(LoadNccl().value()), id_(id), rank_(rank) {}

  // Every operation.
  int Run() {
    Begin();
    const float one = static_cast<float>(rank_ + 1);
    const std::vector<float> ones(100, one);
    const DeviceArray<float> a(ones), b(std::vector<float>(200));
    // Halves of 1 and 2, by their bits.
    const DeviceArray<uint16_t> half(std::vector<uint16_t>(100, rank_ == 0 ? 0x3c00 : 0x4000));
    Done(
        api_.all_reduce(a.data(), a.data(), 100, NcclType::kFloat32, NcclOp::kSum, comm_, stream_));
    Expect(a.Read(stream_)[99] == 3);
    Done(api_.all_reduce(half.data(), half.data(), 100, NcclType::kFloat16, NcclOp::kSum, comm_,
                         stream_));
    Expect(half.Read(stream_)[99] == 0x4200);
    a.Write(ones);
    Done(api_.all_gather(a.data(), b.data(), 100, NcclType::kFloat32, comm_, stream_));
    Expect(b.Read(stream_)[99] == 1 && b.Read(stream_)[100] == 2);
    Done(api_.reduce_scatter(b.data(), a.data(), 100, NcclType::kFloat32, NcclOp::kMax, comm_,
                             stream_));
    Expect(a.Read(stream_)[0] == one);
    // Only the root has an input.
    Done(api_.broadcast(rank_ == 1 ? a.data() : nullptr, a.data(), 100, NcclType::kFloat32,
                        /*root=*/1, comm_, stream_));
    Expect(a.Read(stream_)[99] == 2);
    a.Write(ones);
    Expect(api_.group_start() == NcclResult::kSuccess);
    api_.send(a.data(), 100, NcclType::kFloat32, 1 - rank_, comm_, stream_);
    api_.receive(b.data(), 100, NcclType::kFloat32, 1 - rank_, comm_, stream_);
    Done(api_.group_end());
    Expect(b.Read(stream_)[99] == 3 - one);
    // Into the sender's address, where the ranks are processes.
    a.Write(ones);
    Done(rank_ == 0 ? api_.send(a.data(), 100, NcclType::kFloat32, 1, comm_, stream_)
                    : api_.receive(a.data(), 100, NcclType::kFloat32, 0, comm_, stream_));
    Expect(a.Read(stream_)[99] == 1);
    Split();
    return End();
  }

  // Replays of a graph with sums in two streams, of which the third is put off.
  int Replay() {
    Begin();
    cudaStream_t other = nullptr;
    Expect(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
    cudaEvent_t event = nullptr;
    Expect(cudaEventCreate(&event) == cudaSuccess);
    const auto order = [&](cudaStream_t before, cudaStream_t after) {
      Expect(cudaEventRecord(event, before) == cudaSuccess);
      Expect(cudaStreamWaitEvent(after, event, 0) == cudaSuccess);
    };
    const DeviceArray<float> a(std::vector<float>(100, 1)), b(std::vector<float>(100, 1));
    const auto add = [&](const DeviceArray<float>& array, cudaStream_t stream) {
      Done(api_.all_reduce(array.data(), array.data(), 100, NcclType::kFloat32, NcclOp::kSum, comm_,
                           stream));
    };
    Expect(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    order(stream_, other);
    // Nothing but the graph orders these two.
    add(a, stream_);
    Done(api_.all_reduce(b.data(), b.data(), 100, NcclType::kFloat32, NcclOp::kMax, comm_, other));
    order(other, stream_);
    add(b, stream_);
    cudaGraph_t graph = nullptr;
    Expect(cudaStreamEndCapture(stream_, &graph) == cudaSuccess);
    Expect(a.Read(stream_)[99] == 1);
    cudaGraphExec_t executable = nullptr;
    Expect(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    constexpr int kReplays = 8;
    for (int i = 0; i < kReplays; ++i) {
      Expect(cudaGraphLaunch(executable, stream_) == cudaSuccess);
    }
    Expect(a.Read(stream_)[99] == 1 << kReplays);
    Expect(b.Read(stream_)[99] == 1 << kReplays);
    // As long as the graph lives, the communicator does.
    NcclResult state = NcclResult::kSuccess;
    Expect(api_.comm_finalize(comm_) == NcclResult::kInProgress);
    for (int i = 0; i < 5; ++i) {
      Expect(api_.comm_get_async_error(comm_, &state) == NcclResult::kSuccess);
      Expect(state == NcclResult::kInProgress);
    }
    Expect(cudaGraphExecDestroy(executable) == cudaSuccess);
    Expect(cudaGraphDestroy(graph) == cudaSuccess);
    Done(NcclResult::kInProgress);
    Expect(cudaEventDestroy(event) == cudaSuccess);
    Expect(cudaStreamDestroy(other) == cudaSuccess);
    return End();
  }

  // One of two streams is late: the sums meet in the order of the calls all the same.
  int TwoStreams() {
    Begin();
    cudaStream_t late = nullptr;
    Expect(cudaStreamCreateWithFlags(&late, cudaStreamNonBlocking) == cudaSuccess);
    const DeviceArray<float> a(std::vector<float>(100, 1)), b(std::vector<float>(100, 10));
    if (rank_ == 0) {
      const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
      Expect(cudaLaunchHostFunc(late, sleep, nullptr) == cudaSuccess);
    }
    Done(api_.all_reduce(a.data(), a.data(), 100, NcclType::kFloat32, NcclOp::kSum, comm_, late));
    Done(
        api_.all_reduce(b.data(), b.data(), 100, NcclType::kFloat32, NcclOp::kSum, comm_, stream_));
    Expect(b.Read(stream_)[99] == 20);
    Expect(a.Read(late)[99] == 2);
    Expect(cudaStreamDestroy(late) == cudaSuccess);
    return End();
  }

  // Rank 1 never comes: what rank 0 would have received is not written.
  int Abort() {
    Begin();
    float* output = nullptr;
    Expect(cudaMalloc(reinterpret_cast<void**>(&output), 400) == cudaSuccess);
    const DeviceArray<float> input(std::vector<float>(100, 1));
    if (rank_ == 0) {
      Done(api_.all_reduce(input.data(), output, 100, NcclType::kFloat32, NcclOp::kSum, comm_,
                           stream_));
    }
    Expect(api_.comm_abort(comm_) == NcclResult::kSuccess);
    Expect(cudaStreamSynchronize(stream_) == cudaSuccess);
    // Reported.
    std::vector<float> read(100);
    Expect(cudaMemcpy(read.data(), output, 400, cudaMemcpyDeviceToHost) == cudaSuccess);
    Expect(cudaFree(output) == cudaSuccess);
    Expect(cudaStreamDestroy(stream_) == cudaSuccess);
    return wrong_;
  }

 private:
  void Begin() {
    Expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
    NcclConfig config;
    Done(api_.comm_init_rank_config(&comm_, 2, id_, rank_, &config));
  }

  int End() {
    Expect(api_.comm_destroy(comm_) == NcclResult::kSuccess);
    Expect(cudaStreamDestroy(stream_) == cudaSuccess);
    return wrong_;
  }

  void Split() {
    NcclComm child = nullptr;
    NcclConfig config;
    Expect(api_.comm_split(comm_, 0, /*key=*/-rank_, &child, &config) == NcclResult::kSuccess);
    Done(NcclResult::kInProgress);
    int rank = -1;
    Done(NcclResult::kInProgress, child);
    Expect(api_.comm_user_rank(child, &rank) == NcclResult::kSuccess && rank == 1 - rank_);
    Expect(api_.comm_abort(child) == NcclResult::kSuccess);
  }

  void Done(NcclResult result) { Done(result, comm_); }

  void Done(NcclResult result, NcclComm comm) {
    while (result == NcclResult::kInProgress && wrong_ == 0) {
      Expect(api_.comm_get_async_error(comm, &result) == NcclResult::kSuccess);
      std::this_thread::yield();
    }
    Expect(result == NcclResult::kSuccess);
  }

  void Expect(bool holds) { wrong_ += holds ? 0 : 1; }

  const NcclApi api_;
  const NcclUniqueId id_;
  const int rank_;
  NcclComm comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  int wrong_ = 0;
};

NcclUniqueId CreateId() {
  NcclUniqueId id = {};
  EXPECT_EQ(LoadNccl().value().get_unique_id(&id), NcclResult::kSuccess);
  return id;
}

// The first test: a process that has used CUDA must not fork.
TEST(LibraryTest, RanksOfTwoProcesses) {
  const NcclUniqueId id = CreateId();
  const pid_t child = fork();
  if (child == 0) {
    const int wrong = TwoRanks(id, 1).Run();
    _exit(wrong > 0 || ::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
  }
  // Rank 0 would wait for one that has died.
  std::thread watch([&] {
    int status = -1;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      return;
    }
    std::fprintf(stderr, "the other rank ended with status %d\n", status);
    _exit(EXIT_FAILURE);
  });
  EXPECT_EQ(TwoRanks(id, 0).Run(), 0);
  watch.join();
}

// Each on a device of its own.
void ExpectOnTwoDevices(int (TwoRanks::*run)()) {
  const NcclUniqueId id = CreateId();
  int wrong[] = {-1, -1};
  const auto rank = [&](int rank) {
    EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
    wrong[rank] = (TwoRanks(id, rank).*run)();
  };
  std::thread one(rank, 1);
  std::thread zero(rank, 0);
  zero.join();
  one.join();
  EXPECT_EQ(wrong[0], 0);
  EXPECT_EQ(wrong[1], 0);
}

TEST(LibraryTest, RanksOfOneProcess) { ExpectOnTwoDevices(&TwoRanks::Run); }

TEST(LibraryTest, AGraphRunsItsCollectivesOnceInEachReplayAndInOrder) {
  ExpectOnTwoDevices(&TwoRanks::Replay);
}

TEST(LibraryTest, CollectivesOfTwoStreamsRunInTheOrderOfTheirCalls) {
  ExpectOnTwoDevices(&TwoRanks::TwoStreams);
}

TEST(LibraryTest, WhatAnAbortedCollectiveLeavesIsNotWritten) {
  ExpectOnTwoDevices(&TwoRanks::Abort);
  const auto reports = TakeReports();
  EXPECT_EQ(reports.size(), 2);
  for (const Report& report : reports) {
    EXPECT_NE(report.text.find("never written"), std::string::npos) << report.text;
  }
}

TEST(LibraryTest, SaysLastWhatItRefused) {
  const NcclApi api = LoadNccl().value();
  int count = 0;
  EXPECT_EQ(api.comm_count(nullptr, &count), NcclResult::kInvalidArgument);
  EXPECT_STREQ(api.get_last_error(nullptr), "ncclCommCount on no communicator");
  const auto reports = TakeReports();
  ASSERT_EQ(reports.size(), 1);
  EXPECT_EQ(reports[0].text, "ncclCommCount on no communicator");
  EXPECT_STREQ(api.get_error_string(NcclResult::kInvalidArgument), "ncclInvalidArgument");
}

}  // namespace
}  // namespace brigade::emulator
