// Ranks carry programs out over mailboxes: results are right, and each rank announces what it expects before it sends.

#include "brigade/collectives/messages/program_runner.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

// What is on its way to one rank, from each.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable filled;
  std::map<int, std::deque<std::string>> messages;
};

class MailTransport final : public Transport {
 public:
  MailTransport(int rank, std::vector<Mailbox>& boxes) : rank_(rank), boxes_(boxes) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(boxes_.size()); }

  absl::Status Send(int to, const void* data, int64_t bytes) override {
    if (++sends_[to] > expects_[to]) ++early_sends_;
    std::lock_guard lock(boxes_[to].mutex);
    boxes_[to].messages[rank_].emplace_back(static_cast<const char*>(data), bytes);
    boxes_[to].filled.notify_one();
    return absl::OkStatus();
  }

  absl::Status Expect(int from, void* data, int64_t bytes) override {
    ++expects_[from];
    expected_[from].push_back({static_cast<char*>(data), bytes});
    return absl::OkStatus();
  }

  absl::Status Await(int from) override {
    if (expected_[from].empty()) return absl::FailedPreconditionError("nothing is expected");
    const auto [data, bytes] = expected_[from].front();
    expected_[from].pop_front();
    Mailbox& box = boxes_[rank_];
    std::unique_lock lock(box.mutex);
    std::deque<std::string>& messages = box.messages[from];
    box.filled.wait(lock, [&] { return !messages.empty(); });
    if (static_cast<int64_t>(messages.front().size()) != bytes) {
      return absl::DataLossError("a message of another size");
    }
    std::memcpy(data, messages.front().data(), bytes);
    messages.pop_front();
    return absl::OkStatus();
  }

  absl::Status Flush() override { return absl::OkStatus(); }
  void Abort(const absl::Status&) override {}
  absl::Status status() const override { return absl::OkStatus(); }
  int64_t sent_bytes(int) const override { return 0; }

  // Messages that went before the one that comes back for them was expected.
  int early_sends() const { return early_sends_; }

 private:
  const int rank_;
  std::vector<Mailbox>& boxes_;
  std::map<int, std::deque<std::pair<char*, int64_t>>> expected_;
  std::map<int, int> sends_, expects_;
  int early_sends_ = 0;
};

float Element(int64_t i, int rank) { return static_cast<float>(i % 1000 + rank); }

float Result(const CallShape& shape, int64_t i, int rank, int size) {
  if (shape.kind == CallKind::kAllGather) {
    return Element(i % shape.count, static_cast<int>(i / shape.count));
  }
  if (shape.kind == CallKind::kReduceScatter) i += rank * shape.count;
  float sum = 0;
  for (int each = 0; each < size; ++each) sum += Element(i, each);
  return sum;
}

// Returns how many messages went early.
int RunAndCheck(const CallShape& shape, int size, int64_t chunk_bytes) {
  SCOPED_TRACE(absl::StrCat(ToString(shape), " of ", size));
  std::vector<Mailbox> boxes(size);
  std::vector<std::thread> threads;
  std::atomic<int> early_sends = 0;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ASSERT_OK_AND_ASSIGN(const auto context, device::Context::Create({}));
      device::ThreadPool pool(1);
      MailTransport transport(rank, boxes);
      ProgramRunner runner(transport, *context, chunk_bytes);
      std::vector<float> input(InputElements(shape, rank, size));
      for (size_t i = 0; i < input.size(); ++i) input[i] = Element(i, rank);
      std::vector<float> output(OutputElements(shape, rank, size));
      const Call call = {.shape = shape, .input = input.data(), .output = output.data()};
      ASSERT_OK(runner.Run(call, pool));
      early_sends += transport.early_sends();
      for (size_t i = 0; i < output.size(); ++i) {
        ASSERT_EQ(output[i], Result(shape, i, rank, size)) << "element " << i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return early_sends;
}

template <typename Visit>
void ForEachCall(const Visit& visit) {
  for (const CallKind kind :
       {CallKind::kAllReduce, CallKind::kReduceScatter, CallKind::kAllGather}) {
    for (const Algorithm algorithm : kAlgorithms) {
      CallShape shape;
      shape.kind = kind;
      shape.algorithm = algorithm;
      shape.dtype = precision::DType::kFloat32;
      shape.count = 1003;
      visit(shape);
    }
  }
}

TEST(ProgramRunnerTest, CarriesPartsOfMoreChunksThanMayBeOnTheirWay) {
  constexpr int64_t kChunkBytes = 64;  // and the last one is shorter
  ForEachCall([](const CallShape& shape) {
    for (const int size : {2, 3, 4, 5}) RunAndCheck(shape, size, kChunkBytes);
  });
}

// On one connection the announcement would wait behind the data.
TEST(ProgramRunnerTest, AnnouncesBeforeItSends) {
  ForEachCall([](const CallShape& shape) { EXPECT_EQ(RunAndCheck(shape, 2, 1 << 20), 0); });
}

}  // namespace
}  // namespace brigade::collectives
