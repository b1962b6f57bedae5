// Ranks carry programs out from memory to memory: results are right, and each rank announces what it expects before it sends.

#include "brigade/collectives/engines/transport/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

// Messages of one group. As on a connection, what is sent stays where it is until it is expected, and is written the moment
// that both are there.
class Post {
 public:
  explicit Post(int size) : size_(size), lines_(static_cast<size_t>(size * size)) {}

  int size() const { return size_; }

  void Send(int from, int to, const char* data, int64_t bytes) {
    std::lock_guard lock(mutex_);
    Line(from, to).sent.push_back({const_cast<char*>(data), bytes});
    Deliver(Line(from, to));
  }
  void Expect(int from, int to, char* data, int64_t bytes) {
    std::lock_guard lock(mutex_);
    Line(from, to).expected.push_back({data, bytes});
    Deliver(Line(from, to));
  }
  // Waits until `number` messages have been delivered. OK within a time that no machine needs.
  absl::Status Wait(int from, int to, int64_t number) {
    std::unique_lock lock(mutex_);
    Entry& line = Line(from, to);
    const bool in_time = delivered_.wait_for(lock, std::chrono::seconds(20), [&] {
      return line.delivered >= number || line.sizes_differ;
    });
    if (line.sizes_differ) return absl::DataLossError("a message of another size");
    return in_time ? absl::OkStatus() : absl::DeadlineExceededError("no message");
  }

 private:
  struct Memory {
    char* data;
    int64_t bytes;
  };
  struct Entry {
    std::deque<Memory> sent, expected;
    int64_t delivered = 0;
    bool sizes_differ = false;
  };

  Entry& Line(int from, int to) { return lines_[static_cast<size_t>(from * size_ + to)]; }

  void Deliver(Entry& line) {
    while (!line.sent.empty() && !line.expected.empty()) {
      const Memory from = line.sent.front(), to = line.expected.front();
      line.sizes_differ |= from.bytes != to.bytes;
      if (!line.sizes_differ) std::memcpy(to.data, from.data, static_cast<size_t>(to.bytes));
      line.sent.pop_front();
      line.expected.pop_front();
      ++line.delivered;
    }
    delivered_.notify_all();
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable delivered_;
  std::vector<Entry> lines_;
};

class PostTransport final : public Transport {
 public:
  PostTransport(int rank, Post& post)
      : rank_(rank), post_(post), sent_(post.size()), expected_(sent_), awaited_(sent_) {}

  int rank() const override { return rank_; }
  int size() const override { return post_.size(); }

  absl::Status Send(int to, const void* data, int64_t bytes) override {
    if (++sent_[to] > expected_[to]) ++early_sends_;
    post_.Send(rank_, to, static_cast<const char*>(data), bytes);
    return absl::OkStatus();
  }
  absl::Status Expect(int from, void* data, int64_t bytes) override {
    ++expected_[from];
    post_.Expect(from, rank_, static_cast<char*>(data), bytes);
    return absl::OkStatus();
  }
  absl::Status Await(int from) override {
    if (++awaited_[from] > expected_[from]) return absl::FailedPreconditionError("not expected");
    return post_.Wait(from, rank_, awaited_[from]);
  }
  absl::Status Flush() override {
    for (int to = 0; to < size(); ++to) {
      const absl::Status status = post_.Wait(rank_, to, sent_[to]);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  void Abort(const absl::Status&) override {}
  absl::Status status() const override { return absl::OkStatus(); }
  int64_t sent_bytes(int) const override { return 0; }

  // Messages that went before the one that comes back for them was expected.
  int early_sends() const { return early_sends_; }

 private:
  const int rank_;
  Post& post_;
  std::vector<int64_t> sent_, expected_, awaited_;  // to and from each rank
  int early_sends_ = 0;
};

float Element(int64_t i, int rank) { return static_cast<float>(i % 1000 + rank); }

float Result(const CollectiveSignature& signature, int64_t i, int rank, int size) {
  if (signature.kind == CollectiveKind::kAllGather) {
    return Element(i % signature.count, static_cast<int>(i / signature.count));
  }
  if (signature.kind == CollectiveKind::kReduceScatter) i += rank * signature.count;
  float sum = 0;
  for (int each = 0; each < size; ++each) sum += Element(i, each);
  return sum;
}

// Returns how many messages went early. In place, input and output are one array.
int RunAndCheck(const CollectiveSignature& signature, int size, int64_t chunk_bytes,
                bool in_place) {
  SCOPED_TRACE(absl::StrCat(ToString(signature), " of ", size, in_place ? " in place" : ""));
  Post post(size);
  std::vector<std::thread> threads;
  std::atomic<int> early_sends = 0;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ASSERT_OK_AND_ASSIGN(const auto context, device::Context::Create({}));
      device::ThreadPool pool(1);
      PostTransport transport(rank, post);
      TransportExecutor runner(transport, *context, chunk_bytes);
      const int64_t inputs = InputElements(signature, rank, size);
      const int64_t outputs = OutputElements(signature, rank, size);
      std::vector<float> first(std::max(inputs, outputs)), second(outputs);
      float* const own_part = first.data() + rank * signature.count;
      float* input = first.data();
      float* output = in_place ? first.data() : second.data();
      if (in_place && signature.kind == CollectiveKind::kAllGather) input = own_part;
      if (in_place && signature.kind == CollectiveKind::kReduceScatter) output = own_part;
      for (int64_t i = 0; i < inputs; ++i) input[i] = Element(i, rank);
      const Collective call = {.signature = signature, .input = input, .output = output};
      ASSERT_OK(runner.Run(call, pool));
      early_sends += transport.early_sends();
      for (int64_t i = 0; i < outputs; ++i) {
        ASSERT_EQ(output[i], Result(signature, i, rank, size)) << "element " << i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return early_sends;
}

template <typename Visit>
void ForEachCall(const Visit& visit) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
    for (const Algorithm algorithm : kAlgorithms) {
      CollectiveSignature signature;
      signature.kind = kind;
      signature.algorithm = algorithm;
      signature.dtype = precision::DType::kFloat32;
      signature.count = 1003;
      visit(signature);
    }
  }
}

TEST(ProgramRunnerTest, CarriesPartsOfMoreChunksThanMayBeOnTheirWay) {
  constexpr int64_t kChunkBytes = 64;  // and the last one is shorter
  ForEachCall([](const CollectiveSignature& signature) {
    for (const int size : {2, 3, 4, 5, 8}) {
      for (const bool in_place : {false, true}) RunAndCheck(signature, size, kChunkBytes, in_place);
    }
  });
}

// On one connection the announcement would wait behind the data. Rings of more than two send to one neighbour and expect
// of the other.
TEST(ProgramRunnerTest, AnnouncesBeforeItSends) {
  ForEachCall([](const CollectiveSignature& signature) {
    const bool is_ring = signature.algorithm == Algorithm::kRing ||
                         signature.algorithm == Algorithm::kBidirectionalRing;
    for (const int size : {2, 4, 8}) {
      if (size > 2 && is_ring) continue;
      EXPECT_EQ(RunAndCheck(signature, size, 1 << 20, false), 0)
          << ToString(signature) << " of " << size;
    }
  });
}

}  // namespace
}  // namespace brigade::collectives
