#ifndef BRIGADE_TESTS_EMULATOR_RUNTIME_TESTING_H_
#define BRIGADE_TESTS_EMULATOR_RUNTIME_TESTING_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "brigade/emulator/runtime/control.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

inline void PrintTo(cudaError_t error, std::ostream* out) { *out << cudaGetErrorName(error); }

#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess)
#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess)

namespace brigade::emulator {

// Long enough for work that nothing holds back to have run.
inline void PauseForOthers() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// Texts of the reports since the last time.
inline std::vector<std::string> TakeTexts() {
  std::vector<std::string> texts;
  for (const Report& report : TakeReports()) texts.push_back(report.text);
  return texts;
}

// What a call prints besides.
template <typename F>
std::string PrintedBy(const F& f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}

// The result of a call in another thread.
template <typename F>
cudaError_t InOtherThread(const F& f) {
  cudaError_t result = cudaErrorUnknown;
  std::thread([&] { result = f(); }).join();
  return result;
}

class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, flags));
  }
  ~Stream() { EXPECT_CUDA(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator cudaStream_t() const { return stream_; }  // NOLINT: as the handle itself

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDefault) {
    EXPECT_CUDA(cudaEventCreateWithFlags(&event_, flags));
  }
  ~Event() { EXPECT_CUDA(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  operator cudaEvent_t() const { return event_; }  // NOLINT: as the handle itself

 private:
  cudaEvent_t event_ = nullptr;
};

// Ints of a device's memory.
class Ints {
 public:
  explicit Ints(int size) : bytes_(static_cast<size_t>(size) * sizeof(int)) {
    void* data = nullptr;
    EXPECT_CUDA(cudaMalloc(&data, bytes_));
    EXPECT_CUDA(cudaMemset(data, 0, bytes_));
    EXPECT_CUDA(cudaDeviceSynchronize());
    data_ = static_cast<int*>(data);
  }
  ~Ints() { EXPECT_CUDA(cudaFree(data_)); }
  Ints(const Ints&) = delete;
  Ints& operator=(const Ints&) = delete;

  operator int*() const { return data_; }  // NOLINT: as the pointer itself
  size_t bytes() const { return bytes_; }

  // After all work of the device.
  std::vector<int> Values() const {
    std::vector<int> values(bytes_ / sizeof(int));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaMemcpy(values.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t bytes_ = 0;
  int* data_ = nullptr;
};

// A host function in a stream that ends when the gate is opened, or destroyed.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    const auto pass = [](void* gate) { static_cast<Gate*>(gate)->Pass(); };
    EXPECT_CUDA(cudaLaunchHostFunc(stream, pass, this));
  }
  ~Gate() {
    std::unique_lock lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_passed_; });
  }

  void Open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  // When what nothing holds back has run.
  void OpenLate() {
    PauseForOthers();
    Open();
  }

 private:
  void Pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_open_; });
    is_passed_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
  bool is_passed_ = false;
};

// Names of host functions, in the order in which they ran.
class Log {
 public:
  cudaError_t Append(cudaStream_t stream, std::string name) {
    const std::lock_guard lock(mutex_);
    entries_.push_back({this, std::move(name)});
    return cudaLaunchHostFunc(stream, &Run, &entries_.back());
  }

  std::vector<std::string> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(names_, {});
  }

 private:
  struct Entry {
    Log* log = nullptr;
    std::string name;
  };

  static void Run(void* data) {
    const auto& entry = *static_cast<const Entry*>(data);
    const std::lock_guard lock(entry.log->mutex_);
    entry.log->names_.push_back(entry.name);
  }

  std::mutex mutex_;
  // Graphs run theirs again.
  std::deque<Entry> entries_;
  std::vector<std::string> names_;
};

// Begins on device 0, and ends without errors and reports.
class RuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_CUDA(cudaSetDevice(0)); }
  void TearDown() override {
    cudaGetLastError();
    EXPECT_THAT(TakeTexts(), ::testing::IsEmpty());
  }
};

}  // namespace brigade::emulator

#endif  // BRIGADE_TESTS_EMULATOR_RUNTIME_TESTING_H_
