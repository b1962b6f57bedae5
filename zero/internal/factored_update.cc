#include "brigade/zero/internal/factored_update.h"

#include <memory>
#include <utility>

#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/zero/internal/move_piece.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {
namespace {

constexpr auto kFloatType = precision::DType::kFloat32;
constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

}  // namespace

absl::StatusOr<std::unique_ptr<FactoredUpdate>> FactoredUpdate::Create(
    const Plan& plan, const ZeroOptions& options, absl::FunctionRef<Arrays(int bucket)> arrays_of,
    StepStreams& streams) {
  std::unique_ptr<FactoredUpdate> update(new FactoredUpdate(plan, options, streams));
  for (const optim::ParameterGroup& group : options.optimizer.groups) {
    update->groups_.push_back({group.momentum, group.weight_decay});
  }
  const FactorLayout& layout = update->layout_;
  BRIGADE_ASSIGN_OR_RETURN(
      update->memory_,
      streams.context().Allocate(layout.bytes(), device::Purpose::kScratch, "factors of tensors"));
  // A step that is skipped sends scales that no step has written.
  BRIGADE_RETURN_IF_ERROR(streams.comm().FillBytes(update->memory_.data(), 0, layout.bytes()));
  for (size_t t = 0; t < layout.tensors().size(); ++t) {
    const int index = layout.tensors()[t].bucket;
    if (t == 0 || layout.tensors()[t - 1].bucket != index) {
      const Bucket& bucket = plan.bucket(index);
      BucketWork& work = update->work_.emplace_back();
      work.grad_dtype = FinalGradientType(options, bucket);
      if (IsRounded(bucket)) work.copy_dtype = bucket.dtype;
      work.arrays = arrays_of(index);
      work.first = t;
    }
    ++update->work_.back().count;
    update->List(t, update->work_.back());
  }
  return update;
}

int64_t FactoredUpdate::FirstOf(int bucket) const {
  return UpdatedRange(plan_, options_, plan_.bucket(bucket), streams_.rank()).begin;
}

void FactoredUpdate::List(size_t number, BucketWork& work) {
  const PlannedTensor& tensor = layout_.tensors()[number];
  const FactorLayout::Place& place = layout_.place(number);
  const int32_t group = plan_.parameter(tensor.parameter).spec.group;
  const int64_t grad_bytes = precision::SizeOf(work.grad_dtype);
  const auto* const grad = static_cast<const char*>(work.arrays.grad);
  auto* const scales = reinterpret_cast<float*>(At(place.scales));
  const int64_t first = FirstOf(tensor.bucket);
  if (tensor.owner == streams_.rank()) {
    kernels::AdafactorTensor own = {};
    const bool is_cut = tensor.is_cut();
    const int64_t at = tensor.range.begin - first;
    if (options_.optimizer.adafactor.scale_parameter) {
      own.param = is_cut ? reinterpret_cast<float*>(At(place.master)) : work.arrays.master + at;
    }
    own.grad = is_cut ? At(place.grad) : grad + at * grad_bytes;
    own.factors =
        is_cut
            ? reinterpret_cast<float*>(At(place.factors))
            : static_cast<float*>(FactorsOf(tensor, work, number, tensor.factor_pieces[0]).piece);
    own.scales = scales;
    own.workspace = reinterpret_cast<double*>(At(place.workspace));
    own.rows = tensor.rows;
    own.columns = tensor.columns;
    own.group = group;
    work.own.push_back(own);
  }
  const bool has_moment = groups_[static_cast<size_t>(group)].beta1 > 0.0;
  for (const MatrixPiece& piece : tensor.pieces) {
    if (piece.rank != streams_.rank()) continue;
    const int64_t at = piece.range.begin - first;
    kernels::AdafactorSegment segment = {};
    segment.param = work.arrays.master + at;
    if (has_moment) segment.m = work.arrays.moment + at;
    segment.grad = grad + at * grad_bytes;
    if (work.copy_dtype.has_value()) {
      segment.param_copy =
          static_cast<char*>(work.arrays.weights) + at * precision::SizeOf(*work.copy_dtype);
    }
    segment.size = piece.range.size;
    segment.scales = scales;
    segment.rows = tensor.rows;
    segment.columns = tensor.columns;
    segment.first = piece.range.begin - tensor.range.begin;
    segment.group = group;
    work.segments.push_back(segment);
  }
}

