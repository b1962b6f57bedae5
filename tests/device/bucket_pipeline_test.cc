// The contract's proof: the bucket pipeline of data-parallel training in small. Two ranks write
// gradient buckets into two slots each, reduce both ranks' slots, and update parameters, all by
// streams and events, with the slots used again and again.
//
//   compute   "produce"  writes gradients[slot]
//   comm      "reduce"   reads gradients[slot] of both ranks, writes sums[slot]
//   update    "update"   reads sums[slot], writes parameters[bucket]
//
// With all waits: the right answer under random delays and no report. With any one wait left out: a
// report of exactly that pair of operations, on every run.

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;

constexpr int kRanks = 2;
constexpr int kSlots = 2;
constexpr int kBuckets = 4;
constexpr int kSteps = 4;
constexpr int64_t kElements = 96;
constexpr int64_t kSlotBytes = kElements * static_cast<int64_t>(sizeof(float));

enum class WaitFor {
  kOwnReduceBeforeProduce,   // the slot is written again
  kPeerReduceBeforeProduce,  //   and the peer reads it, too
  kOwnProduceBeforeReduce,
  kPeerProduceBeforeReduce,
  kUpdateBeforeReduce,  // the sums' slot is written again
  kReduceBeforeUpdate,
};
constexpr int kWaits = 6;

struct Omission {
  int rank;
  WaitFor wait;
};

// Small integers, so that sums are exact: what rank `rank` produces for turn `turn`.
float Gradient(int rank, int turn, int64_t i) {
  return static_cast<float>((rank + 1) * 100 + turn * 7 + i % 5);
}

class Rank {
 public:
  // Without `compute` operations declare what they touch and do nothing: with a wait left out they
  // would truly race, which is not what this test wants to run.
  Rank(int rank, RaceChecker& checker, RandomDelay delay, bool compute,
       std::optional<Omission> omission)
      : rank_(rank), computes_(compute), omission_(omission) {
    ContextOptions options = CheckedOptions(checker, "rank " + std::to_string(rank));
    options.random_delay = delay;
    context_ = CreateContext(options);
    compute_ = context_->CreateStream("compute").value();
    comm_ = context_->CreateStream("comm").value();
    update_ = context_->CreateStream("update").value();
    for (int slot = 0; slot < kSlots; ++slot) {
      produced_.push_back(context_->CreateEvent("produced").value());
      reduced_.push_back(context_->CreateEvent("reduced").value());
      updated_.push_back(context_->CreateEvent("updated").value());
    }
    gradients_ = context_->Allocate(kSlots * kSlotBytes, Purpose::kGradients, "gradients").value();
    sums_ = context_->Allocate(kSlots * kSlotBytes, Purpose::kCommunication, "sums").value();
    parameters_ =
        context_->Allocate(kBuckets * kSlotBytes, Purpose::kParameters, "parameters").value();
    EXPECT_OK(compute_->FillBytes(parameters_.data(), 0, parameters_.bytes()));
    EXPECT_OK(compute_->Synchronize());
  }

  void Produce(int turn, Rank& peer) {
    const int slot = turn % kSlots;
    if (turn >= kSlots) {
      WaitUnlessLeftOut(*compute_, *reduced_[slot], WaitFor::kOwnReduceBeforeProduce);
      WaitUnlessLeftOut(*compute_, *peer.reduced_[slot], WaitFor::kPeerReduceBeforeProduce);
    }
    float* const out = Slot(gradients_, slot);
    EXPECT_OK(
        compute_->Enqueue({"produce", {Writes(out, kSlotBytes)}}, [this, turn, out](ThreadPool&) {
          for (int64_t i = 0; computes_ && i < kElements; ++i) {
            out[i] = Gradient(rank_, turn, i);
          }
          return absl::OkStatus();
        }));
    EXPECT_OK(compute_->Record(*produced_[slot]));
  }

