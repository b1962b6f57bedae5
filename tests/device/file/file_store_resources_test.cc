// What a store takes: nothing more in steady state, and all of it back at its end.

#include <dirent.h>

#include <string>
#include <vector>

#include "brigade/tests/device/file/store_fixture.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "gmock/gmock.h"

namespace brigade::device {
namespace {

class FileStoreResourcesTest : public FileStoreTest {};
BRIGADE_FILE_STORE_TESTS(FileStoreResourcesTest);

int EntriesOf(const char* path) {
  DIR* const directory = opendir(path);
  int entries = 0;
  while (readdir(directory) != nullptr) ++entries;
  closedir(directory);
  return entries;
}
int Descriptors() { return EntriesOf("/proc/self/fd"); }
int Threads() { return EntriesOf("/proc/self/task"); }

TEST_P(FileStoreResourcesTest, AStepInSteadyStateAllocatesNothing) {
  options_.checksums = true;
  for (const CrashSafety safety : {CrashSafety::kNone, CrashSafety::kProcess}) {
    options_.crash_safety = safety;
    const auto store = Create({100'000, 4096, 77});
    const absl::Span<char> memory = Memory(100'000);
    Gate gate;
    const auto step = [&] {
      bool ok = true;
      for (int64_t chunk = 0; chunk < store->chunks(); ++chunk) {
        const auto part = memory.first(static_cast<size_t>(store->chunk_bytes(chunk)));
        ok &= store->Write(*stream_, chunk, part).ok();
      }
      ok &= store->Commit(*stream_).ok();
      for (int64_t chunk = 0; chunk < store->chunks(); ++chunk) {
        const auto part = memory.first(static_cast<size_t>(store->chunk_bytes(chunk)));
        ok &= store->Read(*stream_, chunk, part).ok();
      }
      ok &= store->Abandon(*stream_).ok();
      return ok;
    };
    // With the queue at its deepest.
    ASSERT_OK(Block(*stream_, gate));
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(step());
    gate.Open();
    ASSERT_OK(stream_->Synchronize());
    const int64_t before = brigade::testing::CountedAllocations();
    const int descriptors = Descriptors(), threads = Threads();
    bool ok = true;
    for (int i = 0; i < 5; ++i) {
      for (int k = 0; k < 5; ++k) ok &= step();
      ok &= stream_->Synchronize().ok();
    }
    EXPECT_EQ(brigade::testing::CountedAllocations(), before);
    EXPECT_TRUE(ok);
    EXPECT_EQ(Descriptors(), descriptors);
    // The kernel's own helpers of a ring come and go.
    if (GetParam().engine == FileEngineKind::kThreads) {
      EXPECT_EQ(Threads(), threads);
    }
  }
}

TEST_P(FileStoreResourcesTest, TakesAllBackAtItsEnd) {
  const int descriptors = Descriptors(), threads = Threads();
  for (int i = 0; i < 3; ++i) {
    const auto store = Create({100'000});
    EXPECT_GT(Descriptors(), descriptors);
    if (GetParam().engine == FileEngineKind::kThreads) {
      EXPECT_EQ(Threads(), threads + options_.operations * options_.queue_depth);
    }
    ASSERT_OK(WriteNow(*store, 0, Bytes(100'000, 1)));
    // One that fails.
    EXPECT_FALSE(ReadNow(*store, 0).ok());
    ASSERT_OK(stream_->Reset());
    EXPECT_FALSE(FileStore::Create({.directory = "/nowhere"}, "x", {1}).ok());
    EXPECT_FALSE(FileStore::Create(options_, "large", {int64_t{1} << 50}).ok());
  }
  // The last operation may hold the store until its worker lets go of it.
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(Descriptors(), descriptors);
  if (GetParam().engine == FileEngineKind::kThreads) {
    EXPECT_EQ(Threads(), threads);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

}  // namespace
}  // namespace brigade::device
