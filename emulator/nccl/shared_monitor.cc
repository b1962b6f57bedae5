#include "brigade/emulator/nccl/shared_monitor.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace brigade::emulator {
namespace {

void Acquire(pthread_mutex_t& mutex) {
  if (pthread_mutex_lock(&mutex) == EOWNERDEAD) pthread_mutex_consistent(&mutex);
}

void Futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  // One that has made a change may die before it wakes the others.
  const timespec longest = {.tv_sec = 1, .tv_nsec = 0};
  syscall(SYS_futex, &word, operation, value, operation == FUTEX_WAIT ? &longest : nullptr, nullptr,
          0);
}

}  // namespace

SharedMonitor::SharedMonitor() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

SharedMonitor::Lock::Lock(SharedMonitor& monitor) : monitor_(monitor) { Acquire(monitor_.mutex_); }

SharedMonitor::Lock::~Lock() { pthread_mutex_unlock(&monitor_.mutex_); }

void SharedMonitor::Lock::Wait() {
  const uint32_t seen = monitor_.changes_;
  pthread_mutex_unlock(&monitor_.mutex_);
  Futex(monitor_.changes_, FUTEX_WAIT, seen);
  Acquire(monitor_.mutex_);
}

void SharedMonitor::Lock::WakeAll() {
  ++monitor_.changes_;
  Futex(monitor_.changes_, FUTEX_WAKE, INT_MAX);
}

}  // namespace brigade::emulator
