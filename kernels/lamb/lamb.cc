#include "brigade/kernels/lamb/lamb.h"

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/internal/update_cpu.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/value_range.h"

#if BRIGADE_CUDA
#include "brigade/kernels/lamb/lamb_cuda.h"
#endif

namespace brigade::kernels {
namespace {

using precision::DType;

absl::Status CheckOptions(const LambOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckUpdateTypes("lamb", options.grad_dtype, options.copy_dtype));
  BRIGADE_RETURN_IF_ERROR(CheckGroupCount("lamb", options.groups.size(), kMaxLambGroups));
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const LambGroup& group = options.groups[i];
    const auto check = [&](const char* name, double value, ValueRange range) {
      return CheckInRange("lamb", name, static_cast<int64_t>(i), value, range);
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

// As UpdateCpu, but for the sums between two passes.
template <typename Grad, typename Copy>
absl::Status LambOnPool(absl::Span<const PlannedSegment<LambSegment>> plan,
                        const LambParameters& parameters, LambSums* sums,
                        device::ThreadPool& pool) {
  if (SkipsStep(parameters)) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckStep<LambPolicy>("lamb", plan, parameters));
  ForEachRange(plan, kLambTile, pool,
               [&](const LambSegment& s, int64_t begin, int64_t end, int64_t first_tile) {
                 LambSums* const tiles = sums + first_tile - begin / kLambTile;
                 static_cast<void>(LambMomentsRange<Grad>(s, parameters, begin, end, tiles));
               });
  ForEachRange(plan, kLambTile, pool,
               [&](const LambSegment& s, int64_t begin, int64_t end, int64_t first_tile) {
                 // Each range adds the tensor's tiles again: 16 bytes for 8192 elements.
                 const LambSums* const tiles = sums + first_tile - begin / kLambTile;
                 const float trust = LambTrustOf(s, parameters, tiles);
                 static_cast<void>(LambParamRange<Copy>(s, parameters, trust, begin, end));
               });
  return absl::OkStatus();
}

}  // namespace

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
  BRIGADE_RETURN_IF_ERROR(CheckOptions(options));
  const DType copy_dtype = options.copy_dtype.value_or(DType::kFloat16);
  ListArguments arguments(
      "lamb",
      {{"param", sizeof(float), true},
       {"m", sizeof(float), true},
       {"v", sizeof(float), true},
       {"grad", precision::SizeOf(options.grad_dtype), false},
       {"param_copy", precision::SizeOf(copy_dtype), true, options.copy_dtype.has_value()}},
      stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const LambSegment& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(arguments.Add(i, s.size, {s.param, s.m, s.v, s.grad, s.param_copy}));
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex("lamb", i, s.group, options.groups.size()));
  }
  BRIGADE_RETURN_IF_ERROR(AddStep("lamb", options.state, options.group_steps, options.one_step,
                                  options.groups.size(), arguments));
  const int64_t needed = LambWorkspaceSize(segments);
  if (static_cast<int64_t>(workspace.size()) < needed) {
    return absl::InvalidArgumentError(absl::StrCat("lamb: workspace has ", workspace.size(),
                                                   " doubles, the list needs ", needed));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("workspace", workspace.data(), needed));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {"lamb", arguments.accesses()};
  const LambParameters parameters = MakeLambParameters(options);
  static_assert(sizeof(LambSums) == 2 * sizeof(double));
  auto* const sums = reinterpret_cast<LambSums*>(workspace.data());
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

}  // namespace brigade::kernels
