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
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

int64_t RoundedUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

OneBitAllReduce::Scratch::Scratch(int ranks, int64_t max_count) {
  const int64_t part = OneBitPart(max_count, ranks);
  // A smaller call has no more tiles in any part.
  const kernels::SignPackSegment largest = {nullptr, nullptr, nullptr, part};
  const int64_t of_part = kernels::SignPackWorkspaceSize({largest}) - kernels::kSignStatsDoubles;
  doubles = ranks * of_part + kernels::kSignStatsDoubles;
  scale = RoundedUp(doubles * static_cast<int64_t>(sizeof(double)));
  sums = scale + RoundedUp(kFloatBytes);
  local = sums + RoundedUp(part * kFloatBytes);
  sum = local + RoundedUp(max_count * kFloatBytes);
  end = sum + RoundedUp(part * kFloatBytes);
}

int64_t OneBitAllReduce::Bytes(int ranks, int64_t max_count) {
  return 2 * ranks * SignBytes(OneBitPart(max_count, ranks)) + Scratch(ranks, max_count).end;
}

absl::StatusOr<std::unique_ptr<OneBitAllReduce>> OneBitAllReduce::Create(Communicator& communicator,
                                                                         device::Context& context,
                                                                         int64_t max_count) {
  const int ranks = communicator.size();
  BRIGADE_RETURN_IF_ERROR(CheckCapacity(kName, max_count, 1));
  const int64_t bytes = ranks * SignBytes(OneBitPart(max_count, ranks));
  BRIGADE_ASSIGN_OR_RETURN(auto sent,
                           MessageBuffer::Create(context, bytes, "signs sent", {&communicator}));
  BRIGADE_ASSIGN_OR_RETURN(
      auto received, MessageBuffer::Create(context, bytes, "signs received", {&communicator}));
  BRIGADE_ASSIGN_OR_RETURN(
      auto scratch, context.Allocate(Scratch(ranks, max_count).end, device::Purpose::kCommunication,
                                     "errors before an exchange"));
  BRIGADE_ASSIGN_OR_RETURN(CallOrder order, CallOrder::Create(context, kName));
  return std::unique_ptr<OneBitAllReduce>(
      new OneBitAllReduce(communicator, context, max_count, std::move(sent), std::move(received),
                          std::move(scratch), std::move(order)));
}

OneBitAllReduce::OneBitAllReduce(Communicator& communicator, device::Context& context,
                                 int64_t max_count, MessageBuffer sent, MessageBuffer received,
                                 device::Buffer scratch, CallOrder order)
    : communicator_(communicator),
      context_(context),
      max_count_(max_count),
      sent_(std::move(sent)),
      received_(std::move(received)),
      layout_(communicator.size(), max_count),
      scratch_(std::move(scratch)),
      order_(std::move(order)),
      packs_(static_cast<size_t>(communicator.size())),
      unpacks_(static_cast<size_t>(communicator.size())) {}

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
  const int rank = communicator_.rank(), size = communicator_.size();
  BRIGADE_RETURN_IF_ERROR(CheckCodecCall(kName, count, max_count_,
                                         {input, count, output, count, dtype, input == output},
                                         context_, stream));
  const int64_t part = OneBitPart(count, size);
  kernels::ListArguments arguments(kName, {}, stream);
  const int64_t element = precision::SizeOf(dtype);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand({"output", element, true}, output, count));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("local error", errors.local, count));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("error of the sum", errors.sum, part));
  if (state != nullptr) BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("state", state, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const OneBitCalls calls = OneBitCallsOf(count, size, options.algorithm);
  BRIGADE_RETURN_IF_ERROR(communicator_.Resolve(calls.gather).status());

  // The elements of each rank begin there; there are fewer ranks with elements than ranks where
  // there are few elements.
  const auto begin = [&](int64_t r) { return std::min(count, r * part); };
  const auto elements = [&](int64_t r) { return begin(r + 1) - begin(r); };
  const int64_t bytes = calls.exchange.count, mine = elements(rank);
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  BRIGADE_RETURN_IF_ERROR(Save(errors, count, mine, stream));
  for (int r = 0; r < size; ++r) {
    packs_[static_cast<size_t>(r)] = {static_cast<const char*>(input) + begin(r) * element,
                                      errors.local + begin(r), sent_.at(r * bytes), elements(r)};
  }
  BRIGADE_RETURN_IF_ERROR(Pack(packs_, dtype, stream));
  BRIGADE_RETURN_IF_ERROR(
      communicator_.AllToAll(sent_.at(0), received_.at(0), bytes, calls.exchange.dtype, stream));

  float* const sums = At<float>(layout_.sums);
  const auto mean = static_cast<float>(1.0 / size);
  BRIGADE_RETURN_IF_ERROR(kernels::SignUnpack(
      {{received_.at(0), sums, mine}},
      {.parameters = {.ranks = size, .stride = bytes, .factor = mean}}, stream));
  uint8_t* const message = sent_.at(rank * bytes);
  BRIGADE_RETURN_IF_ERROR(
      Pack({{sums, errors.sum, message, mine}}, precision::DType::kFloat32, stream));
  BRIGADE_RETURN_IF_ERROR(
      communicator_.AllGather(message, sent_.at(0), bytes, calls.gather.dtype, options, stream));

  for (int r = 0; r < size; ++r) {
    unpacks_[static_cast<size_t>(r)] = {
        sent_.at(r * bytes), static_cast<char*>(output) + begin(r) * element, elements(r)};
  }
  BRIGADE_RETURN_IF_ERROR(kernels::SignUnpack(unpacks_, {dtype, {}}, stream));
  const ErrorExchange exchange = {.messages = sent_.at(0),
                                  .count = part == 0 ? 0 : (count + part - 1) / part,
                                  .stride = bytes,
                                  .skip = state == nullptr ? nullptr : &state->skip};
  BRIGADE_RETURN_IF_ERROR(
      RestoreErrors(exchange, At<float>(layout_.local), errors.local, count, stream));
  BRIGADE_RETURN_IF_ERROR(
      RestoreErrors(exchange, At<float>(layout_.sum), errors.sum, mine, stream));
  return order_.End(stream);
}

}  // namespace brigade::collectives
