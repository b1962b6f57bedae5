// After a crash, Open finds the last commit whole: of the process, killed at any moment, and of the
// machine, on a disk that has only what was synced.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "brigade/device/file/file_store.h"
#include "brigade/device/file/store_table.h"
#include "brigade/device/file/thread_engine.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/device/file/store_fixture.h"
#include "brigade/tests/testing/sanitizer.h"
#include "gmock/gmock.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using checkpoint::testing::CrashFileSystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Data = CrashFileSystem::Data;
using Names = CrashFileSystem::Names;

const std::vector<int64_t> kSizes = {70'000, 1, 4096, 33'000};

// What chunk `chunk` has after so many commits. Every other step leaves the odd chunks as they
// are.
std::vector<char> BytesAfter(int64_t commits, int64_t chunk) {
  const int64_t step = chunk % 2 == 1 ? (commits + 1) / 2 * 2 - 1 : commits;
  return Bytes(kSizes[static_cast<size_t>(chunk)], static_cast<uint64_t>(step * 100 + chunk));
}

absl::Status WriteStep(FileStore& store, Stream& stream, int64_t step) {
  for (int64_t chunk = 0; chunk < store.chunks(); ++chunk) {
    if (chunk % 2 == 1 && step % 2 == 0) continue;
    const std::vector<char> bytes = BytesAfter(step, chunk);
    BRIGADE_RETURN_IF_ERROR(store.Write(stream, chunk, bytes));
    BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
  }
  BRIGADE_RETURN_IF_ERROR(store.Commit(stream));
  return stream.Synchronize();
}

// Whether all chunks are those of the store's last commit.
void ExpectWhole(FileStore& store, Stream& stream, const std::string& where) {
  for (int64_t chunk = 0; chunk < store.chunks() && store.commits() > 0; ++chunk) {
    std::vector<char> bytes(static_cast<size_t>(store.chunk_bytes(chunk)));
    ASSERT_OK(store.Read(stream, chunk, absl::MakeSpan(bytes))) << where;
    ASSERT_OK(stream.Synchronize()) << where;
    ASSERT_TRUE(bytes == BytesAfter(store.commits(), chunk))
        << "chunk " << chunk << " of commit " << store.commits() << " " << where;
  }
}

class FileStoreCrashTest : public FileStoreTest {};
BRIGADE_FILE_STORE_TESTS(FileStoreCrashTest);

TEST_P(FileStoreCrashTest, AKilledProcessLeavesItsLastCommit) {
  if (brigade::testing::kSanitizer) GTEST_SKIP() << "it follows no fork of threads";
  options_.crash_safety = CrashSafety::kProcess;
  options_.checksums = true;
  options_.block_bytes = 4096;
  { const auto store = Create(kSizes); }
  int64_t last = 0;
  for (int kill_number = 0; kill_number < 25; ++kill_number) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      // A process of its own, with nothing of this one's threads.
      auto context = CreateContext(CpuOptions());
      auto stream = context->CreateStream("files").value();
      auto store = FileStore::Open(options_, "state", kSizes);
      if (!store.ok()) _exit(3);
      for (int64_t step = (*store)->commits() + 1;; ++step) {
        if (!WriteStep(**store, *stream, step).ok()) _exit(4);
        // It is committed when the stream says so.
        if (write(pipe_ends[1], &step, sizeof(step)) != sizeof(step)) _exit(5);
      }
    }
    close(pipe_ends[1]);
    int64_t told = 0;
    ASSERT_EQ(read(pipe_ends[0], &told, sizeof(told)), static_cast<ssize_t>(sizeof(told)));
    std::this_thread::sleep_for(std::chrono::microseconds(kill_number * 397 % 5000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    for (int64_t next; read(pipe_ends[0], &next, sizeof(next)) == sizeof(next);) told = next;
    close(pipe_ends[0]);

    const auto store = FileStore::Open(options_, "state", kSizes);
    ASSERT_OK(store);
    EXPECT_GE((*store)->commits(), told);
    EXPECT_LE((*store)->commits(), told + 1);
    EXPECT_GT((*store)->commits(), last);
    last = (*store)->commits();
    ExpectWhole(**store, *stream_, absl::StrCat("kill ", kill_number));
  }
}

