#include "brigade/digests/step_digests.h"

#include <utility>

#include "brigade/collectives/options.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/digest/digest.h"
#include "brigade/precision/dtype.h"

namespace brigade::digests {

using device::Purpose;
using kernels::TensorDigest;

DigestBytes StepDigestBytes(int64_t tensors, int64_t ranks, int64_t in_flight) {
  const int64_t own = kDigestKinds * tensors * static_cast<int64_t>(sizeof(TensorDigest));
  return {(1 + ranks) * own, in_flight * ranks * own};
}

absl::StatusOr<std::unique_ptr<StepDigests>> StepDigests::Create(const checkpoint::ModelPart& part,
                                                                 int in_flight,
                                                                 zero::ZeroOptimizer& zero,
                                                                 collectives::Communicator& ranks,
                                                                 device::Context& context) {
  BRIGADE_ASSIGN_OR_RETURN(TensorMap map, TensorMap::Create(part, zero.plan()));
  std::unique_ptr<StepDigests> self(new StepDigests(std::move(map), zero, ranks));
  const auto tensors = static_cast<int64_t>(self->map_.tensors().size());
  const DigestBytes bytes = StepDigestBytes(tensors, ranks.size(), in_flight);
  constexpr auto kPurpose = Purpose::kScratch;
  BRIGADE_ASSIGN_OR_RETURN(self->device_, context.Allocate(bytes.device, kPurpose, "digests"));
  BRIGADE_ASSIGN_OR_RETURN(self->host_, context.AllocateHost(bytes.host, kPurpose, "digests"));
  self->segments_.reserve(static_cast<size_t>(self->map_.most_pieces()));
  self->shares_.resize(static_cast<size_t>(ranks.size()));
  BRIGADE_RETURN_IF_ERROR(ranks.Reserve(self->signature()));
  BRIGADE_RETURN_IF_ERROR(self->ShareWithAll());
  return self;
}

absl::Status StepDigests::ShareWithAll() {
  constexpr size_t kNumbers = 4;
  const size_t tensors = map_.tensors().size();
  std::vector<int64_t> mine = {zero_.rank(), zero_.shard_group(), 0,
                               zero_.options().stage < 3 ? 1 : 0};
  mine[2] = map_.first_shard();
  for (size_t t = 0; t < tensors; ++t) {
    const int tensor = static_cast<int>(t);
    mine.push_back((map_.holds(tensor) ? 1 : 0) + (map_.is_cut(tensor) ? 2 : 0) +
                   (map_.counts(tensor) ? 4 : 0));
  }
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, ranks_.AllGatherHost(mine));
  for (size_t r = 0; r < shares_.size(); ++r) {
    const int64_t* const of_rank = all.data() + r * mine.size();
    RankShare& share = shares_[r];
    share.place = static_cast<int>(of_rank[0]);
    share.shard_group = static_cast<int>(of_rank[1]);
    share.first_shard = static_cast<int>(of_rank[2]);
    share.has_whole_weights = of_rank[3] != 0;
    for (size_t t = 0; t < tensors; ++t) {
      const int64_t flags = of_rank[kNumbers + t];
      share.holds.push_back((flags & 1) != 0);
      share.is_cut.push_back((flags & 2) != 0);
      share.counts.push_back((flags & 4) != 0 && share.shard_group == 0);
    }
  }
  return absl::OkStatus();
}

collectives::CollectiveSignature StepDigests::signature() const {
  return {.kind = collectives::CollectiveKind::kAllGather,
          .algorithm = collectives::GatherOptions().algorithm,
          .dtype = precision::DType::kUint8,
          .count = own_digests() * static_cast<int64_t>(sizeof(TensorDigest))};
}

absl::Status StepDigests::Begin(bool weights, bool updated, zero::StepObserver* beside) {
  BRIGADE_RETURN_IF_ERROR(zero_.Observe(this));
  takes_weights_ = weights;
  takes_updated_ = updated;
  beside_ = beside;
  return zero_.step_stream().FillBytes(device_.data(), 0, signature().count);
}

absl::Status StepDigests::Enqueue(int slot) {
  device::Stream& stream = zero_.step_stream();
  auto* const own = device_.as<TensorDigest>().data();
  TensorDigest* const all = own + own_digests();
  const int64_t bytes = signature().count;
  BRIGADE_RETURN_IF_ERROR(ranks_.AllGather(own, all, bytes, precision::DType::kUint8, {}, stream));
  return stream.Copy(host_.as<char>().data() + slot * ranks_.size() * bytes, all,
                     ranks_.size() * bytes);
}

DigestTable StepDigests::Table(int slot) const {
  const int64_t count = ranks_.size() * own_digests();
  return {{host_.as<TensorDigest>().data() + slot * count, static_cast<size_t>(count)},
          static_cast<int>(map_.tensors().size())};
}

TensorDigest StepDigests::Sum(const DigestTable& table, DigestKind kind, int tensor) const {
  TensorDigest sum = {};
  for (size_t r = 0; r < shares_.size(); ++r) {
    if (!shares_[r].counts[static_cast<size_t>(tensor)]) continue;
    const TensorDigest& part = table.Of(static_cast<int>(r), kind, tensor);
    for (int w = 0; w < 2; ++w) sum.words[w] += part.words[w];
  }
  return sum;
}

absl::Status StepDigests::Add(DigestKind kind, absl::Span<const zero::ObservedArray> arrays,
                              device::Stream& stream) {
  segments_.clear();
  for (const zero::ObservedArray& array : arrays) {
    map_.ForEachPiece(array, [&](const TensorPiece& piece) {
      segments_.push_back(
          {piece.data, piece.size, piece.first, piece.run, piece.stride, piece.tensor});
    });
  }
  const size_t tensors = map_.tensors().size();
  TensorDigest* const digests =
      device_.as<TensorDigest>().data() + static_cast<size_t>(kind) * tensors;
  return kernels::Digest(segments_, {digests, tensors}, stream);
}

absl::Status StepDigests::OnWeights(absl::Span<const zero::ObservedArray> weights,
                                    device::Stream& stream) {
  if (beside_ != nullptr) BRIGADE_RETURN_IF_ERROR(beside_->OnWeights(weights, stream));
  return takes_weights_ ? Add(DigestKind::kWeights, weights, stream) : absl::OkStatus();
}

absl::Status StepDigests::OnGradients(absl::Span<const zero::ObservedArray> gradients,
                                      device::Stream& stream) {
  if (beside_ != nullptr) BRIGADE_RETURN_IF_ERROR(beside_->OnGradients(gradients, stream));
  return Add(DigestKind::kGradients, gradients, stream);
}

absl::Status StepDigests::OnUpdated(absl::Span<const zero::ObservedArray> weights,
                                    device::Stream& stream) {
  if (beside_ != nullptr) BRIGADE_RETURN_IF_ERROR(beside_->OnUpdated(weights, stream));
  return takes_updated_ ? Add(DigestKind::kUpdated, weights, stream) : absl::OkStatus();
}

}  // namespace brigade::digests
