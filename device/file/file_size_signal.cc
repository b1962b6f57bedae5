#include "brigade/device/file/file_size_signal.h"

#include <time.h>

#include <cerrno>

namespace brigade::device::internal {
namespace {

sigset_t FileSizeSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

bool IsPending() {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  return sigismember(&pending, SIGXFSZ) == 1;
}

}  // namespace

FileSizeSignalBlock::FileSizeSignalBlock() {
  was_pending_ = IsPending();
  const sigset_t set = FileSizeSignal();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

FileSizeSignalBlock::~FileSizeSignalBlock() {
  // The caller's errno is that of its last call.
  const int error = errno;
  if (!was_pending_ && IsPending()) {
    const sigset_t set = FileSizeSignal();
    const timespec now = {};
    while (sigtimedwait(&set, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace brigade::device::internal
