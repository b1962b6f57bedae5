#include "brigade/kernels/lamb/lamb.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/internal/update_cpu.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/kernels/lamb/lamb_tensors.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/value_range.h"

#if BRIGADE_CUDA
#include "brigade/kernels/lamb/lamb_cuda.h"
#endif

namespace brigade::kernels {
namespace {

using precision::DType;

template <typename Grad>
void MomentsOnPool(absl::Span<const PlannedSegment<LambSegment>> plan,
                   const LambParameters& parameters, LambSums* sums, device::ThreadPool& pool) {
  ForEachRange(plan, kLambTile, pool,
               [&](const LambSegment& s, int64_t begin, int64_t end, int64_t first_tile) {
                 LambSums* const tiles = sums + first_tile - begin / kLambTile;
                 static_cast<void>(LambMomentsRange<Grad>(s, parameters, begin, end, tiles));
               });
}

// As UpdateCpu, but for the sums between two passes.
template <typename Grad, typename Copy>
absl::Status LambOnPool(absl::Span<const PlannedSegment<LambSegment>> plan,
                        const LambParameters& parameters, LambSums* sums,
                        device::ThreadPool& pool) {
  if (SkipsStep(parameters)) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckStep<LambPolicy>("lamb", plan, parameters));
  MomentsOnPool<Grad>(plan, parameters, sums, pool);
  ForEachRange(plan, kLambTile, pool,
               [&](const LambSegment& s, int64_t begin, int64_t end, int64_t first_tile) {
                 // Each range adds the tensor's tiles again: 16 bytes for 8192 elements.
                 const LambSums* const tiles = sums + first_tile - begin / kLambTile;
                 const float trust = LambTrustOf(s, parameters, tiles);
                 static_cast<void>(LambParamRange<Copy>(s, parameters, trust, begin, end));
               });
  return absl::OkStatus();
}

// The arrays of a list, by add(i, segment), and the step.
template <typename Add>
absl::Status AddSegments(const char* name, absl::Span<const LambSegment> segments,
                         const LambOptions& options, ListArguments& arguments, const Add& add) {
  for (size_t i = 0; i < segments.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(add(i, segments[i]));
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex(name, i, segments[i].group, options.groups.size()));
  }
  return AddStep(name, options.state, options.group_steps, options.one_step, options.groups.size(),
                 arguments);
}

absl::Status CheckSize(const char* name, size_t size, int64_t needed) {
  if (static_cast<int64_t>(size) >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("lamb: ", name, " has ", size, " doubles, the list needs ", needed));
}

LambSums* SumsIn(absl::Span<double> workspace) {
  static_assert(sizeof(LambSums) == 2 * sizeof(double));
  return reinterpret_cast<LambSums*>(workspace.data());
}

}  // namespace

absl::Status Validate(const LambOptions& options, const char* name) {
  BRIGADE_RETURN_IF_ERROR(CheckUpdateTypes(name, options.grad_dtype, options.copy_dtype));
  BRIGADE_RETURN_IF_ERROR(CheckGroupCount(name, options.groups.size(), kMaxLambGroups));
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const LambGroup& group = options.groups[i];
    const auto check = [&](const char* field, double value, ValueRange range) {
      return CheckInRange(name, field, static_cast<int64_t>(i), value, range);
    };
    BRIGADE_RETURN_IF_ERROR(check("beta1", group.beta1, kBelowOne));
    BRIGADE_RETURN_IF_ERROR(check("beta2", group.beta2, kBelowOne));
    BRIGADE_RETURN_IF_ERROR(check("eps", group.eps, kPositive));
    BRIGADE_RETURN_IF_ERROR(check("weight_decay", group.weight_decay, kNonNegative));
    BRIGADE_RETURN_IF_ERROR(check("max_trust", group.max_trust, kNonNegative));
    BRIGADE_RETURN_IF_ERROR(
        check("min_trust", group.min_trust, {0.0, group.max_trust, "0 to max_trust"}));
  }
  return absl::OkStatus();
}

