#ifndef BRIGADE_EMULATOR_NCCL_SHARED_MONITOR_H_
#define BRIGADE_EMULATOR_NCCL_SHARED_MONITOR_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace brigade::emulator {

// A mutex, and what waits for a change of what it guards, in memory that processes share. It is
// never destroyed.
//
// Deaths       A process that dies with the lock, or while it waits, leaves both usable, and what
//              the mutex guards as it is; one that dies before it wakes the others delays them.
//              (A condition variable would count it as one that waits.)
class SharedMonitor {
 public:
  SharedMonitor();

  class Lock {
   public:
    explicit Lock(SharedMonitor& monitor);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    template <typename Condition>
    void Await(Condition condition) {
      while (!condition()) Wait();
    }
    // After a change.
    void WakeAll();

   private:
    void Wait();

    SharedMonitor& monitor_;
  };

 private:
  pthread_mutex_t mutex_;
  // Who waits sleeps until it is another one.
  std::atomic<uint32_t> changes_{0};
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_SHARED_MONITOR_H_
