#include "brigade/kernels/fill/fill.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/fill/fill_cpu.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/precision/dtype_names.h"

#if BRIGADE_CUDA
#include "brigade/kernels/fill/fill_cuda.h"
#endif

namespace brigade::kernels {
namespace {

using precision::DType;

// Whether an integer of `bits` bits represents the value. All bounds are exact in double.
bool FitsInteger(double value, int bits, bool is_signed) {
  const double limit = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  return value == std::trunc(value) && value >= (is_signed ? -limit : 0.0) && value < limit;
}

// The pattern of an element of `dtype`, or false if an integer type does not represent the value.
bool MakePattern(DType dtype, double value, FillPattern& pattern) {
  const float rounded = static_cast<float>(value);
  switch (dtype) {
    case DType::kFloat32:
      pattern = MakeFillPattern(rounded);
      return true;
    case DType::kFloat16:
      pattern = MakeFillPattern(precision::Half(rounded));
      return true;
    case DType::kBFloat16:
      pattern = MakeFillPattern(precision::BFloat16(rounded));
      return true;
    case DType::kFloat64:
      pattern = MakeFillPattern(value);
      return true;
    case DType::kInt32:
      if (!FitsInteger(value, 32, true)) return false;
      pattern = MakeFillPattern(static_cast<int32_t>(value));
      return true;
    case DType::kInt64:
      if (!FitsInteger(value, 64, true)) return false;
      pattern = MakeFillPattern(static_cast<int64_t>(value));
      return true;
    case DType::kUint8:
      if (!FitsInteger(value, 8, false)) return false;
      pattern = MakeFillPattern(static_cast<uint8_t>(value));
      return true;
  }
  return false;
}

void FillList(absl::Span<const PlannedSegment<FillSegment>> plan, const FillPattern& pattern,
              int64_t element_bytes, device::ThreadPool& pool) {
  const bool past_caches = CountElements(plan) * element_bytes >= kMinNontemporalBytes;
  ForEachRange(plan, kCpuTile, pool,
               [&](const FillSegment& segment, int64_t begin, int64_t end, int64_t) {
                 FillRange(segment, pattern, element_bytes, past_caches, begin, end);
               });
}

}  // namespace

absl::Status Fill(absl::Span<const FillSegment> segments, DType dtype, double value,
                  device::Stream& stream) {
  if (!precision::IsValid(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("fill: dtype is invalid: ", static_cast<int>(dtype)));
  }
  FillPattern pattern;
  if (!MakePattern(dtype, value, pattern)) {
    return absl::InvalidArgumentError(
        absl::StrCat("fill: value ", value, " is not a value of ", precision::ShortName(dtype)));
  }
  const int64_t element_bytes = precision::SizeOf(dtype);
  ListArguments arguments("fill", {{"data", element_bytes, true}}, stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(arguments.Add(i, segments[i].size, {segments[i].data}));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {"fill", arguments.accesses()};
  return EnqueueList(
      operation, segments, kCpuTile, stream,
      [pattern, element_bytes](auto plan, auto& pool) {
        FillList(plan, pattern, element_bytes, pool);
      },
      [&](auto cuda_stream) {
        return LaunchFill(segments.data(), segments.size(), pattern, element_bytes, cuda_stream);
      });
}

}  // namespace brigade::kernels
