#include "brigade/data/loader.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/data/prefetcher.h"
#include "brigade/data/row_writer.h"
#include "brigade/data/token_samples.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::data {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

// Sample i has the ids i * 10, i * 10 + 1, ..., and i % 3 + 1 labels that count. One may be bad.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size, int64_t bad = -1) : size_(size), bad_(bad) {}

  int64_t size() const override { return size_; }
  int64_t context() const override { return 4; }
  int64_t vocabulary() const override { return size_ * 10; }
  int64_t CountedLabels(int64_t sample) const override { return sample % 3 + 1; }
  absl::Status Read(int64_t sample, const Row& row) const override {
    BRIGADE_RETURN_IF_ERROR(CheckRead(sample, row, *this));
    if (sample == bad_) return absl::DataLossError(absl::StrCat("sample ", sample, " is bad"));
    for (size_t i = 0; i < 5; ++i)
      row.ids[i] = static_cast<int32_t>(sample * 10) + static_cast<int32_t>(i);
    for (size_t i = 0; i < 4; ++i) {
      row.labels[i] = static_cast<int64_t>(i) <= sample % 3 ? row.ids[i + 1] : kIgnored;
      row.positions[i] = static_cast<int32_t>(i);
      row.segments[i] = 0;
    }
    return absl::OkStatus();
  }

 private:
  int64_t size_, bad_;
};

// Samples of the pieces that `segments` says.
class Packed : public Numbers {
 public:
  explicit Packed(std::vector<int32_t> segments) : Numbers(1), segments_(std::move(segments)) {}

  absl::Status Read(int64_t sample, const Row& row) const override {
    BRIGADE_RETURN_IF_ERROR(Numbers::Read(sample, row));
    std::copy(segments_.begin(), segments_.end(), row.segments.begin());
    return absl::OkStatus();
  }

 private:
  const std::vector<int32_t> segments_;
};

TEST(TokenSamplesTest, PiecesThatAreApartSayWhereTheyAre) {
  // Ids, positions, ends; padding is one piece.
  for (const auto& [segments, input] :
       {std::pair<std::vector<int32_t>, std::vector<int32_t>>{{0, 0, 0, 0},
                                                              {0, 1, 2, 3, 0, 1, 2, 3, 4, 4, 4, 4}},
        {{0, 1, 1, 2}, {0, 1, 2, 3, 0, 0, 1, 0, 1, 3, 3, 4}},
        {{0, 0, kPadding, kPadding}, {0, 1, 2, 3, 0, 1, 0, 1, 2, 2, 4, 4}}}) {
    const TokenSamples samples(std::make_shared<Packed>(segments), Pieces::kApart);
    EXPECT_EQ(samples.input_bytes(), 48);
    EXPECT_EQ(samples.target_bytes(), 16);
    EXPECT_EQ(samples.position_rows(), (PositionRows{.input = 3, .target = 1}));
    EXPECT_EQ(TokenSamples(std::make_shared<Packed>(segments)).position_rows(),
              (PositionRows{.input = 1, .target = 1}));
    std::vector<int32_t> read(12, -7), labels(4);
    ASSERT_OK(samples.Read(0, read.data(), labels.data()));
    EXPECT_EQ(read, input);
  }
}

std::shared_ptr<const Samples> Data(int64_t size, int64_t bad = -1) {
  return std::make_shared<TokenSamples>(std::make_shared<Numbers>(size, bad));
}

// The samples of a step, of all ranks, and what they weigh.
struct Seen {
  std::vector<int64_t> samples;
  int64_t counted = 0;
};

void See(const StepData& step, Seen& seen) {
  int64_t counted = 0;
  ASSERT_EQ(std::ssize(step.of), step.micro_batches);
  for (const StepData::MicroBatch& of : step.of) {
    int64_t of_micro_batch = 0;
    for (int64_t i = 0; i < of.samples; ++i) {
      const auto* const ids = reinterpret_cast<const int32_t*>(of.inputs) + 4 * i;
      const auto* const labels = reinterpret_cast<const int32_t*>(of.targets) + 4 * i;
      for (int32_t t = 0; t < 4; ++t) {
        EXPECT_EQ(ids[t], ids[0] + t);
        if (labels[t] == kIgnored) continue;
        EXPECT_EQ(labels[t], ids[t] + 1);
        ++of_micro_batch;
      }
      seen.samples.push_back(ids[0] / 10);
    }
    EXPECT_EQ(of.counted, of_micro_batch);
    counted += of_micro_batch;
  }
  seen.counted += counted;
}

