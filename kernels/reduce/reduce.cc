#include "brigade/kernels/reduce/reduce.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/reduce/reduce_pool.h"
#include "brigade/precision/dtype_names.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/kernels/reduce/reduce_cuda.h"
#endif

namespace brigade::kernels {
namespace {

absl::Status CheckCounts(size_t sources, size_t targets) {
  if (sources == 0) return absl::InvalidArgumentError("reduce: there are 0 sources");
  if (targets >= 1 && targets <= kMaxReduceArrays) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reduce: there are ", targets, " targets, must be 1 to ", kMaxReduceArrays));
}

absl::Status EnqueuePass(const ReduceArrays& arrays, const ReduceKernelOptions& options,
                         const device::Operation& operation, device::Stream& stream) {
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
              options.op, pool, arrays.carry);
    return absl::OkStatus();
  });
}

}  // namespace

int64_t ReducePartialsBytes(int64_t sources, int64_t size, precision::DType dtype) {
  if (sources <= kMaxReduceArrays) return 0;
  int64_t wide_bytes = 0;
  precision::VisitAny(dtype, [&](auto tag) { wide_bytes = sizeof(ReduceWide<decltype(tag)>); });
  return size * wide_bytes;
}

absl::Status Reduce(absl::Span<const void* const> sources, absl::Span<void* const> targets,
                    int64_t size, const ReduceKernelOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckCounts(sources.size(), targets.size()));
  if (!precision::IsValid(options.dtype) || options.op > ReduceOp::kMax) {
    return absl::InvalidArgumentError(absl::StrCat("reduce: dtype ",
                                                   precision::ShortName(options.dtype),
                                                   ", operation ", static_cast<int>(options.op)));
  }
  const int64_t bytes = precision::SizeOf(options.dtype);
  // A source that is a target too is declared once, as written.
  ListArguments arguments("reduce", {{"source", bytes, false}, {"target", bytes, true}}, stream);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (std::find(targets.begin(), targets.end(), sources[i]) != targets.end()) continue;
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, static_cast<int64_t>(i), sources[i], size));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, static_cast<int64_t>(i), targets[i], size));
  }
  if (sources.size() > kMaxReduceArrays) {
    const int64_t wide_bytes =
        ReducePartialsBytes(static_cast<int64_t>(sources.size()), 1, options.dtype);
    BRIGADE_RETURN_IF_ERROR(
        arguments.AddOperand({"partials", wide_bytes, true}, options.partials, size));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  // Each pass declares what all of them touch: no other stream can come between.
  const device::Operation operation = {"reduce", arguments.accesses()};
  ReduceArrays arrays;
  arrays.target_count = static_cast<int32_t>(targets.size());
  arrays.size = size;
  std::copy(targets.begin(), targets.end(), arrays.targets);
  for (size_t begin = 0; begin < sources.size(); begin += kMaxReduceArrays) {
    const auto pass = sources.subspan(begin, kMaxReduceArrays);
    const bool is_last = begin + pass.size() == sources.size();
    arrays.source_count = static_cast<int32_t>(pass.size());
    std::copy(pass.begin(), pass.end(), arrays.sources);
    arrays.carry = {begin == 0 ? nullptr : options.partials, is_last ? nullptr : options.partials};
    BRIGADE_RETURN_IF_ERROR(EnqueuePass(arrays, options, operation, stream));
  }
  return absl::OkStatus();
}

}  // namespace brigade::kernels
