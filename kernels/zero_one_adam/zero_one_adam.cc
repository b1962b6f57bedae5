#include "brigade/kernels/zero_one_adam/zero_one_adam.h"

#include <cstddef>

#include "brigade/device/status_macros.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/kernels/zero_one_adam/zero_one_adam_cuda.h"
#endif

namespace brigade::kernels {

absl::Status ZeroOneAdamMask(absl::Span<const ZeroOneMask> segments, device::Stream& stream) {
  constexpr char kName[] = "zero_one_adam_mask";
  ListArguments arguments(
      kName, {{"second_moment", sizeof(float), false}, {"gradient", sizeof(float), true}}, stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const ZeroOneMask& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(
        arguments.Add(static_cast<int64_t>(i), s.size, {s.second_moment, s.gradient}));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  return EnqueueList(
      {kName, arguments.accesses()}, segments, kCpuTile, stream,
      [](auto plan, device::ThreadPool& pool) {
        ForEachRange(plan, kCpuTile, pool,
                     [](const ZeroOneMask& s, int64_t begin, int64_t end, int64_t) {
                       for (int64_t i = begin; i < end; ++i) {
                         if (s.second_moment[i] == 0.0f) s.gradient[i] = 0.0f;
                       }
                     });
      },
      [&](auto cuda_stream) {
        return LaunchZeroOneAdamMask(segments.data(), static_cast<int64_t>(segments.size()),
                                     cuda_stream);
      });
}

}  // namespace brigade::kernels
