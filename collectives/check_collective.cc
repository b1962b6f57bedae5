#include "brigade/collectives/check_collective.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/list_arguments.h"

namespace brigade::collectives {
namespace {

constexpr int64_t kNotInPlace = -1;

// Where in place the smaller array lies in the larger one.
int64_t InPlaceOffset(const CollectiveSignature& signature, int rank) {
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
      return 0;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
      return rank * signature.count;
    default:
      return kNotInPlace;
  }
}

absl::Status Invalid(const CollectiveSignature& signature, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(Name(signature.kind), ": ", what));
}

absl::Status CheckRank(const CollectiveSignature& signature, int rank, int size) {
  if (rank >= 0 && rank < size) return absl::OkStatus();
  return Invalid(signature, absl::StrCat("rank ", rank, " is not in a group of ", size));
}

}  // namespace

absl::Status CheckSignature(const CollectiveSignature& signature, int size) {
  if (!precision::IsValid(signature.dtype)) return Invalid(signature, "dtype is invalid");
  if (signature.op > kernels::ReduceOp::kMax || !IsValid(signature.reduction) ||
      !IsValid(signature.algorithm)) {
    return Invalid(signature, absl::StrCat("operation ", static_cast<int>(signature.op),
                                           ", reduction ", static_cast<int>(signature.reduction),
                                           ", algorithm ", static_cast<int>(signature.algorithm)));
  }
  BRIGADE_RETURN_IF_ERROR(CheckRank(signature, signature.root, size));
  if (signature.count < 0) return Invalid(signature, absl::StrCat("count is ", signature.count));
  if (signature.count > kMaxCollectiveBytes / precision::SizeOf(signature.dtype) / size) {
    return Invalid(signature,
                   absl::StrCat("count is ", signature.count, ", more than any address space"));
  }
  return absl::OkStatus();
}

absl::Status CheckArguments(const Collective& collective, int rank, int size, device::Device device,
                            device::Stream& stream) {
  const CollectiveSignature& signature = collective.signature;
  BRIGADE_RETURN_IF_ERROR(CheckRank(signature, collective.peer, size));
  if (signature.kind == CollectiveKind::kSend && collective.peer == rank) {
    return Invalid(signature, absl::StrCat("rank ", rank, " sends to itself"));
  }
  if (stream.device() != device) {
    return Invalid(signature, absl::StrCat("the stream is on ", stream.device().ToString(),
                                           ", the communicator on ", device.ToString()));
  }
  const int64_t element_bytes = precision::SizeOf(signature.dtype);
  const int64_t input_elements = InputElements(signature, rank, size);
  const int64_t output_elements = OutputElements(signature, rank, size);
  const int64_t offset = InPlaceOffset(signature, rank);
  const char* const begin = static_cast<const char*>(
      input_elements < output_elements ? collective.output : collective.input);
  const char* const inner = static_cast<const char*>(
      input_elements < output_elements ? collective.input : collective.output);
  const bool in_place =
      offset != kNotInPlace && begin != nullptr && inner == begin + offset * element_bytes;
  const std::string name(Name(signature.kind));
  kernels::ListArguments arguments(
      name, {{"input", element_bytes, false}, {"output", element_bytes, true}}, stream);
  // In place the larger array stands for both.
  if (!in_place || input_elements > output_elements) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, -1, collective.input, input_elements));
  }
  if (!in_place || input_elements <= output_elements) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, -1, collective.output, output_elements));
  }
  return arguments.CheckOverlap();
}

}  // namespace brigade::collectives
