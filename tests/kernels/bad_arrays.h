#ifndef BRIGADE_TESTS_KERNELS_BAD_ARRAYS_H_
#define BRIGADE_TESTS_KERNELS_BAD_ARRAYS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/address_registry.h"
#include "brigade/device/stream.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {

// Gives an operation memory for its arrays, then calls it with each array in turn null, misaligned,
// on another device and overlapping another one; every call must be refused by name and leave all
// memory as it is.
class BadArrays {
 public:
  enum Kind { kRead, kReadUnlessNull, kWritten };

  explicit BadArrays(std::string operation) : operation_(std::move(operation)) {
    std::memset(memory_, 0x3c, sizeof(memory_));
  }
  BadArrays(const BadArrays&) = delete;

  // `place` is where the call finds the address of `count` elements, which messages call `label`.
  // Points it to memory filled with 0x3c: sensible numbers in all floating-point types.
  template <typename T>
  void Add(const std::string& label, T*& place, int64_t count, int64_t element_bytes,
           int64_t alignment, Kind kind) {
    const auto set = [&place](char* at) { place = static_cast<T*>(static_cast<void*>(at)); };
    ASSERT_LT(arrays_.size(), kMaxArrays);
    ASSERT_LE(count * element_bytes, kStride / 4);
    char* const begin = memory_ + kStride * arrays_.size();
    arrays_.push_back({label, set, begin, count, count * element_bytes, alignment, kind});
    set(begin);
  }
  template <typename T>
  void Add(const std::string& label, T*& place, int64_t count, Kind kind) {
    Add(label, place, count, sizeof(T), alignof(T), kind);
  }

  // The array is called otherwise where it is null.
  void NameOfNull(const std::string& label, const std::string& null_label) {
    null_labels_[label] = null_label;
  }

  // call() -> absl::Status enqueues on `stream`, with the addresses that are in place then.
  template <typename Call>
  void ExpectRefused(device::Stream& stream, const Call& call) {
    using ::testing::AllOf;
    using ::testing::AnyOf;
    using ::testing::HasSubstr;
    using ::testing::StartsWith;
    const std::vector<char> before(memory_, memory_ + sizeof(memory_));
    const auto expect = [&](const std::string& what, const auto& message) {
      EXPECT_THAT(call(), testing::StatusIs(absl::StatusCode::kInvalidArgument, message)) << what;
      EXPECT_OK(stream.Synchronize()) << what;
      EXPECT_TRUE(Unchanged(before)) << what << " changed memory";
    };
    for (const Array& a : arrays_) {
      const std::string name = absl::StrCat(operation_, ": ", a.label);
      if (a.kind != kReadUnlessNull) {
        const auto renamed = null_labels_.find(a.label);
        a.set(nullptr);
        expect(a.label + " null",
               StartsWith(absl::StrCat(operation_, ": ",
                                       renamed == null_labels_.end() ? a.label : renamed->second,
                                       " is null with ", a.count, " elements")));
      }
      if (a.alignment > 1) {
        a.set(a.begin + a.alignment / 2);
        expect(a.label + " misaligned",
               AllOf(StartsWith(name + " is at address "),
                     HasSubstr(absl::StrCat("not a multiple of its element's ", a.alignment))));
      }
      a.set(a.begin);
      device::AddressRegistry::Global().Add(a.begin, a.bytes, device::Cuda(1), false);
      expect(a.label + " on a GPU",
             StartsWith(name + " is in memory of cuda:1, but the stream is on cpu:0"));
      device::AddressRegistry::Global().Remove(a.begin, a.bytes, false);
      for (const Array& b : arrays_) {
        if (&a == &b || (a.kind != kWritten && b.kind != kWritten)) continue;
        // From b's last bytes on.
        a.set(b.begin + (b.bytes - 1) / a.alignment * a.alignment);
        expect(absl::StrCat(a.label, " over ", b.label),
               AnyOf(StartsWith(absl::StrCat(name, " and ", b.label, " overlap in ")),
                     StartsWith(absl::StrCat(operation_, ": ", b.label, " and ", a.label,
                                             " overlap in "))));
      }
      a.set(a.begin);
    }
    // All of this would have been seen: the call itself is good, and it does something.
    EXPECT_OK(call());
    EXPECT_OK(stream.Synchronize());
    EXPECT_FALSE(Unchanged(before));
  }

 private:
  struct Array {
    std::string label;
    std::function<void(char*)> set;
    char* begin;
    int64_t count;
    int64_t bytes;
    int64_t alignment;
    Kind kind;
  };

  bool Unchanged(const std::vector<char>& before) const {
    return std::equal(before.begin(), before.end(), memory_);
  }

  static constexpr size_t kMaxArrays = 16;
  // Far enough apart that two overlap only on purpose.
  static constexpr int64_t kStride = 4096;

  const std::string operation_;
  std::vector<Array> arrays_;
  std::map<std::string, std::string> null_labels_;
  alignas(64) char memory_[kMaxArrays * kStride];
};

}  // namespace brigade::kernels

#endif  // BRIGADE_TESTS_KERNELS_BAD_ARRAYS_H_
