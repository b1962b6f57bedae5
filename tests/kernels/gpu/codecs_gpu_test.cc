// The codecs on a GPU against the same calls on the CPU, which other tests hold to the
// specification: every byte of memory must agree, so nothing is written beside its place either.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce.h"
#include "brigade/kernels/loco_quant/loco_quant.h"
#include "brigade/kernels/sign_pack/sign_pack.h"
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
      const std::string what = absl::StrCat("block_quant ", precision::Name(dtype),
                                            format == QuantFormat::kInt8 ? 8 : 4);
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
                // A block with a maximum whose inverse is infinite.
                for (int64_t i = kQuantBlock; s.size > 2000 && i < 2 * kQuantBlock; ++i) {
                  values[i] = T(static_cast<float>(values[i]) * 0x1p-130f);
                }
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

TEST(CodecsGpuTest, DequantReduceGivesTheCpusBytes) {
  constexpr int64_t kRanks = 5;
  const std::vector<int64_t> sizes = {0, 1, 255, 256, 257, 2048, 2049, 10'001, 5'000};
  for (const QuantFormat format : {QuantFormat::kInt8, QuantFormat::kInt4}) {
    int64_t stride = 0;
    for (const int64_t size : sizes) stride += QuantBytes(size, format);
    for (int variant = 0; variant < 5; ++variant) {
      DequantReduceOptions options = {format, {kRanks, stride, 0.2f}};
      if (variant < 3) {
        options.target_dtype = kFloats[static_cast<size_t>(variant)];
      } else {
        options.target_format = variant == 3 ? QuantFormat::kInt8 : QuantFormat::kInt4;
      }
      const auto lay = [&](char* base) {
        Layout layout(base);
        const char* messages = layout.Take<char>(kRanks * stride);
        std::vector<DequantReduceSegment> segments;
        for (const int64_t n : sizes) {
          const auto offset = static_cast<int64_t>(segments.size() % 9);
          void* const target =
              variant < 3 ? layout.Take<char>(n, offset, precision::SizeOf(options.target_dtype))
                          : layout.Take<char>(QuantBytes(n, *options.target_format));
          segments.push_back({messages, target, n});
          messages += QuantBytes(n, format);
        }
        return segments;
      };
      const std::string what = absl::StrCat("dequant_reduce, target ", variant);
      const BeforeAndAfter memory = ExpectSameOnBoth(
          what,
          [&](char* base) {
            std::mt19937 random(31);
            for (const DequantReduceSegment& s : lay(base)) {
              for (int64_t rank = 0; rank < kRanks; ++rank) {
                char* const message =
                    const_cast<char*>(static_cast<const char*>(s.messages)) + rank * stride;
                FillFloats(message, DType::kFloat32, QuantBlocks(s.size), 32 + rank);
                for (int64_t i = QuantCodesBegin(s.size); i < QuantBytes(s.size, format); ++i) {
                  message[i] = static_cast<char>(random() % 255 - 127);
                }
                // A block of nothing but -0, which a sum from 0 on would lose.
                if (s.size > 2000) {
                  reinterpret_cast<float*>(message)[1] = -1.0f;
                  const int64_t bytes = QuantBlockBytes(format);
                  std::fill_n(message + QuantCodesBegin(s.size) + bytes, bytes, '\0');
                }
              }
            }
          },
          [&](char* base, device::Stream& stream) {
            return DequantReduce(lay(base), options, stream);
          });
      EXPECT_FALSE(memory.after == memory.before) << what;
    }
  }
}

TEST(CodecsGpuTest, LocoQuantGivesTheCpusBytes) {
  for (const DType dtype : kFloats) {
    for (const QuantFormat format : {QuantFormat::kInt8, QuantFormat::kInt4}) {
      const auto lay = [&](char* base) {
        Layout layout(base);
        std::vector<LocoSegment> segments;
        for (const int64_t n : Sizes()) {
          LocoSegment s = {nullptr, layout.Take<char>(QuantBytes(n, kLocoErrors)),
                           layout.Take<char>(QuantBytes(n, format)), n};
          TakeArray(layout, dtype, s, segments.size());
          segments.push_back(s);
        }
        return segments;
      };
      const std::string what = absl::StrCat("loco_quant ", precision::Name(dtype), Name(format));
      const BeforeAndAfter memory = ExpectSameOnBoth(
          what,
          [&](char* base) {
            for (const LocoSegment& s : lay(base)) {
              FillFloats(const_cast<void*>(s.array), dtype, s.size, 51);
              std::fill_n(static_cast<char*>(s.error), QuantBytes(s.size, kLocoErrors), '\0');
              precision::VisitFloat(dtype, [&](auto tag) {
                using T = decltype(tag);
                T* const values = static_cast<T*>(const_cast<void*>(s.array));
                for (int64_t i = 0; i < s.size; ++i) {
                  if (std::fabs(static_cast<float>(values[i])) > 8.0f) values[i] = T(0.75f);
                }
              });
            }
          },
          [&](char* base, device::Stream& stream) {
            const std::vector<LocoSegment> segments = lay(base);
            for (const bool forget : {false, false, true, false}) {
              LocoQuantOptions options = {dtype, format, {.beta = 0.7f, .forget = forget}};
              BRIGADE_RETURN_IF_ERROR(LocoQuantize(segments, options, stream));
            }
            // A block that is not finite keeps its errors; the largest segment has many blocks.
            const LocoSegment& last = *std::max_element(
                segments.begin(), segments.end(),
                [](const LocoSegment& a, const LocoSegment& b) { return a.size < b.size; });
            char* const at =
                static_cast<char*>(const_cast<void*>(last.array)) + 700 * precision::SizeOf(dtype);
            BRIGADE_RETURN_IF_ERROR(stream.FillBytes(at, 0xff, precision::SizeOf(dtype)));
            return LocoQuantize(segments, {dtype, format, {}}, stream);
          });
      EXPECT_FALSE(memory.after == memory.before) << what;
    }
  }
}

