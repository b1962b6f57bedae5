#include "brigade/collectives/compressed/one_bit_all_reduce.h"

#include <algorithm>
#include <utility>

#include "brigade/collectives/compressed/restore_errors.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/sign_pack/sign_pack.h"

namespace brigade::collectives {
namespace {

using kernels::SignBytes;

constexpr char kName[] = "one_bit_all_reduce";
constexpr auto kByte = precision::DType::kUint8;
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

// Of an array of any type, cut into parts for the ranks of a node.
int64_t WholeBytes(int ranks, int64_t max_count, int nodes) {
  const int64_t part = OneBitErrorCountsOf(max_count, ranks, nodes).local;
  return nodes == 1 ? 0 : ranks / nodes * part * kFloatBytes;
}

}  // namespace

OneBitAllReduce::Scratch::Scratch(int ranks, int64_t max_count) {
  const int64_t part = OneBitPart(max_count, ranks);
  // A smaller call has no more tiles in any part.
  const kernels::SignPackSegment largest = {nullptr, nullptr, nullptr, part};
  const int64_t of_part = kernels::SignPackWorkspaceSize({largest}) - kernels::kSignStatsDoubles;
  doubles = ranks * of_part + kernels::kSignStatsDoubles;
  scale = AlignedBytes(doubles * static_cast<int64_t>(sizeof(double)));
  sums = scale + AlignedBytes(kFloatBytes);
  local = sums + AlignedBytes(part * kFloatBytes);
  sum = local + AlignedBytes(max_count * kFloatBytes);
  end = sum + AlignedBytes(part * kFloatBytes);
}

int64_t OneBitAllReduce::Bytes(int ranks, int64_t max_count, int nodes) {
  const auto [local, part] = OneBitErrorCountsOf(max_count, ranks, nodes);
  const int exchanging = nodes == 1 ? ranks : nodes;
  return 2 * exchanging * SignBytes(part) + Scratch(exchanging, local).end +
         WholeBytes(ranks, max_count, nodes);
}

absl::StatusOr<std::unique_ptr<OneBitAllReduce>> OneBitAllReduce::Create(
    Communicator& communicator, device::Context& context, int64_t max_count,
    const NodeCommunicators& nodes) {
  BRIGADE_RETURN_IF_ERROR(CheckCapacity(kName, max_count, 1));
  BRIGADE_RETURN_IF_ERROR(CheckNodes(kName, communicator, nodes));
  const int node_count = nodes.present() ? nodes.between->size() : 1;
  Communicator* const exchanging = nodes.present() ? nodes.between : &communicator;
  const auto [local, part] = OneBitErrorCountsOf(max_count, communicator.size(), node_count);
  const int64_t bytes = exchanging->size() * SignBytes(part);
  BRIGADE_ASSIGN_OR_RETURN(auto sent,
                           MessageBuffer::Create(context, bytes, "signs sent", {exchanging}));
  BRIGADE_ASSIGN_OR_RETURN(auto received,
                           MessageBuffer::Create(context, bytes, "signs received", {exchanging}));
  BRIGADE_ASSIGN_OR_RETURN(
      auto whole,
      MessageBuffer::Create(context, WholeBytes(communicator.size(), max_count, node_count),
                            "sums of a node", {nodes.present() ? nodes.inside : &communicator}));
  BRIGADE_ASSIGN_OR_RETURN(
      auto scratch, context.Allocate(Scratch(exchanging->size(), local).end,
                                     device::Purpose::kCommunication, "errors before an exchange"));
  BRIGADE_ASSIGN_OR_RETURN(CallOrder order, CallOrder::Create(context, kName));
  return std::unique_ptr<OneBitAllReduce>(new OneBitAllReduce(
      communicator, nodes, context, max_count, std::move(sent), std::move(received),
      std::move(whole), std::move(scratch), std::move(order)));
}

OneBitAllReduce::OneBitAllReduce(Communicator& communicator, const NodeCommunicators& nodes,
                                 device::Context& context, int64_t max_count, MessageBuffer sent,
                                 MessageBuffer received, MessageBuffer whole,
                                 device::Buffer scratch, CallOrder order)
    : communicator_(communicator),
      nodes_(nodes),
      context_(context),
      max_count_(max_count),
      sent_(std::move(sent)),
      received_(std::move(received)),
      whole_(std::move(whole)),
      layout_(exchanging().size(),
              OneBitErrorCountsOf(max_count, communicator.size(), node_count()).local),
      scratch_(std::move(scratch)),
      order_(std::move(order)),
      packs_(static_cast<size_t>(exchanging().size())),
      unpacks_(packs_.size()) {}

absl::Status OneBitAllReduce::Pack(absl::Span<const kernels::SignPackSegment> segments,
                                   precision::DType dtype, device::Stream& stream) {
  const auto doubles = static_cast<size_t>(layout_.doubles);
  return kernels::SignPack(segments, {dtype}, {At<double>(0), doubles}, At<float>(layout_.scale),
                           stream);
}

absl::Status OneBitAllReduce::Save(const OneBitErrors& errors, int64_t count, int64_t mine,
                                   device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(stream.Copy(At<float>(layout_.local), errors.local, count * kFloatBytes));
  return stream.Copy(At<float>(layout_.sum), errors.sum, mine * kFloatBytes);
}

absl::Status OneBitAllReduce::AllReduce(const void* input, void* output, int64_t count,
                                        precision::DType dtype, const OneBitErrors& errors,
                                        const kernels::StepState* state,
                                        const GatherOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckCodecCall(kName, count, max_count_,
                                         {input, count, output, count, dtype, input == output},
                                         context_, stream));
  const int size = communicator_.size();
  const OneBitErrorCounts counts = OneBitErrorCountsOf(count, size, node_count());
  kernels::ListArguments arguments(kName, {}, stream);
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand({"output", precision::SizeOf(dtype), true}, output, count));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("local error", errors.local, counts.local));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("error of the sum", errors.sum, counts.sum));
  if (state != nullptr) BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("state", state, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const OneBitCalls calls = OneBitCallsOf(count, size, options.algorithm, node_count(), dtype);
  BRIGADE_RETURN_IF_ERROR(exchanging().Resolve(calls.gather).status());

  const Call call = {input, output, count, dtype, errors, state, options};
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  BRIGADE_RETURN_IF_ERROR(nodes_.present() ? InTwoHops(calls, call, stream)
                                           : Exchange(call, stream));
  return order_.End(stream);
}

