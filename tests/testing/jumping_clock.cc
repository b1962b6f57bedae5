#include "brigade/tests/testing/jumping_clock.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace {

std::atomic<int> hours_ahead{0};

}  // namespace

// Stands before libc's, for the libraries of the program as well.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (clock != CLOCK_REALTIME) return static_cast<int>(result);
  constexpr time_t kHour = 3600;
  time->tv_sec += kHour * hours_ahead.load(std::memory_order_relaxed);
  struct stat file = {};
  const char* const path = std::getenv("BRIGADE_TEST_HOURS");
  if (path != nullptr && stat(path, &file) == 0) time->tv_sec += kHour * file.st_size;
  return static_cast<int>(result);
}

namespace brigade::testing {

void SetClockAhead(int hours) { hours_ahead = hours; }

}  // namespace brigade::testing
