#ifndef BRIGADE_TESTS_DEVICE_FILE_STORE_FIXTURE_H_
#define BRIGADE_TESTS_DEVICE_FILE_STORE_FIXTURE_H_

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/device/context.h"
#include "brigade/device/file/engines.h"
#include "brigade/device/file/file_store.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::device {

// An empty directory of the test's own, removed at its end.
class TestDirectory {
 public:
  TestDirectory() : path_(::testing::TempDir() + "/storeXXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no directory " << path_;
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Bytes that tell chunks and steps apart, and places in them.
inline std::vector<char> Bytes(int64_t bytes, uint64_t seed) {
  std::vector<char> result(static_cast<size_t>(bytes));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& byte : result) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(state >> 56);
  }
  return result;
}

// Runs the body in a process of its own. 0: its checks are met; kNotPermitted: it returns false.
inline constexpr int kNotPermitted = 77;
inline int InAnotherProcess(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (!body()) _exit(kNotPermitted);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct Variant {
  FileEngineKind engine;
  bool direct;

  friend void PrintTo(const Variant& variant, std::ostream* to) { *to << variant.Name(); }
  std::string Name() const {
    return absl::StrCat(engine == FileEngineKind::kIoUring ? "IoUring" : "Threads",
                        direct ? "Direct" : "Buffered");
  }
};

// Both engines, past the page cache and through it; what the machine forbids is skipped.
class FileStoreTest : public ::testing::TestWithParam<Variant> {
 protected:
  FileStoreTest() {
    // Makes Abseil's table of errors' texts before there are threads: ThreadSanitizer does not see
    // that they wait for it.
    absl::ErrnoToStatus(EIO, "").IgnoreError();
    options_.directory = directory_.path();
    options_.engine = GetParam().engine;
    options_.direct = GetParam().direct;
    options_.block_bytes = 16 << 10;
    options_.queue_depth = 4;
  }

  void SetUp() override {
    const auto chosen = internal::ChooseEngine(GetParam().engine);
    if (!chosen.ok()) GTEST_SKIP() << chosen.status();
    if (!GetParam().direct) return;
    const auto store = FileStore::Create(options_, "try", {});
    ASSERT_OK(store);
    if (!(*store)->direct()) GTEST_SKIP() << (*store)->description();
  }

  // Of the variant's engine.
  std::unique_ptr<FileEngine> Engine() const {
    return std::move(internal::ChooseEngine(GetParam().engine).value().engine);
  }

  std::unique_ptr<FileStore> Create(absl::Span<const int64_t> chunk_bytes) const {
    auto store = FileStore::Create(options_, "state", chunk_bytes);
    EXPECT_OK(store);
    return store.ok() ? *std::move(store) : nullptr;
  }

  // Memory that O_DIRECT takes as it is: from 4096 bytes up it begins with a page.
  Buffer AlignedBuffer(const FileStore& store, int64_t chunk) {
    return context_->Allocate(store.chunk_bytes(chunk) + 4096, Purpose::kScratch).value();
  }
  absl::Span<char> Memory(int64_t bytes) {
    buffers_.push_back(context_->Allocate(bytes + 4096, Purpose::kScratch, "ring").value());
    return buffers_.back().as<char>().first(static_cast<size_t>(bytes));
  }

  absl::Status WriteNow(FileStore& store, int64_t chunk, const std::vector<char>& bytes) {
    Buffer buffer = AlignedBuffer(store, chunk);
    const auto memory = buffer.as<char>().first(bytes.size());
    std::copy(bytes.begin(), bytes.end(), memory.begin());
    EXPECT_OK(store.Write(*stream_, chunk, memory));
    return stream_->Synchronize();
  }
  absl::Status CommitNow(FileStore& store) {
    EXPECT_OK(store.Commit(*stream_));
    return stream_->Synchronize();
  }
  absl::StatusOr<std::vector<char>> ReadNow(FileStore& store, int64_t chunk) {
    Buffer buffer = AlignedBuffer(store, chunk);
    const auto memory = buffer.as<char>().first(static_cast<size_t>(store.chunk_bytes(chunk)));
    EXPECT_OK(store.Read(*stream_, chunk, memory));
    BRIGADE_RETURN_IF_ERROR(stream_->Synchronize());
    return std::vector<char>(memory.begin(), memory.end());
  }

  TestDirectory directory_;
  FileOptions options_;
  std::unique_ptr<Context> context_ = CreateContext(CpuOptions());
  std::vector<Buffer> buffers_;
  std::unique_ptr<Stream> stream_ = context_->CreateStream("files").value();
};

inline constexpr Variant kVariants[] = {{FileEngineKind::kIoUring, true},
                                        {FileEngineKind::kIoUring, false},
                                        {FileEngineKind::kThreads, true},
                                        {FileEngineKind::kThreads, false}};

}  // namespace brigade::device

#define BRIGADE_FILE_STORE_TESTS(suite)                                     \
  INSTANTIATE_TEST_SUITE_P(Variants, suite, ::testing::ValuesIn(kVariants), \
                           [](const auto& info) { return info.param.Name(); })

#endif  // BRIGADE_TESTS_DEVICE_FILE_STORE_FIXTURE_H_
