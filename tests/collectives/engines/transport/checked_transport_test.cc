// Calls whose messages follow fingerprints: how many messages, and that calls that differ are found
// whoever their partners are.

#include "brigade/collectives/engines/transport/checked_transport.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/transport/transport_engine.h"
#include "brigade/tests/collectives/engines/transport/memory_transport.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kCapacity = 4096;  // floats of each array
constexpr float kUntouched = -1;
// A bit a rank, so that a sum tells whose input is in it.
float Input(int rank) { return static_cast<float>(1 << rank); }
bool Has(float output, int rank) { return (static_cast<int>(output) >> rank & 1) != 0; }

// A call of one rank: a collective, or AllGatherHost of as many values as on_host says.
struct Call {
  CollectiveSignature signature = {};
  uint64_t sequence = 0;
  int peer = 0;
  int on_host = -1;
};

CollectiveSignature Signature(CollectiveKind kind, int64_t count,
                              Algorithm algorithm = Algorithm::kDirect) {
  CollectiveSignature signature;
  signature.kind = kind;
  signature.count = count;
  signature.algorithm = algorithm;
  signature.dtype = precision::DType::kFloat32;
  return signature;
}
CollectiveSignature AllReduce(int64_t count, Algorithm algorithm = Algorithm::kDirect) {
  return Signature(CollectiveKind::kAllReduce, count, algorithm);
}

struct Outcome {
  // All by rank. Of the last call, or of the group when all ranks are done.
  std::vector<absl::Status> statuses;
  std::vector<std::vector<float>> outputs;
  // Of the last call.
  std::vector<int> sends;
  // Of all calls.
  std::vector<int64_t> sent_bytes;
};

// Each rank makes its calls on an engine over `network`.
Outcome MakeCalls(MemoryNetwork& network,
                  const std::function<std::vector<Call>(int rank)>& calls_of) {
  const int size = network.size();
  Outcome outcome;
  outcome.statuses.resize(static_cast<size_t>(size));
  outcome.outputs.assign(static_cast<size_t>(size), std::vector<float>(kCapacity, kUntouched));
  outcome.sends.resize(static_cast<size_t>(size));
  outcome.sent_bytes.resize(static_cast<size_t>(size));
  std::barrier done(size);
  OnThreadsOf(size, [&](int rank) {
    std::vector<float> input(kCapacity, Input(rank));
    std::vector<float>& output = outcome.outputs[static_cast<size_t>(rank)];
    absl::Status& status = outcome.statuses[static_cast<size_t>(rank)];
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<device::Context> context,
                         device::Context::Create({}));
    ASSERT_OK_AND_ASSIGN(const auto stream, context->CreateStream("compute"));
    auto transport = std::make_unique<MemoryTransport>(rank, network);
    const MemoryTransport& counts = *transport;
    ASSERT_OK_AND_ASSIGN(const auto engine,
                         CreateTransportEngine(std::move(transport), nullptr, context));
    int before = 0;
    for (const Call& call : calls_of(rank)) {
      before = counts.sends();
      if (call.on_host >= 0) {
        const std::vector<int64_t> values(static_cast<size_t>(call.on_host), rank);
        std::vector<int64_t> all(values.size() * static_cast<size_t>(size));
        status = engine->AllGatherHost(
            HostFingerprint(HostCollective::kAllGather, values.size(), call.sequence), values,
            absl::MakeSpan(all));
        continue;
      }
      status = engine->Run({.signature = call.signature,
                            .sequence = call.sequence,
                            .input = input.data(),
                            .output = output.data(),
                            .peer = call.peer},
                           *stream);
      if (status.ok()) status = stream->Synchronize();
    }
    outcome.sends[static_cast<size_t>(rank)] = counts.sends() - before;
    outcome.sent_bytes[static_cast<size_t>(rank)] = counts.all_sent_bytes();
    done.arrive_and_wait();
    if (status.ok()) status = engine->status();
  });
  return outcome;
}

