#include "brigade/device/buffer.h"

#include <utility>

#include "brigade/device/address_book.h"
#include "brigade/device/internal/core.h"

namespace brigade::device {

Buffer::Buffer(std::shared_ptr<internal::Core> core, void* data, int64_t bytes,
               absl::string_view name, Purpose purpose, bool owned)
    : core_(std::move(core)),
      data_(data),
      bytes_(bytes),
      name_(name),
      device_(core_->device),
      purpose_(purpose),
      owned_(owned) {}

Buffer::~Buffer() { Release(); }

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Release();
  core_ = std::move(other.core_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  name_ = std::exchange(other.name_, std::string());
  device_ = other.device_;
  purpose_ = other.purpose_;
  owned_ = std::exchange(other.owned_, false);
  return *this;
}

void Buffer::Release() {
  if (core_ == nullptr) return;
  if (owned_) {
    core_->Free(data_, bytes_, purpose_);
  } else {
    if (core_->checker != nullptr) core_->checker->RemoveMemory(data_, bytes_, /*owned=*/false);
    AddressBook::Global().Remove(data_, bytes_, /*owned=*/false);
  }
  core_.reset();
}

}  // namespace brigade::device
