#include "brigade/collectives/compressed/power_sgd_all_reduce.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/compressed/restore_errors.h"
#include "brigade/collectives/compressed/seed_columns.h"
#include "brigade/collectives/options.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/amax/amax.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/orthogonalize/orthogonalize.h"

namespace brigade::collectives {
namespace {

using precision::DType;

constexpr char kName[] = "power_sgd_all_reduce";
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(kName, ": ", what...));
}

absl::Status CheckTensors(absl::Span<const PowerSgdTensor> tensors) {
  constexpr int64_t kMost = kMaxCollectiveBytes / kFloatBytes;
  int64_t end = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PowerSgdTensor& t = tensors[i];
    if (t.rows < 0 || t.columns < 0 || t.rows > kMost ||
        t.columns > kMost / std::max<int64_t>(t.rows, 1)) {
      return Invalid("tensor ", i, " has ", t.rows, " rows and ", t.columns, " columns");
    }
    if (t.offset < end || t.offset > kMost - t.rows * t.columns) {
      return Invalid("tensor ", i, " begins at element ", t.offset, ", the one before it ends at ",
                     end);
    }
    end = t.offset + t.rows * t.columns;
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const PowerSgdOptions& options) {
  BRIGADE_RETURN_IF_ERROR(kernels::CheckFloatType(kName, "bucket", options.dtype));
  if (options.rank < 1 || options.rank > kernels::kMaxLowRank) {
    return Invalid("rank is ", options.rank, ", must be 1 to ", kernels::kMaxLowRank);
  }
  if (options.iterations < 1 || options.iterations > kMostPowerIterations) {
    return Invalid("iterations is ", options.iterations, ", must be 1 to ", kMostPowerIterations);
  }
  if (options.epsilon > 0 && std::isfinite(options.epsilon)) return absl::OkStatus();
  return Invalid("epsilon is ", options.epsilon, ", must be positive and finite");
}

}  // namespace

PowerSgdSizes PowerSgdSizesOf(absl::Span<const PowerSgdTensor> tensors, int64_t rank) {
  PowerSgdSizes sizes;
  for (const PowerSgdTensor& t : tensors) {
    const int64_t elements = t.rows * t.columns;
    sizes.count = std::max(sizes.count, t.offset + elements);
    if (!HasFactors(t, rank)) {
      sizes.plain += elements;
      continue;
    }
    sizes.matrices += elements;
    sizes.p += rank * t.rows;
    sizes.q += rank * t.columns;
    sizes.factor_columns += rank;
    sizes.workspace += kernels::LowRankWorkspaceSize(t.rows, t.columns, rank);
  }
  return sizes;
}

PowerSgdAllReduce::Scratch::Scratch(const PowerSgdSizes& sizes, const PowerSgdOptions& options) {
  const auto floats = [](int64_t count) { return AlignedBytes(count * kFloatBytes); };
  q = floats(sizes.matrices);
  product = q + floats(sizes.q);
  workspace = product + (options.dtype == DType::kFloat32 ? 0 : floats(sizes.matrices));
  begins = workspace + floats(sizes.workspace);
  mean = begins + AlignedBytes((sizes.factor_columns + 1) * static_cast<int64_t>(sizeof(int64_t)));
  amax = mean + floats(1);
  amax_workspace = amax + AlignedBytes(sizeof(kernels::AmaxResult));
  end = amax_workspace + AlignedBytes(sizeof(kernels::AmaxWorkspace));
}

int64_t PowerSgdAllReduce::Bytes(absl::Span<const PowerSgdTensor> tensors,
                                 const PowerSgdOptions& options) {
  const PowerSgdSizes sizes = PowerSgdSizesOf(tensors, options.rank);
  return (sizes.p + sizes.plain + sizes.q) * kFloatBytes + Scratch(sizes, options).end;
}

absl::StatusOr<std::unique_ptr<PowerSgdAllReduce>> PowerSgdAllReduce::Create(
    Communicator& communicator, device::Context& context, absl::Span<const PowerSgdTensor> tensors,
    const PowerSgdOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckOptions(options));
  BRIGADE_RETURN_IF_ERROR(CheckTensors(tensors));
  const PowerSgdSizes sizes = PowerSgdSizesOf(tensors, options.rank);
  const int64_t bytes = (sizes.p + sizes.plain + sizes.q) * kFloatBytes;
  BRIGADE_ASSIGN_OR_RETURN(
      auto message, MessageBuffer::Create(context, bytes, "factors of matrices", {&communicator}));
  BRIGADE_ASSIGN_OR_RETURN(
      auto scratch, context.Allocate(Scratch(sizes, options).end, device::Purpose::kCommunication,
                                     "errors before an exchange"));
  BRIGADE_ASSIGN_OR_RETURN(CallOrder order, CallOrder::Create(context, kName));
  auto created = std::unique_ptr<PowerSgdAllReduce>(
      new PowerSgdAllReduce(communicator, context, {tensors.begin(), tensors.end()}, options,
                            std::move(message), std::move(scratch), std::move(order)));
  BRIGADE_RETURN_IF_ERROR(created->WriteConstants());
  return created;
}

