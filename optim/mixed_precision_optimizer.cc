#include "brigade/optim/mixed_precision_optimizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/value_range.h"

namespace brigade::optim {
namespace {

using device::Purpose;
using precision::DType;

constexpr char kName[] = "mixed_precision_optimizer";
// 256 bytes of fp32: a parameter's state is aligned as its tensors usually are, so that kernels cut
// all of its arrays at the same elements.
constexpr int64_t kAlignment = 64;

int64_t AlignedSize(int64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

absl::Status CheckOptions(const MixedPrecisionOptions& options) {
  BRIGADE_RETURN_IF_ERROR(Validate(options.optimizer));
  if (AveragesMoments(options.optimizer.kind)) {
    const bool is_lamb = options.optimizer.kind == OptimizerKind::kOneBitLamb;
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer: kind is ", ExchangingName(options.optimizer.kind),
        ", whose ranks exchange moments; one device has ", is_lamb ? "LAMB" : "AdamW"));
  }
  if (options.optimizer.kind == OptimizerKind::kMuon) {
    return absl::InvalidArgumentError(
        "optimizer: kind is Muon, which must know what parameters are matrices; a ZeroOptimizer "
        "does, of one rank too");
  }
  if (options.optimizer.kind == OptimizerKind::kAdafactor) {
    return absl::InvalidArgumentError(
        "optimizer: kind is Adafactor, which must know what parameters are matrices; a "
        "ZeroOptimizer does, of one rank too");
  }
  if (HasCodes(options.optimizer.kind)) {
    return absl::InvalidArgumentError(
        "optimizer: kind is AdamW8 or Adam8, whose moments are codes; a ZeroOptimizer has them, of "
        "one rank too");
  }
  BRIGADE_RETURN_IF_ERROR(kernels::CheckInRange(kName, "micro_batches", -1, options.micro_batches,
                                                {1.0, 0x1p31, "1 or more"}));
  return kernels::CheckFloatType(kName, "accumulator", options.accumulator_dtype);
}

// What kernels would say of single calls, once for all and before the first step.
absl::Status CheckParameters(absl::Span<const ParameterArrays> parameters, int64_t groups,
                             const device::Stream& stream) {
  if (parameters.empty()) return absl::InvalidArgumentError(absl::StrCat(kName, ": no parameters"));
  kernels::ListArguments arguments(kName,
                                   {{"weights", 2, true},
                                    {"grad", 2, false},
                                    {"fp32 weights", 4, true},
                                    {"fp32 grad", 4, false}},
                                   stream);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterArrays& p = parameters[i];
    const int64_t index = static_cast<int64_t>(i);
    const auto check = [&]() -> absl::Status {
      BRIGADE_RETURN_IF_ERROR(kernels::CheckFloatType(kName, "weights", p.weight_dtype));
      BRIGADE_RETURN_IF_ERROR(kernels::CheckFloatType(kName, "grad", p.grad_dtype));
      if (p.group < 0 || p.group >= groups) {
        return absl::InvalidArgumentError(
            absl::StrCat(kName, ": group is ", p.group, ", must be 0 to ", groups - 1));
      }
      BRIGADE_RETURN_IF_ERROR(
          arguments.AddArray(p.weight_dtype == DType::kFloat32 ? 2 : 0, index, p.weights, p.size));
      return arguments.AddArray(p.grad_dtype == DType::kFloat32 ? 3 : 1, index, p.grad, p.size);
    };
    if (absl::Status checked = check(); !checked.ok()) {
      return absl::Status(checked.code(),
                          absl::StrCat(checked.message(), "; parameter ", i, ", \"", p.name, "\""));
    }
  }
  return arguments.CheckOverlap();
}

// The arrays of a MixedPrecisionState, in the order in which optimizers begin to need them.
struct StateArray {
  const char* name;
  float* UpdateSegment::*device;
  std::vector<float> MixedPrecisionState::*host;
};
constexpr StateArray kStateArrays[] = {
    {"master", &UpdateSegment::param, &MixedPrecisionState::master},
    {"first_moment", &UpdateSegment::first_moment, &MixedPrecisionState::first_moment},
    {"second_moment", &UpdateSegment::second_moment, &MixedPrecisionState::second_moment},
};

