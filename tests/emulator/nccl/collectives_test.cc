// What the collectives of the stand-in for NCCL compute and refuse, and their order.

#include <future>
#include <thread>

#include "brigade/emulator/ptx/arithmetic.h"
#include "brigade/tests/emulator/nccl/emulated_ranks.h"

namespace brigade::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kFloat32 = NcclType::kFloat32;

class CollectivesTest : public EmulatedNcclTest {};

// As ncclDataType_t numbers it.
constexpr int kTypes = 10;

template <typename T>
std::string Bits(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string As(int type, int value) {
  switch (type) {
    case 0:
      return Bits(static_cast<int8_t>(value));
    case 1:
      return Bits(static_cast<uint8_t>(value));
    case 2:
      return Bits(static_cast<int32_t>(value));
    case 3:
      return Bits(static_cast<uint32_t>(value));
    case 4:
      return Bits(static_cast<int64_t>(value));
    case 5:
      return Bits(static_cast<uint64_t>(value));
    case 6:
      return Bits(FloatToHalf(static_cast<float>(value), Rounding::kNearest));
    case 7:
      return Bits(static_cast<float>(value));
    case 8:
      return Bits(static_cast<double>(value));
    default:
      return Bits(FloatToBFloat16(static_cast<float>(value), Rounding::kNearest));
  }
}

TEST_F(CollectivesTest, ReducesAllTypesByAllOperations) {
  Connect(3);
  // Of 2, 9 and 4; by ncclRedOp_t.
  const int results[] = {15, 72, 9, 2, 5};
  const int values[] = {2, 9, 4};
  for (int type = 0; type < kTypes; ++type) {
    for (int op = 0; op < 5; ++op) {
      std::string arrays[3];
      for (int rank = 0; rank < 3; ++rank) {
        arrays[rank] = As(type, values[rank]) + As(type, values[rank]);
        Enqueued(api_.all_reduce(arrays[rank].data(), arrays[rank].data(), 2,
                                 static_cast<NcclType>(type), static_cast<NcclOp>(op), comms_[rank],
                                 StreamOf(rank)),
                 comms_[rank]);
      }
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_OK(streams_[rank]->Synchronize());
        EXPECT_EQ(arrays[rank], As(type, results[op]) + As(type, results[op])) << type << " " << op;
      }
    }
  }
  EXPECT_THAT(EmulatedNccl::Misuses(), IsEmpty());
}

TEST_F(CollectivesTest, RefusesWhatIsOutOfRange) {
  Connect(2);
  float array[2] = {};
  const NcclStream stream = StreamOf(0);
  const auto reduce = [&](int type, int op) {
    return api_.all_reduce(array, array, 1, static_cast<NcclType>(type), static_cast<NcclOp>(op),
                           comms_[0], stream);
  };
  const auto fresh = [&] {
    for (const NcclComm comm : comms_) api_.comm_abort(comm);
    comms_.clear();
    ASSERT_EQ(api_.get_unique_id(&id_), NcclResult::kSuccess);
    for (int rank = 0; rank < 2; ++rank) comms_.push_back(Begin(rank, 2));
    AwaitReady(comms_[0]);
  };
  constexpr auto kInvalid = NcclResult::kInvalidArgument;
  EXPECT_EQ(api_.broadcast(array, array, 1, kFloat32, 9, comms_[0], stream), kInvalid);
  EXPECT_EQ(Poll(comms_[0]), kInvalid) << "the error stays";
  fresh();
  EXPECT_EQ(api_.broadcast(array, array, 1, kFloat32, -1, comms_[0], stream), kInvalid);
  fresh();
  EXPECT_EQ(api_.receive(array, 1, kFloat32, 2, comms_[0], stream), kInvalid);
  fresh();
  EXPECT_EQ(reduce(10, 0), kInvalid);
  fresh();
  EXPECT_EQ(reduce(7, 5), kInvalid);
  EXPECT_THAT(
      EmulatedNccl::Misuses(),
      ElementsAre("ncclBroadcast with root 9 of 2 ranks", "ncclBroadcast with root -1 of 2 ranks",
                  "ncclRecv with peer 2 of 2 ranks",
                  "ncclAllReduce with type 10: not NCCL's, or not supported here",
                  "ncclAllReduce with operation 5: not NCCL's, or not supported here"));
}

// On NCCL too the second one waits for the first, in whichever streams.
TEST_F(CollectivesTest, RunInTheOrderOfTheirCallsInTwoStreams) {
  Connect(2);
  const auto late = context_->CreateStream("late").value();
  std::promise<void> release;
  ASSERT_OK(late->Enqueue({"wait", {}}, [&](device::ThreadPool&) {
    release.get_future().wait();
    return absl::OkStatus();
  }));
  std::vector<float> one = {1}, two = {2}, ten = {10}, twenty = {20}, sums[2] = {{0}, {0}},
                     tens[2] = {{0}, {0}};
  Enqueued(api_.all_reduce(one.data(), sums[0].data(), 1, kFloat32, NcclOp::kSum, comms_[0],
                           reinterpret_cast<NcclStream>(late.get())),
           comms_[0]);
  Add(0, ten, tens[0]);
  Add(1, two, sums[1]);
  Add(1, twenty, tens[1]);
  // Time enough for a kernel that is out of order.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  release.set_value();
  for (const auto& stream : streams_) EXPECT_OK(stream->Synchronize());
  EXPECT_OK(late->Synchronize());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(sums[rank], ElementsAre(3));
    EXPECT_THAT(tens[rank], ElementsAre(30));
  }
}

// 0 receives from 1 first; 1 waits for 2, and 2 for 0's receive from it.
TEST_F(CollectivesTest, AGroupTakesWhatItReceivesInAnyOrder) {
  Connect(3);
  float values[] = {0, 1, 2}, received[3] = {}, last = 0;
  const auto call = [&](bool sends, int rank, float& value, int peer) {
    const NcclStream stream = StreamOf(rank);
    Enqueued(sends ? api_.send(&value, 1, kFloat32, peer, comms_[rank], stream)
                   : api_.receive(&value, 1, kFloat32, peer, comms_[rank], stream),
             comms_[rank]);
  };
  ASSERT_EQ(api_.group_start(), NcclResult::kSuccess);
  for (const int peer : {1, 2}) {
    ASSERT_EQ(api_.receive(&received[peer], 1, kFloat32, peer, comms_[0], StreamOf(0)),
              NcclResult::kSuccess);
  }
  Enqueued(api_.group_end(), comms_[0]);
  call(false, 1, last, 2);
  call(true, 1, values[1], 0);
  call(true, 2, values[2], 0);
  call(true, 2, values[2], 1);
  for (const auto& stream : streams_) EXPECT_OK(stream->Synchronize());
  EXPECT_THAT(received, ElementsAre(0, 1, 2));
  EXPECT_EQ(last, 2);
}

TEST_F(CollectivesTest, WaitForOnesThatAreAlike) {
  Connect(2);
  std::vector<float> one = {1}, two = {2, 2}, sums[2] = {{0, 0}, {0, 0}};
  Add(0, one, sums[0]);
  Add(1, two, sums[1]);
  for (const NcclComm comm : comms_) {
    EXPECT_EQ(api_.comm_finalize(comm), NcclResult::kInProgress);
    ExpectStaysInProgress(comm);
  }
  for (const NcclComm comm : comms_) api_.comm_abort(comm);
  comms_.clear();
  for (const auto& stream : streams_) EXPECT_OK(stream->Synchronize());
  EXPECT_THAT(sums[1], ElementsAre(0, 0));
}

}  // namespace
}  // namespace brigade::emulator