PieceEnds FactoredUpdate::FactorsOf(const PlannedTensor& tensor, const BucketWork& work,
                                    size_t number, const MatrixPiece& piece) const {
  const int64_t block =
      StateArrayOf(options_, plan_.bucket(tensor.bucket), FactorLayout::kFactorsArray).block;
  PieceEnds ends;
  if (piece.rank == streams_.rank()) {
    ends.piece = work.arrays.factors + piece.range.begin - FirstOf(tensor.bucket) / block;
  }
  if (char* const whole = At(layout_.place(number).factors); whole != nullptr) {
    ends.whole = whole + (piece.range.begin - tensor.factors.begin) * kFloat;
  }
  return ends;
}

absl::Status FactoredUpdate::ToOwners(const BucketWork& work) {
  for (size_t t = work.first; t < work.first + work.count; ++t) {
    const PlannedTensor& tensor = layout_.tensors()[t];
    if (!tensor.is_cut()) continue;
    const FactorLayout::Place& place = layout_.place(t);
    const auto ends_of = [&](const MatrixPiece& piece, const void* array, int64_t whole,
                             int64_t element_bytes) {
      PieceEnds ends;
      if (piece.rank == streams_.rank()) {
        ends.piece = static_cast<char*>(const_cast<void*>(array)) +
                     (piece.range.begin - FirstOf(tensor.bucket)) * element_bytes;
      }
      if (whole >= 0) {
        ends.whole = At(whole) + (piece.range.begin - tensor.range.begin) * element_bytes;
      }
      return ends;
    };
    for (const MatrixPiece& piece : tensor.pieces) {
      BRIGADE_RETURN_IF_ERROR(MovePiece(
          piece, tensor.owner,
          ends_of(piece, work.arrays.grad, place.grad, precision::SizeOf(work.grad_dtype)),
          work.grad_dtype, /*to_owner=*/true, streams_));
      if (!options_.optimizer.adafactor.scale_parameter) continue;
      BRIGADE_RETURN_IF_ERROR(MovePiece(piece, tensor.owner,
                                        ends_of(piece, work.arrays.master, place.master, kFloat),
                                        kFloatType, /*to_owner=*/true, streams_));
    }
    for (const MatrixPiece& piece : tensor.factor_pieces) {
      BRIGADE_RETURN_IF_ERROR(MovePiece(piece, tensor.owner, FactorsOf(tensor, work, t, piece),
                                        kFloatType, /*to_owner=*/true, streams_));
    }
  }
  return absl::OkStatus();
}

absl::Status FactoredUpdate::FromOwners(const BucketWork& work) {
  for (size_t t = work.first; t < work.first + work.count; ++t) {
    const PlannedTensor& tensor = layout_.tensors()[t];
    if (!tensor.is_cut()) continue;
    char* const scales = At(layout_.place(t).scales);
    for (const MatrixPiece& piece : tensor.pieces) {
      // Whoever has a piece has all scales, the owner where it has made them.
      if (piece.rank == tensor.owner) continue;
      const MatrixPiece all = {piece.rank, {0, kernels::kAdafactorNumbers + tensor.factors.size}};
      BRIGADE_RETURN_IF_ERROR(
          MovePiece(all, tensor.owner, {scales, scales}, kFloatType, /*to_owner=*/false, streams_));
    }
    for (const MatrixPiece& piece : tensor.factor_pieces) {
      BRIGADE_RETURN_IF_ERROR(MovePiece(piece, tensor.owner, FactorsOf(tensor, work, t, piece),
                                        kFloatType, /*to_owner=*/false, streams_));
    }
  }
  return absl::OkStatus();
}

absl::Status FactoredUpdate::Enqueue(const optim::StepDecision& decision) {
  device::Stream& stream = streams_.comm();
  kernels::AdafactorOptions step;
  step.groups = groups_;
  step.settings = options_.optimizer.adafactor;
  step.state = decision.state;
  step.group_steps = decision.group_steps;
  for (const BucketWork& work : work_) {
    step.grad_dtype = work.grad_dtype;
    step.copy_dtype = work.copy_dtype;
    BRIGADE_RETURN_IF_ERROR(ToOwners(work));
    BRIGADE_RETURN_IF_ERROR(kernels::AdafactorFactors(work.own, step, stream));
    BRIGADE_RETURN_IF_ERROR(FromOwners(work));
    BRIGADE_RETURN_IF_ERROR(kernels::AdafactorParams(work.segments, step, stream));
  }
  return absl::OkStatus();
}

}  // namespace brigade::zero::internal
