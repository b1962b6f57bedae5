#include "brigade/kernels/muon/muon.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/internal/enqueue_update.h"
#include "brigade/kernels/internal/matrix_shape.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/muon/muon_cpu.h"
#include "brigade/kernels/value_range.h"

#if BRIGADE_CUDA
#include "brigade/kernels/muon/muon_cuda.h"
#endif

namespace brigade::kernels {
namespace {

using precision::DType;

constexpr char kMomentum[] = "muon_momentum";
constexpr char kOrthogonalize[] = "muon_orthogonalize";
constexpr char kParams[] = "muon_params";

absl::Status CheckOptions(const char* operation, const MuonOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckUpdateTypes(operation, options.grad_dtype, options.copy_dtype));
  BRIGADE_RETURN_IF_ERROR(CheckGroupCount(operation, options.groups.size(), kMaxMuonGroups));
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const MuonGroup& group = options.groups[i];
    BRIGADE_RETURN_IF_ERROR(CheckInRange(operation, "momentum", i, group.momentum, kBelowOne));
    BRIGADE_RETURN_IF_ERROR(
        CheckInRange(operation, "weight_decay", i, group.weight_decay, kNonNegative));
  }
  return absl::OkStatus();
}

// The list's last checks, the same for both kinds of segments.
template <typename Segment>
absl::Status CheckSteps(const char* operation, absl::Span<const Segment> segments,
                        const MuonOptions& options, ListArguments& arguments) {
  for (size_t i = 0; i < segments.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(
        CheckGroupIndex(operation, i, segments[i].group, options.groups.size()));
  }
  BRIGADE_RETURN_IF_ERROR(AddStep(operation, options.state, options.group_steps, options.one_step,
                                  options.groups.size(), arguments));
  return arguments.CheckOverlap();
}

// As a stream's queue holds a matrix; `size` says whether it has elements.
struct Work {
  MuonMatrix matrix;
  int64_t size;
};

// Valid until this thread's next call.
absl::Span<const Work> WorkOf(absl::Span<const MuonMatrix> matrices) {
  thread_local std::vector<Work> list;
  list.clear();
  for (const MuonMatrix& m : matrices) list.push_back({m, m.rows * m.columns});
  return list;
}

void OrthogonalizeOnCpu(const MuonMatrix& matrix, const MuonOrthogonalizeOptions& options,
                        device::ThreadPool& pool) {
  // Rows that a thread takes of a pass over memory.
  constexpr int64_t kRows = 32;
  const MuonWorkspace w = MuonWorkspaceOf(matrix.rows, matrix.columns);
  pool.ParallelRanges(MuonTiles(w.tall * w.wide), 1,
                      [&](int64_t begin, int64_t end) { MuonSumTiles(matrix, begin, end); });
  pool.ParallelRanges(w.tall, kRows, [&](int64_t begin, int64_t end) {
    MuonNormalizeRows(matrix, options.eps, begin, end);
  });
  for (int step = 0; step < options.steps; ++step) {
    for (int i = 0; i < kMuonProducts; ++i) {
      const MuonProduct product =
          MuonProductOf(i, w, matrix.workspace, step % 2 != 0, options.coefficients);
      pool.ParallelRanges(MuonBlocks(product), 1, [&](int64_t begin, int64_t end) {
        MuonProductBlocks(product, begin, end);
      });
    }
  }
  pool.ParallelRanges(matrix.rows, kRows, [&](int64_t begin, int64_t end) {
    MuonRestoreRows(matrix, options.steps % 2 != 0, begin, end);
  });
}

}  // namespace

MuonParameters MakeMuonParameters(const MuonOptions& options) {
  const auto count = static_cast<int64_t>(options.groups.size());
  if (options.one_step.has_value()) {
    return MakeMuonParameters(options.groups.data(), count, *options.one_step);
  }
  return MakeMuonParameters(options.groups.data(), count, options.state, options.group_steps);
}

