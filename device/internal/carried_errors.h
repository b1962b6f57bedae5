#ifndef BRIGADE_DEVICE_INTERNAL_CARRIED_ERRORS_H_
#define BRIGADE_DEVICE_INTERNAL_CARRIED_ERRORS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/device/internal/event_record.h"
#include "brigade/device/internal/first_error.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device::internal {

// The errors of a stream that runs without the host (CUDA's): those that are known, and those that
// events may still bring.
//
// A launch's error is known at the call, so that a later record can take it along at once. Work of
// the CPU fails when it runs. A stream that waits for such a record learns the error when that is
// finished, and so do the records that it makes behind the wait, and the streams that wait for
// those: waits and records are kept in a queue, which is settled from its front.
//
// Flag         A word that the stream's device waits for. It counts the waits that are settled. It
//              is raised after the error has reached all streams and records that it reaches: who
//              sees that the device has gone on sees the error too.
// Cost         A program whose streams wait for no CPU takes no lock here.
// Lifetime     Of a shared_ptr; it keeps itself as long as something is in the queue.
// Threads      Safe from any thread. Wait and Record of one stream not at the same time.
class CarriedErrors final : public RecordWaiter,
                            public std::enable_shared_from_this<CarriedErrors> {
 public:
  // `flag` may be null if no wait has one.
  CarriedErrors(std::string stream_label, std::shared_ptr<uint32_t> flag);
  CarriedErrors(const CarriedErrors&) = delete;
  CarriedErrors& operator=(const CarriedErrors&) = delete;

  FirstError& first() { return first_; }
  const FirstError& first() const { return first_; }
  const std::shared_ptr<uint32_t>& flag() const { return flag_; }

  // The stream waits for what carries `record`'s error. With `has_flag` the result is the count at
  // which the flag says that the record is finished; none if it is finished by now.
  std::optional<uint32_t> Wait(const EventRecordRef& record, absl::string_view event,
                               bool has_flag);

  // What a record that the stream makes now carries: it is finished, at the latest, before the
  // device reaches the record. Empty: no error.
  EventRecordRef Record();

  // Forgets the errors that have arrived. No work is in the stream.
  void Clear();

  void OnFinish() override;

 private:
  struct Entry {
    // A record of another stream that this one waits for, or a record of this one.
    EventRecordRef record;
    bool is_wait = false;
    bool has_flag = false;
    // Of the wait. Assigned to again and again, so that its memory is reused.
    std::string event;
  };

  Entry& Push() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Settles what is at the front. Adds to `ready` those that waited for records of this one.
  void SettleFront(RecordWaiters& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same for this one and all that become ready by it, and then raises their flags.
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // One for all streams of the process: errors go from stream to stream in any direction.
  inline static Mutex mutex_;

  const std::string stream_label_;
  const std::shared_ptr<uint32_t> flag_;
  FirstError first_;

  // A ring that grows to its high-water mark.
  std::vector<Entry> ring_ ABSL_GUARDED_BY(mutex_);
  size_t front_ ABSL_GUARDED_BY(mutex_) = 0;
  // Written under the mutex; read without it to see that there are none.
  std::atomic<size_t> entries_{0};
  // The first error that came through the queue since Clear.
  absl::Status arrived_ ABSL_GUARDED_BY(mutex_);
  // Waits with a flag: enqueued, and settled.
  uint32_t flags_wanted_ ABSL_GUARDED_BY(mutex_);
  uint32_t flags_settled_ ABSL_GUARDED_BY(mutex_);

  // Among those that Settle has touched.
  bool is_touched_ ABSL_GUARDED_BY(mutex_) = false;
  CarriedErrors* next_touched_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // This, while the queue is not empty.
  std::shared_ptr<CarriedErrors> self_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_INTERNAL_CARRIED_ERRORS_H_
