#ifndef BRIGADE_BENCHMARKS_OFFLOAD_PLAIN_LOOPS_H_
#define BRIGADE_BENCHMARKS_OFFLOAD_PLAIN_LOOPS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"

namespace brigade::benchmarks {

struct PlainLoopsOptions {
  std::string folder = {};
  int64_t chunk_bytes = 0;
  int chunks = 0;
  // Past the page cache.
  bool direct = true;
  // For reads, and for writes.
  int threads = 1;
  int64_t bytes_at_once = 0;
};

// What a disk allows: loops of pread and pwrite over a file of two slots for each chunk, between
// memory of two chunks each way. Each thread takes its part of every chunk.
class PlainLoops {
 public:
  static absl::StatusOr<std::unique_ptr<PlainLoops>> Create(const PlainLoopsOptions& options);
  ~PlainLoops();

  // All chunks, read, written, or both at once.
  absl::Status Run(bool reads, bool writes);

 private:
  explicit PlainLoops(const PlainLoopsOptions& options) : options_(options) {}

  absl::Status Loop(bool write, int thread) const;

  const PlainLoopsOptions options_;
  std::unique_ptr<device::Context> context_;
  device::Buffer memory_[4];
  int fd_ = -1;
  // That is read; the other one is written.
  int slot_ = 0;
};

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_OFFLOAD_PLAIN_LOOPS_H_
