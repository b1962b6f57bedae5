#ifndef BRIGADE_EMULATOR_PTX_ORDER_H_
#define BRIGADE_EMULATOR_PTX_ORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/emulator/ptx/module.h"

namespace brigade::emulator {

class Warp;

// What fences and flags order in a launch, besides barriers: after a fence a thread writes a flag
// (by a volatile, relaxed or atomic access); a thread that has read what was written there, and
// then passes a fence, comes after all that came before the first fence. An atomic that finds a
// flag hands on what was published there, together with its own.
//
// Source       The memory consistency model of the PTX ISA: release and acquire patterns.
class Order {
 public:
  static constexpr int32_t kNone = -1;

  // A fence of a lane: what it had behind it.
  struct Point {
    uint64_t serial = 0;
    uint64_t block_epoch = 0;
    int thread = 0;
    // Barriers of the warp that the lane knows each lane to have passed.
    std::array<uint16_t, kLanes> passed = {};
  };
  // Records it, after what the lane `seen` of flags, as an access `id` of its own, and returns its
  // number.
  int32_t AddPoint(const Point& point, uint64_t id, const std::vector<int32_t>& seen);

  // A lane whose last fence is `point` (kNone: it had none) writes a flag. `hands_on`: it is an
  // atomic.
  void Publish(uint64_t address, int32_t point, bool hands_on);
  // What was published at a flag that a lane has read, or kNone.
  int32_t Published(uint64_t address) const;

  // Whether what `past` says has happened before an access that `now` names, a lane of `warp`, to
  // `address`.
  bool IsOrdered(uint64_t past, uint64_t now, uint64_t address, uint64_t first_serial,
                 const Warp& warp);

 private:
  struct Publication {
    int32_t point = kNone;
    // What it hands on.
    int32_t before = kNone;
    uint64_t address = 0;
    // The number of the search that has met it last.
    int64_t met = 0;
  };
  // A publication that a lane has seen, before a fence of it.
  struct Acquisition {
    uint64_t id = 0;
    int32_t publication = kNone;
  };

  static bool IsBehind(const Point& point, uint64_t past);

  mutable device::Mutex mutex_;
  std::vector<Point> points_ ABSL_GUARDED_BY(mutex_);
  std::vector<Publication> publications_ ABSL_GUARDED_BY(mutex_);
  // The last publication at each address.
  absl::flat_hash_map<uint64_t, int32_t> published_ ABSL_GUARDED_BY(mutex_);
  // Of each block, by its serial number.
  absl::flat_hash_map<uint64_t, std::vector<Acquisition>> acquired_ ABSL_GUARDED_BY(mutex_);
  int64_t searches_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_ORDER_H_