int MostSends(const CollectiveSignature& signature, int size) {
  MemoryNetwork network(size);
  const Outcome outcome = MakeCalls(network, [&](int) {
    return std::vector<Call>{{signature, 0}, {signature, 1}};
  });
  for (const absl::Status& status : outcome.statuses) EXPECT_OK(status);
  return *std::max_element(outcome.sends.begin(), outcome.sends.end());
}

TEST(CheckedTransportTest, ASmallCallSendsNoMoreMessagesThanItsProgram) {
  EXPECT_EQ(MostSends(AllReduce(256), 4), 3 + 3);
  EXPECT_EQ(MostSends(AllReduce(256, Algorithm::kRing), 4), 6);
  EXPECT_EQ(MostSends(AllReduce(256, Algorithm::kRing), 2), 2);
  // To two ranks the next one is no partner.
  EXPECT_EQ(MostSends(AllReduce(256, Algorithm::kHalvingDoubling), 4), 6 + 1);
  EXPECT_EQ(MostSends(Signature(CollectiveKind::kAllGather, 64), 4), 3);
  EXPECT_EQ(MostSends(Signature(CollectiveKind::kBroadcast, 64), 4), 3);
  EXPECT_EQ(MostSends(Signature(CollectiveKind::kBarrier, 0), 4), 3);
}

TEST(CheckedTransportTest, AHostExchangeSendsOneMessageToEachRank) {
  MemoryNetwork network(4);
  const Outcome outcome = MakeCalls(network, [](int) { return std::vector<Call>{{.on_host = 2}}; });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_OK(outcome.statuses[rank]);
    EXPECT_EQ(outcome.sends[rank], 3);
  }
}

// A link of 20 Mbit/s needs 0.4 ms for a kilobyte. So many bytes have a frame's fingerprint and
// lengths at most, and no room for a payload that it does not have.
TEST(CheckedTransportTest, AFrameSendsNoMoreThanItHolds) {
  constexpr int64_t kMostOfFrame = 128;
  const auto bytes_of = [](const CollectiveSignature& signature) {
    MemoryNetwork network(2);
    return MakeCalls(network, [&](int) { return std::vector<Call>{{signature}}; }).sent_bytes;
  };
  for (const int64_t bytes : bytes_of({})) {
    EXPECT_GT(bytes, 0);
    EXPECT_LE(bytes, kMostOfFrame);
  }
  // Payload that fits goes in the frame, and what does not behind one without.
  for (const int64_t count : {int64_t{1}, int64_t{17}, CheckedTransport::kInlineBytes / 4,
                              CheckedTransport::kInlineBytes / 4 + 1}) {
    for (const int64_t bytes : bytes_of(Signature(CollectiveKind::kAllGather, count))) {
      EXPECT_GT(bytes, 4 * count);
      EXPECT_LE(bytes, 4 * count + kMostOfFrame) << count << " floats";
    }
  }
}

TEST(CheckedTransportTest, ABarrierWaitsForAllRanks) {
  for (int late = 0; late < 4; ++late) {
    MemoryNetwork network(4);
    std::atomic<bool> has_come = false;
    OnThreadsOf(4, [&](int rank) {
      ASSERT_OK_AND_ASSIGN(const std::shared_ptr<device::Context> context,
                           device::Context::Create({}));
      ASSERT_OK_AND_ASSIGN(const auto stream, context->CreateStream("compute"));
      ASSERT_OK_AND_ASSIGN(const auto engine,
                           CreateTransportEngine(std::make_unique<MemoryTransport>(rank, network),
                                                 nullptr, context));
      if (rank == late) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        has_come = true;
      }
      ASSERT_OK(engine->Run({}, *stream));
      ASSERT_OK(stream->Synchronize());
      EXPECT_TRUE(has_come);
    });
  }
}

std::string TextOf(const Call& call) {
  if (call.on_host >= 0) {
    return absl::StrCat("calls all_gather_host(", call.on_host, " values) as its call ",
                        call.sequence);
  }
  return absl::StrCat("calls ", ToString(call.signature), " as its call ", call.sequence);
}

