// The greatest elements on a GPU against the same calls on the CPU, which other tests hold to the
// specification: every byte of memory must agree, so nothing is written beside its place either.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/top_k/top_k.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::DType;

// What the work is done in is no result: a call ends by filling it.
struct Lists {
  std::vector<TopKSegment> segments;
  uint32_t* workspace;
  int64_t words = 0;
};

Lists Lay(char* base, DType dtype) {
  const int64_t bytes = precision::SizeOf(dtype);
  Layout layout(base);
  Lists lists;
  const auto add = [&](int64_t size, int64_t k) {
    const auto offset = static_cast<int64_t>(lists.segments.size() % 9);
    TopKSegment s = {};
    s.array = layout.Take<char>(size, offset, bytes);
    s.values = layout.Take<char>(k, offset % 2, bytes);
    s.indices = layout.Take<int32_t>(k, offset % 3);
    s.size = size;
    s.k = k;
    lists.segments.push_back(s);
    if (k > 0) lists.words += TopKWorkspaceSize(size);
  };
  for (const int64_t size : InterestingSizes()) {
    for (const int64_t k : {int64_t{0}, int64_t{1}, size / 10, size}) {
      if (k <= size) add(size, k);
    }
  }
  add(70'001, 701);
  add(140'000, 60'000);
  // More than one launch holds.
  for (int i = 0; i < 600; ++i) add(1 + i % 7, 1);
  lists.workspace = layout.Take<uint32_t>(lists.words);
  uint32_t* workspace = lists.workspace;
  for (TopKSegment& s : lists.segments) {
    s.workspace = workspace;
    if (s.k > 0) workspace += TopKWorkspaceSize(s.size);
  }
  return lists;
}

TEST(TopKGpuTest, SelectsWhatTheCpuSelects) {
  for (const DType dtype : kFloats) {
    for (const bool clear : {false, true}) {
      const BeforeAndAfter memory = ExpectSameOnBoth(
          absl::StrCat("top_k ", precision::Name(dtype), clear ? ", clear" : ""),
          [&](char* base) {
            uint32_t seed = 60;
            for (const TopKSegment& s : Lay(base, dtype).segments) {
              FillFloats(s.array, dtype, s.size, ++seed);
              // Equal magnitudes, and what is not finite.
              precision::VisitFloat(dtype, [&](auto tag) {
                using T = decltype(tag);
                T* const values = static_cast<T*>(s.array);
                for (int64_t i = 0; i < s.size; i += 1 + seed % 5) values[i] = T(-0.5f);
                if (s.size > 40) values[s.size / 3] = T(-INFINITY);
              });
            }
          },
          [&](char* base, device::Stream& stream) {
            const Lists lists = Lay(base, dtype);
            absl::Status status = TopK(lists.segments, {dtype, clear}, stream);
            const std::vector<uint32_t> zeros(static_cast<size_t>(lists.words));
            status.Update(stream.Copy(lists.workspace, zeros.data(), lists.words * 4));
            status.Update(stream.Synchronize());
            return status;
          });
      EXPECT_FALSE(memory.after == memory.before);
    }
  }
}

}  // namespace
}  // namespace brigade::kernels
