// A ring over a store, as an optimizer has it: one chunk is read while another is computed and a
// third is written. Each of its waits is needed, and no delay changes a byte.

#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "brigade/device/file/file_store.h"
#include "brigade/tests/device/file/store_fixture.h"
#include "brigade/tests/testing/sanitizer.h"
#include "gmock/gmock.h"

namespace brigade::device {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

constexpr int64_t kChunks = 7, kBytes = 40'000, kSlots = 3;
constexpr int kSteps = 3;

// What a stream waits for.
enum class WaitPoint { kNone, kChunkRead, kChunkUpdated, kChunkFree, kCommitted };

class Ring {
 public:
  Ring(Context& context, FileStore& store, WaitPoint left_out)
      : store_(store), left_out_(left_out) {
    reads_ = context.CreateStream("reads").value();
    updates_ = context.CreateStream("updates").value();
    writes_ = context.CreateStream("writes").value();
    buffer_ = context.Allocate(kSlots * kBytes, Purpose::kOptimizerState, "ring").value();
    committed_ = context.CreateEvent("committed").value();
    for (int i = 0; i < kSlots; ++i) {
      read_.push_back(context.CreateEvent("chunk read").value());
      updated_.push_back(context.CreateEvent("chunk updated").value());
      free_.push_back(context.CreateEvent("chunk free").value());
    }
  }
  // What races may still run; the buffer's end is no race then.
  ~Ring() { Synchronize().IgnoreError(); }

  // Chunk c is all c.
  absl::Status Initialize() {
    for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
      BRIGADE_RETURN_IF_ERROR(
          writes_->FillBytes(Slot(chunk).data(), static_cast<uint8_t>(chunk), kBytes));
      BRIGADE_RETURN_IF_ERROR(store_.Write(*writes_, chunk, Slot(chunk)));
      BRIGADE_RETURN_IF_ERROR(writes_->Record(*free_[Index(chunk)]));
    }
    BRIGADE_RETURN_IF_ERROR(store_.Commit(*writes_));
    return writes_->Record(*committed_);
  }

  // Each byte becomes one more, of every chunk.
  absl::Status Step() {
    BRIGADE_RETURN_IF_ERROR(Wait(WaitPoint::kCommitted, *reads_, *committed_));
    for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
      const size_t i = Index(chunk);
      const absl::Span<char> slot = Slot(chunk);
      BRIGADE_RETURN_IF_ERROR(Wait(WaitPoint::kChunkFree, *reads_, *free_[i]));
      BRIGADE_RETURN_IF_ERROR(store_.Read(*reads_, chunk, slot));
      BRIGADE_RETURN_IF_ERROR(reads_->Record(*read_[i]));
      BRIGADE_RETURN_IF_ERROR(Wait(WaitPoint::kChunkRead, *updates_, *read_[i]));
      BRIGADE_RETURN_IF_ERROR(
          updates_->Enqueue({"update", {Writes(slot.data(), kBytes)}}, [slot](ThreadPool&) {
            for (char& byte : slot) ++byte;
            return absl::OkStatus();
          }));
      BRIGADE_RETURN_IF_ERROR(updates_->Record(*updated_[i]));
      BRIGADE_RETURN_IF_ERROR(Wait(WaitPoint::kChunkUpdated, *writes_, *updated_[i]));
      BRIGADE_RETURN_IF_ERROR(store_.Write(*writes_, chunk, slot));
      BRIGADE_RETURN_IF_ERROR(writes_->Record(*free_[i]));
    }
    BRIGADE_RETURN_IF_ERROR(store_.Commit(*writes_));
    return writes_->Record(*committed_);
  }

  absl::Status Synchronize() {
    absl::Status status;
    for (const auto* stream : {&reads_, &updates_, &writes_})
      status.Update((*stream)->Synchronize());
    return status;
  }

  // Of all chunks: whether they are what so many steps make of them.
  void Expect(int steps) {
    ASSERT_OK(Synchronize());
    for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
      ASSERT_OK(store_.Read(*reads_, chunk, Slot(chunk)));
      ASSERT_OK(reads_->Synchronize());
      const absl::Span<char> slot = Slot(chunk);
      EXPECT_EQ(std::count(slot.begin(), slot.end(), static_cast<char>(chunk + steps)), kBytes)
          << "chunk " << chunk;
    }
  }

 private:
  static size_t Index(int64_t chunk) { return static_cast<size_t>(chunk % kSlots); }
  absl::Span<char> Slot(int64_t chunk) const {
    return buffer_.as<char>().subspan(Index(chunk) * kBytes, kBytes);
  }
  absl::Status Wait(WaitPoint point, Stream& stream, Event& event) const {
    return point == left_out_ ? absl::OkStatus() : stream.Wait(event);
  }

  FileStore& store_;
  const WaitPoint left_out_;
  Buffer buffer_;
  std::unique_ptr<Event> committed_;
  std::vector<std::unique_ptr<Event>> read_, updated_, free_;
  std::unique_ptr<Stream> reads_, updates_, writes_;
};

