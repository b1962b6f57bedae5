#include "brigade/collectives/compressed/compressed_reduction.h"

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
#include "brigade/precision/dtype_names.h"

namespace brigade::collectives {
namespace {

using precision::DType;

constexpr char kName[] = "compressed_reduction";

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

int64_t CompressedReduction::Bytes(int64_t wire_bytes) {
  return wire_bytes + static_cast<int64_t>(sizeof(State));
}

absl::StatusOr<std::unique_ptr<CompressedReduction>> CompressedReduction::Create(
    Communicator& communicator, device::Context& context, int64_t wire_bytes) {
  if (wire_bytes < 0 || wire_bytes > kMaxCollectiveBytes) {
    return Invalid("wire_bytes is ", wire_bytes, ", must be 0 to what memory can hold");
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto amax, communicator.Resolve(kAmaxExchange));
  BRIGADE_ASSIGN_OR_RETURN(auto wire,
                           MessageBuffer::Create(context, wire_bytes, "wire", {&communicator}));
  BRIGADE_ASSIGN_OR_RETURN(
      auto state, context.Allocate(sizeof(State), device::Purpose::kCommunication, "wire state"));
  BRIGADE_ASSIGN_OR_RETURN(CallOrder order, CallOrder::Create(context, kName));
  return std::unique_ptr<CompressedReduction>(new CompressedReduction(
      communicator, context, amax.algorithm, std::move(wire), std::move(state), std::move(order)));
}

CompressedReduction::CompressedReduction(Communicator& communicator, device::Context& context,
                                         Algorithm amax_algorithm, MessageBuffer wire,
                                         device::Buffer state, CallOrder order)
    : communicator_(communicator),
      context_(context),
      amax_algorithm_(amax_algorithm),
      wire_(std::move(wire)),
      state_(std::move(state)),
      order_(std::move(order)) {}

// All that this rank can know to be wrong, but for the arrays: once the first step has run, the
// others rely on the rest.
absl::Status CompressedReduction::Check(CollectiveKind kind, int64_t count, DType dtype,
                                        const WireOptions& options, const device::Stream& stream) {
  if (kind != CollectiveKind::kAllReduce && kind != CollectiveKind::kReduceScatter) {
    return Invalid(Name(kind), " is no sum");
  }
  BRIGADE_RETURN_IF_ERROR(kernels::CheckFloatType(kName, "input", dtype));
  const bool narrow = options.wire == DType::kFloat16 || options.wire == DType::kBFloat16;
  const bool wide = options.wire == DType::kFloat32 && dtype != DType::kFloat32;
  if (!narrow && !wide) {
    return Invalid("wire is ", precision::ShortName(options.wire), ", must be fp16 or bf16");
  }
  if (options.scaling > WireScaling::kDynamic || !IsValid(options.reduction) ||
      !IsValid(options.algorithm)) {
    return Invalid("scaling ", static_cast<int>(options.scaling), ", reduction ",
                   static_cast<int>(options.reduction), ", algorithm ",
                   static_cast<int>(options.algorithm));
  }
  if (wide && options.scaling == WireScaling::kDynamic) {
    return Invalid("a wire of fp32 has no dynamic scale");
  }
  CollectiveSignature signature = {kind, options.algorithm, options.wire};
  signature.reduction = options.reduction;
  BRIGADE_RETURN_IF_ERROR(communicator_.Resolve(signature).status());
  if (options.scaling == WireScaling::kStatic) {
    BRIGADE_RETURN_IF_ERROR(kernels::CheckInRange(
        kName, "scale", -1, options.scale, {kMinAmaxScale, kMaxAmaxScale, "in [2^-126, 2^126]"}));
  }
  const int64_t capacity = wire_.bytes() / precision::SizeOf(options.wire) / Parts(kind);
  return CheckCountAndStream(kName, count, capacity, context_, stream);
}

absl::Status CompressedReduction::ChooseScale(const Input& input, const WireOptions& options,
                                              device::Stream& stream) {
  if (options.scaling == WireScaling::kNone) return absl::OkStatus();
  AmaxScale& scale = state().scale;
  if (options.scaling == WireScaling::kStatic) {
    BRIGADE_RETURN_IF_ERROR(Set(&scale.scale, options.scale, stream));
    return Set(&scale.unscale, 1.0 / options.scale, stream);
  }
  kernels::AmaxResult& agreed = state().agreed;
  BRIGADE_RETURN_IF_ERROR(kernels::Amax(input.data, input.elements, {input.dtype},
                                        &state().workspace, &agreed, stream));
  BRIGADE_RETURN_IF_ERROR(communicator_.AllReduce(
      &agreed.value, &agreed.value, kAmaxExchange.count, kAmaxExchange.dtype,
      {kAmaxExchange.op, kAmaxExchange.reduction, amax_algorithm_}, stream));
  return ChooseAmaxScale(&agreed.value, communicator_.size(), options.wire, &scale, stream);
}

absl::StatusOr<WireSum> CompressedReduction::Sum(CollectiveKind kind, int64_t count,
                                                 const Input& input, const WireOptions& options,
                                                 device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(ChooseScale(input, options, stream));
  const bool scaled = options.scaling != WireScaling::kNone;
  const float* const scale = scaled ? &state().scale.scale : nullptr;
  WireSum sum = {wire_.at(0), wire_.at(0), options.wire, scaled ? &state().scale.unscale : nullptr};
  BRIGADE_RETURN_IF_ERROR(
      CastArray(input.data, sum.whole, input.elements, {input.dtype, options.wire, scale}, stream));
  const ReduceOptions reduce = {.reduction = options.reduction, .algorithm = options.algorithm};
  if (kind == CollectiveKind::kAllReduce) {
    BRIGADE_RETURN_IF_ERROR(
        communicator_.AllReduce(sum.whole, sum.whole, count, options.wire, reduce, stream));
  } else {
    sum.data = static_cast<char*>(sum.whole) +
               communicator_.rank() * count * precision::SizeOf(options.wire);
    BRIGADE_RETURN_IF_ERROR(
        communicator_.ReduceScatter(sum.whole, sum.data, count, options.wire, reduce, stream));
  }
  return sum;
}

absl::StatusOr<WireSum> CompressedReduction::SumOnWire(CollectiveKind kind, const void* input,
                                                       int64_t count, DType dtype,
                                                       const WireOptions& options,
                                                       device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(kind, count, dtype, options, stream));
  const Input whole = {input, Parts(kind) * count, dtype};
  kernels::ListArguments arguments(kName, {}, stream);
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand({"input", precision::SizeOf(dtype), false}, input, whole.elements));
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  BRIGADE_ASSIGN_OR_RETURN(const WireSum sum, Sum(kind, count, whole, options, stream));
  BRIGADE_RETURN_IF_ERROR(order_.End(stream));
  return sum;
}

absl::Status CompressedReduction::AllReduce(const float* input, float* output, int64_t count,
                                            const WireOptions& options, device::Stream& stream) {
  constexpr auto kKind = CollectiveKind::kAllReduce;
  BRIGADE_RETURN_IF_ERROR(Check(kKind, count, DType::kFloat32, options, stream));
  kernels::ListArguments arguments(kName, {}, stream);
  if (input != output) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("input", input, count));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("output", output, count));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  BRIGADE_ASSIGN_OR_RETURN(const WireSum sum,
                           Sum(kKind, count, {input, count, DType::kFloat32}, options, stream));
  BRIGADE_RETURN_IF_ERROR(
      CastArray(sum.data, output, count, {sum.dtype, DType::kFloat32, sum.unscale}, stream));
  // The wire has half of the output's bytes, and times `unscale` its values.
  BRIGADE_RETURN_IF_ERROR(kernels::Amax(sum.data, count, {sum.dtype, sum.unscale},
                                        &state().workspace, &state().result, stream));
  return order_.End(stream);
}

}  // namespace brigade::collectives
