#include "brigade/kernels/adafactor/adafactor.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/adafactor/adafactor_cpu.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/internal/enqueue_update.h"
#include "brigade/kernels/internal/matrix_shape.h"
#include "brigade/kernels/internal/update_cpu.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/value_range.h"

#if BRIGADE_CUDA
#include "brigade/kernels/adafactor/adafactor_cuda.h"
#endif

namespace brigade::kernels {
namespace {

using precision::DType;

constexpr char kFactors[] = "adafactor_factors";
constexpr char kParams[] = "adafactor_params";

absl::Status CheckOptions(const char* operation, const AdafactorOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckUpdateTypes(operation, options.grad_dtype, options.copy_dtype));
  BRIGADE_RETURN_IF_ERROR(CheckGroupCount(operation, options.groups.size(), kMaxAdafactorGroups));
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const AdafactorGroup& group = options.groups[i];
    const auto index = static_cast<int64_t>(i);
    BRIGADE_RETURN_IF_ERROR(CheckInRange(operation, "beta1", index, group.beta1, kBelowOne));
    BRIGADE_RETURN_IF_ERROR(
        CheckInRange(operation, "weight_decay", index, group.weight_decay, kNonNegative));
  }
  return Validate(options.settings, operation);
}

absl::Status AddStepOf(const char* operation, const AdafactorOptions& options,
                       ListArguments& arguments) {
  return AddStep(operation, options.state, options.group_steps, options.one_step,
                 options.groups.size(), arguments);
}

// As a stream's queue holds a tensor.
struct Work {
  AdafactorTensor tensor;
  int64_t size;
  int32_t group;
};

// Valid until this thread's next call.
absl::Span<const Work> WorkOf(absl::Span<const AdafactorTensor> tensors) {
  thread_local std::vector<Work> list;
  list.clear();
  for (const AdafactorTensor& t : tensors) list.push_back({t, t.rows * t.columns, t.group});
  return list;
}

template <typename Grad>
void FactorsOnPool(const AdafactorTensor& t, const AdafactorParameters& parameters,
                   device::ThreadPool& pool) {
  // Rows or columns that a thread takes at a time.
  constexpr int64_t kAtOnce = 4 * kAdafactorColumns;
  const AdafactorGrid g = AdafactorGridOf(t.rows, t.columns);
  // Strips that follow each other, as long as a thread that is held up costs little.
  const int64_t strips = std::clamp<int64_t>(g.down / (8 * pool.threads()), 1, 16);
  pool.ParallelRanges(g.down, strips, [&](int64_t begin, int64_t end) {
    AdafactorSumTiles<Grad>(t, parameters, begin, end);
  });
  if (g.is_matrix) {
    pool.ParallelRanges(t.rows, kAtOnce, [&](int64_t begin, int64_t end) {
      AdafactorRows(t, parameters, begin, end);
    });
    pool.ParallelRanges(t.columns, kAtOnce, [&](int64_t begin, int64_t end) {
      AdafactorColumns(t, parameters, begin, end);
    });
    AdafactorMeans(t);
    pool.ParallelRanges(g.down, strips, [&](int64_t begin, int64_t end) {
      AdafactorUpdateTiles<Grad>(t, parameters, begin, end);
    });
  }
  AdafactorNumbers(t, parameters);
}

}  // namespace

absl::Status Validate(const AdafactorSettings& settings, const char* operation) {
  const auto check = [&](const char* name, double value, ValueRange range) {
    return CheckInRange(operation, name, -1, value, range);
  };
  // A square of this, in a sum of doubles, and its root's inverse are floats.
  BRIGADE_RETURN_IF_ERROR(
      check("eps1", settings.eps1, {0x1p-126, 1.0, "2^-126, a normal float, to 1"}));
  BRIGADE_RETURN_IF_ERROR(check("eps2", settings.eps2, kNonNegative));
  BRIGADE_RETURN_IF_ERROR(check("clip_threshold", settings.clip_threshold, kPositive));
  BRIGADE_RETURN_IF_ERROR(check("decay_rate", settings.decay_rate, {-10.0, 0.0, "-10 to 0"}));
  if (settings.warmup_init && !settings.relative_step) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": warmup_init is true, which needs relative_step"));
  }
  return absl::OkStatus();
}

AdafactorParameters MakeAdafactorParameters(const AdafactorOptions& options) {
  const auto count = static_cast<int64_t>(options.groups.size());
  if (options.one_step.has_value()) {
    return MakeAdafactorParameters(options.groups.data(), count, options.settings,
                                   *options.one_step);
  }
  return MakeAdafactorParameters(options.groups.data(), count, options.settings, options.state,
                                 options.group_steps);
}

