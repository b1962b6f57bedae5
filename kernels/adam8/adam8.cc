#include "brigade/kernels/adam8/adam8.h"

#include "brigade/kernels/adam8/adam8_cpu.h"
#include "brigade/kernels/internal/enqueue_update.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/kernels/adam8/adam8_cuda.h"
#endif

namespace brigade::kernels {
namespace {

using precision::DType;

constexpr char kName[] = "adam8";
// Of the CPU's work: whole blocks.
static_assert(kCpuTile % kMomentBlock == 0);

}  // namespace

absl::Status Adam8(absl::Span<const Adam8Segment> segments, const AdamOptions& options,
                   device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckAdamOptions(kName, options));
  const DType copy_dtype = options.copy_dtype.value_or(DType::kFloat16);
  ListArguments arguments(
      kName,
      {Updated("param", sizeof(float)),
       Updated("m", sizeof(uint8_t)),
       Updated("v", sizeof(uint8_t)),
       {"grad", precision::SizeOf(options.grad_dtype), false},
       {"param_copy", precision::SizeOf(copy_dtype), true, options.copy_dtype.has_value()},
       Updated("m_scale", sizeof(float)),
       Updated("v_scale", sizeof(float))},
      stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const Adam8Segment& s = segments[i];
    const auto index = static_cast<int64_t>(i);
    BRIGADE_RETURN_IF_ERROR(
        arguments.Add(index, s.size, {s.param, s.m, s.v, s.grad, s.param_copy}));
    const int64_t blocks = MomentBlocks(s.size);
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(5, index, s.m_scale, blocks));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(6, index, s.v_scale, blocks));
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex(kName, index, s.group, options.groups.size()));
  }
  BRIGADE_RETURN_IF_ERROR(AddStep(kName, options.state, options.group_steps, options.one_step,
                                  options.groups.size(), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  return EnqueueUpdate<Adam8Policy>(
      kName, arguments, segments, options, MakeAdamParameters(options), stream,
      [](auto grad, auto copy) { return Adam8Range<decltype(grad), decltype(copy)>; },
      [](auto grad, auto copy, auto... launch) {
        return LaunchAdam8<decltype(grad), decltype(copy)>(launch...);
      });
}

}  // namespace brigade::kernels
