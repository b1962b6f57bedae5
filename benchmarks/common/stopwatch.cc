#include "brigade/benchmarks/common/stopwatch.h"

#include <chrono>

#include "brigade/device/status_macros.h"

#if BRIGADE_CUDA
#include <cuda_runtime_api.h>

#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::benchmarks {
namespace {

class HostStopwatch final : public Stopwatch {
 public:
  absl::Status Start(device::Stream&) override {
    begin_ = std::chrono::steady_clock::now();
    return absl::OkStatus();
  }
  absl::StatusOr<double> Stop(device::Stream& stream) override {
    BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
    return elapsed.count();
  }

 private:
  std::chrono::steady_clock::time_point begin_;
};

#if BRIGADE_CUDA
class EventStopwatch final : public Stopwatch {
 public:
  ~EventStopwatch() override {
    for (cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
  }
  absl::Status Init() {
    for (cudaEvent_t& event : events_) {
      BRIGADE_RETURN_IF_ERROR(device::CudaStatus(cudaEventCreate(&event), "cudaEventCreate"));
    }
    return absl::OkStatus();
  }
  absl::Status Start(device::Stream& stream) override { return Record(0, stream); }
  absl::StatusOr<double> Stop(device::Stream& stream) override {
    BRIGADE_RETURN_IF_ERROR(Record(1, stream));
    BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
    float milliseconds = 0;
    BRIGADE_RETURN_IF_ERROR(device::CudaStatus(
        cudaEventElapsedTime(&milliseconds, events_[0], events_[1]), "cudaEventElapsedTime"));
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  absl::Status Record(int event, device::Stream& stream) {
    return stream.Launch({"stopwatch"}, [&](void* cuda_stream) {
      return device::CudaStatus(
          cudaEventRecord(events_[event], static_cast<cudaStream_t>(cuda_stream)),
          "cudaEventRecord");
    });
  }

  cudaEvent_t events_[2] = {};
};
#endif

}  // namespace

absl::StatusOr<std::unique_ptr<Stopwatch>> Stopwatch::Create(device::Device device) {
#if BRIGADE_CUDA
  if (device.kind == device::DeviceKind::kCuda) {
    auto stopwatch = std::make_unique<EventStopwatch>();
    BRIGADE_RETURN_IF_ERROR(stopwatch->Init());
    return stopwatch;
  }
#else
  static_cast<void>(device);  // contexts on GPUs are refused
#endif
  return std::make_unique<HostStopwatch>();
}

}  // namespace brigade::benchmarks
