#include "brigade/benchmarks/offload/plain_loops.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {

absl::StatusOr<std::unique_ptr<PlainLoops>> PlainLoops::Create(const PlainLoopsOptions& options) {
  std::unique_ptr<PlainLoops> loops(new PlainLoops(options));
  device::ContextOptions context;
  context.checks = false;
  BRIGADE_ASSIGN_OR_RETURN(loops->context_, device::Context::Create(context));
  for (device::Buffer& each : loops->memory_) {
    BRIGADE_ASSIGN_OR_RETURN(
        each, loops->context_->Allocate(options.chunk_bytes, device::Purpose::kScratch, "plain"));
  }
  std::string path = absl::StrCat(options.folder, "/plain-XXXXXX");
  const int named = ::mkstemp(path.data());
  if (named < 0) return absl::ErrnoToStatus(errno, path);
  loops->fd_ = ::open(path.c_str(), O_RDWR | (options.direct ? O_DIRECT : 0));
  const int error = errno;
  ::unlink(path.c_str());
  ::close(named);
  if (loops->fd_ < 0) return absl::ErrnoToStatus(error, path);
  const int64_t bytes = 2 * options.chunks * options.chunk_bytes;
  if (::posix_fallocate(loops->fd_, 0, bytes) != 0) return absl::ResourceExhaustedError(path);
  // Both slots have been written before the first turn.
  for (int i = 0; i < 2; ++i) BRIGADE_RETURN_IF_ERROR(loops->Run(false, true));
  return loops;
}

PlainLoops::~PlainLoops() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status PlainLoops::Run(bool reads, bool writes) {
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(static_cast<size_t>(2 * options_.threads));
  for (int i = 0; i < 2 * options_.threads; ++i) {
    const bool write = i >= options_.threads;
    if (!(write ? writes : reads)) continue;
    threads.emplace_back([this, i, write, &statuses] {
      statuses[static_cast<size_t>(i)] = Loop(write, i % options_.threads);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (writes) slot_ ^= 1;
  for (const absl::Status& status : statuses) BRIGADE_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status PlainLoops::Loop(bool write, int thread) const {
  const int64_t chunk_bytes = options_.chunk_bytes;
  for (int chunk = 0; chunk < options_.chunks; ++chunk) {
    const int64_t begin = (2 * chunk + (write ? slot_ ^ 1 : slot_)) * chunk_bytes;
    for (int64_t at = thread * options_.bytes_at_once; at < chunk_bytes;
         at += options_.threads * options_.bytes_at_once) {
      char* const memory = memory_[(write ? 2 : 0) + chunk % 2].as<char>().data() + at;
      const auto bytes = static_cast<size_t>(std::min(options_.bytes_at_once, chunk_bytes - at));
      const ssize_t done = write ? ::pwrite(fd_, memory, bytes, begin + at)
                                 : ::pread(fd_, memory, bytes, begin + at);
      if (done != static_cast<ssize_t>(bytes)) return absl::ErrnoToStatus(errno, "a plain loop");
    }
  }
  return absl::OkStatus();
}

}  // namespace brigade::benchmarks
