#ifndef BRIGADE_TESTS_DEVICE_FILE_FAULTY_ENGINE_H_
#define BRIGADE_TESTS_DEVICE_FILE_FAULTY_ENGINE_H_

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "brigade/device/file/file_engine.h"

namespace brigade::device {

// What a disk does to a request.
struct Fault {
  // Not 0: that error, and nothing is transferred.
  int error = 0;
  // Not -1: only so many of its bytes are transferred.
  int64_t most_bytes = -1;
  // Before it is reported.
  std::chrono::microseconds delay{0};
  // Not -1: that is reported, whatever was done.
  int64_t says = -1;
};

// What tests share with the queues of an engine, on their threads.
class Disk {
 public:
  // Asked for each request, one at a time: the how many-th it is since the last Set.
  using Rule = std::function<Fault(const FileRequest&, int number)>;

  void Set(Rule rule) {
    const std::lock_guard<std::mutex> lock(mutex_);
    rule_ = std::move(rule);
    number_ = 0;
  }
  Fault Ask(const FileRequest& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    most_in_flight_ = std::max(most_in_flight_, ++in_flight_);
    ++requests_;
    return rule_ == nullptr ? Fault() : rule_(request, ++number_);
  }
  void End() {
    const std::lock_guard<std::mutex> lock(mutex_);
    --in_flight_;
  }
  int in_flight() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return in_flight_;
  }
  int most_in_flight() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return most_in_flight_;
  }
  int requests() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }

 private:
  mutable std::mutex mutex_;
  Rule rule_;
  int in_flight_ = 0, most_in_flight_ = 0, requests_ = 0, number_ = 0;
};

class FaultyQueue final : public FileQueue {
 public:
  FaultyQueue(std::unique_ptr<FileQueue> queue, Disk& disk)
      : queue_(std::move(queue)), disk_(disk) {}

  void Start(FileRequest& request) override {
    const Fault fault = disk_.Ask(request);
    changed_[&request] = {fault, request.bytes};
    if (fault.error != 0) {
      request.result = -fault.error;
      failed_.push_back(&request);
      return;
    }
    if (fault.most_bytes >= 0) request.bytes = std::min(request.bytes, fault.most_bytes);
    if (request.bytes == 0) {
      request.result = 0;
      failed_.push_back(&request);
      return;
    }
    queue_->Start(request);
  }

  FileRequest& Next() override {
    FileRequest* request;
    if (failed_.empty()) {
      request = &queue_->Next();
    } else {
      request = failed_.front();
      failed_.pop_front();
    }
    const auto [fault, bytes] = changed_.at(request);
    changed_.erase(request);
    request->bytes = bytes;
    if (fault.says >= 0) request->result = fault.says;
    std::this_thread::sleep_for(fault.delay);
    disk_.End();
    return *request;
  }

 private:
  const std::unique_ptr<FileQueue> queue_;
  Disk& disk_;
  std::map<FileRequest*, std::pair<Fault, int64_t>> changed_;
  std::deque<FileRequest*> failed_;
};

// Another engine over a disk with faults.
class FaultyEngine final : public FileEngine {
 public:
  FaultyEngine(std::unique_ptr<FileEngine> engine, Disk& disk)
      : engine_(std::move(engine)), disk_(disk) {}

  std::string description() const override { return "faulty"; }
  absl::StatusOr<std::unique_ptr<FileQueue>> CreateQueue(int depth) override {
    auto queue = engine_->CreateQueue(depth);
    if (!queue.ok()) return queue;
    return std::make_unique<FaultyQueue>(*std::move(queue), disk_);
  }

 private:
  const std::unique_ptr<FileEngine> engine_;
  Disk& disk_;
};

}  // namespace brigade::device

#endif  // BRIGADE_TESTS_DEVICE_FILE_FAULTY_ENGINE_H_