int64_t LambWorkspaceSize(absl::Span<const LambSegment> segments) {
  int64_t tiles = 0;
  for (const LambSegment& s : segments) tiles += CeilDiv(s.size, kLambTile);
  return 2 * tiles;
}

LambParameters MakeLambParameters(const LambOptions& options) {
  const auto count = static_cast<int64_t>(options.groups.size());
  if (options.one_step.has_value()) {
    return MakeLambParameters(options.groups.data(), count, *options.one_step);
  }
  return MakeLambParameters(options.groups.data(), count, options.state, options.group_steps);
}

absl::Status Lamb(absl::Span<const LambSegment> segments, const LambOptions& options,
                  absl::Span<double> workspace, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Validate(options, "lamb"));
  const DType copy_dtype = options.copy_dtype.value_or(DType::kFloat16);
  ListArguments arguments(
      "lamb",
      {Updated("param", sizeof(float)),
       Updated("m", sizeof(float)),
       Updated("v", sizeof(float)),
       {"grad", precision::SizeOf(options.grad_dtype), false},
       {"param_copy", precision::SizeOf(copy_dtype), true, options.copy_dtype.has_value()}},
      stream);
  BRIGADE_RETURN_IF_ERROR(
      AddSegments("lamb", segments, options, arguments, [&](size_t i, const LambSegment& s) {
        return arguments.Add(i, s.size, {s.param, s.m, s.v, s.grad, s.param_copy});
      }));
  const int64_t needed = LambWorkspaceSize(segments);
  BRIGADE_RETURN_IF_ERROR(CheckSize("workspace", workspace.size(), needed));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("workspace", workspace.data(), needed));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {"lamb", arguments.accesses()};
  const LambParameters parameters = MakeLambParameters(options);
  LambSums* const sums = SumsIn(workspace);
  absl::Status status;
  VisitUpdateTypes(options.grad_dtype, options.copy_dtype, [&](auto grad, auto copy) {
    using Grad = decltype(grad);
    using Copy = decltype(copy);
    status = EnqueueList(
        operation, segments, kLambTile, stream,
        [parameters, sums](auto plan, auto& pool) {
          return LambOnPool<Grad, Copy>(plan, parameters, sums, pool);
        },
        [&](auto cuda_stream) {
          return LaunchLamb<Grad, Copy>(segments.data(), segments.size(), parameters, sums,
                                        cuda_stream);
        });
  });
  return status;
}

absl::Status LambMoments(absl::Span<const LambSegment> segments, const LambOptions& options,
                         absl::Span<double> sums, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Validate(options, "lamb"));
  ListArguments arguments("lamb_moments",
                          {{"param", sizeof(float), false},
                           Updated("m", sizeof(float)),
                           Updated("v", sizeof(float)),
                           {"grad", precision::SizeOf(options.grad_dtype), false}},
                          stream);
  BRIGADE_RETURN_IF_ERROR(AddSegments(
      "lamb_moments", segments, options, arguments, [&](size_t i, const LambSegment& s) {
        return arguments.Add(i, s.size, {s.param, s.m, s.v, s.grad});
      }));
  const int64_t needed = LambWorkspaceSize(segments);
  BRIGADE_RETURN_IF_ERROR(CheckSize("sums", sums.size(), needed));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("sums", sums.data(), needed));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {"lamb_moments", arguments.accesses()};
  const LambParameters parameters = MakeLambParameters(options);
  LambSums* const tiles = SumsIn(sums);
  absl::Status status;
  precision::VisitFloat(options.grad_dtype, [&](auto grad) {
    using Grad = decltype(grad);
    status = EnqueueList(
        operation, segments, kLambTile, stream,
        [parameters, tiles](auto plan, auto& pool) -> absl::Status {
          if (SkipsStep(parameters)) return absl::OkStatus();
          BRIGADE_RETURN_IF_ERROR(CheckStep<LambPolicy>("lamb_moments", plan, parameters));
          MomentsOnPool<Grad>(plan, parameters, tiles, pool);
          return absl::OkStatus();
        },
        [&](auto cuda_stream) {
          return LaunchLambMoments<Grad>(segments.data(), segments.size(), parameters, tiles,
                                         cuda_stream);
        });
  });
  return status;
}

