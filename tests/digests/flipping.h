#ifndef BRIGADE_TESTS_DIGESTS_FLIPPING_H_
#define BRIGADE_TESTS_DIGESTS_FLIPPING_H_

// Faults that no check finds: one bit of a weight, of a gradient, or of a message.

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/collectives/engines/transport/transport.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/step_observer.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::digests {

// Flips a bit where a step has its weights, before they are looked at, or its summed gradients: of
// the first element of a parameter that this rank has there, in the order of the stream.
class FlippingObserver final : public zero::StepObserver {
 public:
  FlippingObserver(const zero::ZeroOptimizer& zero, int parameter, bool in_gradient)
      : zero_(zero), parameter_(parameter), in_gradient_(in_gradient) {}

  absl::Status OnWeights(absl::Span<const zero::ObservedArray> arrays,
                         device::Stream& stream) override {
    return in_gradient_ ? absl::OkStatus() : Flip(arrays, stream);
  }
  absl::Status OnGradients(absl::Span<const zero::ObservedArray> arrays,
                           device::Stream& stream) override {
    return in_gradient_ ? Flip(arrays, stream) : absl::OkStatus();
  }
  absl::Status OnUpdated(absl::Span<const zero::ObservedArray>, device::Stream&) override {
    return absl::OkStatus();
  }
  // The element in what this rank has of the parameter; -1: none was flipped.
  int64_t flipped() const { return flipped_; }

 private:
  absl::Status Flip(absl::Span<const zero::ObservedArray> arrays, device::Stream& stream) {
    const zero::Parameter& parameter = zero_.plan().parameter(parameter_);
    for (const zero::ObservedArray& array : arrays) {
      if (array.bucket != parameter.bucket) continue;
      const int64_t at = std::max(parameter.begin, array.range.begin);
      if (at >= parameter.begin + parameter.spec.size ||
          at >= array.range.begin + array.range.size) {
        continue;
      }
      const int64_t width = precision::SizeOf(array.dtype);
      char* const element =
          static_cast<char*>(const_cast<void*>(array.data)) + (at - array.range.begin) * width;
      flipped_ = at - parameter.begin;
      return stream.Enqueue({"flip a bit", {device::Writes(element, width)}},
                            [element, width](device::ThreadPool&) {
                              // Of the exponent: a value 16 times as large, or a 16th.
                              element[width - 1] ^= 0x02;
                              return absl::OkStatus();
                            });
    }
    return absl::OkStatus();
  }

  const zero::ZeroOptimizer& zero_;
  const int parameter_;
  const bool in_gradient_;
  int64_t flipped_ = -1;
};

// Which message of a rank is damaged on its way: the first of `bytes` that comes once `armed`.
struct WireFault {
  // 0: of any that are larger than kLargeBytes, and so carry an array's part and nothing else.
  static constexpr int64_t kLargeBytes = 2048;
  int64_t bytes = 0;
  std::atomic<bool> armed = false;
  std::atomic<int> damaged = 0;

  bool IsOf(int64_t message_bytes) const {
    return bytes == 0 ? message_bytes > kLargeBytes : message_bytes == bytes;
  }
};

// Another transport, one of whose messages arrives with another bit.
class FlippingTransport final : public collectives::Transport {
 public:
  FlippingTransport(std::unique_ptr<collectives::Transport> below, WireFault* fault)
      : below_(std::move(below)), fault_(fault), expected_(static_cast<size_t>(below_->size())) {}

  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  absl::Status SendUpTo(int to, const void* data, int64_t bytes, int64_t capacity) override {
    return below_->SendUpTo(to, data, bytes, capacity);
  }
  absl::Status Expect(int from, void* data, int64_t bytes) override {
    expected_[static_cast<size_t>(from)].push_back({data, bytes});
    return below_->Expect(from, data, bytes);
  }
  absl::Status Await(int from) override {
    const absl::Status status = below_->Await(from);
    std::deque<Message>& expected = expected_[static_cast<size_t>(from)];
    if (!status.ok() || expected.empty()) return status;
    const Message message = expected.front();
    expected.pop_front();
    if (fault_ != nullptr && fault_->IsOf(message.bytes) && fault_->armed.exchange(false)) {
      // Of the mantissa; of a large message of the exponent, which 16 bits show too.
      const bool is_large = fault_->bytes == 0;
      static_cast<char*>(message.data)[message.bytes / 2 + (is_large ? 3 : 0)] ^=
          is_large ? 0x04 : 0x10;
      ++fault_->damaged;
    }
    return status;
  }
  absl::Status Flush() override { return below_->Flush(); }
  void Abort(const absl::Status& reason) override { below_->Abort(reason); }
  absl::Status status() const override { return below_->status(); }
  void SetActivity(std::function<std::string()> activity) override {
    below_->SetActivity(std::move(activity));
  }
  int64_t sent_bytes(int to) const override { return below_->sent_bytes(to); }

 private:
  struct Message {
    void* data;
    int64_t bytes;
  };
  const std::unique_ptr<collectives::Transport> below_;
  WireFault* const fault_;
  std::vector<std::deque<Message>> expected_;
};

}  // namespace brigade::digests

#endif  // BRIGADE_TESTS_DIGESTS_FLIPPING_H_
