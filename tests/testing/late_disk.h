#ifndef BRIGADE_TESTS_TESTING_LATE_DISK_H_
#define BRIGADE_TESTS_TESTING_LATE_DISK_H_

#include <string>

namespace brigade::testing {

// As long as it lives, fsync and fclose of files whose paths have this one in them say that there
// is no room on the disk, as file systems say that write late: those of other machines above all.
// Who links this library has both functions of its own.
class LateDisk {
 public:
  explicit LateDisk(const std::string& part);
  ~LateDisk();
  LateDisk(const LateDisk&) = delete;
  LateDisk& operator=(const LateDisk&) = delete;

  // How often each has said so.
  static int syncs();
  static int closes();
};

}  // namespace brigade::testing

#endif  // BRIGADE_TESTS_TESTING_LATE_DISK_H_
