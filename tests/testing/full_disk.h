#ifndef BRIGADE_TESTS_TESTING_FULL_DISK_H_
#define BRIGADE_TESTS_TESTING_FULL_DISK_H_

#include <signal.h>
#include <sys/resource.h>

namespace brigade::testing {

// As long as it lives, no file of this process can grow beyond so many bytes: writes fail as on a
// full disk, with "File too large".
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_ = {};
  const sighandler_t handler_;
};

}  // namespace brigade::testing

#endif  // BRIGADE_TESTS_TESTING_FULL_DISK_H_
