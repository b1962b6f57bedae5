#include "brigade/collectives/check_call.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/list_arguments.h"

namespace brigade::collectives {
namespace {

constexpr int64_t kNotInPlace = -1;

// Where in place the smaller array lies in the larger one.
int64_t InPlaceOffset(const CallShape& shape, int rank) {
  switch (shape.kind) {
    case CallKind::kAllReduce:
    case CallKind::kBroadcast:
      return 0;
    case CallKind::kReduceScatter:
    case CallKind::kAllGather:
      return rank * shape.count;
    default:
      return kNotInPlace;
  }
}

absl::Status Invalid(const CallShape& shape, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(Name(shape.kind), ": ", what));
}

}  // namespace

absl::Status CheckCall(const Call& call, int rank, int size, device::Device device,
                       device::Stream& stream) {
  const CallShape& shape = call.shape;
  if (!precision::IsValid(shape.dtype)) return Invalid(shape, "dtype is invalid");
  if (shape.op > kernels::ReduceOp::kMax || !IsValid(shape.algorithm)) {
    return Invalid(shape, absl::StrCat("operation ", static_cast<int>(shape.op), ", algorithm ",
                                       static_cast<int>(shape.algorithm)));
  }
  const auto rank_is_wrong = [&](int other) { return other < 0 || other >= size; };
  if (rank_is_wrong(shape.root) || rank_is_wrong(call.peer)) {
    return Invalid(shape, absl::StrCat("rank ", rank_is_wrong(shape.root) ? shape.root : call.peer,
                                       " is not in a group of ", size));
  }
  if (shape.kind == CallKind::kSend && call.peer == rank) {
    return Invalid(shape, absl::StrCat("rank ", rank, " sends to itself"));
  }
  if (stream.device() != device) {
    return Invalid(shape, absl::StrCat("the stream is on ", stream.device().ToString(),
                                       ", the communicator on ", device.ToString()));
  }
  if (shape.count < 0) return Invalid(shape, absl::StrCat("count is ", shape.count));
  constexpr int64_t kMost = int64_t{1} << 56;
  if (shape.count > kMost / precision::SizeOf(shape.dtype) / size) {
    return Invalid(shape, absl::StrCat("count is ", shape.count, ", more than any address space"));
  }
  const int64_t element_bytes = precision::SizeOf(shape.dtype);
  const int64_t input_elements = InputElements(shape, rank, size);
  const int64_t output_elements = OutputElements(shape, rank, size);
  const int64_t offset = InPlaceOffset(shape, rank);
  const char* const begin =
      static_cast<const char*>(input_elements < output_elements ? call.output : call.input);
  const char* const inner =
      static_cast<const char*>(input_elements < output_elements ? call.input : call.output);
  const bool in_place =
      offset != kNotInPlace && begin != nullptr && inner == begin + offset * element_bytes;
  const std::string name(Name(shape.kind));
  kernels::ListArguments arguments(
      name, {{"input", element_bytes, false}, {"output", element_bytes, true}}, stream);
  // In place the larger array stands for both.
  if (!in_place || input_elements > output_elements) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, -1, call.input, input_elements));
  }
  if (!in_place || input_elements <= output_elements) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, -1, call.output, output_elements));
  }
  return arguments.CheckOverlap();
}

}  // namespace brigade::collectives
