#ifndef BRIGADE_DEVICE_FILE_FILE_ENGINE_H_
#define BRIGADE_DEVICE_FILE_FILE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace brigade::device {

// One transfer between memory and a file: what is asked of the system, and what it answered.
struct FileRequest {
  bool write = false;
  int fd = -1;
  char* data = nullptr;
  // At least 1.
  int64_t bytes = 0;
  int64_t offset = 0;

  // The bytes done, which may be fewer, or -errno.
  int64_t result = 0;

  // For the queue, as long as it has the request.
  FileRequest* next = nullptr;
};

// Requests in flight.
//
// Threads      One at a time.
// Allocation   None.
class FileQueue {
 public:
  // Nothing is in flight.
  virtual ~FileQueue() = default;

  // Begins a request, by the next call of Next at the latest. It is the queue's until Next returns
  // it. At most the queue's depth are in flight.
  virtual void Start(FileRequest& request) = 0;

  // Waits for the end of any one of those in flight, of which there is at least one. Never fails:
  // an error is in the request.
  virtual FileRequest& Next() = 0;
};

// Makes queues, which work on their own: what transfers are made of. The engine trusts its caller,
// and what it reports is checked above it: short transfers, errors, their repetition.
class FileEngine {
 public:
  virtual ~FileEngine() = default;

  // For the description of a store: "io_uring", "threads, because io_uring_setup: Operation not
  // permitted".
  virtual std::string description() const = 0;

  // With room for `depth` requests in flight. ResourceExhausted or what the system says.
  virtual absl::StatusOr<std::unique_ptr<FileQueue>> CreateQueue(int depth) = 0;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_FILE_FILE_ENGINE_H_
