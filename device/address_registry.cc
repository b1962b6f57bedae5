#include "brigade/device/address_registry.h"

#include <algorithm>

namespace brigade::device {

AddressRegistry& AddressRegistry::Global() {
  // Never destroyed: buffers may outlive main.
  static AddressRegistry* const registry = new AddressRegistry;
  return *registry;
}

std::optional<Device> AddressRegistry::DeviceOf(const void* address) const {
  const std::optional<Region> region = Find(address);
  if (!region.has_value()) return std::nullopt;
  return region->device;
}

std::optional<AddressRegistry::Region> AddressRegistry::Find(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  MutexLock lock(mutex_);
  auto owned = owned_.upper_bound(at);
  if (owned != owned_.begin()) {
    --owned;
    if (at < owned->second.end) return owned->second;
  }
  auto borrowed = borrowed_.upper_bound(at);
  while (borrowed != borrowed_.begin()) {
    --borrowed;
    if (at < borrowed->second.end) return borrowed->second;
    if (at - borrowed->first >= longest_borrow_) break;
  }
  return std::nullopt;
}

void AddressRegistry::Add(const void* data, int64_t bytes, Device device, bool owned, Tier tier) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const Region region{begin, begin + static_cast<uintptr_t>(bytes), device, owned, tier};
  MutexLock lock(mutex_);
  if (owned) {
    owned_[begin] = region;
  } else {
    borrowed_.emplace(begin, region);
    longest_borrow_ = std::max(longest_borrow_, static_cast<uintptr_t>(bytes));
  }
}

void AddressRegistry::Remove(const void* data, int64_t bytes, bool owned) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  MutexLock lock(mutex_);
  if (owned) {
    owned_.erase(begin);
    return;
  }
  auto [it, end] = borrowed_.equal_range(begin);
  it = std::find_if(it, end, [&](const auto& entry) {
    return entry.second.end - begin == static_cast<uintptr_t>(bytes);
  });
  if (it != end) borrowed_.erase(it);
  if (borrowed_.empty()) longest_borrow_ = 0;
}

const AddressRegistry::Region* AddressRegistry::Lookup::FindInRegistry(const void* address) {
  const std::optional<Region> region = registry_.Find(address);
  if (!region.has_value()) return nullptr;
  last_ = *region;
  return &last_;
}

}  // namespace brigade::device