TEST_P(FileStoreCrashTest, ADamagedTableIsTheOneBefore) {
  options_.crash_safety = CrashSafety::kProcess;
  const std::string path = directory_.path() + "/state";
  const auto damage = [&](int64_t byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(byte);
    const auto changed = static_cast<char>(file.get() ^ 1);
    file.seekp(byte);
    file.put(changed);
  };
  const auto commits = [&]() -> absl::StatusOr<int64_t> {
    BRIGADE_ASSIGN_OR_RETURN(auto store, FileStore::Open(options_, "state", kSizes));
    ExpectWhole(*store, *stream_, "");
    return store->commits();
  };
  {
    const auto store = Create(kSizes);
    for (int64_t step = 1; step <= 4; ++step) ASSERT_OK(WriteStep(*store, *stream_, step));
  }
  EXPECT_EQ(commits().value(), 4);
  // Each byte of it counts, those that fill it up too. Commit 4 is in the first copy.
  for (const int64_t byte : {0, 8, 16, 24, 32, 36, 40, 41, 44, 71, 4095}) {
    damage(byte);
    // Of other chunks, as it says, or damaged: the other copy counts.
    EXPECT_EQ(commits().value(), 3) << byte;
    damage(byte);
  }
  damage(50);
  damage(4096 + 50);
  EXPECT_THAT(commits(), StatusIs(absl::StatusCode::kDataLoss,
                                  AllOf(HasSubstr(path), HasSubstr("it is damaged"))));
  // One goes on behind the one that is good.
  damage(4096 + 50);
  {
    auto store = FileStore::Open(options_, "state", kSizes).value();
    ASSERT_OK(WriteStep(*store, *stream_, 4));
    ASSERT_OK(WriteStep(*store, *stream_, 5));
  }
  EXPECT_EQ(commits().value(), 5);
}

TEST_P(FileStoreCrashTest, OpenRefusesWhatItCannotTrust) {
  options_.crash_safety = CrashSafety::kProcess;
  const std::string path = directory_.path() + "/state";
  EXPECT_THAT(FileStore::Open(options_, "state", kSizes),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
  {
    const auto store = Create(kSizes);
    for (int64_t step = 1; step <= 2; ++step) ASSERT_OK(WriteStep(*store, *stream_, step));
  }
  EXPECT_THAT(FileStore::Open(options_, "state", {70'000, 1, 4096, 33'001}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("other chunks")));
  EXPECT_THAT(FileStore::Open(options_, "state", {1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("other chunks")));
  FileOptions none = options_;
  none.crash_safety = CrashSafety::kNone;
  EXPECT_THAT(FileStore::Open(none, "state", kSizes),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("crash_safety")));
  // As if the machine had been started again: the table says when it was.
  const std::string before = [&] {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  {
    std::string text = before;
    std::vector<internal::ChunkVersion> versions(kSizes.size());
    internal::TableHead head =
        internal::ReadTable(text.substr(0, 4096), internal::LayoutSum(kSizes),
                            absl::MakeSpan(versions))
            .value();
    EXPECT_EQ(head.boot_sum, internal::BootSum());
    EXPECT_NE(head.boot_sum, 0u);
    ++head.boot_sum;
    internal::WriteTable(head, versions, absl::MakeSpan(text).first(4096));
    std::ofstream(path, std::ios::binary) << text;
  }
  EXPECT_THAT(FileStore::Open(options_, "state", kSizes),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("started again")));
  {
    std::string text = before;
    std::vector<internal::ChunkVersion> versions(kSizes.size());
    versions[2].slot = 2;
    internal::WriteTable({internal::LayoutSum(kSizes), 0, 9}, versions,
                         absl::MakeSpan(text).first(4096));
    internal::WriteTable({internal::LayoutSum(kSizes), 0, 9}, versions,
                         absl::MakeSpan(text).subspan(4096, 4096));
    std::ofstream(path, std::ios::binary) << text;
  }
  EXPECT_THAT(FileStore::Open(options_, "state", kSizes),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("names no slot")));
  std::ofstream(path, std::ios::binary) << before.substr(0, before.size() - 1);
  EXPECT_THAT(FileStore::Open(options_, "state", kSizes),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("was cut")));
  std::ofstream(path, std::ios::binary) << std::string(before.size(), 'x');
  EXPECT_THAT(FileStore::Open(options_, "state", kSizes),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("it is none")));
  // What others may have put there.
  std::filesystem::remove(path);
  std::ofstream(path + "2", std::ios::binary) << before;
  EXPECT_OK(FileStore::Open(options_, "state2", kSizes));
  std::filesystem::create_symlink(path + "2", path);
  EXPECT_FALSE(FileStore::Open(options_, "state", kSizes).ok());
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(FileStore::Open(options_, "state", kSizes),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no regular file")));
}

