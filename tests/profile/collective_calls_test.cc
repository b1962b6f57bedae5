#include "brigade/profile/collective_calls.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/collectives/call_marks.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::profile {
namespace {

using device::TracedOperation;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;

TracedOperation Work(absl::string_view name, int64_t begin, int64_t end) {
  return {TracedOperation::Kind::kWork, name, begin * kSecond, end * kSecond};
}
TracedOperation Wait(absl::string_view name, int64_t begin, int64_t end) {
  return {TracedOperation::Kind::kWait, name, begin * kSecond, end * kSecond};
}

TEST(CollectiveCallsTest, AMadeUpTraceHasTheseCalls) {
  const std::vector<StreamOperations> streams = {
      {"communication",
       {Work("adam", 0, 1), Wait("collective begins", 1, 2),
        Work("call all_gather sends 100", 2, 2), Wait("collective begins", 2, 5),
        Wait("collective", 5, 6), Work("reduce", 6, 9), Work("end of call", 10, 10),
        Work("reduce", 10, 20),
        // Another one of its kind, and one of another kind.
        Work("call all_gather sends 11", 20, 21), Work("all_gather", 21, 22),
        Work("end of call", 22, 22), Work("call barrier sends 0", 23, 23), Work("barrier", 23, 24),
        Work("end of call", 24, 24),
        // It has no end yet.
        Work("call all_gather sends 1000", 30, 30), Work("all_gather", 30, 40)}},
      {"compute", {Work("call all_gather sends 7", 1, 1), Work("end of call", 3, 3)}}};
  const std::vector<CollectiveCalls> calls = CallsOf(streams);
  ASSERT_THAT(calls, SizeIs(3));
  EXPECT_EQ(calls[0].name, "all_gather");
  EXPECT_EQ(calls[0].stream, "communication");
  EXPECT_EQ(calls[0].calls, 2);
  EXPECT_DOUBLE_EQ(calls[0].seconds, 8 + 1);
  EXPECT_DOUBLE_EQ(calls[0].waiting_seconds, 3);
  EXPECT_EQ(calls[0].sent_bytes, 111);
  EXPECT_EQ(calls[1].name, "barrier");
  EXPECT_EQ(calls[1].sent_bytes, 0);
  EXPECT_EQ(calls[2].stream, "compute");
  EXPECT_EQ(calls[2].sent_bytes, 7);
  EXPECT_DOUBLE_EQ(calls[2].seconds, 2);
  EXPECT_THAT(CallsOf({}), IsEmpty());
}

TEST(CallMarksTest, OtherNamesAreNone) {
  for (const char* const name : {"", "call", "call ", "call all_gather", "call all_gather sends ",
                                 "call all_gather sends x", "all_gather", "recall a sends 1"}) {
    EXPECT_FALSE(collectives::CallMarkOf(name).has_value()) << name;
    EXPECT_FALSE(collectives::IsEndOfCall(name)) << name;
  }
}

// Real calls of every kind, of which two ranks' are marked, once of three times: what a trace says
// of them is what the communicator has counted.
TEST(CollectiveCallsTest, CallsAreMarkedWhereItIsAskedFor) {
  constexpr int kRanks = 3;
  constexpr int64_t kCount = 5;
  device::Tracer tracer;
  std::vector<double> sent(kRanks);
  collectives::OnThreads({.size = kRanks, .tracer = &tracer}, [&](collectives::Rank& rank) {
    std::vector<float> all(kRanks * kCount, 1), other(kRanks * kCount), one(kCount, 1), sum(kCount);
    collectives::Communicator& group = *rank.communicator;
    device::Stream& stream = *rank.stream;
    const auto call_all = [&] {
      EXPECT_OK(group.AllReduce<float>(one, absl::MakeSpan(sum), {}, stream));
      EXPECT_OK(group.ReduceScatter<float>(all, absl::MakeSpan(sum), {}, stream));
      EXPECT_OK(group.AllGather<float>(one, absl::MakeSpan(all), {}, stream));
      EXPECT_OK(group.AllToAll<float>(all, absl::MakeSpan(other), stream));
      EXPECT_OK(group.Shift<float>(one, absl::MakeSpan(sum), 1, stream));
      EXPECT_OK(group.Broadcast<float>(one, absl::MakeSpan(one), 1, stream));
      if (rank.rank == 0) {
        EXPECT_OK(group.Send<float>(one, 1, stream));
      } else if (rank.rank == 1) {
        EXPECT_OK(group.Receive<float>(absl::MakeSpan(sum), 0, stream));
      }
      EXPECT_OK(group.Barrier(stream));
      EXPECT_OK(stream.Synchronize());
    };
    const auto sent_so_far = [&] {
      int64_t bytes = 0;
      for (int to = 0; to < kRanks; ++to) bytes += group.sent_bytes(to);
      return static_cast<double>(bytes);
    };
    call_all();
    EXPECT_FALSE(collectives::MarkedCalls::Contain(*rank.context));
    const double before = sent_so_far();
    {
      std::optional<collectives::MarkedCalls> marked;
      if (rank.rank < 2) marked.emplace(*rank.context);
      EXPECT_EQ(collectives::MarkedCalls::Contain(*rank.context), rank.rank < 2);
      call_all();
    }
    EXPECT_FALSE(collectives::MarkedCalls::Contain(*rank.context));
    sent[static_cast<size_t>(rank.rank)] = sent_so_far() - before;
    call_all();
  });
  std::map<std::string, std::vector<StreamOperations>> streams;
  for (const device::TracedStream& each : tracer.Take()) {
    streams[std::string(each.context)].push_back({std::string(each.stream), each.operations});
  }
  EXPECT_THAT(CallsOf(streams["rank 2"]), IsEmpty());
  for (const int rank : {0, 1}) {
    double bytes = 0;
    std::map<std::string, int64_t> names;
    for (const CollectiveCalls& each : CallsOf(streams[absl::StrCat("rank ", rank)])) {
      bytes += each.sent_bytes;
      names[each.name] += each.calls;
      EXPECT_GT(each.seconds, 0) << each.name;
      EXPECT_LE(each.waiting_seconds, each.seconds) << each.name;
    }
    EXPECT_EQ(bytes, sent[static_cast<size_t>(rank)]);
    EXPECT_GT(bytes, 0);
    const std::map<std::string, int64_t> wanted = {
        {"all_reduce", 1}, {"reduce_scatter", 1}, {"all_gather", 1}, {"all_to_all", 1},
        {"shift", 1},      {"broadcast", 1},      {"send", 1},       {"barrier", 1}};
    EXPECT_EQ(names, wanted);
  }
}

}  // namespace
}  // namespace brigade::profile