TEST(CodecsGpuTest, SignPackAndUnpackGiveTheCpusBytes) {
  for (const DType dtype : kFloats) {
    for (const bool finite : {true, false}) {
      struct Lists {
        float* scale;
        std::vector<double*> workspace;
        std::vector<SignPackSegment> pack;
        std::vector<SignUnpackSegment> unpack;
      };
      constexpr int64_t kWorkspace = 4000;
      const auto lay = [&](char* base) {
        Layout layout(base);
        Lists lists;
        lists.scale = layout.Take<float>(1);
        lists.workspace = {layout.Take<double>(kWorkspace)};
        for (const int64_t n : Sizes()) {
          const size_t i = lists.pack.size();
          SignPackSegment s = {nullptr, nullptr, layout.Take<char>(SignBytes(n)), n};
          TakeArray(layout, dtype, s, i);
          s.error = layout.Take<float>(n, static_cast<int64_t>(i % 9 + i % 2));
          lists.pack.push_back(s);
          SignUnpackSegment back = {s.message, nullptr, n};
          TakeArray(layout, dtype, back, i);
          lists.unpack.push_back(back);
        }
        return lists;
      };
      const std::string what = absl::StrCat("sign_pack ", precision::Name(dtype), finite);
      const BeforeAndAfter memory = ExpectSameOnBoth(
          what,
          [&](char* base) {
            const Lists lists = lay(base);
            for (const SignPackSegment& s : lists.pack) {
              FillFloats(const_cast<void*>(s.array), dtype, s.size, 41, 0x1p-10f);
              FillFloats(s.error, DType::kFloat32, s.size, 42, 0x1p-10f);
            }
            if (!finite) lists.pack.back().error[77] = INFINITY;
          },
          [&](char* base, device::Stream& stream) {
            const Lists lists = lay(base);
            const auto workspace =
                absl::MakeSpan(lists.workspace[0], static_cast<size_t>(kWorkspace));
            absl::Status status = SignPack(lists.pack, {dtype}, workspace, lists.scale, stream);
            status.Update(stream.FillBytes(workspace.data(), 0, kWorkspace * sizeof(double)));
            // NaN has no promised payload in an array.
            if (finite) status.Update(SignUnpack(lists.unpack, {dtype, {1, 0, 0.3f}}, stream));
            return status;
          });
      EXPECT_FALSE(memory.after == memory.before) << what;
    }
  }
}

TEST(CodecsGpuTest, SignUnpackAddsTheMessagesOfManyRanksAsTheCpuDoes) {
  const std::vector<int64_t> sizes = {0, 1, 255, 256, 511, 513, 1024, 1025, 10'001, 10'001};
  int64_t stride = 0;
  for (const int64_t size : sizes) stride += SignBytes(size);
  // By a table, which holds the sums of 8 ranks at most, and one by one.
  for (const auto& [dtype, ranks] : std::vector<std::pair<DType, int64_t>>{{DType::kFloat32, 1},
                                                                           {DType::kFloat32, 3},
                                                                           {DType::kFloat32, 4},
                                                                           {DType::kFloat16, 5},
                                                                           {DType::kFloat32, 8},
                                                                           {DType::kBFloat16, 9},
                                                                           {DType::kFloat32, 14}}) {
    const auto lay = [&, ranks = ranks, dtype = dtype](char* base) {
      Layout layout(base);
      const char* messages = layout.Take<char>(ranks * stride);
      std::vector<SignUnpackSegment> segments;
      for (const int64_t n : sizes) {
        segments.push_back({messages, nullptr, n});
        TakeArray(layout, dtype, segments.back(), segments.size());
        messages += SignBytes(n);
      }
      return segments;
    };
    ExpectSameOnBoth(
        absl::StrCat("sign_unpack ", precision::Name(dtype), ", ranks ", ranks),
        [&, ranks = ranks](char* base) {
          std::mt19937 random(51);
          for (const SignUnpackSegment& s : lay(base)) {
            for (int64_t rank = 0; rank < ranks && s.size > 0; ++rank) {
              char* const message =
                  const_cast<char*>(static_cast<const char*>(s.messages)) + rank * stride;
              *reinterpret_cast<float*>(message) =
                  std::ldexp(0.7f + static_cast<float>(random() % 1000), -static_cast<int>(rank));
              for (int64_t i = kSignBitsBegin; i < SignBytes(s.size); ++i) {
                message[i] = static_cast<char>(random());
              }
            }
          }
        },
        [&, ranks = ranks, dtype = dtype](char* base, device::Stream& stream) {
          return SignUnpack(lay(base), {dtype, {ranks, stride, 0.25f}}, stream);
        });
  }
}

}  // namespace
}  // namespace brigade::kernels