PowerSgdAllReduce::PowerSgdAllReduce(Communicator& communicator, device::Context& context,
                                     std::vector<PowerSgdTensor> tensors,
                                     const PowerSgdOptions& options, MessageBuffer message,
                                     device::Buffer scratch, CallOrder order)
    : communicator_(communicator),
      context_(context),
      tensors_(std::move(tensors)),
      options_(options),
      sizes_(PowerSgdSizesOf(tensors_, options.rank)),
      message_(std::move(message)),
      layout_(sizes_, options),
      scratch_(std::move(scratch)),
      order_(std::move(order)) {
  low_rank_.reserve(tensors_.size());
  p_.reserve(tensors_.size());
  q_.reserve(tensors_.size());
  casts_.reserve(tensors_.size());
}

absl::Status PowerSgdAllReduce::WriteConstants() {
  std::vector<int64_t> begins = {0};
  for (const PowerSgdTensor& t : tensors_) {
    if (!HasFactors(t, options_.rank)) continue;
    for (int32_t k = 0; k < options_.rank; ++k) begins.push_back(begins.back() + t.columns);
  }
  const auto mean = static_cast<float>(1.0 / communicator_.size());
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context_.CreateStream(kName));
  BRIGADE_RETURN_IF_ERROR(
      stream->Copy(At<int64_t>(layout_.begins), begins.data(),
                   static_cast<int64_t>(begins.size() * sizeof(begins.front()))));
  BRIGADE_RETURN_IF_ERROR(stream->Copy(At<float>(layout_.mean), &mean, kFloatBytes));
  return stream->Synchronize();
}

absl::Status PowerSgdAllReduce::Check(const void* input, void* output, const PowerSgdState& state,
                                      const kernels::StepState* step,
                                      device::Stream& stream) const {
  const int64_t count = sizes_.count;
  BRIGADE_RETURN_IF_ERROR(CheckCodecCall(
      kName, count, count, {input, count, output, count, options_.dtype, input == output}, context_,
      stream));
  kernels::ListArguments arguments(kName, {}, stream);
  const int64_t element = precision::SizeOf(options_.dtype);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand({"output", element, true}, output, count));
  if (input != output) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddOperand({"input", element, false}, input, count));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("error", state.error, sizes_.matrices));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("q", state.q, sizes_.q));
  if (step != nullptr) BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("step", step, 1));
  return arguments.CheckOverlap();
}

void PowerSgdAllReduce::ListMatrices(const PowerSgdState& state, void* output) {
  const bool in_output = options_.dtype == DType::kFloat32;
  float* matrix = state.error;
  float* p = message();
  float* q = message() + sizes_.p + sizes_.plain;
  auto* product = At<float>(layout_.product);
  auto* workspace = At<float>(layout_.workspace);
  low_rank_.clear();
  p_.clear();
  q_.clear();
  for (const PowerSgdTensor& t : tensors_) {
    if (!HasFactors(t, options_.rank)) continue;
    const int32_t rank = options_.rank;
    float* const restored = in_output ? static_cast<float*>(output) + t.offset : product;
    low_rank_.push_back({matrix, p, q, restored, workspace, t.rows, t.columns, rank});
    p_.push_back({p, t.rows, rank});
    q_.push_back({q, t.columns, rank});
    matrix += t.rows * t.columns;
    product += t.rows * t.columns;
    p += rank * t.rows;
    q += rank * t.columns;
    workspace += kernels::LowRankWorkspaceSize(t.rows, t.columns, rank);
  }
}

absl::Status PowerSgdAllReduce::FromBucket(const void* bucket, bool with_factors, float* dense,
                                           device::Stream& stream) {
  const int64_t element = precision::SizeOf(options_.dtype);
  casts_.clear();
  for (const PowerSgdTensor& t : tensors_) {
    if (HasFactors(t, options_.rank) != with_factors) continue;
    const int64_t size = t.rows * t.columns;
    casts_.push_back({static_cast<const char*>(bucket) + t.offset * element, dense, size});
    dense += size;
  }
  // Matrices are added to what was left out of them.
  return kernels::Cast(casts_, {options_.dtype, DType::kFloat32, nullptr, with_factors}, stream);
}

