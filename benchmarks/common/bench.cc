#include "brigade/benchmarks/common/bench.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "brigade/device/device.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/float16.h"

#if BRIGADE_CUDA
#include <cuda_runtime_api.h>

#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::benchmarks {
namespace {

constexpr int64_t kGrain = 1 << 18;  // untuned: long enough that handing out a range costs nothing

absl::StatusOr<std::unique_ptr<device::Context>> CreateContext(device::Device device, int threads) {
  device::ContextOptions options;
  options.device = device;
  options.compute_threads = threads;
  return device::Context::Create(std::move(options));
}

// In [-1, 1), from the index alone, so that every run and thread count works on the same values.
float Noise(int64_t index) {
  uint32_t x = static_cast<uint32_t>(index) * 0x9e3779b9u;
  x ^= x >> 15;
  x *= 0x85ebca6bu;
  return static_cast<float>(static_cast<int32_t>(x)) * 0x1p-31f;
}

template <typename T>
std::vector<T> BlockOfNoise(int64_t size, float limit) {
  constexpr int64_t kLargest = 1 << 20;  // untuned: long enough that copies of it cost nothing
  std::vector<T> block;
  for (int64_t i = 0; i < std::min(size, kLargest); ++i) block.push_back(T(Noise(i) * limit));
  return block;
}

// Fills values by copies of the block, each twice as long as the one before.
template <typename T>
absl::Status Repeat(const std::vector<T>& block, T* values, int64_t size, device::Stream& stream) {
  int64_t filled = static_cast<int64_t>(block.size());
  BRIGADE_RETURN_IF_ERROR(
      stream.Copy(values, block.data(), filled * static_cast<int64_t>(sizeof(T))));
  while (filled < size) {
    const int64_t next = std::min(filled, size - filled);
    BRIGADE_RETURN_IF_ERROR(
        stream.Copy(values + filled, values, next * static_cast<int64_t>(sizeof(T))));
    filled += next;
  }
  return stream.Synchronize();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Bench>> Bench::Create(device::Device device, int threads) {
  std::unique_ptr<Bench> bench(new Bench());
  auto context = CreateContext(device, threads);
  if (!context.ok()) return context.status();
  bench->context_ = *std::move(context);
  auto stream = bench->context_->CreateStream("bench");
  if (!stream.ok()) return stream.status();
  bench->stream_ = *std::move(stream);
  return bench;
}

absl::StatusOr<void*> Bench::CreateBytes(int64_t bytes) {
  auto buffer = context_->Allocate(bytes, device::Purpose::kScratch);
  if (!buffer.ok()) return buffer.status();
  buffers_.push_back(*std::move(buffer));
  return buffers_.back().data();
}

absl::StatusOr<void*> Bench::CreateZeroBytes(int64_t bytes) {
  absl::StatusOr<void*> data = CreateBytes(bytes);
  if (!data.ok()) return data;
  absl::Status status = stream_->FillBytes(*data, 0, bytes);
  if (!status.ok()) return status;
  return data;
}

template <typename T>
absl::StatusOr<T*> Bench::CreateArray(int64_t size, float limit) {
  const int64_t bytes = size * static_cast<int64_t>(sizeof(T));
  absl::StatusOr<void*> data = CreateBytes(bytes);
  if (!data.ok()) return data.status();
  T* const values = static_cast<T*>(*data);
  if (context_->device().kind == device::DeviceKind::kCuda) {
    BRIGADE_RETURN_IF_ERROR(Repeat(BlockOfNoise<T>(size, limit), values, size, *stream_));
    return values;
  }
  absl::Status status = stream_->Enqueue(
      {"noise", {device::Writes(values, bytes)}}, [values, size, limit](device::ThreadPool& pool) {
        pool.ParallelRanges(size, kGrain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) values[i] = T(Noise(i) * limit);
        });
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return values;
}

template absl::StatusOr<float*> Bench::CreateArray<float>(int64_t, float);
template absl::StatusOr<precision::Half*> Bench::CreateArray<precision::Half>(int64_t, float);
template absl::StatusOr<precision::BFloat16*> Bench::CreateArray<precision::BFloat16>(int64_t,
                                                                                      float);

absl::StatusOr<int64_t> AvailableBytes(device::Device device) {
#if BRIGADE_CUDA
  if (device.kind == device::DeviceKind::kCuda) {
    size_t available = 0, all = 0;
    BRIGADE_RETURN_IF_ERROR(device::CudaStatus(cudaMemGetInfo(&available, &all), "cudaMemGetInfo"));
    return static_cast<int64_t>(available);
  }
#else
  static_cast<void>(device);  // contexts on GPUs are refused
#endif
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  int64_t kibibytes;
  while (meminfo >> key >> kibibytes >> unit) {
    if (key == "MemAvailable:") return kibibytes * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

absl::StatusOr<int> AllThreads() {
  auto context = CreateContext(device::Cpu(), 0);
  if (!context.ok()) return context.status();
  return (*context)->compute_threads();
}

}  // namespace brigade::benchmarks