absl::Status LambTrusts(absl::Span<const LambTensor> tensors, const LambOptions& options,
                        absl::Span<const double> sums, absl::Span<float> trusts,
                        device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Validate(options, "lamb"));
  BRIGADE_ASSIGN_OR_RETURN(const int64_t tiles_needed,
                           LambTilesNeeded("lamb_trusts", tensors, options.groups.size()));
  const int64_t needed = 2 * tiles_needed;
  BRIGADE_RETURN_IF_ERROR(CheckSize("sums", sums.size(), needed));
  const auto count = static_cast<int64_t>(tensors.size());
  if (static_cast<int64_t>(trusts.size()) < count) {
    return absl::InvalidArgumentError(absl::StrCat("lamb_trusts: trusts has ", trusts.size(),
                                                   " elements, the list needs ", count));
  }
  ListArguments arguments("lamb_trusts", {}, stream);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("sums", sums.data(), needed));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("trusts", trusts.data(), count));
  BRIGADE_RETURN_IF_ERROR(AddStep("lamb_trusts", options.state, options.group_steps,
                                  options.one_step, options.groups.size(), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const LambParameters parameters = MakeLambParameters(options);
  const auto* const tiles = reinterpret_cast<const LambSums*>(sums.data());
  float* const to = trusts.data();
  return EnqueueLambTensors(
      {"lamb_trusts", arguments.accesses()}, tensors, stream,
      [parameters, tiles, to](absl::Span<const LambTensor> list) {
        if (SkipsStep(parameters)) return;
        for (size_t i = 0; i < list.size(); ++i) {
          to[i] = LambTrustOf(list[i], parameters, tiles);
        }
      },
      [&](auto cuda_stream) {
        return LaunchLambTrusts(tensors.data(), count, parameters, tiles, to, cuda_stream);
      });
}

absl::Status LambParams(absl::Span<const LambSegment> segments, const LambOptions& options,
                        absl::Span<const float> trusts, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Validate(options, "lamb"));
  const DType copy_dtype = options.copy_dtype.value_or(DType::kFloat16);
  ListArguments arguments(
      "lamb_params",
      {Updated("param", sizeof(float)),
       {"m", sizeof(float), false},
       {"v", sizeof(float), false},
       {"param_copy", precision::SizeOf(copy_dtype), true, options.copy_dtype.has_value()}},
      stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const LambSegment& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(arguments.Add(i, s.size, {s.param, s.m, s.v, s.param_copy}));
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex("lamb_params", i, s.group, options.groups.size()));
    if (s.size > 0 && (s.trust < trusts.data() || s.trust >= trusts.data() + trusts.size())) {
      return absl::InvalidArgumentError(absl::StrCat("lamb_params: trust of segment ", i,
                                                     " is none of the ", trusts.size(), " trusts"));
    }
  }
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand("trusts", trusts.data(), static_cast<int64_t>(trusts.size())));
  BRIGADE_RETURN_IF_ERROR(AddStep("lamb_params", options.state, options.group_steps,
                                  options.one_step, options.groups.size(), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {"lamb_params", arguments.accesses()};
  const LambParameters parameters = MakeLambParameters(options);
  absl::Status status;
  VisitUpdateTypes(DType::kFloat32, options.copy_dtype, [&](auto, auto copy) {
    using Copy = decltype(copy);
    status = EnqueueList(
        operation, segments, kCpuTile, stream,
        [parameters](auto plan, auto& pool) {
          return UpdateCpu<LambPolicy>(
              "lamb_params", plan, parameters, pool,
              [](const LambSegment& s, const LambParameters& step, int64_t begin, int64_t end) {
                return LambParamRange<Copy>(s, step, *s.trust, begin, end);
              });
        },
        [&](auto cuda_stream) {
          return LaunchLambParams<Copy>(segments.data(), segments.size(), parameters, cuda_stream);
        });
  });
  return status;
}

}  // namespace brigade::kernels