absl::Status OneBitAllReduce::InTwoHops(const OneBitCalls& calls, const Call& call,
                                        device::Stream& stream) {
  Communicator& inside = *nodes_.inside;
  const CollectiveSignature &sum = calls.sum_inside, &gather = calls.gather_inside;
  const int64_t part = sum.count;
  const int64_t element = precision::SizeOf(call.dtype);
  const int64_t bytes = call.count * element, padding = inside.size() * part * element - bytes;
  uint8_t* const whole = whole_.at(0);
  uint8_t* const mine = whole + inside.rank() * part * element;
  const void* input = call.input;
  if (padding > 0) {
    BRIGADE_RETURN_IF_ERROR(stream.Copy(whole, input, bytes));
    BRIGADE_RETURN_IF_ERROR(stream.FillBytes(whole + bytes, 0, padding));
    input = whole;
  }
  BRIGADE_RETURN_IF_ERROR(inside.ReduceScatter(input, mine, part, sum.dtype, {}, stream));
  const int64_t left = std::clamp<int64_t>(call.count - inside.rank() * part, 0, part);
  BRIGADE_RETURN_IF_ERROR(
      Exchange({mine, mine, left, call.dtype, call.errors, call.state, call.options}, stream));
  void* const output = padding > 0 ? whole : call.output;
  BRIGADE_RETURN_IF_ERROR(inside.AllGather(mine, output, gather.count, gather.dtype, {}, stream));
  return padding > 0 ? stream.Copy(call.output, whole, bytes) : absl::OkStatus();
}

absl::Status OneBitAllReduce::Exchange(const Call& call, device::Stream& stream) {
  Communicator& communicator = exchanging();
  const int rank = communicator.rank(), size = communicator.size();
  const int64_t count = call.count, part = OneBitPart(count, size);
  const int64_t element = precision::SizeOf(call.dtype);
  const OneBitErrors& errors = call.errors;
  // The elements of each rank begin there; there are fewer ranks with elements than ranks where
  // there are few elements.
  const auto begin = [&](int64_t r) { return std::min(count, r * part); };
  const auto elements = [&](int64_t r) { return begin(r + 1) - begin(r); };
  const int64_t bytes = SignBytes(part), mine = elements(rank);
  BRIGADE_RETURN_IF_ERROR(Save(errors, count, mine, stream));
  for (int r = 0; r < size; ++r) {
    packs_[static_cast<size_t>(r)] = {static_cast<const char*>(call.input) + begin(r) * element,
                                      errors.local + begin(r), sent_.at(r * bytes), elements(r)};
  }
  BRIGADE_RETURN_IF_ERROR(Pack(packs_, call.dtype, stream));
  BRIGADE_RETURN_IF_ERROR(
      communicator.AllToAll(sent_.at(0), received_.at(0), bytes, kByte, stream));

  float* const sums = At<float>(layout_.sums);
  const auto mean = static_cast<float>(1.0 / communicator_.size());
  BRIGADE_RETURN_IF_ERROR(kernels::SignUnpack(
      {{received_.at(0), sums, mine}},
      {.parameters = {.ranks = size, .stride = bytes, .factor = mean}}, stream));
  uint8_t* const message = sent_.at(rank * bytes);
  BRIGADE_RETURN_IF_ERROR(
      Pack({{sums, errors.sum, message, mine}}, precision::DType::kFloat32, stream));
  BRIGADE_RETURN_IF_ERROR(
      communicator.AllGather(message, sent_.at(0), bytes, kByte, call.options, stream));

  for (int r = 0; r < size; ++r) {
    unpacks_[static_cast<size_t>(r)] = {
        sent_.at(r * bytes), static_cast<char*>(call.output) + begin(r) * element, elements(r)};
  }
  BRIGADE_RETURN_IF_ERROR(kernels::SignUnpack(unpacks_, {call.dtype, {}}, stream));
  const ErrorExchange exchange = {.messages = sent_.at(0),
                                  .count = part == 0 ? 0 : (count + part - 1) / part,
                                  .stride = bytes,
                                  .skip = call.state == nullptr ? nullptr : &call.state->skip};
  BRIGADE_RETURN_IF_ERROR(
      RestoreErrors(exchange, At<float>(layout_.local), errors.local, count, stream));
  return RestoreErrors(exchange, At<float>(layout_.sum), errors.sum, mine, stream);
}

}  // namespace brigade::collectives
