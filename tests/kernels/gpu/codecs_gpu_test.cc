// The codecs on a GPU against the same calls on the CPU, which other tests hold to the
// specification: every byte of memory must agree, so nothing is written beside its place either.

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::DType;

// Arrays at several distances from a boundary.
template <typename Segment>
void TakeArray(Layout& layout, DType dtype, Segment& segment, size_t index) {
  segment.array =
      layout.Take<char>(segment.size, static_cast<int64_t>(index % 9), precision::SizeOf(dtype));
}

TEST(CodecsGpuTest, BlockQuantGivesTheCpusBytes) {
  for (const DType dtype : kFloats) {
    for (const QuantFormat format : {QuantFormat::kInt8, QuantFormat::kInt4}) {
      struct Lists {
        std::vector<QuantizeSegment> quantize;
        std::vector<DequantizeSegment> dequantize;
      };
      const auto lay = [&](char* base) {
        Layout layout(base);
        Lists lists;
        for (const int64_t n : Sizes()) {
          const size_t i = lists.quantize.size();
          QuantizeSegment there = {nullptr, layout.Take<char>(QuantBytes(n, format)), n};
          TakeArray(layout, dtype, there, i);
          DequantizeSegment back = {there.message, nullptr, n};
          TakeArray(layout, dtype, back, i + i % 2);
          lists.quantize.push_back(there);
          lists.dequantize.push_back(back);
        }
        return lists;
      };
      const std::string what =
          absl::StrCat("block_quant ", precision::Name(dtype), format == QuantFormat::kInt8 ? 8 : 4);
      const BeforeAndAfter memory = ExpectSameOnBoth(
          what,
          [&](char* base) {
            for (const QuantizeSegment& s : lay(base).quantize) {
              void* const array = const_cast<void*>(s.array);
              FillFloats(array, dtype, s.size, 21);
              // No magnitude so large that all others become 0, but what is not finite, at times.
              precision::VisitFloat(dtype, [&](auto tag) {
                using T = decltype(tag);
                T* const values = static_cast<T*>(array);
                for (int64_t i = 0; i < s.size; ++i) {
                  if (std::fabs(static_cast<float>(values[i])) > 8.0f) values[i] = T(0.75f);
                }
                if (s.size % 37 == 5) values[s.size / 2] = T(-INFINITY);
              });
            }
          },
          [&](char* base, device::Stream& stream) {
            const Lists lists = lay(base);
            absl::Status status = BlockQuantize(lists.quantize, {dtype, format}, stream);
            // NaN has no promised payload in an array: what is not finite stays in messages.
            std::vector<DequantizeSegment> finite;
            for (const DequantizeSegment& s : lists.dequantize) {
              if (s.size % 37 != 5) finite.push_back(s);
            }
            status.Update(BlockDequantize(finite, {dtype, format}, stream));
            return status;
          });
      EXPECT_FALSE(memory.after == memory.before) << what;
    }
  }
}

}  // namespace
}  // namespace brigade::kernels
