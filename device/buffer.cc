#include "brigade/device/buffer.h"

#include <utility>

#include "brigade/device/address_registry.h"
#include "brigade/device/internal/context_state.h"

namespace brigade::device {

Buffer::Buffer(std::shared_ptr<internal::ContextState> context, void* data, int64_t bytes,
               absl::string_view name, Purpose purpose, Kind kind)
    : context_(std::move(context)),
      data_(data),
      bytes_(bytes),
      name_(name),
      device_(context_->DeviceOf(kind == Kind::kHost ? Tier::kHost : Tier::kDevice)),
      purpose_(purpose),
      kind_(kind) {}

Buffer::~Buffer() { Release(); }

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Release();
  context_ = std::move(other.context_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  name_ = std::exchange(other.name_, std::string());
  device_ = other.device_;
  purpose_ = other.purpose_;
  kind_ = std::exchange(other.kind_, Kind::kBorrowed);
  return *this;
}

void Buffer::Release() {
  if (context_ == nullptr) return;
  if (kind_ != Kind::kBorrowed) {
    context_->Free(data_, bytes_, kind_ == Kind::kHost ? Tier::kHost : Tier::kDevice, purpose_);
  } else {
    if (context_->checker != nullptr)
      context_->checker->RemoveMemory(data_, bytes_, /*owned=*/false);
    AddressRegistry::Global().Remove(data_, bytes_, /*owned=*/false);
  }
  context_.reset();
}

}  // namespace brigade::device
