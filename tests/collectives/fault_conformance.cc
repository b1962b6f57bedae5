#include "brigade/tests/collectives/fault_conformance.h"

#include <array>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/device/testing.h"
#include "gmock/gmock.h"

namespace brigade::collectives {
namespace {

using ::brigade::device::SteadyTime;
using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Matcher;

constexpr int64_t kCount = 8;
constexpr precision::DType kType = precision::DType::kFloat32;
// A timeout that nothing here waits for.
constexpr absl::Duration kLong = absl::Seconds(100);
// A timeout that something does wait for.
constexpr absl::Duration kShort = absl::Seconds(1);
// By then a test gives up.
constexpr absl::Duration kSilence = absl::Seconds(60);

const char* const kReason = "the test has no more data";

// They outlive the ranks, whose work may be outstanding when a communicator has failed.
struct Arrays {
  std::array<float, 3 * kCount> input = {};
  std::array<float, 3 * kCount> output = {};
};

bool IsSendOrReceive(Action action) {
  return action == Action::kSend || action == Action::kReceive;
}

absl::Status TryOut(Communicator& group, device::Stream& stream) {
  const absl::Status barrier = group.Barrier(stream);
  return barrier.ok() ? stream.Synchronize() : barrier;
}

// What is left goes on: in a new communicator, which works.
absl::Status Shrink(Rank& self) {
  auto shrunk = self.communicator->Shrink({});
  if (!shrunk.ok()) return shrunk.status();
  self.communicator = *std::move(shrunk);
  return TryOut(*self.communicator, *self.stream);
}

absl::Status Perform(Action action, Rank& self, Arrays& arrays) {
  Communicator& group = *self.communicator;
  device::Stream& stream = *self.stream;
  const float* const in = arrays.input.data();
  float* const out = arrays.output.data();
  const int other = 1 - self.rank;
  switch (action) {
    case Action::kAllReduce:
      return group.AllReduce(in, out, kCount, kType, {}, stream);
    case Action::kReduceScatter:
      return group.ReduceScatter(in, out, kCount, kType, {}, stream);
    case Action::kAllGather:
      return group.AllGather(in, out, kCount, kType, {Algorithm::kDirect}, stream);
    case Action::kAllToAll:
      return group.AllToAll(in, out, kCount, kType, stream);
    case Action::kShift:
      return group.Shift(in, out, kCount, kType, 1, stream);
    case Action::kBroadcast:
      return group.Broadcast(in, out, kCount, kType, 0, stream);
    case Action::kBarrier:
      return group.Barrier(stream);
    case Action::kSend:
      return group.Send(in, kCount, kType, other, stream);
    case Action::kReceive:
      return group.Receive(out, kCount, kType, other, stream);
    case Action::kAllGatherHost:
      return group.AllGatherHost({1, 2}).status();  // as many values as a split exchanges
    case Action::kSplit: {
      const auto part = group.Split(0, 0);
      return part.ok() ? TryOut(**part, stream) : part.status();
    }
    case Action::kShrink:
      return Shrink(self);
    case Action::kAbort:
      group.Abort(absl::CancelledError(kReason));
      group.Abort(absl::InternalError("too late"));
      return absl::OkStatus();
    case Action::kNothing:
      return absl::OkStatus();
  }
  return absl::InternalError("an unknown action");
}

// How an error names what a rank does.
std::string Described(Action action, int rank) {
  const auto call = [&]() -> std::string {
    switch (action) {
      case Action::kAllReduce:
        return "all_reduce(sum of 8 fp32, direct)";
      case Action::kReduceScatter:
        return "reduce_scatter(sum of 8 fp32, direct)";
      case Action::kAllGather:
        return "all_gather(8 fp32, direct)";
      case Action::kAllToAll:
        return "all_to_all(8 fp32)";
      case Action::kShift:
        return "shift(8 fp32, by 1)";
      case Action::kBroadcast:
        return "broadcast(8 fp32, from rank 0)";
      case Action::kBarrier:
        return "barrier()";
      case Action::kSend:
        return absl::StrCat("send(8 fp32, from rank ", rank, ")");
      case Action::kReceive:
        return absl::StrCat("send(8 fp32, from rank ", 1 - rank, ")");
      case Action::kAllGatherHost:
        return "all_gather_host(2 values)";
      case Action::kSplit:
        return "split()";
      case Action::kShrink:
        return "shrink()";
      default:
        return "";
    }
  };
  return absl::StrCat("rank ", rank, " calls ", call(), " as its call ");
}

// Rank 0's action, and what rank 1 does meanwhile.
struct Pair {
  Action first, second;

