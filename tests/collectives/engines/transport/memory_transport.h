#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_TRANSPORT_MEMORY_TRANSPORT_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_TRANSPORT_MEMORY_TRANSPORT_H_

// A transport between threads of one process.

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "brigade/collectives/engines/transport/transport.h"

namespace brigade::collectives::testing {

// Messages of one group. As on a connection, what is sent stays where it is until it is expected,
// and is written the moment that both are there. Messages of other sizes than expected are never
// written.
class MemoryNetwork {
 public:
  // `timeout` is that of each wait; by default a time that no machine needs.
  explicit MemoryNetwork(int size, absl::Duration timeout = absl::Seconds(60))
      : size_(size), timeout_(timeout), channels_(static_cast<size_t>(size * size)) {}

  int size() const { return size_; }

  void Send(int from, int to, const void* data, int64_t bytes, int64_t capacity) {
    std::lock_guard lock(mutex_);
    ChannelOf(from, to).sent.push_back({const_cast<void*>(data), bytes, capacity});
    Deliver(ChannelOf(from, to));
  }
  void Expect(int from, int to, void* data, int64_t bytes) {
    std::lock_guard lock(mutex_);
    ChannelOf(from, to).expected.push_back({data, bytes, bytes});
    Deliver(ChannelOf(from, to));
  }
  // Waits until `number` messages have been delivered.
  absl::Status Wait(int from, int to, int64_t number) {
    std::unique_lock lock(mutex_);
    const Channel& channel = ChannelOf(from, to);
    delivered_.wait_for(lock, absl::ToChronoNanoseconds(timeout_),
                        [&] { return channel.delivered >= number || !error_.ok(); });
    if (channel.delivered >= number) return absl::OkStatus();
    if (error_.ok()) {
      error_ = absl::DeadlineExceededError(
          absl::StrCat("message ", number, " from rank ", from, " to rank ", to));
    }
    delivered_.notify_all();
    return error_;
  }
  void Abort(const absl::Status& reason) {
    std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = reason;
    delivered_.notify_all();
  }
  absl::Status error() {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  struct Memory {
    void* data;
    int64_t bytes, capacity;
  };
  struct Channel {
    std::deque<Memory> sent, expected;
    int64_t delivered = 0;
  };

  Channel& ChannelOf(int from, int to) { return channels_[static_cast<size_t>(from * size_ + to)]; }

  void Deliver(Channel& channel) {
    while (error_.ok() && !channel.sent.empty() && !channel.expected.empty()) {
      const Memory from = channel.sent.front(), to = channel.expected.front();
      if (from.capacity != to.capacity) return;
      if (from.bytes > 0) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes));
      channel.sent.pop_front();
      channel.expected.pop_front();
      ++channel.delivered;
    }
    delivered_.notify_all();
  }

  const int size_;
  const absl::Duration timeout_;
  std::mutex mutex_;
  std::condition_variable delivered_;
  std::vector<Channel> channels_;
  absl::Status error_;
};

class MemoryTransport final : public Transport {
 public:
  MemoryTransport(int rank, MemoryNetwork& network)
      : rank_(rank),
        network_(network),
        sent_(static_cast<size_t>(network.size())),
        expected_(sent_),
        awaited_(sent_) {}

  int rank() const override { return rank_; }
  int size() const override { return network_.size(); }

  absl::Status SendUpTo(int to, const void* data, int64_t bytes, int64_t capacity) override {
    if (++sent_[to] > expected_[to] && bytes > kSmall) ++early_sends_;
    ++sends_;
    sent_bytes_ += bytes;
    network_.Send(rank_, to, data, bytes, capacity);
    return status();
  }
  absl::Status Expect(int from, void* data, int64_t bytes) override {
    ++expected_[from];
    network_.Expect(from, rank_, data, bytes);
    return status();
  }
  absl::Status Await(int from) override {
    if (++awaited_[from] > expected_[from]) return absl::FailedPreconditionError("not expected");
    return network_.Wait(from, rank_, awaited_[from]);
  }
  absl::Status Flush() override {
    for (int to = 0; to < size(); ++to) {
      const absl::Status status = network_.Wait(rank_, to, sent_[to]);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  void Abort(const absl::Status& reason) override { network_.Abort(reason); }
  absl::Status status() const override { return network_.error(); }
  int64_t sent_bytes(int) const override { return 0; }

  // Messages and their bytes so far, and those messages of more than kSmall bytes that went before
  // the one that comes back for them was expected.
  static constexpr int64_t kSmall = 2048;
  int sends() const { return sends_; }
  int64_t all_sent_bytes() const { return sent_bytes_; }
  int early_sends() const { return early_sends_; }

 private:
  const int rank_;
  MemoryNetwork& network_;
  std::vector<int64_t> sent_, expected_, awaited_;  // to and from each rank
  int sends_ = 0;
  int64_t sent_bytes_ = 0;
  int early_sends_ = 0;
};

// Runs body(rank) on a thread for each rank and waits.
inline void OnThreadsOf(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace brigade::collectives::testing

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_TRANSPORT_MEMORY_TRANSPORT_H_
