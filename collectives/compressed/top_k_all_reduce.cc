#include "brigade/collectives/compressed/top_k_all_reduce.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/compressed/restore_errors.h"
#include "brigade/collectives/compressed/sparse_mean.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/top_k/top_k.h"

namespace brigade::collectives {
namespace {

using precision::DType;

constexpr char kName[] = "top_k_all_reduce";
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

absl::Status CheckK(const char* name, int64_t k, const char* bound, int64_t most) {
  if (k >= 0 && k <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kName, ": ", name, " is ", k, ", must be 0 to ", bound, ", ", most));
}

}  // namespace

TopKAllReduce::Scratch::Scratch(int64_t max_count) {
  workspace = AlignedBytes(max_count * kFloatBytes);
  non_finite = workspace + AlignedBytes(kernels::TopKWorkspaceSize(max_count) *
                                        static_cast<int64_t>(sizeof(uint32_t)));
  end = non_finite + AlignedBytes(sizeof(int32_t));
}

int64_t TopKAllReduce::Bytes(int ranks, int64_t max_count, int64_t max_k) {
  return ranks * TopKCallOf(max_k).count + Scratch(max_count).end;
}

absl::StatusOr<std::unique_ptr<TopKAllReduce>> TopKAllReduce::Create(Communicator& communicator,
                                                                     device::Context& context,
                                                                     int64_t max_count,
                                                                     int64_t max_k) {
  BRIGADE_RETURN_IF_ERROR(CheckCapacity(kName, max_count, 1));
  BRIGADE_RETURN_IF_ERROR(
      CheckK("max_count", max_count, "what indices of 32 bits can name", kernels::kMaxTopKSize));
  BRIGADE_RETURN_IF_ERROR(CheckK("max_k", max_k, "max_count", max_count));
  const int64_t bytes = communicator.size() * TopKCallOf(max_k).count;
  BRIGADE_ASSIGN_OR_RETURN(
      auto messages, MessageBuffer::Create(context, bytes, "greatest elements", {&communicator}));
  BRIGADE_ASSIGN_OR_RETURN(auto scratch,
                           context.Allocate(Scratch(max_count).end, device::Purpose::kCommunication,
                                            "errors before an exchange"));
  BRIGADE_ASSIGN_OR_RETURN(CallOrder order, CallOrder::Create(context, kName));
  return std::unique_ptr<TopKAllReduce>(new TopKAllReduce(communicator, context, max_count, max_k,
                                                          std::move(messages), std::move(scratch),
                                                          std::move(order)));
}

TopKAllReduce::TopKAllReduce(Communicator& communicator, device::Context& context,
                             int64_t max_count, int64_t max_k, MessageBuffer messages,
                             device::Buffer scratch, CallOrder order)
    : communicator_(communicator),
      context_(context),
      max_count_(max_count),
      max_k_(max_k),
      messages_(std::move(messages)),
      layout_(max_count),
      scratch_(std::move(scratch)),
      order_(std::move(order)) {}

absl::Status TopKAllReduce::AllReduce(const void* input, void* output, int64_t count, int64_t k,
                                      DType dtype, float* error, const kernels::StepState* state,
                                      const GatherOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckCodecCall(kName, count, max_count_,
                                         {input, count, output, count, dtype, input == output},
                                         context_, stream));
  BRIGADE_RETURN_IF_ERROR(CheckK("k", k, "count and capacity", std::min(count, max_k_)));
  kernels::ListArguments arguments(kName, {}, stream);
  const int64_t element = precision::SizeOf(dtype);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand({"output", element, true}, output, count));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("error", error, count));
  if (input != output) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddOperand({"input", element, false}, input, count));
  }
  if (state != nullptr) BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("state", state, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const CollectiveSignature call = TopKCallOf(k, options.algorithm);
  BRIGADE_RETURN_IF_ERROR(communicator_.Resolve(call).status());

  const int size = communicator_.size();
  auto* const saved = At<float>(0);
  auto* const non_finite = At<int32_t>(layout_.non_finite);
  auto* const messages = reinterpret_cast<int32_t*>(messages_.at(0));
  int32_t* const indices = messages + communicator_.rank() * 2 * k;
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  BRIGADE_RETURN_IF_ERROR(stream.Copy(saved, error, count * kFloatBytes));
  BRIGADE_RETURN_IF_ERROR(
      kernels::Cast({{input, error, count}}, {dtype, DType::kFloat32, nullptr, true}, stream));
  BRIGADE_RETURN_IF_ERROR(
      kernels::TopK({{error, indices + k, indices, At<uint32_t>(layout_.workspace), count, k}},
                    {DType::kFloat32, /*clear=*/true}, stream));
  BRIGADE_RETURN_IF_ERROR(
      communicator_.AllGather(indices, messages, call.count, call.dtype, options, stream));

  BRIGADE_RETURN_IF_ERROR(kernels::Fill({{non_finite, 1}}, DType::kInt32, 0, stream));
  BRIGADE_RETURN_IF_ERROR(SparseMean({messages, size, k}, static_cast<float>(1.0 / size), output,
                                     count, dtype, non_finite, stream));
  const ErrorExchange exchange = {.skip = state == nullptr ? nullptr : &state->skip,
                                  .non_finite = non_finite};
  BRIGADE_RETURN_IF_ERROR(RestoreErrors(exchange, saved, error, count, stream));
  return order_.End(stream);
}

}  // namespace brigade::collectives