// On a disk in memory that knows what was synced. `data`: what it has of the rest.
struct PowerFailure {
  std::unique_ptr<CrashFileSystem> disk;
  // Commits that had ended before.
  int64_t commits;
  std::string call;
};

std::vector<PowerFailure> Crash(CrashSafety safety, std::vector<Data> kept, bool lose_syncs) {
  CrashFileSystem disk;
  EXPECT_EQ(disk.MakeFolder("/d", 0777), 0);
  const int root = disk.Open("/", 0, 0);
  EXPECT_EQ(disk.Sync(root), 0);
  disk.Close(root);
  FileOptions options;
  options.directory = "/d";
  options.direct = false;
  options.crash_safety = safety;
  options.block_bytes = 4096 * 4;
  options.queue_depth = 2;
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("files").value();
  std::vector<PowerFailure> failures;
  std::atomic<int64_t> commits{0};
  auto store =
      FileStore::Create(options, "state", kSizes, {internal::CreateThreadEngine(disk), &disk})
          .value();
  disk.set_fault([&](const std::string& call, const std::string&) {
    for (const Data data : kept) {
      failures.push_back({disk.AfterCrash(data, Names::kNone), commits, call});
    }
    return lose_syncs && call == "sync data" ? CrashFileSystem::kLost : 0;
  });
  for (int64_t step = 1; step <= 4; ++step) {
    EXPECT_OK(WriteStep(*store, *stream, step));
    commits = step;
  }
  disk.set_fault(nullptr);
  for (const Data data : kept) {
    failures.push_back({disk.AfterCrash(data, Names::kNone), commits, "the end"});
  }
  return failures;
}

absl::StatusOr<std::unique_ptr<FileStore>> OpenAfter(PowerFailure& failure, CrashSafety safety) {
  FileOptions options;
  options.directory = "/d";
  options.direct = false;
  options.crash_safety = safety;
  options.queue_depth = 1;
  options.operations = 1;
  return FileStore::Open(options, "state", kSizes,
                         {internal::CreateThreadEngine(*failure.disk), failure.disk.get()});
}

TEST(FileStorePowerTest, APowerFailureLeavesTheLastCommitWithMachineSafety) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("files").value();
  auto failures = Crash(CrashSafety::kMachine,
                        {Data::kNone, Data::kAll, Data::kEvery512, Data::kEvery4096}, false);
  std::set<int64_t> seen;
  for (PowerFailure& failure : failures) {
    const auto store = OpenAfter(failure, CrashSafety::kMachine);
    ASSERT_OK(store) << "before " << failure.call;
    EXPECT_GE((*store)->commits(), failure.commits) << "before " << failure.call;
    EXPECT_LE((*store)->commits(), failure.commits + 1);
    seen.insert((*store)->commits() - failure.commits);
    ExpectWhole(**store, *stream, "before " + failure.call);
  }
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_GT(failures.size(), 100u);
}

TEST(FileStorePowerTest, AProcessThatEndsLeavesTheLastCommitWithProcessSafety) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("files").value();
  auto failures = Crash(CrashSafety::kProcess, {Data::kAll}, false);
  for (PowerFailure& failure : failures) {
    // The kernel goes on, with all that was written.
    if (failure.disk->Open("/d/state", 0, 0) < 0) continue;
    const auto store = OpenAfter(failure, CrashSafety::kProcess);
    ASSERT_OK(store) << "before " << failure.call;
    EXPECT_GE((*store)->commits(), failure.commits) << "before " << failure.call;
    ExpectWhole(**store, *stream, "before " + failure.call);
  }
}

// Were a sync left out, the test above would see it.
TEST(FileStorePowerTest, TheSyncsAreNeeded) {
  auto failures = Crash(CrashSafety::kMachine, {Data::kNone}, true);
  int64_t newest = 0;
  for (PowerFailure& failure : failures) {
    const auto store = OpenAfter(failure, CrashSafety::kMachine);
    if (store.ok()) newest = std::max(newest, (*store)->commits());
  }
  EXPECT_EQ(newest, 0);
}

}  // namespace
}  // namespace brigade::device
