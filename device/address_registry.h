#ifndef BRIGADE_DEVICE_ADDRESS_REGISTRY_H_
#define BRIGADE_DEVICE_ADDRESS_REGISTRY_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/device/device.h"
#include "brigade/device/memory_stats.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device {

// Which device an address belongs to, over all live buffers and borrowed memory of the process.
//
// Overlap      Owned memory never overlaps; borrowed memory may overlap anything, and the owner's
//              device wins.
// Threads      Safe from any thread.
class AddressRegistry {
 public:
  struct Region {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    Device device = {};
    // True for the memory of a Buffer, false for borrowed memory.
    bool owned = false;
    // Of memory of the host that a Buffer has (Context::AllocateHost): kHost.
    Tier tier = Tier::kDevice;
  };

  // The registry of this process.
  static AddressRegistry& Global();

  // nullopt if no live buffer and no borrowed memory holds the address.
  std::optional<Device> DeviceOf(const void* address) const;
  std::optional<Region> Find(const void* address) const;

  // For Context and Buffer. Empty ranges are ignored.
  void Add(const void* data, int64_t bytes, Device device, bool owned, Tier tier = Tier::kDevice);
  void Remove(const void* data, int64_t bytes, bool owned);

  // Remembers the last region found, so that each view of a list into few buffers costs one
  // comparison. It does not notice that a buffer is freed: create one for each call.
  class Lookup {
   public:
    explicit Lookup(const AddressRegistry& registry = Global()) : registry_(registry) {}

    // The region that holds the address, until the next Find; null if none does.
    const Region* Find(const void* address) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      return at >= last_.begin && at < last_.end ? &last_ : FindInRegistry(address);
    }

   private:
    const Region* FindInRegistry(const void* address);

    const AddressRegistry& registry_;
    Region last_;
  };

 private:
  mutable Mutex mutex_;
  // By begin; disjoint.
  std::map<uintptr_t, Region> owned_ ABSL_GUARDED_BY(mutex_);
  // By begin; may overlap.
  std::multimap<uintptr_t, Region> borrowed_ ABSL_GUARDED_BY(mutex_);
  // How far below an address the borrowed region that holds it may begin.
  uintptr_t longest_borrow_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_ADDRESS_REGISTRY_H_