absl::Status AdafactorFactors(absl::Span<const AdafactorTensor> tensors,
                              const AdafactorOptions& options, device::Stream& stream) {
  AdafactorOptions own = options;
  own.copy_dtype = {};
  BRIGADE_RETURN_IF_ERROR(CheckOptions(kFactors, own));
  const bool has_params = own.settings.scale_parameter;
  ListArguments arguments(kFactors,
                          {{"param", sizeof(float), false, has_params},
                           {"grad", precision::SizeOf(own.grad_dtype), false},
                           Updated("factors", sizeof(float)),
                           {"scales", sizeof(float), true},
                           {"workspace", sizeof(double), true}},
                          stream);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const AdafactorTensor& t = tensors[i];
    const auto index = static_cast<int64_t>(i);
    BRIGADE_RETURN_IF_ERROR(CheckMatrixShape(kFactors, index, t.rows, t.columns));
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex(kFactors, index, t.group, own.groups.size()));
    const int64_t size = t.rows * t.columns;
    const int64_t factors = AdafactorFactorCount(t.rows, t.columns);
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, index, t.param, size));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, index, t.grad, size));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(2, index, t.factors, factors));
    BRIGADE_RETURN_IF_ERROR(
        arguments.AddArray(3, index, t.scales, size == 0 ? 0 : kAdafactorNumbers + factors));
    BRIGADE_RETURN_IF_ERROR(
        arguments.AddArray(4, index, t.workspace, AdafactorWorkspaceSize(t.rows, t.columns)));
  }
  BRIGADE_RETURN_IF_ERROR(AddStepOf(kFactors, own, arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const AdafactorParameters parameters = MakeAdafactorParameters(own);
  const device::Operation operation = {kFactors, arguments.accesses()};
  absl::Status status;
  precision::VisitFloat(own.grad_dtype, [&](auto grad) {
    using Grad = decltype(grad);
    status = EnqueueList(
        operation, WorkOf(tensors), kMostMatrixElements, stream,
        [parameters](auto plan, device::ThreadPool& pool) -> absl::Status {
          if (SkipsStep(parameters)) return absl::OkStatus();
          BRIGADE_RETURN_IF_ERROR(CheckStep<AdafactorPolicy>(kFactors, plan, parameters));
          for (const auto& planned : plan) {
            FactorsOnPool<Grad>(planned.segment.tensor, parameters, pool);
          }
          return absl::OkStatus();
        },
        [&](auto cuda_stream) {
          return LaunchAdafactorFactors<Grad>(tensors.data(), tensors.size(), parameters,
                                              cuda_stream);
        });
  });
  return status;
}

absl::Status AdafactorParams(absl::Span<const AdafactorSegment> segments,
                             const AdafactorOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckOptions(kParams, options));
  const DType copy_dtype = options.copy_dtype.value_or(DType::kFloat16);
  ListArguments arguments(
      kParams,
      {Updated("param", sizeof(float)),
       Updated("m", sizeof(float)),
       {"grad", precision::SizeOf(options.grad_dtype), false},
       {"param_copy", precision::SizeOf(copy_dtype), true, options.copy_dtype.has_value()},
       {"scales", sizeof(float), false}},
      stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const AdafactorSegment& s = segments[i];
    const auto index = static_cast<int64_t>(i);
    BRIGADE_RETURN_IF_ERROR(CheckMatrixShape(kParams, index, s.rows, s.columns));
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex(kParams, index, s.group, options.groups.size()));
    const int64_t whole = s.rows * s.columns;
    if (s.size > 0 && (s.first < 0 || s.first > whole || s.size > whole - s.first)) {
      return absl::InvalidArgumentError(absl::StrCat(kParams, ": segment ", i, " has ", s.size,
                                                     " elements from ", s.first, " on, of ",
                                                     whole));
    }
    const bool has_moment = options.groups[static_cast<size_t>(s.group)].beta1 > 0.0;
    if (!has_moment && s.m != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(kParams, ": m of segment ", i, " is not null, but beta1 of its group is 0"));
    }
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, index, s.param, s.size));
    if (has_moment) BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, index, s.m, s.size));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(2, index, s.grad, s.size));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(3, index, s.param_copy, s.size));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(
        4, index, s.scales,
        s.size <= 0 ? 0 : kAdafactorNumbers + AdafactorFactorCount(s.rows, s.columns)));
  }
  BRIGADE_RETURN_IF_ERROR(AddStepOf(kParams, options, arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  return EnqueueUpdate<AdafactorParamPolicy>(
      kParams, arguments, segments, options, MakeAdafactorParameters(options), stream,
      [](auto grad, auto copy) { return AdafactorParamRange<decltype(grad), decltype(copy)>; },
      [](auto grad, auto copy, auto... launch) {
        return LaunchAdafactorParams<decltype(grad), decltype(copy)>(launch...);
      });
}

}  // namespace brigade::kernels
