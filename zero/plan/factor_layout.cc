#include "brigade/zero/plan/factor_layout.h"

#include <algorithm>
#include <utility>

#include "brigade/kernels/adafactor/adafactor_math.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

int64_t ScalesOf(const PlannedTensor& tensor) {
  return kernels::kAdafactorNumbers + tensor.factors.size;
}

PlannedTensor TensorOf(const Plan& plan, const ZeroOptions& options, int bucket,
                       const BucketEntry& entry) {
  const ParameterSpec& spec = plan.parameter(entry.parameter).spec;
  const bool has_rows = spec.shape.size() == 2;
  const int64_t rows = has_rows ? spec.shape[0] : 1;
  PlannedTensor tensor = {bucket, entry.parameter, entry.range, rows, spec.size / rows, 0, {}, {},
                          {}};
  // Entries begin at multiples of a block.
  const int64_t block =
      StateArrayOf(options, plan.bucket(bucket), FactorLayout::kFactorsArray).block;
  tensor.factors = {entry.range.begin / block,
                    kernels::AdafactorFactorCount(tensor.rows, tensor.columns)};
  return tensor;
}

}  // namespace

bool PlannedTensor::HasPiece(int rank) const {
  return std::any_of(pieces.begin(), pieces.end(),
                     [&](const MatrixPiece& piece) { return piece.rank == rank; });
}

FactorLayout::FactorLayout(const Plan& plan, const ZeroOptions& options, int rank) {
  const bool has_all = options.traits().whole_optimizer_state;
  std::vector<double> work(static_cast<size_t>(plan.ranks()));
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (!bucket.trainable) continue;
    const int64_t slice = plan.slice(bucket);
    const int64_t block = StateArrayOf(options, bucket, kFactorsArray).block;
    for (const BucketEntry& entry : bucket.entries) {
      if (entry.range.size == 0) continue;
      PlannedTensor tensor = TensorOf(plan, options, static_cast<int>(b), entry);
      if (has_all) {
        tensor.owner = rank;
        tensor.pieces = {{rank, tensor.range}};
        tensor.factor_pieces = {{rank, tensor.factors}};
      } else {
        tensor.pieces = PiecesOf(tensor.range, slice);
        tensor.factor_pieces = PiecesOf(tensor.factors, slice / block);
        tensor.owner = OwnerOf(tensor.pieces, static_cast<double>(tensor.range.size), work);
      }
      tensors_.push_back(std::move(tensor));
    }
  }
  Lay(plan, options, rank);
  CountSent(plan, options, rank);
}

void FactorLayout::Lay(const Plan& plan, const ZeroOptions& options, int rank) {
  int64_t used = 0;
  // Arrays begin at multiples of 256 bytes.
  const auto take = [&used](int64_t bytes) {
    return std::exchange(used, used + (bytes + 255) / 256 * 256);
  };
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const PlannedTensor& tensor = tensors_[t];
    if (t == 0 || tensors_[t - 1].bucket != tensor.bucket) used = 0;
    Place& place = places_.emplace_back();
    if (tensor.HasPiece(rank)) place.scales = take(ScalesOf(tensor) * kFloat);
    if (tensor.owner == rank) {
      place.workspace = take(kernels::AdafactorWorkspaceSize(tensor.rows, tensor.columns) *
                             static_cast<int64_t>(sizeof(double)));
    }
    if (tensor.owner == rank && tensor.is_cut()) {
      const Bucket& bucket = plan.bucket(tensor.bucket);
      place.grad = take(tensor.range.size * precision::SizeOf(FinalGradientType(options, bucket)));
      if (options.optimizer.adafactor.scale_parameter) {
        place.master = take(tensor.range.size * kFloat);
      }
      place.factors = take(tensor.factors.size * kFloat);
    }
    bytes_ = std::max(bytes_, used);
  }
}

void FactorLayout::CountSent(const Plan& plan, const ZeroOptions& options, int rank) {
  for (const PlannedTensor& tensor : tensors_) {
    const int64_t element =
        precision::SizeOf(FinalGradientType(options, plan.bucket(tensor.bucket))) +
        (options.optimizer.adafactor.scale_parameter ? kFloat : 0);
    for (const MatrixPiece& piece : tensor.pieces) {
      if (piece.rank == tensor.owner) continue;
      if (piece.rank == rank) sent_bytes_ += piece.range.size * element;
      if (tensor.owner == rank) sent_bytes_ += ScalesOf(tensor) * kFloat;
    }
    for (const MatrixPiece& piece : tensor.factor_pieces) {
      // There, or back.
      const bool crosses = piece.rank != tensor.owner;
      if (crosses && (piece.rank == rank || tensor.owner == rank)) {
        sent_bytes_ += piece.range.size * kFloat;
      }
    }
  }
}

}  // namespace brigade::zero::internal
