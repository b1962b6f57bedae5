#include "brigade/collectives/compressed/quantized_reduce_scatter.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/loco_quant/loco_quant.h"
#include "brigade/kernels/value_range.h"

namespace brigade::collectives {
namespace {

constexpr char kName[] = "quantized_reduce_scatter";

}  // namespace

absl::StatusOr<std::unique_ptr<QuantizedReduceScatter>> QuantizedReduceScatter::Create(
    Communicator& communicator, const NodeCommunicators& nodes, device::Context& context,
    int64_t max_count, kernels::QuantFormat format, bool has_feedback) {
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
  const int feedback_nodes = has_feedback && nodes.present() ? nodes.between->size() : 1;
  BRIGADE_ASSIGN_OR_RETURN(auto node_sums,
                           context.Allocate(SumsBytes(max_count, feedback_nodes),
                                            device::Purpose::kCommunication, "sums of nodes"));
  BRIGADE_ASSIGN_OR_RETURN(CallOrder order, CallOrder::Create(context, kName));
  return std::unique_ptr<QuantizedReduceScatter>(
      new QuantizedReduceScatter(communicator, nodes, context, max_count, format, std::move(sent),
                                 std::move(received), std::move(node_sums), std::move(order)));
}

QuantizedReduceScatter::QuantizedReduceScatter(Communicator& communicator,
                                               const NodeCommunicators& nodes,
                                               device::Context& context, int64_t max_count,
                                               kernels::QuantFormat format, MessageBuffer sent,
                                               MessageBuffer received, device::Buffer node_sums,
                                               CallOrder order)
    : communicator_(communicator),
      nodes_(nodes),
      context_(context),
      max_count_(max_count),
      format_(format),
      sent_(std::move(sent)),
      received_(std::move(received)),
      node_sums_(std::move(node_sums)),
      order_(std::move(order)),
      parts_(static_cast<size_t>(communicator.size())),
      sums_(static_cast<size_t>(node_count())),
      loco_parts_(parts_.size()),
      loco_sums_(sums_.size()) {}

absl::Status QuantizedReduceScatter::CheckFeedback(const QuantizedFeedback& feedback,
                                                   const void* input, void* output, int64_t count,
                                                   precision::DType dtype,
                                                   device::Stream& stream) const {
  BRIGADE_RETURN_IF_ERROR(
      kernels::CheckInRange(kName, "beta", -1, feedback.parameters.beta, kernels::kUnit));
  if (count == 0) return absl::OkStatus();
  if (nodes_.present() && node_sums_.bytes() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": a call in two hops has feedback, which Create did not ask for"));
  }
  const QuantizedErrorBytes bytes =
      QuantizedErrorBytesOf(count, communicator_.size(), node_count());
  const int64_t element = precision::SizeOf(dtype);
  // Of input and output, which may share memory, each alone beside the errors.
  for (const auto& [name, data, elements] :
       {std::tuple("input", input, communicator_.size() * count),
        std::tuple("output", static_cast<const void*>(output), count)}) {
    kernels::ListArguments beside(kName, {}, stream);
    BRIGADE_RETURN_IF_ERROR(beside.AddOperand({name, element, false}, data, elements));
    BRIGADE_RETURN_IF_ERROR(beside.AddOperand(
        {"local error", 1, true, true, kernels::kQuantAlignment}, feedback.local, bytes.local));
    if (bytes.sum > 0) {
      BRIGADE_RETURN_IF_ERROR(beside.AddOperand(
          {"error of the sums", 1, true, true, kernels::kQuantAlignment}, feedback.sum, bytes.sum));
    }
    BRIGADE_RETURN_IF_ERROR(beside.CheckOverlap());
  }
  return absl::OkStatus();
}

absl::Status QuantizedReduceScatter::ReduceScatter(const void* input, void* output, int64_t count,
                                                   precision::DType dtype, float factor,
                                                   const QuantizedFeedback* feedback,
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
  if (feedback != nullptr) {
    BRIGADE_RETURN_IF_ERROR(CheckFeedback(*feedback, input, output, count, dtype, stream));
  }

  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  BRIGADE_RETURN_IF_ERROR(Quantize(input, count, dtype, feedback, stream));
  const QuantizedScatterCalls calls = QuantizedScatterCallsOf(count, format_, node_count());
  const CollectiveSignature& last = nodes_.present() ? calls.between : calls.inside;
  if (nodes_.present()) {
    BRIGADE_RETURN_IF_ERROR(SumInside(calls, count, feedback, stream));
  }
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
                                              precision::DType dtype,
                                              const QuantizedFeedback* feedback,
                                              device::Stream& stream) {
  const int64_t bytes = kernels::QuantBytes(count, format_);
  const int nodes = node_count(), places = communicator_.size() / nodes;
  const auto* const parts = static_cast<const char*>(input);
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    const int64_t slot = rank % places * nodes + rank / places;
    parts_[static_cast<size_t>(rank)] = {parts + rank * count * precision::SizeOf(dtype),
                                         sent_.at(slot * bytes), count};
  }
  if (feedback == nullptr) return kernels::BlockQuantize(parts_, {dtype, format_}, stream);
  const int64_t error_bytes = kernels::QuantBytes(count, kernels::kLocoErrors);
  auto* const errors = static_cast<char*>(feedback->local);
  for (size_t rank = 0; rank < parts_.size(); ++rank) {
    loco_parts_[rank] = {parts_[rank].array, errors + static_cast<int64_t>(rank) * error_bytes,
                         parts_[rank].message, count};
  }
  return kernels::LocoQuantize(loco_parts_, {dtype, format_, feedback->parameters}, stream);
}

absl::Status QuantizedReduceScatter::SumInside(const QuantizedScatterCalls& calls, int64_t count,
                                               const QuantizedFeedback* feedback,
                                               device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(nodes_.inside->AllToAll(sent_.at(0), received_.at(0), calls.inside.count,
                                                  calls.inside.dtype, stream));
  for (int node = 0; node < node_count(); ++node) {
    const int64_t offset = node * calls.between.count;
    sums_[static_cast<size_t>(node)] = {received_.at(offset), sent_.at(offset), count};
  }
  kernels::DequantReduceOptions options = {
      .format = format_,
      .parameters = {.ranks = nodes_.inside->size(), .stride = calls.inside.count}};
  if (feedback == nullptr) {
    options.target_format = format_;
    return kernels::DequantReduce(sums_, options, stream);
  }
  const int64_t error_bytes = kernels::QuantBytes(count, kernels::kLocoErrors);
  for (int64_t node = 0; node < node_count(); ++node) {
    float* const sum = node_sums_.as<float>().data() + node * count;
    auto& to = sums_[static_cast<size_t>(node)];
    loco_sums_[static_cast<size_t>(node)] = {
        sum, static_cast<char*>(feedback->sum) + node * error_bytes, to.target, count};
    to.target = sum;
  }
  BRIGADE_RETURN_IF_ERROR(kernels::DequantReduce(sums_, options, stream));
  return kernels::LocoQuantize(loco_sums_,
                               {precision::DType::kFloat32, format_, feedback->parameters}, stream);
}

}  // namespace brigade::collectives
