#ifndef BRIGADE_BENCHMARKS_COMMON_STOPWATCH_H_
#define BRIGADE_BENCHMARKS_COMMON_STOPWATCH_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/device.h"
#include "brigade/device/stream.h"

namespace brigade::benchmarks {

// Times what is enqueued on a stream between Start and Stop: on the CPU by the host's clock, until
// all has ended; on a GPU by device events, without what the host does meanwhile as long as the
// device is busy.
class Stopwatch {
 public:
  static absl::StatusOr<std::unique_ptr<Stopwatch>> Create(device::Device device);
  virtual ~Stopwatch() = default;

  virtual absl::Status Start(device::Stream& stream) = 0;
  virtual absl::StatusOr<double> Stop(device::Stream& stream) = 0;  // seconds; waits
};

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_STOPWATCH_H_
