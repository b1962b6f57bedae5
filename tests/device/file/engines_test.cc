// What an engine promises to what stands on it: requests go, and come back with what the system
// says.

#include "brigade/device/file/engines.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "brigade/tests/device/file/store_fixture.h"

namespace brigade::device {
namespace {

class EnginesTest : public ::testing::TestWithParam<FileEngineKind> {
 protected:
  void SetUp() override {
    auto chosen = internal::ChooseEngine(GetParam());
    if (!chosen.ok()) GTEST_SKIP() << chosen.status();
    EXPECT_EQ(chosen->kind, GetParam());
    engine_ = std::move(chosen->engine);
    queue_ = engine_->CreateQueue(4).value();
    fd_ = open((directory_.path() + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd_, 0);
  }
  void TearDown() override { close(fd_); }

  // Of one request.
  int64_t ResultOf(bool write, int fd, int64_t bytes, int64_t offset) {
    FileRequest request;
    request.write = write;
    request.fd = fd;
    request.data = data_.data();
    request.bytes = bytes;
    request.offset = offset;
    queue_->Start(request);
    EXPECT_EQ(&queue_->Next(), &request);
    return request.result;
  }

  TestDirectory directory_;
  std::unique_ptr<FileEngine> engine_;
  std::unique_ptr<FileQueue> queue_;
  int fd_ = -1;
  std::vector<char> data_ = Bytes(10'000, 1);
};
INSTANTIATE_TEST_SUITE_P(Engines, EnginesTest,
                         ::testing::Values(FileEngineKind::kIoUring, FileEngineKind::kThreads),
                         [](const auto& info) { return std::string(ToString(info.param)); });

TEST_P(EnginesTest, EachRequestComesBackOnce) {
  for (const bool write : {true, false}) {
    for (int round = 0; round < 50; ++round) {
      FileRequest requests[4];
      std::vector<char> read(4000);
      std::set<FileRequest*> in_flight;
      for (int i = 0; i < 4; ++i) {
        requests[i].write = write;
        requests[i].fd = fd_;
        requests[i].data = (write ? data_.data() : read.data()) + i * 1000;
        requests[i].bytes = 1000;
        requests[i].offset = i * 1000;
        queue_->Start(requests[i]);
        in_flight.insert(&requests[i]);
      }
      while (!in_flight.empty()) {
        FileRequest& request = queue_->Next();
        EXPECT_EQ(request.result, 1000);
        EXPECT_EQ(in_flight.erase(&request), 1u);
      }
      if (!write) {
        EXPECT_TRUE(std::equal(read.begin(), read.end(), data_.begin()));
      }
    }
  }
}

TEST_P(EnginesTest, ResultsAreThoseOfTheSystem) {
  EXPECT_EQ(ResultOf(true, fd_, 10'000, 0), 10'000);
  EXPECT_EQ(ResultOf(false, fd_, 10'000, 4000), 6000);
  EXPECT_EQ(ResultOf(false, fd_, 10'000, 10'000), 0);
  EXPECT_EQ(ResultOf(false, -1, 10, 0), -EBADF);
  const int only_reads = open((directory_.path() + "/file").c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(ResultOf(true, only_reads, 10, 0), -EBADF);
  close(only_reads);
}

// The threads' own: the caller of a ring, who submits, keeps the signal from itself.
TEST_P(EnginesTest, ThreadsAreNotEndedByTheLimitOfTheFileSize) {
  if (GetParam() != FileEngineKind::kThreads) GTEST_SKIP();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {5000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const int64_t part = ResultOf(true, fd_, 10'000, 0), none = ResultOf(true, fd_, 10, 5000);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(part, 5000);
  EXPECT_EQ(none, -EFBIG);
}

TEST_P(EnginesTest, QueuesOfAnyDepth) {
  for (const int depth : {1, 2, 3, 64, 1024}) {
    auto queue = engine_->CreateQueue(depth);
    if (depth == 1024 && !queue.ok()) continue;
    ASSERT_OK(queue);
    std::vector<FileRequest> requests(static_cast<size_t>(depth));
    for (FileRequest& request : requests) {
      request.write = true;
      request.fd = fd_;
      request.data = data_.data();
      request.bytes = 1;
      (*queue)->Start(request);
    }
    for (int i = 0; i < depth; ++i) EXPECT_EQ((*queue)->Next().result, 1);
  }
}

}  // namespace
}  // namespace brigade::device