  void Reduce(int turn, Rank& peer) {
    const int slot = turn % kSlots;
    WaitUnlessLeftOut(*comm_, *produced_[slot], WaitFor::kOwnProduceBeforeReduce);
    WaitUnlessLeftOut(*comm_, *peer.produced_[slot], WaitFor::kPeerProduceBeforeReduce);
    if (turn >= kSlots) WaitUnlessLeftOut(*comm_, *updated_[slot], WaitFor::kUpdateBeforeReduce);
    const float* const own = Slot(gradients_, slot);
    const float* const theirs = Slot(peer.gradients_, slot);
    float* const out = Slot(sums_, slot);
    EXPECT_OK(comm_->Enqueue(
        {"reduce", {Reads(own, kSlotBytes), Reads(theirs, kSlotBytes), Writes(out, kSlotBytes)}},
        [this, own, theirs, out](ThreadPool&) {
          for (int64_t i = 0; computes_ && i < kElements; ++i) out[i] = own[i] + theirs[i];
          return absl::OkStatus();
        }));
    EXPECT_OK(comm_->Record(*reduced_[slot]));
  }

  void Update(int turn) {
    const int slot = turn % kSlots;
    WaitUnlessLeftOut(*update_, *reduced_[slot], WaitFor::kReduceBeforeUpdate);
    const float* const sum = Slot(sums_, slot);
    float* const out = Slot(parameters_, turn % kBuckets);
    EXPECT_OK(update_->Enqueue({"update", {Reads(sum, kSlotBytes), Writes(out, kSlotBytes)}},
                               [this, sum, out](ThreadPool&) {
                                 for (int64_t i = 0; computes_ && i < kElements; ++i) {
                                   out[i] += sum[i];
                                 }
                                 return absl::OkStatus();
                               }));
    EXPECT_OK(update_->Record(*updated_[slot]));
  }

  // The first error of the three streams.
  absl::Status Finish() {
    absl::Status first;
    for (Stream* stream : {compute_.get(), comm_.get(), update_.get()})
      first.Update(stream->Synchronize());
    return first;
  }

  int64_t host_waits() const { return context_->host_waits(); }
  absl::Span<const float> parameters() const { return parameters_.as<float>(); }

 private:
  static float* Slot(const Buffer& buffer, int slot) {
    return buffer.as<float>().data() + slot * kElements;
  }

  void WaitUnlessLeftOut(Stream& stream, Event& event, WaitFor wait) {
    if (omission_.has_value() && omission_->rank == rank_ && omission_->wait == wait) return;
    EXPECT_OK(stream.Wait(event));
  }

  const int rank_;
  const bool computes_;
  const std::optional<Omission> omission_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Stream> compute_, comm_, update_;
  std::vector<std::unique_ptr<Event>> produced_, reduced_, updated_;  // by slot
  Buffer gradients_, sums_, parameters_;
};

// Where the ranks' host threads meet; tells the checker what they learn there.
class Rendezvous {
 public:
  explicit Rendezvous(RaceChecker& checker) : checker_(checker) {}

  void Meet() {
    std::unique_lock lock(mutex_);
    const int meeting = meetings_;
    const VectorClock mine = checker_.HostRelease();
    clocks_[meeting % 2].Join(mine);
    if (++arrived_ == kRanks) {
      arrived_ = 0;
      ++meetings_;
      clocks_[meetings_ % 2] = VectorClock();
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return meetings_ != meeting; });
    }
    checker_.HostAcquire(clocks_[meeting % 2]);
  }

 private:
  RaceChecker& checker_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::array<VectorClock, 2> clocks_;
  int meetings_ = 0;
  int arrived_ = 0;
};

using Ranks = std::array<std::unique_ptr<Rank>, kRanks>;

Ranks CreateRanks(RaceChecker& checker, RandomDelay delay, bool compute,
                  std::optional<Omission> omission) {
  Ranks ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks[r] = std::make_unique<Rank>(r, checker, delay, compute, omission);
  }
  return ranks;
}

void RunFromOneThread(Ranks& ranks) {
  for (int turn = 0; turn < kSteps * kBuckets; ++turn) {
    for (int r = 0; r < kRanks; ++r) ranks[r]->Produce(turn, *ranks[1 - r]);
    for (int r = 0; r < kRanks; ++r) ranks[r]->Reduce(turn, *ranks[1 - r]);
    for (int r = 0; r < kRanks; ++r) ranks[r]->Update(turn);
  }
}