absl::Status MuonMomentum(absl::Span<const MuonMomentumSegment> segments,
                          const MuonOptions& options, device::Stream& stream) {
  MuonOptions own = options;
  own.copy_dtype = {};
  BRIGADE_RETURN_IF_ERROR(CheckOptions(kMomentum, own));
  ListArguments arguments(kMomentum,
                          {Updated("momentum", sizeof(float)),
                           {"update", sizeof(float), true},
                           {"grad", precision::SizeOf(own.grad_dtype), false}},
                          stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const MuonMomentumSegment& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(arguments.Add(i, s.size, {s.param, s.update, s.grad}));
  }
  BRIGADE_RETURN_IF_ERROR(CheckSteps(kMomentum, segments, own, arguments));
  return EnqueueUpdate<MuonMomentumPolicy>(
      kMomentum, arguments, segments, own, MakeMuonParameters(own), stream,
      [](auto grad, auto) { return MuonMomentumRange<decltype(grad)>; },
      [](auto grad, auto, auto... launch) {
        return LaunchMuonMomentum<decltype(grad)>(launch...);
      });
}

absl::Status MuonOrthogonalize(absl::Span<const MuonMatrix> matrices,
                               const MuonOrthogonalizeOptions& options, device::Stream& stream) {
  if (options.steps < 1 || options.steps > kMaxMuonSteps) {
    return absl::InvalidArgumentError(absl::StrCat(kOrthogonalize, ": steps is ", options.steps,
                                                   ", must be 1 to ", kMaxMuonSteps));
  }
  BRIGADE_RETURN_IF_ERROR(CheckInRange(kOrthogonalize, "eps", -1, options.eps, kPositive));
  ListArguments arguments(
      kOrthogonalize,
      {Updated("update", sizeof(float)), {"workspace", sizeof(float), true, true, sizeof(double)}},
      stream);
  for (size_t i = 0; i < matrices.size(); ++i) {
    const MuonMatrix& m = matrices[i];
    const auto index = static_cast<int64_t>(i);
    BRIGADE_RETURN_IF_ERROR(CheckMatrixShape(kOrthogonalize, index, m.rows, m.columns));
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, index, m.update, m.rows * m.columns));
    BRIGADE_RETURN_IF_ERROR(
        arguments.AddArray(1, index, m.workspace, MuonWorkspaceSize(m.rows, m.columns)));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  return EnqueueList(
      {kOrthogonalize, arguments.accesses()}, WorkOf(matrices), kMostMatrixElements, stream,
      [options](auto plan, device::ThreadPool& pool) {
        for (const auto& planned : plan) {
          OrthogonalizeOnCpu(planned.segment.matrix, options, pool);
        }
      },
      [&](auto cuda_stream) {
        return LaunchMuonOrthogonalize(matrices.data(), matrices.size(), options.steps,
                                       options.coefficients, options.eps, cuda_stream);
      });
}

absl::Status MuonParams(absl::Span<const MuonParamSegment> segments, const MuonOptions& options,
                        device::Stream& stream) {
  MuonOptions own = options;
  own.grad_dtype = DType::kFloat32;
  BRIGADE_RETURN_IF_ERROR(CheckOptions(kParams, own));
  const DType copy_dtype = own.copy_dtype.value_or(DType::kFloat16);
  ListArguments arguments(
      kParams,
      {Updated("param", sizeof(float)),
       {"update", sizeof(float), false},
       {"param_copy", precision::SizeOf(copy_dtype), true, own.copy_dtype.has_value()}},
      stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const MuonParamSegment& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(arguments.Add(i, s.size, {s.param, s.grad, s.param_copy}));
    BRIGADE_RETURN_IF_ERROR(CheckInRange(kParams, "rate", i, s.rate, kNonNegative));
    BRIGADE_RETURN_IF_ERROR(CheckInRange(kParams, "scale", i, s.scale, kNonNegative));
  }
  BRIGADE_RETURN_IF_ERROR(CheckSteps(kParams, segments, own, arguments));
  return EnqueueUpdate<MuonParamPolicy>(
      kParams, arguments, segments, own, MakeMuonParameters(own), stream,
      [](auto, auto copy) { return MuonParamRange<decltype(copy)>; },
      [](auto, auto copy, auto... launch) { return LaunchMuonParams<decltype(copy)>(launch...); });
}

}  // namespace brigade::kernels
