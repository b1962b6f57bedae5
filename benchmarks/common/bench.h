#ifndef BRIGADE_BENCHMARKS_COMMON_BENCH_H_
#define BRIGADE_BENCHMARKS_COMMON_BENCH_H_

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"

namespace brigade::benchmarks {

// What one benchmark runs on: a context, one stream, and arrays that live until the end.
class Bench {
 public:
  // `threads`: of a CPU's context; 0: all cores.
  static absl::StatusOr<std::unique_ptr<Bench>> Create(device::Device device, int threads);

  device::Context& context() { return *context_; }
  device::Stream& stream() { return *stream_; }

  // An array of float, Half or BFloat16 with pseudo-random values between -limit and limit.
  template <typename T>
  absl::StatusOr<T*> CreateArray(int64_t size, float limit);

  // An array whose bytes are all 0.
  template <typename T>
  absl::StatusOr<T*> CreateZeros(int64_t size) {
    absl::StatusOr<void*> data = CreateZeroBytes(size * static_cast<int64_t>(sizeof(T)));
    if (!data.ok()) return data.status();
    return static_cast<T*>(*data);
  }

  // A copy of the value in the device's memory.
  template <typename T>
  absl::StatusOr<T*> CreateCopy(const T& value) {
    absl::StatusOr<T*> data = CreateZeros<T>(1);
    if (!data.ok()) return data;
    absl::Status status = stream_->Copy(*data, &value, sizeof(T));
    if (status.ok()) status = stream_->Synchronize();
    if (!status.ok()) return status;
    return data;
  }

 private:
  Bench() = default;
  absl::StatusOr<void*> CreateBytes(int64_t bytes);
  absl::StatusOr<void*> CreateZeroBytes(int64_t bytes);

  std::unique_ptr<device::Context> context_;
  std::deque<device::Buffer> buffers_;
  std::unique_ptr<device::Stream> stream_;  // destroyed first: ends all work
};

// Bytes that a GPU has free, or that the system can give out without swapping; the largest number
// if it does not say.
absl::StatusOr<int64_t> AvailableBytes(device::Device device);

// The number of cores that a context takes when asked for all.
absl::StatusOr<int> AllThreads();

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_BENCH_H_
