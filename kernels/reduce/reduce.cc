#include "brigade/kernels/reduce/reduce.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/reduce/reduce_cpu.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/kernels/reduce/reduce_cuda.h"
#endif

namespace brigade::kernels {
namespace {

absl::Status CheckCount(const char* what, size_t count) {
  if (count >= 1 && count <= kMaxReduceArrays) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reduce: there are ", count, " ", what, ", must be 1 to ", kMaxReduceArrays));
}

}  // namespace

absl::Status Reduce(absl::Span<const void* const> sources, absl::Span<void* const> targets,
                    int64_t size, const ReduceKernelOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckCount("sources", sources.size()));
  BRIGADE_RETURN_IF_ERROR(CheckCount("targets", targets.size()));
  if (!precision::IsValid(options.dtype) || options.op > ReduceOp::kMax) {
    return absl::InvalidArgumentError(absl::StrCat("reduce: dtype ", precision::Name(options.dtype),
                                                   ", operation ", static_cast<int>(options.op)));
  }
  const int64_t bytes = precision::SizeOf(options.dtype);
  ReduceArrays arrays;
  arrays.source_count = static_cast<int32_t>(sources.size());
  arrays.target_count = static_cast<int32_t>(targets.size());
  arrays.size = size;
  std::copy(sources.begin(), sources.end(), arrays.sources);
  std::copy(targets.begin(), targets.end(), arrays.targets);

  // A source that is a target too is declared once, as written.
  ListArguments arguments("reduce", {{"source", bytes, false}, {"target", bytes, true}}, stream);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (std::find(targets.begin(), targets.end(), sources[i]) != targets.end()) continue;
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, static_cast<int64_t>(i), sources[i], size));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, static_cast<int64_t>(i), targets[i], size));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {"reduce", arguments.accesses()};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      cudaError_t error = cudaSuccess;
      precision::VisitAny(options.dtype, [&](auto tag) {
        error =
            LaunchReduce<decltype(tag)>(arrays, options.op, static_cast<cudaStream_t>(cuda_stream));
      });
      return device::CudaStatus(error, "reduce");
    });
  }
#endif
  return stream.Enqueue(operation, [arrays, options](device::ThreadPool& pool) {
    ReduceCpu(absl::MakeConstSpan(arrays.sources, arrays.source_count),
              absl::MakeConstSpan(arrays.targets, arrays.target_count), arrays.size, options.dtype,
              options.op, pool);
    return absl::OkStatus();
  });
}

}  // namespace brigade::kernels
