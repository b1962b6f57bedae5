#ifndef BRIGADE_DEVICE_FILE_FILE_SIZE_SIGNAL_H_
#define BRIGADE_DEVICE_FILE_FILE_SIZE_SIGNAL_H_

#include <signal.h>

namespace brigade::device::internal {

// While it lives, a write of this thread beyond the limit of a file's size (RLIMIT_FSIZE) is an
// error, EFBIG, and does not end the process by SIGXFSZ.
class FileSizeSignalBlock {
 public:
  FileSizeSignalBlock();
  ~FileSizeSignalBlock();
  FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
  FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;

 private:
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_FILE_FILE_SIZE_SIGNAL_H_