absl::Status Cast(absl::Span<const kernels::CastSegment> segments, DType source, DType target,
                  bool accumulate, device::Stream& stream) {
  kernels::CastOptions options;
  options.source_dtype = source;
  options.target_dtype = target;
  options.accumulate = accumulate;
  return kernels::Cast(segments, options, stream);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MixedPrecisionOptimizer>> MixedPrecisionOptimizer::Create(
    absl::Span<const ParameterArrays> parameters, const MixedPrecisionOptions& options,
    device::Context& context, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckOptions(options));
  BRIGADE_RETURN_IF_ERROR(
      CheckParameters(parameters, static_cast<int64_t>(options.optimizer.groups.size()), stream));
  std::unique_ptr<MixedPrecisionOptimizer> optimizer(new MixedPrecisionOptimizer(options));
  BRIGADE_RETURN_IF_ERROR(optimizer->AllocateState(parameters, context));
  StepLists lists = optimizer->MakeLists(parameters);
  for (const device::Buffer& moment : optimizer->moments_) {
    BRIGADE_RETURN_IF_ERROR(stream.FillBytes(moment.data(), 0, moment.bytes()));
  }
  for (const List& list : optimizer->lists_) {
    BRIGADE_RETURN_IF_ERROR(Cast(list.widen, list.weight_dtype, DType::kFloat32, false, stream));
  }
  const StepControllerOptions control = {
      .loss_scaler = options.loss_scaler,
      .max_grad_norm = options.max_grad_norm,
      .grad_divisor = options.grad_divisor.value_or(options.micro_batches),
      .lr_table_size = options.lr_table_size};
  BRIGADE_ASSIGN_OR_RETURN(optimizer->executor_,
                           StepExecutor::Create(options.optimizer, control, /*rank=*/0,
                                                std::move(lists), context, stream));
  return optimizer;
}

absl::Status MixedPrecisionOptimizer::AllocateState(absl::Span<const ParameterArrays> parameters,
                                                    device::Context& context) {
  int64_t all = 0, masters = 0;
  for (const ParameterArrays& p : parameters) {
    all += AlignedSize(p.size);
    if (p.weight_dtype != DType::kFloat32) masters += AlignedSize(p.size);
    elements_ += p.size;
  }
  const auto allocate = [&](device::Buffer& buffer, int64_t elements, DType dtype, Purpose purpose,
                            absl::string_view name) {
    auto allocated = context.Allocate(elements * precision::SizeOf(dtype), purpose, name);
    if (allocated.ok()) buffer = *std::move(allocated);
    return allocated.status();
  };
  BRIGADE_RETURN_IF_ERROR(
      allocate(master_, masters, DType::kFloat32, Purpose::kOptimizerState, "master weights"));
  for (int i = 0; i < Moments(options_.optimizer); ++i) {
    BRIGADE_RETURN_IF_ERROR(allocate(moments_[i], all, DType::kFloat32, Purpose::kOptimizerState,
                                     i == 0 ? "first moment" : "second moment"));
  }
  if (!accumulates()) return absl::OkStatus();
  return allocate(accumulators_, all, options_.accumulator_dtype, Purpose::kGradients,
                  "accumulated gradients");
}

size_t MixedPrecisionOptimizer::ListOf(const ParameterArrays& parameter) {
  size_t i = 0;
  while (i < lists_.size() && (lists_[i].grad_dtype != parameter.grad_dtype ||
                               lists_[i].weight_dtype != parameter.weight_dtype)) {
    ++i;
  }
  if (i == lists_.size()) {
    lists_.push_back({.grad_dtype = parameter.grad_dtype, .weight_dtype = parameter.weight_dtype});
  }
  return i;
}