// Ranks meet where one waits for an event that the other records.
void RunFromAThreadPerRank(Ranks& ranks, RaceChecker& checker) {
  Rendezvous meeting(checker);
  const VectorClock built = checker.HostRelease();  // this thread waited for the first fill
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      checker.HostAcquire(built);
      for (int turn = 0; turn < kSteps * kBuckets; ++turn) {
        ranks[r]->Produce(turn, *ranks[1 - r]);
        meeting.Meet();
        ranks[r]->Reduce(turn, *ranks[1 - r]);
        meeting.Meet();
        ranks[r]->Update(turn);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void ExpectTheRightAnswer(Ranks& ranks, RaceChecker& checker) {
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->host_waits(), 1);  // the constructor's
    ASSERT_OK(rank->Finish());
    const absl::Span<const float> parameters = rank->parameters();
    ASSERT_OK(checker.HostRead("compare", parameters.data(), kBuckets * kSlotBytes));
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      for (int64_t i = 0; i < kElements; ++i) {
        float expected = 0;
        for (int step = 0; step < kSteps; ++step) {
          const int turn = step * kBuckets + bucket;
          expected += Gradient(0, turn, i) + Gradient(1, turn, i);
        }
        ASSERT_EQ(parameters[static_cast<size_t>(bucket * kElements + i)], expected);
      }
    }
  }
  for (const Race& race : checker.reports()) ADD_FAILURE() << race.message;
}

// The two operations that the wait is there to order.
std::pair<Race::Side, Race::Side> PairOrderedBy(const Omission& omission) {
  const std::string own = "rank " + std::to_string(omission.rank);
  const std::string peer = "rank " + std::to_string(1 - omission.rank);
  switch (omission.wait) {
    case WaitFor::kOwnReduceBeforeProduce:
    case WaitFor::kOwnProduceBeforeReduce:
      return {{"produce", "compute", own, true}, {"reduce", "comm", own, false}};
    case WaitFor::kPeerReduceBeforeProduce:
      return {{"produce", "compute", own, true}, {"reduce", "comm", peer, false}};
    case WaitFor::kPeerProduceBeforeReduce:
      return {{"produce", "compute", peer, true}, {"reduce", "comm", own, false}};
    case WaitFor::kUpdateBeforeReduce:
    case WaitFor::kReduceBeforeUpdate:
      return {{"reduce", "comm", own, true}, {"update", "update", own, false}};
  }
  return {};
}

TEST(BucketPipelineTest, IsRightUnderRandomDelaysWithAllItsWaits) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RaceChecker checker;
    Ranks ranks = CreateRanks(checker, {seed, 60}, /*compute=*/true, std::nullopt);
    RunFromOneThread(ranks);
    ExpectTheRightAnswer(ranks, checker);
  }
}

TEST(BucketPipelineTest, IsRightWhenEachRankHasAThread) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RaceChecker checker;
    Ranks ranks = CreateRanks(checker, {seed, 60}, /*compute=*/true, std::nullopt);
    RunFromAThreadPerRank(ranks, checker);
    ExpectTheRightAnswer(ranks, checker);
  }
}

TEST(BucketPipelineTest, EachMissingWaitIsReportedAsItsPairOnEveryRun) {
  for (int r = 0; r < kRanks; ++r) {
    for (int w = 0; w < kWaits; ++w) {
      const Omission omission{r, static_cast<WaitFor>(w)};
      SCOPED_TRACE("rank " + std::to_string(r) + " leaves out wait " + std::to_string(w));
      std::set<std::string> messages;
      for (uint64_t run = 0; run < 20; ++run) {
        RaceChecker checker;
        const RandomDelay delay{run, run % 2 == 0 ? 0 : 30};
        Ranks ranks = CreateRanks(checker, delay, /*compute=*/false, omission);
        if (run % 4 < 2) {
          RunFromOneThread(ranks);
        } else {
          RunFromAThreadPerRank(ranks, checker);
        }
        const std::vector<Race> races = checker.reports();
        ASSERT_EQ(races.size(), 1u);
        EXPECT_EQ(std::make_pair(races[0].first, races[0].second), PairOrderedBy(omission));
        messages.insert(races[0].message);
        int failed = 0;
        for (const auto& rank : ranks) {
          const absl::Status status = rank->Finish();
          if (status.ok()) continue;
          ++failed;
          EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, races[0].message));
        }
        EXPECT_EQ(failed, 1);
      }
      EXPECT_EQ(messages.size(), 1u);
    }
  }
}

}  // namespace
}  // namespace brigade::device