// One rank makes another call than the others: every rank names it, and a rank that makes the other
// call. No payload of one call is in an output of the other.
void ExpectMismatch(const Call& usual, const Call& different, int size) {
  for (int odd = 0; odd < size; ++odd) {
    SCOPED_TRACE(
        absl::StrCat(TextOf(usual), ", but rank ", odd, " of ", size, " ", TextOf(different)));
    MemoryNetwork network(size);
    const Outcome outcome = MakeCalls(
        network, [&](int rank) { return std::vector<Call>{rank == odd ? different : usual}; });
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_THAT(outcome.statuses[rank],
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr(absl::StrCat("rank ", odd, " ", TextOf(different))),
                                 HasSubstr(TextOf(usual)))))
          << "rank " << rank;
      for (const float value : outcome.outputs[rank]) {
        ASSERT_TRUE(value == kUntouched || value == Input(rank) ||
                    (rank != odd && !Has(value, odd)))
            << value << " at rank " << rank;
      }
    }
  }
}

TEST(CheckedTransportTest, CollectivesThatDifferAreNamedByAllRanks) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Call usual = {AllReduce(64, algorithm), 3};
    std::vector<Call> others(10, usual);
    others[0].signature.kind = CollectiveKind::kReduceScatter;
    others[1].signature.kind = CollectiveKind::kBarrier;
    others[2].signature.dtype = precision::DType::kInt32;
    others[3].signature.count = 65;
    others[4].signature.count = 0;
    others[5].signature.count = 1;
    others[6].signature.op = kernels::ReduceOp::kMax;
    others[7].signature.algorithm =
        algorithm == Algorithm::kDirect ? Algorithm::kRing : Algorithm::kDirect;
    others[8].sequence = 4;
    others[9] = {.on_host = 2};
    for (const int size : {2, 3, 4, 5}) {
      for (const Call& other : others) ExpectMismatch(usual, other, size);
    }
  }
}

TEST(CheckedTransportTest, CallsWithoutPayloadThatDifferAreNamedByAllRanks) {
  const Call none = {AllReduce(0), 0};
  for (const int size : {2, 3, 4}) {
    ExpectMismatch(none, {AllReduce(0), 1}, size);
    ExpectMismatch(none, {AllReduce(64), 0}, size);
    ExpectMismatch(none, {{}, 0}, size);
    ExpectMismatch({.on_host = 0}, {.on_host = 1}, size);
    ExpectMismatch({.on_host = 0}, none, size);
  }
}

TEST(CheckedTransportTest, RootsThatDifferAreNamedByAllRanks) {
  // Small, which goes with the fingerprint, and large.
  for (const int64_t count : {int64_t{8}, kCapacity}) {
    Call usual = {Signature(CollectiveKind::kBroadcast, count), 0};
    for (const int size : {2, 3, 4}) {
      Call other = usual;
      other.signature.root = size - 1;
      ExpectMismatch(usual, other, size);
    }
  }
}

TEST(CheckedTransportTest, LargePayloadThatDiffersInSizeIsNamedByAllRanks) {
  for (const Algorithm algorithm : kAlgorithms) {
    ExpectMismatch({AllReduce(4096, algorithm), 0}, {AllReduce(4000, algorithm), 0}, 3);
  }
}

// Ranks 1 and 0 of 4 are neighbours; 2 and 0 are not, but have payload for each other in a call of
// all with all.
TEST(CheckedTransportTest, ASendAgainstACollectiveIsNamedWhereTheTwoRanksHaveAMessage) {
  struct Case {
    Algorithm algorithm;
    int sender;
  };
  for (const Case& test : {Case{Algorithm::kDirect, 2},
                           {Algorithm::kRing, 1},
                           {Algorithm::kRing, 3},
                           {Algorithm::kHalvingDoubling, 2}}) {
    Call send = {Signature(CollectiveKind::kSend, 64), 0, 0};
    send.signature.root = test.sender;
    MemoryNetwork network(4);
    const Outcome outcome = MakeCalls(network, [&](int rank) {
      return std::vector<Call>{rank == test.sender ? send : Call{AllReduce(64, test.algorithm), 7}};
    });
    for (const absl::Status& status : outcome.statuses) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr(absl::StrCat("rank ", test.sender, " calls ",
                                                                ToString(send.signature))),
                                         HasSubstr("as its call 7"))));
    }
  }
}

