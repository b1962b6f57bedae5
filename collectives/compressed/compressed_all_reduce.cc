#include "brigade/collectives/compressed/compressed_all_reduce.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/collectives/compressed/amax_scale.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/amax/amax.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/value_range.h"

namespace brigade::collectives {
namespace {

using precision::DType;

constexpr char kName[] = "compressed_all_reduce";

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(kName, ": ", what...));
}

absl::Status CastArray(const void* source, void* target, int64_t count,
                       const kernels::CastOptions& options, device::Stream& stream) {
  const kernels::CastSegment segment = {source, target, count};
  return kernels::Cast(absl::MakeConstSpan(&segment, 1), options, stream);
}

absl::Status Set(float* target, double value, device::Stream& stream) {
  const kernels::FillSegment segment = {target, 1};
  return kernels::Fill(absl::MakeConstSpan(&segment, 1), DType::kFloat32, value, stream);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompressedAllReduce>> CompressedAllReduce::Create(
    Communicator& communicator, device::Context& context, int64_t capacity) {
  constexpr int64_t kMost = int64_t{1} << 56;
  if (capacity < 0 || capacity > kMost / 2) {
    return Invalid("capacity is ", capacity, ", must be 0 to what memory can hold");
  }
  constexpr auto kPurpose = device::Purpose::kCommunication;
  BRIGADE_ASSIGN_OR_RETURN(auto wire, context.Allocate(2 * capacity, kPurpose, "wire"));
  BRIGADE_ASSIGN_OR_RETURN(auto state, context.Allocate(sizeof(State), kPurpose, "wire state"));
  BRIGADE_ASSIGN_OR_RETURN(auto last, context.CreateEvent(kName));
  return std::unique_ptr<CompressedAllReduce>(new CompressedAllReduce(
      communicator, context, std::move(wire), std::move(state), std::move(last)));
}

CompressedAllReduce::CompressedAllReduce(Communicator& communicator, device::Context& context,
                                         device::Buffer wire, device::Buffer state,
                                         std::unique_ptr<device::Event> last)
    : communicator_(communicator),
      context_(context),
      wire_(std::move(wire)),
      state_(std::move(state)),
      order_(std::move(last)) {}

// All that this rank can know to be wrong: once the first step has run, the others rely on the
// rest.
absl::Status CompressedAllReduce::Check(const float* input, float* output, int64_t count,
                                        const WireOptions& options, device::Stream& stream) const {
  if (options.wire != DType::kFloat16 && options.wire != DType::kBFloat16) {
    return Invalid("wire is ", precision::Name(options.wire), ", must be float16 or bfloat16");
  }
  if (options.scaling > WireScaling::kDynamic || !IsValid(options.reduction) ||
      !IsValid(options.algorithm)) {
    return Invalid("scaling ", static_cast<int>(options.scaling), ", reduction ",
                   static_cast<int>(options.reduction), ", algorithm ",
                   static_cast<int>(options.algorithm));
  }
  CollectiveSignature signature = {CollectiveKind::kAllReduce, options.algorithm, options.wire};
  signature.reduction = options.reduction;
  BRIGADE_RETURN_IF_ERROR(communicator_.Resolve(signature).status());
  if (options.scaling == WireScaling::kStatic) {
    BRIGADE_RETURN_IF_ERROR(kernels::CheckInRange(
        kName, "scale", -1, options.scale, {kMinAmaxScale, kMaxAmaxScale, "in [2^-126, 2^126]"}));
  }
  const int64_t capacity = wire_.bytes() / 2;
  if (count < 0 || count > capacity) {
    return Invalid("count is ", count, ", must be 0 to the capacity, ", capacity);
  }
  if (stream.device() != context_.device()) {
    return Invalid("the stream is on ", stream.device().ToString(), ", the communicator on ",
                   context_.device().ToString());
  }
  kernels::ListArguments arguments(kName, {}, stream);
  if (input != output) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("input", input, count));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("output", output, count));
  return arguments.CheckOverlap();
}

absl::Status CompressedAllReduce::ChooseScale(const float* input, int64_t count,
                                              const WireOptions& options, device::Stream& stream) {
  if (options.scaling == WireScaling::kNone) return absl::OkStatus();
  AmaxScale& scale = state().scale;
  if (options.scaling == WireScaling::kStatic) {
    BRIGADE_RETURN_IF_ERROR(Set(&scale.scale, options.scale, stream));
    return Set(&scale.unscale, 1.0 / options.scale, stream);
  }
  kernels::AmaxResult& agreed = state().agreed;
  BRIGADE_RETURN_IF_ERROR(kernels::Amax(input, count, {}, &state().workspace, &agreed, stream));
  BRIGADE_RETURN_IF_ERROR(communicator_.AllReduce(&agreed.value, &agreed.value, 1, DType::kFloat32,
                                                  {.op = kernels::ReduceOp::kMax}, stream));
  return ChooseAmaxScale(&agreed.value, communicator_.size(), options.wire, &scale, stream);
}

absl::Status CompressedAllReduce::AllReduce(const float* input, float* output, int64_t count,
                                            const WireOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(input, output, count, options, stream));
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  BRIGADE_RETURN_IF_ERROR(ChooseScale(input, count, options, stream));
  const bool scaled = options.scaling != WireScaling::kNone;
  const float* const scale = scaled ? &state().scale.scale : nullptr;
  const float* const unscale = scaled ? &state().scale.unscale : nullptr;
  void* const wire = wire_.data();
  BRIGADE_RETURN_IF_ERROR(
      CastArray(input, wire, count, {DType::kFloat32, options.wire, scale}, stream));
  BRIGADE_RETURN_IF_ERROR(communicator_.AllReduce(
      wire, wire, count, options.wire,
      {.reduction = options.reduction, .algorithm = options.algorithm}, stream));
  BRIGADE_RETURN_IF_ERROR(
      CastArray(wire, output, count, {options.wire, DType::kFloat32, unscale}, stream));
  // The wire has half of the output's bytes, and times `unscale` its values.
  BRIGADE_RETURN_IF_ERROR(kernels::Amax(wire, count, {options.wire, unscale}, &state().workspace,
                                        &state().result, stream));
  return order_.End(stream);
}

}  // namespace brigade::collectives