// All steps of all ranks from a position on, by where they begin.
std::map<std::pair<int64_t, int64_t>, Seen> RunSteps(int64_t samples, LoaderOptions options,
                                                     int ranks, DataPosition from = {}) {
  std::map<std::pair<int64_t, int64_t>, Seen> steps;
  for (int rank = 0; rank < ranks; ++rank) {
    options.rank.ranks = ranks;
    options.rank.rank = rank;
    auto loader = Loader::Create(Data(samples), options, from);
    EXPECT_OK(loader);
    while (true) {
      const auto step = (*loader)->Next();
      EXPECT_OK(step);
      if (*step == nullptr) break;
      Seen& seen = steps[{(*step)->begin.epoch, (*step)->begin.sample}];
      See(**step, seen);
      if (rank == ranks - 1) {
        EXPECT_EQ(seen.counted, (*step)->counted);
        EXPECT_EQ(std::ssize(seen.samples), (*step)->samples);
      }
    }
  }
  for (auto& [at, seen] : steps) std::sort(seen.samples.begin(), seen.samples.end());
  return steps;
}

TEST(LoaderTest, StepsWeighTheirTokensOnAnyNumberOfRanks) {
  const LoaderOptions options = {.batch = 12, .rank = {.micro_batch = 2}, .seed = 4, .epochs = 3};
  const auto alone = RunSteps(41, options, 1);
  ASSERT_EQ(alone.size(), 12u);
  for (const int ranks : {2, 3, 6}) {
    const auto together = RunSteps(41, options, ranks);
    ASSERT_EQ(together.size(), alone.size());
    for (const auto& [at, seen] : alone) {
      EXPECT_EQ(together.at(at).samples, seen.samples) << ranks;
      EXPECT_EQ(together.at(at).counted, seen.counted) << ranks;
    }
  }
}

TEST(LoaderTest, GoesOnInsideAnEpochWithTheSameData) {
  const LoaderOptions options = {.batch = 6, .rank = {.micro_batch = 1}, .seed = 9, .epochs = 2};
  const auto whole = RunSteps(20, options, 1);
  for (const auto& [at, unused] : whole) {
    for (const int ranks : {1, 2, 3}) {
      const auto rest = RunSteps(20, options, ranks, {at.first, at.second});
      EXPECT_EQ(rest.begin()->first, at);
      for (const auto& [later, seen] : rest) EXPECT_EQ(seen.samples, whole.at(later).samples);
    }
  }
}

TEST(LoaderTest, SaysWhereTheNextStepBegins) {
  auto loader = Loader::Create(Data(5), {.batch = 2, .shuffle = false, .epochs = 2});
  ASSERT_OK(loader);
  DataPosition at;
  int steps = 0;
  while (true) {
    ASSERT_OK_AND_ASSIGN(const StepData* step, (*loader)->Next());
    if (step == nullptr) break;
    EXPECT_EQ(step->begin, at);
    at = step->next;
    ++steps;
  }
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(at, (DataPosition{2, 0}));
  // And again, behind the end.
  ASSERT_OK_AND_ASSIGN(const StepData* step, (*loader)->Next());
  EXPECT_EQ(step, nullptr);
}

TEST(LoaderTest, TellsAnErrorInTheStepThatItIsOf) {
  auto loader =
      Loader::Create(Data(20, 9), {.batch = 4, .shuffle = false, .epochs = 1, .ahead = 5});
  ASSERT_OK(loader);
  EXPECT_OK((*loader)->Next());
  EXPECT_OK((*loader)->Next());
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT((*loader)->Next(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("sample 9 is bad")));
  }
}

