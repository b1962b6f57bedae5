#include "brigade/collectives/compressed/quantized_reduce_scatter.h"

#include <utility>

#include "absl/types/span.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce.h"
#include "brigade/kernels/value_range.h"

namespace brigade::collectives {
namespace {

constexpr char kName[] = "quantized_reduce_scatter";

}  // namespace

absl::StatusOr<std::unique_ptr<QuantizedReduceScatter>> QuantizedReduceScatter::Create(
    Communicator& communicator, const NodeCommunicators& nodes, device::Context& context,
    int64_t max_count, kernels::QuantFormat format) {
  BRIGADE_RETURN_IF_ERROR(CheckNodes(kName, communicator, nodes));
  BRIGADE_RETURN_IF_ERROR(CheckCapacity(kName, max_count, communicator.size()));
  BRIGADE_RETURN_IF_ERROR(kernels::CheckQuantFormat(kName, "format", format));
  std::vector<Communicator*> communicators = {&communicator};
  if (nodes.present()) communicators = {nodes.inside, nodes.between};
  const int64_t bytes = Bytes(communicator.size(), max_count, format) / 2;
  BRIGADE_ASSIGN_OR_RETURN(auto sent,
                           MessageBuffer::Create(context, bytes, "messages sent", communicators));
  BRIGADE_ASSIGN_OR_RETURN(
      auto received, MessageBuffer::Create(context, bytes, "messages received", communicators));
  BRIGADE_ASSIGN_OR_RETURN(CallOrder order, CallOrder::Create(context, kName));
  return std::unique_ptr<QuantizedReduceScatter>(
      new QuantizedReduceScatter(communicator, nodes, context, max_count, format, std::move(sent),
                                 std::move(received), std::move(order)));
}

QuantizedReduceScatter::QuantizedReduceScatter(Communicator& communicator,
                                               const NodeCommunicators& nodes,
                                               device::Context& context, int64_t max_count,
                                               kernels::QuantFormat format, MessageBuffer sent,
                                               MessageBuffer received, CallOrder order)
    : communicator_(communicator),
      nodes_(nodes),
      context_(context),
      max_count_(max_count),
      format_(format),
      sent_(std::move(sent)),
      received_(std::move(received)),
      order_(std::move(order)),
      parts_(static_cast<size_t>(communicator.size())),
      sums_(static_cast<size_t>(node_count())) {}

absl::Status QuantizedReduceScatter::ReduceScatter(const void* input, void* output, int64_t count,
                                                   precision::DType dtype, float factor,
                                                   device::Stream& stream) {
  const int rank = communicator_.rank(), size = communicator_.size();
  const bool in_place =
      count > 0 && input != nullptr &&
      output == static_cast<const char*>(input) + rank * count * precision::SizeOf(dtype);
  BRIGADE_RETURN_IF_ERROR(CheckCodecCall(kName, count, max_count_,
                                         {input, size * count, output, count, dtype, in_place},
                                         context_, stream));
  BRIGADE_RETURN_IF_ERROR(
      kernels::CheckInRange(kName, "factor", -1, factor, {-3.0e38, 3.0e38, "finite"}));

  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  BRIGADE_RETURN_IF_ERROR(Quantize(input, count, dtype, stream));
  const QuantizedScatterCalls calls = QuantizedScatterCallsOf(count, format_, node_count());
  const CollectiveSignature& last = nodes_.present() ? calls.between : calls.inside;
  if (nodes_.present()) BRIGADE_RETURN_IF_ERROR(SumInside(calls, count, stream));
  Communicator& over = nodes_.present() ? *nodes_.between : communicator_;
  BRIGADE_RETURN_IF_ERROR(
      over.AllToAll(sent_.at(0), received_.at(0), last.count, last.dtype, stream));
  BRIGADE_RETURN_IF_ERROR(kernels::DequantReduce(
      {{received_.at(0), output, count}},
      {.format = format_,
       .parameters = {.ranks = over.size(), .stride = last.count, .factor = factor},
       .target_dtype = dtype},
      stream));
  return order_.End(stream);
}

// What goes to one rank of this node lies together: its own part, and those of the ranks that have
// its place in the other nodes.
absl::Status QuantizedReduceScatter::Quantize(const void* input, int64_t count,
                                              precision::DType dtype, device::Stream& stream) {
  const int64_t bytes = kernels::QuantBytes(count, format_);
  const int nodes = node_count(), places = communicator_.size() / nodes;
  const auto* const parts = static_cast<const char*>(input);
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    const int64_t slot = rank % places * nodes + rank / places;
    parts_[static_cast<size_t>(rank)] = {parts + rank * count * precision::SizeOf(dtype),
                                         sent_.at(slot * bytes), count};
  }
  return kernels::BlockQuantize(parts_, {dtype, format_}, stream);
}

absl::Status QuantizedReduceScatter::SumInside(const QuantizedScatterCalls& calls, int64_t count,
                                               device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(nodes_.inside->AllToAll(sent_.at(0), received_.at(0), calls.inside.count,
                                                  calls.inside.dtype, stream));
  for (int node = 0; node < node_count(); ++node) {
    const int64_t offset = node * calls.between.count;
    sums_[static_cast<size_t>(node)] = {received_.at(offset), sent_.at(offset), count};
  }
  return kernels::DequantReduce(
      sums_,
      {.format = format_,
       .parameters = {.ranks = nodes_.inside->size(), .stride = calls.inside.count},
       .target_format = format_},
      stream);
}

}  // namespace brigade::collectives
