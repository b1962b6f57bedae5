#include "brigade/kernels/cast/cast.h"

#include "absl/strings/str_cat.h"
#include "brigade/kernels/cast/cast_list.h"
#include "brigade/kernels/cast/cast_pool.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/kernels/cast/cast_cuda.h"
#endif

namespace brigade::kernels {

absl::Status Cast(absl::Span<const CastSegment> segments, const CastOptions& options,
                  device::Stream& stream) {
  return CastList({"cast", "source", "target"}, segments, options, stream);
}

absl::Status CastList(const CastNames& names, absl::Span<const CastSegment> segments,
                      const CastOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(names.operation, names.source, options.source_dtype));
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(names.operation, names.target, options.target_dtype));
  ListArguments arguments(names.operation,
                          {{names.source, precision::SizeOf(options.source_dtype), false},
                           {names.target, precision::SizeOf(options.target_dtype), true}},
                          stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(
        arguments.Add(i, segments[i].size, {segments[i].source, segments[i].target}));
  }
  if (options.scale != nullptr) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("scale", options.scale, 1));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {names.operation, arguments.accesses()};
  absl::Status status;
  precision::VisitFloat(options.source_dtype, [&](auto source) {
    precision::VisitFloat(options.target_dtype, [&](auto target) {
      using Source = decltype(source);
      using Target = decltype(target);
      status = EnqueueList(
          operation, segments, kCpuTile, stream,
          [scale = options.scale, accumulate = options.accumulate](auto plan, auto& pool) {
            CastCpu<Source, Target>(plan, scale, accumulate, pool);
          },
          [&](auto cuda_stream) {
            return LaunchCast<Source, Target>(segments.data(), segments.size(), options.scale,
                                              options.accumulate, cuda_stream);
          });
    });
  });
  return status;
}

}  // namespace brigade::kernels