StepLists MixedPrecisionOptimizer::MakeLists(absl::Span<const ParameterArrays> parameters) {
  const auto part = [](const device::Buffer& buffer, int64_t at) {
    return buffer.bytes() == 0 ? nullptr : buffer.as<float>().data() + at;
  };
  StepLists lists;
  int64_t at = 0, master_at = 0;
  for (const ParameterArrays& p : parameters) {
    const size_t index = ListOf(p);
    List& list = lists_[index];
    if (index == lists.updates.size()) {
      lists.gradients.push_back({.dtype = CheckedDType(list)});
      lists.updates.push_back({.types = {.grad = CheckedDType(list)}});
      if (list.weight_dtype != DType::kFloat32) {
        lists.updates.back().types.copy = list.weight_dtype;
      }
    }
    const bool has_master = p.weight_dtype != DType::kFloat32;
    UpdateSegment segment = {.first_moment = part(moments_[0], at),
                             .second_moment = part(moments_[1], at),
                             .grad = p.grad,
                             .size = p.size,
                             .group = p.group};
    if (has_master) {
      segment.param = part(master_, master_at);
      segment.copy = p.weights;
      list.widen.push_back({p.weights, segment.param, p.size});
      list.narrow.push_back({segment.param, p.weights, p.size});
      master_at += AlignedSize(p.size);
    } else {
      segment.param = static_cast<float*>(p.weights);
    }
    if (accumulates()) {
      char* const sum =
          accumulators_.as<char>().data() + at * precision::SizeOf(options_.accumulator_dtype);
      list.accumulate.push_back({p.grad, sum, p.size});
      segment.grad = sum;
    }
    lists.gradients[index].segments.push_back({segment.grad, p.size});
    lists.updates[index].segments.push_back(segment);
    segments_.push_back(segment);
    at += AlignedSize(p.size);
  }
  return lists;
}

absl::Status MixedPrecisionOptimizer::AccumulateGradients(device::Stream& stream) {
  if (accumulated_ == options_.micro_batches) {
    return absl::FailedPreconditionError(absl::StrCat(
        kName, ": the gradients of all ", accumulated_, " micro-batches are there, Step is next"));
  }
  for (const List& list : lists_) {
    const absl::Status added = Cast(list.accumulate, list.grad_dtype, options_.accumulator_dtype,
                                    /*accumulate=*/accumulated_ > 0, stream);
    if (!added.ok()) {
      DropGradients();  // other lists may have theirs already
      return added;
    }
  }
  ++accumulated_;
  return absl::OkStatus();
}

absl::Status MixedPrecisionOptimizer::Step(device::Stream& stream) {
  if (accumulates() && accumulated_ != options_.micro_batches) {
    return absl::FailedPreconditionError(absl::StrCat(kName, ": Step after ", accumulated_, " of ",
                                                      options_.micro_batches, " micro-batches"));
  }
  DropGradients();
  return executor_->Enqueue(stream);
}

int64_t MixedPrecisionOptimizer::ElementsOfArray(int index) const {
  return index <= Moments(options_.optimizer) ? elements_ : 0;
}

absl::StatusOr<MixedPrecisionState> MixedPrecisionOptimizer::SaveState(
    device::Stream& stream) const {
  MixedPrecisionState state;
  for (int i = 0; i < 3; ++i) {
    std::vector<float>& host = state.*kStateArrays[i].host;
    host.resize(static_cast<size_t>(ElementsOfArray(i)));
    float* to = host.data();
    for (const UpdateSegment& s : segments_) {
      if (host.empty()) break;
      BRIGADE_RETURN_IF_ERROR(
          stream.Copy(to, s.*kStateArrays[i].device, s.size * static_cast<int64_t>(sizeof(float))));
      to += s.size;
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(state.step, executor_->controller().SaveState(stream));
  return state;
}

absl::Status MixedPrecisionOptimizer::LoadState(const MixedPrecisionState& state,
                                                device::Stream& stream) {
  for (int i = 0; i < 3; ++i) {
    const std::vector<float>& host = state.*kStateArrays[i].host;
    if (static_cast<int64_t>(host.size()) != ElementsOfArray(i)) {
      return absl::InvalidArgumentError(absl::StrCat(kName, ": ", kStateArrays[i].name, " has ",
                                                     host.size(), " elements, must have ",
                                                     ElementsOfArray(i)));
    }
  }
  BRIGADE_RETURN_IF_ERROR(executor_->controller().LoadState(state.step, stream));
  DropGradients();
  for (int i = 0; i < 3; ++i) {
    const std::vector<float>& host = state.*kStateArrays[i].host;
    const float* from = host.data();
    for (const UpdateSegment& s : segments_) {
      if (host.empty()) break;
      BRIGADE_RETURN_IF_ERROR(stream.Copy(s.*kStateArrays[i].device, from,
                                          s.size * static_cast<int64_t>(sizeof(float))));
      from += s.size;
    }
  }
  for (const List& list : lists_) {
    BRIGADE_RETURN_IF_ERROR(Cast(list.narrow, DType::kFloat32, list.weight_dtype, false, stream));
  }
  return stream.Synchronize();
}

}  // namespace brigade::optim