absl::Status PowerSgdAllReduce::ToBucket(const float* dense, bool with_factors, void* bucket,
                                         device::Stream& stream) {
  const int64_t element = precision::SizeOf(options_.dtype);
  casts_.clear();
  for (const PowerSgdTensor& t : tensors_) {
    if (HasFactors(t, options_.rank) != with_factors) continue;
    const int64_t size = t.rows * t.columns;
    casts_.push_back({dense, static_cast<char*>(bucket) + t.offset * element, size});
    dense += size;
  }
  // Of matrices the mean is in Q.
  const float* const scale = with_factors ? nullptr : At<float>(layout_.mean);
  return kernels::Cast(casts_, {DType::kFloat32, options_.dtype, scale}, stream);
}

absl::Status PowerSgdAllReduce::Sum(float* data, const CollectiveSignature& call,
                                    device::Stream& stream) {
  if (call.count == 0) return absl::OkStatus();
  return communicator_.AllReduce(data, data, call.count, call.dtype,
                                 {call.op, call.reduction, call.algorithm}, stream);
}

absl::Status PowerSgdAllReduce::AllReduce(const void* input, void* output,
                                          const PowerSgdState& state,
                                          const kernels::StepState* step, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(input, output, state, step, stream));
  ListMatrices(state, output);
  const PowerSgdCalls calls = PowerSgdCallsOf(sizes_);
  float* const plain = message() + sizes_.p;
  float* const q = plain + sizes_.plain;
  auto* const saved_error = At<float>(0);
  auto* const saved_q = At<float>(layout_.q);
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  BRIGADE_RETURN_IF_ERROR(stream.Copy(saved_error, state.error, sizes_.matrices * kFloatBytes));
  BRIGADE_RETURN_IF_ERROR(stream.Copy(saved_q, state.q, sizes_.q * kFloatBytes));
  BRIGADE_RETURN_IF_ERROR(stream.Copy(q, state.q, sizes_.q * kFloatBytes));
  BRIGADE_RETURN_IF_ERROR(
      SeedColumns({q, At<int64_t>(layout_.begins), sizes_.factor_columns}, sizes_.q, stream));
  BRIGADE_RETURN_IF_ERROR(kernels::Orthogonalize(q_, {options_.epsilon}, stream));
  BRIGADE_RETURN_IF_ERROR(FromBucket(input, /*with_factors=*/true, state.error, stream));
  BRIGADE_RETURN_IF_ERROR(FromBucket(input, /*with_factors=*/false, plain, stream));
  for (int32_t iteration = 0; iteration < options_.iterations; ++iteration) {
    if (iteration > 0) {
      BRIGADE_RETURN_IF_ERROR(kernels::Orthogonalize(q_, {options_.epsilon}, stream));
    }
    BRIGADE_RETURN_IF_ERROR(kernels::LowRankRows(low_rank_, stream));
    BRIGADE_RETURN_IF_ERROR(Sum(message(), iteration == 0 ? calls.first : calls.again, stream));
    // The first pass leaves rounding errors of columns that depend on earlier ones, which become a
    // direction with a part along these: what lies there would be restored twice.
    for (int pass = 0; pass < 2; ++pass) {
      BRIGADE_RETURN_IF_ERROR(kernels::Orthogonalize(p_, {options_.epsilon}, stream));
    }
    BRIGADE_RETURN_IF_ERROR(kernels::LowRankColumns(low_rank_, stream));
    BRIGADE_RETURN_IF_ERROR(Sum(q, calls.second, stream));
  }
  BRIGADE_RETURN_IF_ERROR(kernels::Cast({{q, state.q, sizes_.q}},
                                        {DType::kFloat32, DType::kFloat32, At<float>(layout_.mean)},
                                        stream));

  for (kernels::LowRankSegment& s : low_rank_) s.q = state.q + (s.q - q);
  BRIGADE_RETURN_IF_ERROR(kernels::LowRankRestore(low_rank_, stream));
  if (options_.dtype != DType::kFloat32) {
    BRIGADE_RETURN_IF_ERROR(
        ToBucket(At<float>(layout_.product), /*with_factors=*/true, output, stream));
  }
  BRIGADE_RETURN_IF_ERROR(ToBucket(plain, /*with_factors=*/false, output, stream));
  // What is not finite in a matrix of any rank is so in all of its Q.
  auto* const amax = At<kernels::AmaxResult>(layout_.amax);
  BRIGADE_RETURN_IF_ERROR(kernels::Amax(plain, sizes_.plain + sizes_.q, {},
                                        At<kernels::AmaxWorkspace>(layout_.amax_workspace), amax,
                                        stream));
  const ErrorExchange exchange = {.skip = step == nullptr ? nullptr : &step->skip,
                                  .non_finite = &amax->non_finite};
  BRIGADE_RETURN_IF_ERROR(
      RestoreErrors(exchange, saved_error, state.error, sizes_.matrices, stream));
  BRIGADE_RETURN_IF_ERROR(RestoreErrors(exchange, saved_q, state.q, sizes_.q, stream));
  return order_.End(stream);
}

}  // namespace brigade::collectives
