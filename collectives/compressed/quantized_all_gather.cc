#include "brigade/collectives/compressed/quantized_all_gather.h"

#include <utility>

#include "brigade/device/status_macros.h"
#include "brigade/kernels/block_quant/block_quant.h"

namespace brigade::collectives {
namespace {

constexpr char kName[] = "quantized_all_gather";

}  // namespace

absl::StatusOr<std::unique_ptr<QuantizedAllGather>> QuantizedAllGather::Create(
    Communicator& communicator, device::Context& context, int64_t max_count,
    kernels::QuantFormat format) {
  BRIGADE_RETURN_IF_ERROR(CheckCapacity(kName, max_count, communicator.size()));
  BRIGADE_RETURN_IF_ERROR(kernels::CheckQuantFormat(kName, "format", format));
  BRIGADE_ASSIGN_OR_RETURN(
      auto messages, MessageBuffer::Create(context, Bytes(communicator.size(), max_count, format),
                                           "messages of a gather", {&communicator}));
  BRIGADE_ASSIGN_OR_RETURN(CallOrder order, CallOrder::Create(context, kName));
  return std::unique_ptr<QuantizedAllGather>(new QuantizedAllGather(
      communicator, context, max_count, format, std::move(messages), std::move(order)));
}

QuantizedAllGather::QuantizedAllGather(Communicator& communicator, device::Context& context,
                                       int64_t max_count, kernels::QuantFormat format,
                                       MessageBuffer messages, CallOrder order)
    : communicator_(communicator),
      context_(context),
      max_count_(max_count),
      format_(format),
      messages_(std::move(messages)),
      order_(std::move(order)),
      sources_(static_cast<size_t>(communicator.size())),
      parts_(static_cast<size_t>(communicator.size())) {}

absl::Status QuantizedAllGather::AllGather(const void* input, void* output, int64_t count,
                                           precision::DType dtype, const GatherOptions& options,
                                           device::Stream& stream) {
  const int64_t part_bytes = count * precision::SizeOf(dtype);
  const int rank = communicator_.rank(), size = communicator_.size();
  char* const whole = static_cast<char*>(output);
  const bool in_place = count > 0 && input != nullptr && input == whole + rank * part_bytes;
  // In place the input is a part of the output, which then is what is to be looked at.
  const CodecArrays arrays = in_place
                                 ? CodecArrays{output, size * count, output, 0, dtype, true}
                                 : CodecArrays{input, count, output, size * count, dtype, false};
  BRIGADE_RETURN_IF_ERROR(CheckCodecCall(kName, count, max_count_, arrays, context_, stream));
  const CollectiveSignature call = QuantizedGatherCall(count, format_, options.algorithm);
  BRIGADE_RETURN_IF_ERROR(communicator_.Resolve(call).status());

  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  uint8_t* const mine = messages_.at(rank * call.count);
  BRIGADE_RETURN_IF_ERROR(kernels::BlockQuantize({{input, mine, count}}, {dtype, format_}, stream));
  BRIGADE_RETURN_IF_ERROR(
      communicator_.AllGather(mine, messages_.at(0), call.count, call.dtype, options, stream));
  BRIGADE_RETURN_IF_ERROR(Dequantize(output, count, dtype, stream));
  return order_.End(stream);
}

absl::Status QuantizedAllGather::KeepCodes(void* whole, int64_t count, precision::DType dtype,
                                           device::Stream& stream) {
  const int size = communicator_.size();
  const CodecArrays arrays = {whole, size * count, whole, 0, dtype, /*in_place=*/true};
  BRIGADE_RETURN_IF_ERROR(CheckCodecCall(kName, count, max_count_, arrays, context_, stream));
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  for (int r = 0; r < size; ++r) {
    sources_[static_cast<size_t>(r)] = {
        static_cast<const char*>(whole) + r * count * precision::SizeOf(dtype),
        messages_.at(r * kernels::QuantBytes(count, format_)), count};
  }
  BRIGADE_RETURN_IF_ERROR(kernels::BlockQuantize(sources_, {dtype, format_}, stream));
  BRIGADE_RETURN_IF_ERROR(Dequantize(whole, count, dtype, stream));
  return order_.End(stream);
}

absl::Status QuantizedAllGather::Dequantize(void* whole, int64_t count, precision::DType dtype,
                                            device::Stream& stream) {
  for (int r = 0; r < communicator_.size(); ++r) {
    parts_[static_cast<size_t>(r)] = {
        messages_.at(r * kernels::QuantBytes(count, format_)),
        static_cast<char*>(whole) + r * count * precision::SizeOf(dtype), count};
  }
  return kernels::BlockDequantize(parts_, {dtype, format_}, stream);
}

}  // namespace brigade::collectives
