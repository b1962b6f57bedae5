#include "brigade/device/address_book.h"

#include <algorithm>
#include <mutex>

namespace brigade::device {

AddressBook& AddressBook::Global() {
  static AddressBook* const book = new AddressBook;  // never destroyed: buffers may outlive main
  return *book;
}

std::optional<Device> AddressBook::DeviceOf(const void* address) const {
  const std::optional<Range> range = Find(address);
  if (!range.has_value()) return std::nullopt;
  return range->device;
}

std::optional<AddressBook::Range> AddressBook::Find(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::shared_lock lock(mutex_);
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

void AddressBook::Add(const void* data, int64_t bytes, Device device, bool owned) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const Range range{begin, begin + static_cast<uintptr_t>(bytes), device, owned};
  std::unique_lock lock(mutex_);
  if (owned) {
    owned_[begin] = range;
  } else {
    borrowed_.emplace(begin, range);
    longest_borrow_ = std::max(longest_borrow_, static_cast<uintptr_t>(bytes));
  }
}

void AddressBook::Remove(const void* data, int64_t bytes, bool owned) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  std::unique_lock lock(mutex_);
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

const AddressBook::Range* AddressBook::Lookup::FindInBook(const void* address) {
  const std::optional<Range> range = book_.Find(address);
  if (!range.has_value()) return nullptr;
  last_ = *range;
  return &last_;
}

}  // namespace brigade::device
