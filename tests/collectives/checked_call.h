#ifndef BRIGADE_TESTS_COLLECTIVES_CHECKED_CALL_H_
#define BRIGADE_TESTS_COLLECTIVES_CHECKED_CALL_H_

// One call on one rank with known inputs, between guards: what conformance is made of.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "brigade/device/buffer.h"
#include "brigade/kernels/reduce/reduce_math.h"
#include "brigade/tests/collectives/ranks.h"
#include "gtest/gtest.h"

namespace brigade::collectives {

// Bytes before and after an array that must survive.
inline constexpr int64_t kGuard = 16;

// Element `i` of the input of `rank`: integers from -3 to 4, different for each rank.
inline int64_t InputValue(int rank, int64_t i) { return (i * 5 + rank * 3 + i / 7) % 8 - 3; }

template <typename T>
T As(int64_t value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

template <typename T>
T Reduced(kernels::ReduceOp op, int size, int64_t i) {
  // Bytes wrap, so their order is that of the wrapped values.
  const auto value = [&](int rank) -> int64_t {
    return std::is_same_v<T, uint8_t> ? static_cast<uint8_t>(InputValue(rank, i))
                                      : InputValue(rank, i);
  };
  int64_t result = value(0);
  for (int rank = 1; rank < size; ++rank) {
    const int64_t next = value(rank);
    if (op == kernels::ReduceOp::kSum) result += next;
    if (op == kernels::ReduceOp::kMin) result = std::min(result, next);
    if (op == kernels::ReduceOp::kMax) result = std::max(result, next);
  }
  return As<T>(result);
}

// Where a rank's arrays are, on its device: one call after the other uses the same.
struct Memory {
  device::Buffer input;
  device::Buffer output;
};

// An array of the device with guards, and its image on the host.
template <typename T>
class Array {
 public:
  Array(int64_t size, const device::Buffer& memory)
      : bytes_(static_cast<size_t>(size) * sizeof(T) + 2 * kGuard, 0x5a), memory_(memory) {
    EXPECT_LE(static_cast<int64_t>(bytes_.size()), memory.bytes());
  }
  T* data() const { return reinterpret_cast<T*>(static_cast<char*>(memory_.data()) + kGuard); }
  T* image() { return reinterpret_cast<T*>(bytes_.data() + kGuard); }

  absl::Status Upload(device::Stream& stream) const {
    return stream.Copy(memory_.data(), bytes_.data(), static_cast<int64_t>(bytes_.size()));
  }
  absl::Status Download(device::Stream& stream) {
    return stream.Copy(bytes_.data(), memory_.data(), static_cast<int64_t>(bytes_.size()));
  }

  bool GuardsAreIntact() const {
    const auto is_guard = [](unsigned char byte) { return byte == 0x5a; };
    return std::all_of(bytes_.begin(), bytes_.begin() + kGuard, is_guard) &&
           std::all_of(bytes_.end() - kGuard, bytes_.end(), is_guard);
  }

 private:
  std::vector<unsigned char> bytes_;
  const device::Buffer& memory_;
};

// One operation on one rank: its arrays, the call, and what must come out.
template <typename T>
class Check {
 public:
  Check(Rank& self, const Memory& memory, std::string what)
      : self_(self), memory_(memory), what_(std::move(what)) {}

  // call(input, output); wanted(i) for each of `outputs` elements. In place the output array holds
  // the input too, `offset` elements from the begin of the larger one.
  template <typename Call, typename Wanted>
  void Run(int64_t inputs, int64_t outputs, bool in_place, int64_t offset, const Call& call,
           const Wanted& wanted) {
    device::Stream& stream = *self_.stream;
    Array<T> input(in_place ? std::max(inputs, outputs) : inputs, memory_.input);
    Array<T> separate(outputs, memory_.output);
    Array<T>& result = in_place ? input : separate;
    const int64_t in = in_place && inputs < outputs ? offset : 0;
    const int64_t out = in_place && inputs > outputs ? offset : 0;
    for (int64_t i = 0; i < inputs; ++i) input.image()[in + i] = As<T>(InputValue(self_.rank, i));
    ASSERT_OK(input.Upload(stream));
    ASSERT_OK(separate.Upload(stream));
    ASSERT_OK(call(input.data() + in, result.data() + out)) << what_;
    ASSERT_OK(input.Download(stream));
    ASSERT_OK(separate.Download(stream));
    ASSERT_OK(stream.Synchronize()) << what_;
    for (int64_t i = 0; i < outputs; ++i) {
      const T expected = wanted(i);
      ASSERT_EQ(std::memcmp(&result.image()[out + i], &expected, sizeof(T)), 0)
          << what_ << (in_place ? ", in place" : "") << ", element " << i << " of " << outputs;
    }
    EXPECT_TRUE(input.GuardsAreIntact() && separate.GuardsAreIntact()) << what_;
    if (in_place) return;
    for (int64_t i = 0; i < inputs; ++i) {
      const T before = As<T>(InputValue(self_.rank, i));
      ASSERT_EQ(std::memcmp(&input.image()[i], &before, sizeof(T)), 0)
          << what_ << " changed its input";
    }
  }

 private:
  Rank& self_;
  const Memory& memory_;
  const std::string what_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_CHECKED_CALL_H_
