#include "brigade/device/buffer.h"

#include <utility>

#include "brigade/device/address_book.h"
#include "brigade/device/internal/core.h"

namespace brigade::device {

Buffer::Buffer(std::shared_ptr<internal::Core> core, void* data, int64_t bytes,
               absl::string_view name, Purpose purpose, Kind kind)
    : core_(std::move(core)),
      data_(data),
      bytes_(bytes),
      name_(name),
      device_(kind == Kind::kHost ? core_->host() : core_->device),
      purpose_(purpose),
      kind_(kind) {}

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
  kind_ = std::exchange(other.kind_, Kind::kBorrowed);
  return *this;
}

void Buffer::Release() {
  if (core_ == nullptr) return;
  if (kind_ == Kind::kDevice) {
    core_->Free(data_, bytes_, purpose_);
  } else if (kind_ == Kind::kHost) {
    core_->Free(data_, bytes_, internal::kHostMemory);
  } else {
    if (core_->checker != nullptr) core_->checker->RemoveMemory(data_, bytes_, /*owned=*/false);
    AddressBook::Global().Remove(data_, bytes_, /*owned=*/false);
  }
  core_.reset();
}

}  // namespace brigade::device
