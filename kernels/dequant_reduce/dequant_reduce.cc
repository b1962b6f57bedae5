#include "brigade/kernels/dequant_reduce/dequant_reduce.h"

#include <cstdint>
#include <utility>

#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce_cpu.h"
#include "brigade/kernels/internal/contributions.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/kernels/dequant_reduce/dequant_reduce_cuda.h"
#endif

namespace brigade::kernels {
namespace {

constexpr const char* kName = "dequant_reduce";

absl::Status CheckOptions(const DequantReduceOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckQuantFormat(kName, "format", options.format));
  if (options.target_format.has_value()) {
    BRIGADE_RETURN_IF_ERROR(CheckQuantFormat(kName, "target_format", *options.target_format));
  } else {
    BRIGADE_RETURN_IF_ERROR(CheckFloatType(kName, "target", options.target_dtype));
  }
  const auto& [ranks, stride, factor] = options.parameters;
  return CheckContributions(kName, ranks, stride, kQuantAlignment, factor);
}

// Calls visit(tag) with the type that stands for the target.
template <typename Visitor>
void VisitTarget(const DequantReduceOptions& options, const Visitor& visit) {
  if (!options.target_format.has_value()) {
    precision::VisitFloat(options.target_dtype, visit);
    return;
  }
  VisitQuantFormat(*options.target_format,
                   [&](auto constant) { visit(MessageTarget<decltype(constant)::value>()); });
}

}  // namespace

absl::Status DequantReduce(absl::Span<const DequantReduceSegment> segments,
                           const DequantReduceOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckOptions(options));
  const bool is_message = options.target_format.has_value();
  const int64_t target_bytes = is_message ? 1 : precision::SizeOf(options.target_dtype);
  ListArguments arguments(
      kName,
      {{"messages", 1, false, true, kQuantAlignment},
       {"target", target_bytes, true, true, is_message ? kQuantAlignment : target_bytes}},
      stream);
  BRIGADE_RETURN_IF_ERROR(AddContributions(
      kName, segments, options.parameters.ranks, options.parameters.stride, arguments,
      [&](const DequantReduceSegment& s) { return QuantBytes(s.size, options.format); },
      [&](const DequantReduceSegment& s) {
        return std::pair(s.target,
                         is_message ? QuantBytes(s.size, *options.target_format) : s.size);
      }));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  absl::Status status;
  VisitTarget(options, [&](auto tag) {
    using Target = decltype(tag);
    status = EnqueueList(
        {kName, arguments.accesses()}, segments, kCpuTile, stream,
        [format = options.format, parameters = options.parameters](auto plan, auto& pool) {
          const int64_t elements = CountElements(plan);
          int64_t written = 0;
          if constexpr (kIsMessage<Target>) {
            written = QuantBytes(elements, Target::kTargetFormat);
          } else {
            written = elements * static_cast<int64_t>(sizeof(Target));
          }
          const bool past_caches = written >= kMinNontemporalBytes;
          ForEachRange(plan, kCpuTile, pool,
                       [&](const DequantReduceSegment& s, int64_t begin, int64_t end, int64_t) {
                         DequantReduceRange<Target>(s, format, parameters, past_caches, begin, end);
                       });
        },
        [&](auto cuda_stream) {
          return LaunchDequantReduce<Target>(segments.data(), segments.size(), options.format,
                                             options.parameters, cuda_stream);
        });
  });
  return status;
}

}  // namespace brigade::kernels