TEST(CheckedTransportTest, SendsThatDifferAreNamedByBothRanks) {
  // Sizes, types, and two that send to each other.
  Call send = {Signature(CollectiveKind::kSend, 2000), 0, 1};
  Call receive = {Signature(CollectiveKind::kSend, 2000), 0, 0};
  std::vector<Call> others(3, receive);
  others[0].signature.count = 1;
  others[1].signature.dtype = precision::DType::kUint8;
  others[2].signature.root = 1;
  for (const Call& other : others) {
    MemoryNetwork network(2);
    const Outcome outcome =
        MakeCalls(network, [&](int rank) { return std::vector<Call>{rank == 0 ? send : other}; });
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_THAT(outcome.statuses[rank],
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr(absl::StrCat("rank 0 ", TextOf(send))),
                                 HasSubstr(absl::StrCat("rank 1 ", TextOf(other))))));
    }
    EXPECT_EQ(outcome.outputs[1], std::vector<float>(kCapacity, kUntouched));
  }
}

// The odd call comes when the others are ahead, because rings wait for neighbours only.
TEST(CheckedTransportTest, ACallThatOneRankLeavesOutIsNamedByAllRanks) {
  for (const Algorithm algorithm : kAlgorithms) {
    MemoryNetwork network(4);
    const Outcome outcome = MakeCalls(network, [&](int rank) {
      std::vector<Call> calls;
      for (uint64_t i = 0; i < 5; ++i) {
        calls.push_back(
            {AllReduce(static_cast<int64_t>(64 + (rank == 2 && i >= 2)), algorithm), i});
      }
      return calls;
    });
    for (const absl::Status& status : outcome.statuses) {
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("rank 2 calls all_reduce(sum of 65"),
                                 HasSubstr("all_reduce(sum of 64"), HasSubstr("as its call 2"))));
    }
  }
}

TEST(CheckedTransportTest, AgainstNoCallEveryCallEndsAtTheDeadline) {
  for (const Call& call : {Call{AllReduce(64), 0}, Call{AllReduce(0), 0}, Call{{}, 0},
                           Call{Signature(CollectiveKind::kBroadcast, 1), 0}, Call{.on_host = 1}}) {
    for (const int absent : {0, 1, 2}) {
      MemoryNetwork network(3, absl::Milliseconds(50));
      const Outcome outcome = MakeCalls(network, [&](int rank) {
        return rank == absent ? std::vector<Call>{} : std::vector<Call>{call};
      });
      // At least the rank that expects the fingerprint of the absent one, which the transport tells
      // the others.
      EXPECT_THAT(network.error(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("")))
          << TextOf(call) << " without rank " << absent;
    }
  }
}

// Between ranks of the same fingerprint that build different programs, which no rank should.
TEST(CheckedTransportTest, PayloadOfAnotherSizeIsNeverCopied) {
  MemoryNetwork network(2);
  std::vector<float> output(4, kUntouched);
  OnThreadsOf(2, [&](int rank) {
    MemoryTransport transport(rank, network);
    CheckedTransport checked(transport);
    ASSERT_OK(checked.Begin({AllReduce(64), 0}, 1 - rank, 1 - rank));
    EXPECT_THAT(checked.SendUpTo(1 - rank, output.data(), 8, 16),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of a capacity of 16")));
    if (rank == 0) {
      const std::vector<float> input(8, 1);
      ASSERT_OK(checked.Send(1, input.data(), 32));
      checked.Flush().IgnoreError();
      return;
    }
    ASSERT_OK(checked.Expect(0, output.data(), 16));
    EXPECT_THAT(checked.Await(0),
                StatusIs(absl::StatusCode::kInternal,
                         HasSubstr("rank 0 sends 32 bytes where rank 1 expects 16")));
  });
  EXPECT_EQ(output, std::vector<float>(4, kUntouched));
}

}  // namespace
}  // namespace brigade::collectives::testing
