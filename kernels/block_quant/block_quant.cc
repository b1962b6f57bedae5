#include "brigade/kernels/block_quant/block_quant.h"

#include "absl/strings/str_cat.h"
#include "brigade/kernels/block_quant/block_quant_cpu.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/kernels/block_quant/block_quant_cuda.h"
#endif

namespace brigade::kernels {
namespace {

absl::Status CheckOptions(absl::string_view operation, const BlockQuantOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(operation, "array", options.dtype));
  return CheckQuantFormat(operation, "format", options.format);
}

template <typename Segment>
absl::Status AddSegments(absl::Span<const Segment> segments, QuantFormat format,
                         ListArguments& arguments) {
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const auto index = static_cast<int64_t>(i);
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, index, s.array, s.size));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, index, s.message, QuantBytes(s.size, format)));
  }
  return arguments.CheckOverlap();
}

}  // namespace

absl::Status CheckQuantFormat(absl::string_view operation, absl::string_view name,
                              QuantFormat format) {
  if (format == QuantFormat::kInt8 || format == QuantFormat::kInt4) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      operation, ": ", name, " is ", static_cast<int>(format), ", must be int8 or int4"));
}

absl::Status BlockQuantize(absl::Span<const QuantizeSegment> segments,
                           const BlockQuantOptions& options, device::Stream& stream) {
  constexpr const char* kName = "block_quantize";
  BRIGADE_RETURN_IF_ERROR(CheckOptions(kName, options));
  ListArguments arguments(kName,
                          {{"array", precision::SizeOf(options.dtype), false},
                           {"message", 1, true, true, kQuantAlignment}},
                          stream);
  BRIGADE_RETURN_IF_ERROR(AddSegments(segments, options.format, arguments));
  absl::Status status;
  precision::VisitFloat(options.dtype, [&](auto tag) {
    using T = decltype(tag);
    status = EnqueueList(
        {kName, arguments.accesses()}, segments, kCpuTile, stream,
        [format = options.format](auto plan, auto& pool) {
          const bool past_caches = QuantBytes(CountElements(plan), format) >= kMinNontemporalBytes;
          ForEachRange(plan, kCpuTile, pool,
                       [&](const QuantizeSegment& s, int64_t begin, int64_t end, int64_t) {
                         BlockQuantizeRange<T>(s, format, past_caches, begin, end);
                       });
        },
        [&](auto cuda_stream) {
          return LaunchBlockQuantize<T>(segments.data(), segments.size(), options.format,
                                        cuda_stream);
        });
  });
  return status;
}

absl::Status BlockDequantize(absl::Span<const DequantizeSegment> segments,
                             const BlockQuantOptions& options, device::Stream& stream) {
  constexpr const char* kName = "block_dequantize";
  BRIGADE_RETURN_IF_ERROR(CheckOptions(kName, options));
  const int64_t element_bytes = precision::SizeOf(options.dtype);
  ListArguments arguments(
      kName, {{"array", element_bytes, true}, {"message", 1, false, true, kQuantAlignment}},
      stream);
  BRIGADE_RETURN_IF_ERROR(AddSegments(segments, options.format, arguments));
  absl::Status status;
  precision::VisitFloat(options.dtype, [&](auto tag) {
    using T = decltype(tag);
    status = EnqueueList(
        {kName, arguments.accesses()}, segments, kCpuTile, stream,
        [format = options.format](auto plan, auto& pool) {
          const bool past_caches =
              CountElements(plan) * static_cast<int64_t>(sizeof(T)) >= kMinNontemporalBytes;
          ForEachRange(plan, kCpuTile, pool,
                       [&](const DequantizeSegment& s, int64_t begin, int64_t end, int64_t) {
                         BlockDequantizeRange<T>(s, format, past_caches, begin, end);
                       });
        },
        [&](auto cuda_stream) {
          return LaunchBlockDequantize<T>(segments.data(), segments.size(), options.format,
                                          cuda_stream);
        });
  });
  return status;
}

}  // namespace brigade::kernels
