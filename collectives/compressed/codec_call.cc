#include "brigade/collectives/compressed/codec_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/list_arguments.h"

namespace brigade::collectives {
namespace {

template <typename... What>
absl::Status Invalid(const char* operation, const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(operation, ": ", what...));
}

}  // namespace

absl::Status CheckCapacity(const char* operation, int64_t max_count, int ranks) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  if (max_count >= 0 && max_count <= kMaxCollectiveBytes / kBytes / ranks) return absl::OkStatus();
  return Invalid(operation, "max_count is ", max_count, ", must be 0 to what memory can hold");
}

absl::Status CheckCountAndStream(const char* operation, int64_t count, int64_t capacity,
                                 const device::Context& context, const device::Stream& stream) {
  if (count < 0 || count > capacity) {
    return Invalid(operation, "count is ", count, ", must be 0 to the capacity, ", capacity);
  }
  if (stream.device() == context.device()) return absl::OkStatus();
  return Invalid(operation, "the stream is on ", stream.device().ToString(),
                 ", the communicator on ", context.device().ToString());
}

absl::Status CheckCodecCall(const char* operation, int64_t count, int64_t capacity,
                            const CodecArrays& arrays, const device::Context& context,
                            const device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(kernels::CheckFloatType(operation, "input", arrays.dtype));
  BRIGADE_RETURN_IF_ERROR(CheckCountAndStream(operation, count, capacity, context, stream));
  kernels::ListArguments arguments(operation, {}, stream);
  const int64_t bytes = precision::SizeOf(arrays.dtype);
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand({"input", bytes, false}, arrays.input, arrays.input_elements));
  if (arrays.in_place) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand({"output", bytes, true}, arrays.output, arrays.output_elements));
  return arguments.CheckOverlap();
}

absl::StatusOr<MessageBuffer> MessageBuffer::Create(device::Context& context, int64_t bytes,
                                                    absl::string_view name,
                                                    absl::Span<Communicator* const> communicators) {
  MessageBuffer buffer;
  BRIGADE_ASSIGN_OR_RETURN(buffer.memory_,
                           context.Allocate(bytes, device::Purpose::kCommunication, name));
  for (Communicator* const communicator : communicators) {
    BRIGADE_ASSIGN_OR_RETURN(auto registration,
                             communicator->Register(buffer.memory_.data(), bytes));
    buffer.registrations_.push_back(std::move(registration));
  }
  return buffer;
}

}  // namespace brigade::collectives