  Action of(int rank) const { return rank == 0 ? first : second; }
  bool Has(Action action) const { return first == action || second == action; }
  bool BelongTogether() const {
    if (IsSendOrReceive(first) && IsSendOrReceive(second)) return first != second;
    return first == second && first != Action::kAbort;
  }
  // Whether the one's send may meet a part of the other's collective and be over before it is late.
  bool MayCompleteASend(const EngineUnderTest& engine) const {
    const bool of_sends = Has(Action::kAllReduce) || Has(Action::kReduceScatter) ||
                          Has(Action::kAllGather) || Has(Action::kAllToAll) || Has(Action::kShift);
    const bool sends = IsSendOrReceive(first) || IsSendOrReceive(second);
    return sends && of_sends && !engine.compares_sends_at_once;
  }
  // Whether it ends with the timeout only.
  bool EndsLate(const EngineUnderTest& engine) const {
    if (BelongTogether() || Has(Action::kAbort)) return false;
    const bool sends = IsSendOrReceive(first) || IsSendOrReceive(second);
    return Has(Action::kNothing) || (sends && !engine.compares_sends_at_once);
  }
};

Matcher<const absl::Status&> ErrorOf(const Pair& pair, const EngineUnderTest& engine) {
  if (pair.Has(Action::kAbort)) {
    return StatusIs(absl::StatusCode::kCancelled, HasSubstr(kReason));
  }
  if (pair.Has(Action::kNothing)) {
    return StatusIs(absl::StatusCode::kDeadlineExceeded,
                    HasSubstr(pair.first == Action::kNothing ? "rank 0 " : "rank 1 "));
  }
  const auto first = HasSubstr(Described(pair.first, 0));
  const auto second = HasSubstr(Described(pair.second, 1));
  const auto both = StatusIs(absl::StatusCode::kInvalidArgument, AllOf(first, second));
  if (!pair.MayCompleteASend(engine)) return both;
  return AnyOf(both, StatusIs(absl::StatusCode::kDeadlineExceeded, AnyOf(first, second)));
}

// The error that ends the communicator, which some engines tell on the call, others on the stream
// or beside both.
absl::Status AwaitEnd(Rank& self) {
  const SteadyTime give_up = SteadyTime::Now() + kSilence;
  while (self.communicator->status().ok() && SteadyTime::Now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const absl::Status ended = self.communicator->status();
  if (ended.ok()) ADD_FAILURE() << "rank " << self.rank << " has heard of no error";
  self.stream->Synchronize().IgnoreError();
  EXPECT_OK(self.stream->Reset());
  return ended;
}

void ExpectError(Rank& self, const absl::Status& said, const Matcher<const absl::Status&>& error) {
  const absl::Status ended = AwaitEnd(self);
  EXPECT_THAT(ended, error);
  if (!said.ok()) {
    EXPECT_EQ(said, ended);
  }
  EXPECT_EQ(self.communicator->Barrier(*self.stream), ended) << "the first error stays";
}

void ExpectSuccess(Rank& self, const absl::Status& said) {
  EXPECT_OK(said);
  EXPECT_OK(TryOut(*self.communicator, *self.stream));
  EXPECT_OK(self.communicator->status());
}

void ExpectPair(Rank& self, const Pair& pair, const EngineUnderTest& engine, Arrays& arrays) {
  SCOPED_TRACE(
      absl::StrCat("rank ", self.rank, " of ", Name(pair.first), ", then ", Name(pair.second)));
  self.AwaitOthers();
  // The result is the same if rank 1 is the first one in spite of this.
  if (self.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const absl::Status said = Perform(pair.of(self.rank), self, arrays);
  if (pair.BelongTogether()) return ExpectSuccess(self, said);
  // A Shrink that comes after the abort, and not before, succeeds when the other rank shrinks as
  // well.
  if (pair.of(self.rank) == Action::kShrink && pair.Has(Action::kAbort) && said.ok()) return;
  ExpectError(self, said, ErrorOf(pair, engine));
  if (!pair.Has(Action::kNothing)) {
    EXPECT_OK(Shrink(self));
  }
}

}  // namespace

const std::vector<Action>& AllActions() {
  static const auto* const actions = [] {
    auto* const all = new std::vector<Action>;
    for (int i = 0; i <= static_cast<int>(Action::kNothing); ++i) {
      all->push_back(static_cast<Action>(i));
    }
    return all;
  }();
  return *actions;
}

std::string Name(Action action) {
  static constexpr const char* kNames[] = {
      "AllReduce", "ReduceScatter", "AllGather",     "AllToAll", "Shift",  "Broadcast", "Barrier",
      "Send",      "Receive",       "AllGatherHost", "Split",    "Shrink", "Abort",     "Nothing"};
  return kNames[static_cast<int>(action)];
}

void ConformWhenRanksDiffer(Action first, const EngineUnderTest& engine) {
  std::vector<Pair> one_by_one;
  std::vector<std::thread> at_once;  // those that wait for a timeout
  for (const Action second : AllActions()) {
    const Pair pair = {first, second};
    if (first == Action::kNothing && second == Action::kNothing) continue;
    if (!pair.EndsLate(engine)) {
      one_by_one.push_back(pair);
      continue;
    }
    at_once.emplace_back([pair, &engine] {
      std::array<Arrays, 2> arrays;
      const RanksOptions options = {.size = 2, .timeout = kShort};
      OnRanks(options, engine.create_engines(options), [&](Rank& self) {
        ExpectPair(self, pair, engine, arrays[static_cast<size_t>(self.rank)]);
        self.AwaitOthers();
      });
    });
  }
  for (std::thread& thread : at_once) thread.join();

  std::array<Arrays, 2> arrays;
  const RanksOptions options = {.size = 2, .timeout = kLong};
  OnRanks(options, engine.create_engines(options), [&](Rank& self) {
    for (const Pair& pair : one_by_one) {
      ExpectPair(self, pair, engine, arrays[static_cast<size_t>(self.rank)]);
    }
    self.AwaitOthers();  // a call that another rank still makes fails when this one has left
  });
}

namespace {

// As many elements are not received as are sent.
void ConformWhenSendsDiffer(const EngineUnderTest& engine) {
  std::array<Arrays, 2> arrays;
  const RanksOptions options = {.size = 2, .timeout = kLong};
  OnRanks(options, engine.create_engines(options), [&](Rank& self) {
    Arrays& own = arrays[static_cast<size_t>(self.rank)];
    self.AwaitOthers();
    const absl::Status said =
        self.rank == 0
            ? self.communicator->Send(own.input.data(), kCount, kType, 1, *self.stream)
            : self.communicator->Receive(own.output.data(), kCount + 1, kType, 0, *self.stream);
    ExpectError(self, said,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 0 calls send(8 fp32, from rank 0) as its call 0"),
                               HasSubstr("rank 1 calls send(9 fp32, from rank 0)"))));
    EXPECT_OK(Shrink(self));
    self.AwaitOthers();
  });
}

}  // namespace

void ConformWhenArgumentsDiffer(const EngineUnderTest& engine) {
  if (engine.compares_sends_at_once) ConformWhenSendsDiffer(engine);
  using precision::DType;
  struct Variant {
    std::string usual, odd;  // as errors name them
    std::function<absl::Status(Communicator& group, Arrays& arrays, device::Stream& stream, bool)>
        call;
  };
  const auto all_reduce = [](int64_t odd_count, DType odd_type, const ReduceOptions& odd_options) {
    return [=](Communicator& group, Arrays& arrays, device::Stream& stream, bool odd) {
      return group.AllReduce(arrays.input.data(), arrays.output.data(), odd ? odd_count : kCount,
                             odd ? odd_type : kType, odd ? odd_options : ReduceOptions(), stream);
    };
  };
  const auto all_gather_host = [](size_t usual_values, size_t odd_values) {
    return [=](Communicator& group, Arrays&, device::Stream&, bool odd) {
      const std::vector<int64_t> values(odd ? odd_values : usual_values, 1);
      return group.AllGatherHost(values).status();
    };
  };
  const std::string usual = "all_reduce(sum of 8 fp32, direct)";
  const Variant variants[] = {
      {usual, "all_reduce(sum of 9 fp32, direct)", all_reduce(9, kType, {})},
      {usual, "all_reduce(sum of 8 int32, direct)", all_reduce(kCount, DType::kInt32, {})},
      {usual, "all_reduce(max of 8 fp32, direct)",
       all_reduce(kCount, kType, {.op = kernels::ReduceOp::kMax})},
      {usual, "all_reduce(sum of 8 fp32, ring, rounded_per_hop)",
       all_reduce(kCount, kType,
                  {.reduction = Reduction::kRoundedPerHop, .algorithm = Algorithm::kRing})},
      {"broadcast(8 fp32, from rank 0)", "broadcast(8 fp32, from rank 1)",
       [](Communicator& group, Arrays& arrays, device::Stream& stream, bool odd) {
         return group.Broadcast(arrays.input.data(), arrays.output.data(), kCount, kType,
                                odd ? 1 : 0, stream);
       }},
      {"shift(8 fp32, by 1)", "shift(8 fp32, by 2)",
       [](Communicator& group, Arrays& arrays, device::Stream& stream, bool odd) {
         return group.Shift(arrays.input.data(), arrays.output.data(), kCount, kType, odd ? -1 : 1,
                            stream);
       }},
      {"all_gather_host(4 values)", "all_gather_host(1 values)", all_gather_host(4, 1)},
      {"all_gather_host(1 values)", "all_gather_host(4 values)", all_gather_host(1, 4)},
  };
  for (const int odd : {0, 1}) {
    std::array<Arrays, 3> arrays;
    const RanksOptions options = {.size = 3, .timeout = kLong};
    OnRanks(options, engine.create_engines(options), [&](Rank& self) {
      EXPECT_OK(TryOut(*self.communicator, *self.stream));
      for (const Variant& variant : variants) {
        SCOPED_TRACE(absl::StrCat("rank ", self.rank, ": ", variant.usual, ", ", variant.odd));
        self.AwaitOthers();
        const absl::Status said =
            variant.call(*self.communicator, arrays[static_cast<size_t>(self.rank)], *self.stream,
                         self.rank == odd);
        ExpectError(
            self, said,
            StatusIs(absl::StatusCode::kInvalidArgument,
                     AllOf(HasSubstr(absl::StrCat("calls ", variant.usual, " as its call 1")),
                           HasSubstr(absl::StrCat("rank ", odd, " calls ", variant.odd,
                                                  " as its call 1")))));
        EXPECT_OK(Shrink(self));
        if (::testing::Test::HasFailure()) return;  // the ranks may be out of step
      }
      self.AwaitOthers();
    });
  }
}

namespace {

void ConformWhenItIsAborted(const EngineUnderTest& engine) {
  std::array<Arrays, 2> arrays;
  device::Gate gate;
  const RanksOptions options = {.size = 2, .timeout = kLong};
  OnRanks(options, engine.create_engines(options), [&](Rank& self) {
    ASSERT_OK(TryOut(*self.communicator, *self.stream));
    if (self.rank == 0) {
      ASSERT_OK(device::Block(*self.stream, gate));
    }
    EXPECT_OK(Perform(Action::kAllReduce, self, arrays[static_cast<size_t>(self.rank)]));
    self.AwaitOthers();
    if (self.rank == 0) {
      EXPECT_THAT(self.communicator->AllGatherHost({1}),
                  StatusIs(absl::StatusCode::kCancelled, HasSubstr(kReason)));
      gate.Open();
    } else {
      absl::SleepFor(absl::Milliseconds(20));  // rank 0 is likely to wait by then
      self.communicator->Abort(absl::CancelledError(kReason));
    }
    self.AwaitOthers();
  });
}

void ConformWhenItReserves(const EngineUnderTest& engine) {
  std::array<Arrays, 2> arrays;
  device::Gate gate;
  const RanksOptions options = {.size = 2, .timeout = kLong};
  OnRanks(options, engine.create_engines(options), [&](Rank& self) {
    Arrays& own = arrays[static_cast<size_t>(self.rank)];
    ASSERT_OK(Perform(Action::kAllReduce, self, own));
    ASSERT_OK(TryOut(*self.communicator, *self.stream));
    if (self.rank == 0) {
      ASSERT_OK(device::Block(*self.stream, gate));
    }
    EXPECT_OK(Perform(Action::kAllReduce, self, own));
    std::thread release([&] {
      absl::SleepFor(absl::Milliseconds(20));  // Reserve is likely to wait by then
      if (self.rank == 0) gate.Open();
    });
    EXPECT_OK(self.communicator->Reserve(
        {.kind = CollectiveKind::kAllReduce, .dtype = kType, .count = 1000 * kCount}));
    release.join();
    EXPECT_OK(self.stream->Synchronize());
    EXPECT_OK(self.communicator->status());
    self.AwaitOthers();
  });
}

}  // namespace

void ConformWhenAStreamHangs(const EngineUnderTest& engine) {
  ConformWhenItIsAborted(engine);
  ConformWhenItReserves(engine);
}

void ConformWhenARankHasLeft(const EngineUnderTest& engine) {
  std::array<Arrays, 3> arrays;
  std::latch has_left(2), have_sent(2);
  const RanksOptions options = {.size = 3, .timeout = kLong};
  OnRanks(options, engine.create_engines(options), [&](Rank& self) {
    Arrays& own = arrays[static_cast<size_t>(self.rank)];
    ASSERT_OK(TryOut(*self.communicator, *self.stream));
    if (self.rank == 2) {
      self.communicator.reset();
      return has_left.arrive_and_wait();
    }
    // Rank 0 may wait for rank 1 when rank 2 leaves.
    if (self.rank == 1) has_left.arrive_and_wait();
    EXPECT_OK(self.rank == 0
                  ? self.communicator->Send(own.input.data(), kCount, kType, 1, *self.stream)
                  : self.communicator->Receive(own.output.data(), kCount, kType, 0, *self.stream));
    EXPECT_OK(self.communicator->Synchronize(*self.stream));
    have_sent.arrive_and_wait();
    EXPECT_THAT(self.communicator->AllGatherHost({1}),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 2")));
  });
}

}  // namespace brigade::collectives