TEST(LoaderTest, RefusesWhatCannotBe) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto expect = [&](const LoaderOptions& options, const char* text, DataPosition from = {}) {
    EXPECT_THAT(Loader::Create(Data(20), options, from), StatusIs(kInvalid, HasSubstr(text)));
  };
  expect({.batch = 6, .rank = {.ranks = 2, .micro_batch = 2}}, "no multiple of micro_batch times");
  expect({.batch = 0}, "a batch of 0 samples");
  expect({.batch = int64_t{1} << 60}, "samples can be");
  expect({.rank = {.rank = 2, .ranks = 2}}, "rank 2 of 2");
  expect({.rank = {.micro_batch = 0}}, "a micro_batch of 0");
  expect({.epochs = -1}, "-1 epochs");
  expect({.ahead = 0}, "0 steps ahead");
  expect({.batch = 1}, "no position in a data set of 20", {0, 21});
  EXPECT_THAT(Loader::Create(Data(20), {.batch = int64_t{1} << 36}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the machine's memory")));
}

TEST(LoaderTest, ThrowsAwayWhatWasMadeAhead) {
  for (int taken = 0; taken < 4; ++taken) {
    auto loader = Loader::Create(Data(9), {.batch = 2, .epochs = 0, .ahead = 3});
    ASSERT_OK(loader);
    for (int i = 0; i < taken; ++i) EXPECT_OK((*loader)->Next());
  }
}

// A thread that makes items when it is let.
class Gate {
 public:
  void Let(int items) {
    device::MutexLock lock(mutex_);
    let_ += items;
    changed_.SignalAll();
  }
  void Pass() {
    device::MutexLock lock(mutex_);
    while (let_ == 0) changed_.Wait(mutex_);
    --let_;
    ++passed_;
    changed_.SignalAll();
  }
  void WaitUntilPassed(int items) {
    device::MutexLock lock(mutex_);
    while (passed_ < items) changed_.Wait(mutex_);
  }
  int passed() {
    device::MutexLock lock(mutex_);
    return passed_;
  }

 private:
  device::Mutex mutex_;
  device::CondVar changed_;
  int let_ = 0, passed_ = 0;
};

TEST(PrefetcherTest, DoesNotWaitWhereTheThreadKeepsUp) {
  Gate gate;
  int next = 0;
  auto prefetcher =
      Prefetcher<int>::Create(std::vector<int>(4), [&](int& item) -> absl::StatusOr<bool> {
        gate.Pass();
        item = next++;
        return true;
      });
  ASSERT_OK(prefetcher);
  gate.Let(1000);
  // What the caller holds is never the item that is made; three are made ahead of it.
  gate.WaitUntilPassed(3);
  for (int i = 0; i < 50; ++i) {
    gate.WaitUntilPassed(i + 2);
    // The item before this one may still be on its way from fill to its count.
    ASSERT_OK_AND_ASSIGN(const int* item, (*prefetcher)->Next());
    EXPECT_EQ(*item, i);
    EXPECT_LE(gate.passed(), i + 4);
    EXPECT_EQ(*item, i);
  }
  EXPECT_EQ((*prefetcher)->waits(), 0);
}

TEST(PrefetcherTest, CountsWaits) {
  Gate gate;
  auto prefetcher = Prefetcher<int>::Create(std::vector<int>(2), [&](int&) -> absl::StatusOr<bool> {
    gate.Pass();
    return true;
  });
  ASSERT_OK(prefetcher);
  std::thread late([&] {
    // Next is not called before: so it finds nothing.
    while ((*prefetcher)->waits() == 0) std::this_thread::yield();
    gate.Let(1);
  });
  EXPECT_OK((*prefetcher)->Next());
  late.join();
  EXPECT_EQ((*prefetcher)->waits(), 1);
  gate.Let(2);
}

TEST(PrefetcherTest, NeedsMemoryForTwo) {
  EXPECT_THAT(Prefetcher<int>::Create(std::vector<int>(1),
                                      [](int&) -> absl::StatusOr<bool> { return false; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at least 2 items")));
}

}  // namespace
}  // namespace brigade::data