class FileRingTest : public FileStoreTest {
 protected:
  std::unique_ptr<FileStore> CreateStore() { return Create(std::vector<int64_t>(kChunks, kBytes)); }
};
BRIGADE_FILE_STORE_TESTS(FileRingTest);

TEST_P(FileRingTest, NoDelayChangesAByte) {
  for (uint64_t seed = 0; seed < (brigade::testing::kSanitizer ? 4 : 32); ++seed) {
    RaceChecker checker;
    ContextOptions options = CheckedOptions(checker);
    options.random_delay = {.seed = seed, .max_delay_us = 100};
    auto context = CreateContext(options);
    const auto store = CreateStore();
    Ring ring(*context, *store, WaitPoint::kNone);
    ASSERT_OK(ring.Initialize());
    const int64_t waits = context->host_waits();
    for (int i = 0; i < kSteps; ++i) ASSERT_OK(ring.Step());
    EXPECT_EQ(context->host_waits(), waits);
    ring.Expect(kSteps);
    EXPECT_THAT(checker.reports(), IsEmpty()) << "seed " << seed;
    EXPECT_EQ(store->bytes_written(), (kSteps + 1) * kChunks * kBytes);
    EXPECT_EQ(store->bytes_read(), (kSteps + 1) * kChunks * kBytes);
  }
}

TEST_P(FileRingTest, EachWaitIsNeeded) {
  if (brigade::testing::kSanitizer) GTEST_SKIP() << "it makes races, on purpose";
  const struct {
    WaitPoint left_out;
    // Two operations that race then.
    const char* pair;
  } kCases[] = {{WaitPoint::kChunkRead, "file_read update"},
                {WaitPoint::kChunkUpdated, "file_write update"},
                {WaitPoint::kChunkFree, "file_read file_write"},
                {WaitPoint::kCommitted, "file_commit file_read"}};
  for (const auto& [left_out, pair] : kCases) {
    RaceChecker checker;
    auto context = CreateContext(CheckedOptions(checker));
    const auto store = CreateStore();
    {
      Ring ring(*context, *store, left_out);
      ASSERT_OK(ring.Initialize());
      for (int i = 0; i < kSteps; ++i) ASSERT_OK(ring.Step());
    }
    std::vector<std::string> pairs;
    for (const Race& race : checker.reports()) {
      pairs.push_back(absl::StrCat(race.first.operation, " ", race.second.operation));
    }
    EXPECT_THAT(pairs, Contains(pair));
  }
}

// A timer interrupts the calls of all threads, as a profiler does.
TEST_P(FileRingTest, SignalsDoNotDisturb) {
  struct sigaction action = {}, before = {};
  // Of any thread.
  static std::atomic<int> signals;
  signals = 0;
  // Without SA_RESTART: calls end with EINTR.
  action.sa_handler = [](int) { ++signals; };
  ASSERT_EQ(sigaction(SIGPROF, &action, &before), 0);
  itimerval often = {{0, 200}, {0, 200}};
  ASSERT_EQ(setitimer(ITIMER_PROF, &often, nullptr), 0);
  const auto store = CreateStore();
  {
    Ring ring(*context_, *store, WaitPoint::kNone);
    EXPECT_OK(ring.Initialize());
    int steps = 0;
    for (; steps < 100; ++steps) EXPECT_OK(ring.Step());
    ring.Expect(steps);
  }
  itimerval never = {};
  setitimer(ITIMER_PROF, &never, nullptr);
  sigaction(SIGPROF, &before, nullptr);
  EXPECT_GT(signals, 0);
}

}  // namespace
}  // namespace brigade::device
