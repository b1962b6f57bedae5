#include "brigade/zero/internal/matrix_update.h"

#include <utility>

#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/zero/internal/move_piece.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {

MatrixUpdate::MatrixUpdate(const Plan& plan, const ZeroOptions& options, StepStreams& streams)
    : plan_(plan), options_(options), streams_(streams), layout_(plan, options, streams.rank()) {
  for (const optim::ParameterGroup& group : options.optimizer.groups) {
    groups_.push_back({group.momentum, group.nesterov, group.weight_decay});
  }
}

absl::StatusOr<std::unique_ptr<MatrixUpdate>> MatrixUpdate::Create(
    const Plan& plan, const ZeroOptions& options, absl::FunctionRef<Arrays(int bucket)> arrays_of,
    StepStreams& streams) {
  std::unique_ptr<MatrixUpdate> update(new MatrixUpdate(plan, options, streams));
  const MatrixLayout& layout = update->layout_;
  BRIGADE_ASSIGN_OR_RETURN(
      update->memory_,
      streams.context().Allocate(layout.bytes(), device::Purpose::kScratch, "updates of matrices"));
  // A step that is skipped makes zeros orthogonal, or what the step before has left.
  BRIGADE_RETURN_IF_ERROR(streams.comm().FillBytes(update->memory_.data(), 0, layout.bytes()));
  float* const memory = update->memory_.as<float>().data();
  for (size_t m = 0; m < layout.matrices().size(); ++m) {
    const PlannedMatrix& matrix = layout.matrices()[m];
    for (const MatrixPiece& piece : matrix.pieces) {
      if (piece.rank == streams.rank()) {
        update->ListSegments(matrix, piece, arrays_of(matrix.bucket));
      }
    }
    if (matrix.owner != streams.rank()) continue;
    float* const whole = matrix.is_cut() ? memory + layout.whole_at(m)
                                         : update->UpdatesAt(matrix.bucket, matrix.range.begin);
    update->own_.push_back({whole, memory + layout.workspace_at(), matrix.rows, matrix.columns});
  }
  return update;
}

float* MatrixUpdate::UpdatesAt(int bucket, int64_t element) const {
  const int64_t first = UpdatedRange(plan_, options_, plan_.bucket(bucket), streams_.rank()).begin;
  return memory_.as<float>().data() + layout_.updates_at(bucket) + element - first;
}

void MatrixUpdate::ListSegments(const PlannedMatrix& matrix, const MatrixPiece& piece,
                                const Arrays& arrays) {
  if (piece.range.size == 0) return;
  const Bucket& bucket = plan_.bucket(matrix.bucket);
  const int64_t at =
      piece.range.begin - UpdatedRange(plan_, options_, bucket, streams_.rank()).begin;
  const precision::DType grad = FinalGradientType(options_, bucket);
  const int32_t group = plan_.parameter(matrix.parameter).spec.group;
  float* const update = UpdatesAt(matrix.bucket, piece.range.begin);
  momenta_[grad].push_back({arrays.momentum + at, update,
                            static_cast<const char*>(arrays.grad) + at * precision::SizeOf(grad),
                            nullptr, piece.range.size, group});
  std::optional<precision::DType> copy;
  void* weights = nullptr;
  if (IsRounded(bucket)) {
    copy = bucket.dtype;
    weights = static_cast<char*>(arrays.weights) + at * precision::SizeOf(bucket.dtype);
  }
  const optim::MuonSettings& muon = options_.optimizer.muon;
  params_[copy].push_back({arrays.master + at, update, weights, piece.range.size, group,
                           static_cast<float>(muon.rate),
                           kernels::MuonScaleOf(muon.scale, matrix.rows, matrix.columns)});
}

absl::Status MatrixUpdate::Move(bool to_owners) {
  float* const memory = memory_.as<float>().data();
  for (size_t m = 0; m < layout_.matrices().size(); ++m) {
    const PlannedMatrix& matrix = layout_.matrices()[m];
    if (!matrix.is_cut()) continue;
    float* const whole = layout_.whole_at(m) < 0 ? nullptr : memory + layout_.whole_at(m);
    for (const MatrixPiece& piece : matrix.pieces) {
      PieceEnds ends;
      if (piece.rank == streams_.rank()) ends.piece = UpdatesAt(matrix.bucket, piece.range.begin);
      if (whole != nullptr) ends.whole = whole + piece.range.begin - matrix.range.begin;
      BRIGADE_RETURN_IF_ERROR(
          MovePiece(piece, matrix.owner, ends, precision::DType::kFloat32, to_owners, streams_));
    }
  }
  return absl::OkStatus();
}

absl::Status MatrixUpdate::Enqueue(const optim::StepDecision& decision) {
  const optim::MuonSettings& muon = options_.optimizer.muon;
  device::Stream& stream = streams_.comm();
  kernels::MuonOptions step;
  step.groups = groups_;
  step.state = decision.state;
  step.group_steps = decision.group_steps;
  for (const auto& [grad, segments] : momenta_) {
    step.grad_dtype = grad;
    BRIGADE_RETURN_IF_ERROR(kernels::MuonMomentum(segments, step, stream));
  }
  BRIGADE_RETURN_IF_ERROR(Move(/*to_owners=*/true));
  // They share a workspace.
  for (const kernels::MuonMatrix& matrix : own_) {
    BRIGADE_RETURN_IF_ERROR(kernels::MuonOrthogonalize(
        {&matrix, 1}, {.steps = muon.steps, .coefficients = muon.coefficients, .eps = muon.eps},
        stream));
  }
  BRIGADE_RETURN_IF_ERROR(Move(/*to_owners=*/false));
  for (const auto& [copy, segments] : params_) {
    step.copy_dtype = copy;
    BRIGADE_RETURN_IF_ERROR(kernels::MuonParams(segments, step, stream));
  }
  return absl::OkStatus();
}

}  // namespace brigade::zero::internal
