#ifndef BRIGADE_DEVICE_BUFFER_H_
#define BRIGADE_DEVICE_BUFFER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/device.h"
#include "brigade/device/memory_stats.h"

namespace brigade::device {

namespace internal {
class ContextState;
}  // namespace internal

// Memory with a name: the device's (Context::Allocate) or the host's (Context::AllocateHost), with
// a purpose, or borrowed from its owner (Context::Borrow).
//
// Contents     Every byte is 0xFF after the allocation, and with checks on again before the free.
//              Borrowed memory is left as it is.
// Lifetime     Destroying an owned buffer waits for the work already enqueued on its context's
//              streams; see docs/device.md, rules 12 to 17. A buffer may outlive its context.
// Threads      A value: one thread at a time may move or destroy it.
class Buffer {
 public:
  // An empty buffer: no memory, zero bytes.
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  bool owned() const { return kind_ != Kind::kBorrowed; }
  // kScratch for borrowed memory, which no MemoryStats count.
  Purpose purpose() const { return purpose_; }
  absl::string_view name() const { return name_; }
  Device device() const { return device_; }

  // The memory as elements of T: bytes() / sizeof(T) of them; a remainder is left out.
  template <typename T>
  absl::Span<T> as() const {
    return absl::Span<T>(static_cast<T*>(data_), static_cast<size_t>(bytes_) / sizeof(T));
  }

 private:
  friend class Context;

  enum class Kind : uint8_t { kBorrowed, kDevice, kHost };

  Buffer(std::shared_ptr<internal::ContextState> context, void* data, int64_t bytes,
         absl::string_view name, Purpose purpose, Kind kind);

  void Release();

  std::shared_ptr<internal::ContextState> context_;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::string name_;
  Device device_;
  Purpose purpose_ = Purpose::kScratch;
  Kind kind_ = Kind::kBorrowed;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_BUFFER_H_
