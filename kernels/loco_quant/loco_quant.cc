#include "brigade/kernels/loco_quant/loco_quant.h"

#include <cstdint>

#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/loco_quant/loco_quant_cpu.h"
#include "brigade/kernels/value_range.h"

#if BRIGADE_CUDA
#include "brigade/kernels/loco_quant/loco_quant_cuda.h"
#endif

namespace brigade::kernels {
namespace {

constexpr const char* kName = "loco_quantize";

}  // namespace

absl::Status LocoQuantize(absl::Span<const LocoSegment> segments, const LocoQuantOptions& options,
                          device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(kName, "array", options.dtype));
  BRIGADE_RETURN_IF_ERROR(CheckQuantFormat(kName, "format", options.format));
  BRIGADE_RETURN_IF_ERROR(CheckInRange(kName, "beta", -1, options.parameters.beta, kUnit));
  ListArguments arguments(kName,
                          {{"array", precision::SizeOf(options.dtype), false},
                           {"error", 1, true, true, kQuantAlignment},
                           {"message", 1, true, true, kQuantAlignment}},
                          stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const LocoSegment& s = segments[i];
    const auto index = static_cast<int64_t>(i);
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, index, s.array, s.size));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, index, s.error, QuantBytes(s.size, kLocoErrors)));
    BRIGADE_RETURN_IF_ERROR(
        arguments.AddArray(2, index, s.message, QuantBytes(s.size, options.format)));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  absl::Status status;
  precision::VisitFloat(options.dtype, [&](auto tag) {
    using T = decltype(tag);
    status = EnqueueList(
        {kName, arguments.accesses()}, segments, kCpuTile, stream,
        [format = options.format, parameters = options.parameters](auto plan, auto& pool) {
          ForEachRange(plan, kCpuTile, pool,
                       [&](const LocoSegment& s, int64_t begin, int64_t end, int64_t) {
                         LocoQuantizeRange<T>(s, format, parameters, begin, end);
                       });
        },
        [&](auto cuda_stream) {
          return LaunchLocoQuantize<T>(segments.data(), segments.size(), options.format,
                                       options.parameters, cuda_stream);
        });
  });
  return status;
}

}  // namespace brigade::kernels
