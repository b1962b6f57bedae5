#include "brigade/zero/plan/exchange_layout.h"

#include <algorithm>
#include <cmath>

#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/collectives/compressed/top_k_all_reduce.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {

std::vector<collectives::PowerSgdTensor> ExchangedTensors(const Plan& plan, const Bucket& bucket) {
  std::vector<collectives::PowerSgdTensor> tensors;
  int64_t offset = 0;
  for (const BucketEntry& entry : bucket.entries) {
    const ParameterSpec& spec = plan.parameter(entry.parameter).spec;
    const int64_t size = entry.range.size;
    const int64_t rows = spec.low_rank && spec.shape.size() > 1 && size > 0 ? spec.shape[0] : 1;
    tensors.push_back({offset, rows, size / rows});
    offset += size;
  }
  return tensors;
}

int FirstOfTheseTensors(const Plan& plan, int bucket) {
  const auto tensors = ExchangedTensors(plan, plan.bucket(bucket));
  const auto is_same = [](const auto& a, const auto& b) {
    return a.offset == b.offset && a.rows == b.rows && a.columns == b.columns;
  };
  for (int first = 0; first < bucket; ++first) {
    if (!plan.bucket(first).trainable) continue;
    const auto others = ExchangedTensors(plan, plan.bucket(first));
    if (std::equal(others.begin(), others.end(), tensors.begin(), tensors.end(), is_same)) {
      return first;
    }
  }
  return bucket;
}

std::vector<ErrorPiece> PiecesOf(const ErrorArray& array, int rank) {
  const int64_t first = rank % array.parts * array.size;
  std::vector<ErrorPiece> here;
  for (const ErrorPiece& piece : array.pieces) {
    const int64_t begin = std::max(piece.at, first);
    const int64_t end = std::min(piece.at + piece.size, first + array.size);
    if (begin >= end) continue;
    here.push_back({piece.in_bucket + begin - piece.at, begin - first, end - begin});
  }
  return here;
}

namespace {

// Of signs: what all elements have, cut into parts, as OneBitErrorCountsOf has them. The sums of a
// place in nodes lie one behind the other in the bucket, but not in the order of ranks.
void CutIntoParts(const Plan& plan, const ZeroOptions& options, ErrorLayout& layout) {
  const int64_t count = layout.own.size;
  const int places = HasTwoHops(plan, options) ? options.node_ranks : 1;
  const int exchanging = plan.ranks() / places;
  const auto sizes = collectives::OneBitErrorCountsOf(count, plan.ranks(), NodesOf(plan, options));
  layout.own.size = sizes.local;
  layout.own.parts = places;
  layout.second.size = sizes.sum;
  layout.second.parts = plan.ranks();
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const int64_t of_place = rank % places * sizes.local;
    const int64_t left = std::clamp<int64_t>(count - of_place, 0, sizes.local);
    const int64_t part = collectives::OneBitPart(left, exchanging);
    const int64_t first = of_place + rank / places * part;
    const int64_t last = std::min(first + part, of_place + left);
    for (const ErrorPiece& piece : layout.own.pieces) {
      const int64_t begin = std::max(piece.at, first);
      const int64_t end = std::min(piece.at + piece.size, last);
      if (begin >= end) continue;
      layout.second.pieces.push_back(
          {piece.in_bucket + begin - piece.at, rank * sizes.sum + begin - first, end - begin});
    }
  }
}

}  // namespace

ErrorLayout ErrorLayoutOf(const Plan& plan, const ZeroOptions& options, const Bucket& bucket) {
  ErrorLayout layout;
  if (!HasErrors(plan, options) || !bucket.trainable) return layout;
  const GradientCompression method = MethodOf(options);
  const auto tensors = ExchangedTensors(plan, bucket);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ElementRange range = bucket.entries[i].range;
    if (method == GradientCompression::kPowerSgd) {
      const int64_t rank = options.gradient_compression->rank;
      if (!collectives::HasFactors(tensors[i], rank)) continue;
      const int64_t factor = rank * tensors[i].columns;
      layout.second.pieces.push_back({range.begin, layout.second.size, factor});
      layout.second.size += factor;
    }
    layout.own.pieces.push_back({range.begin, layout.own.size, range.size});
    layout.own.size += range.size;
  }
  if (method == GradientCompression::kOneBit) CutIntoParts(plan, options, layout);
  return layout;
}

int64_t TopKOf(const ZeroOptions& options, int64_t elements) {
  const double share = options.gradient_compression->density * static_cast<double>(elements);
  return std::min(elements, std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share))));
}

int64_t ExchangeBytes(const Plan& plan, const ZeroOptions& options) {
  if (!HasErrors(plan, options)) return 0;
  const int64_t largest = LargestExchange(plan, options);
  switch (MethodOf(options)) {
    case GradientCompression::kOneBit:
      return collectives::OneBitAllReduce::Bytes(plan.ranks(), largest, NodesOf(plan, options));
    case GradientCompression::kTopK:
      return collectives::TopKAllReduce::Bytes(plan.ranks(), largest, TopKOf(options, largest));
    case GradientCompression::kPowerSgd:
      break;
  }
  int64_t bytes = 0;
  for (int b = 0; b < static_cast<int>(plan.buckets().size()); ++b) {
    if (!plan.bucket(b).trainable || FirstOfTheseTensors(plan, b) != b) continue;
    bytes += collectives::PowerSgdAllReduce::Bytes(ExchangedTensors(plan, plan.bucket(b)),
                                                   PowerSgdOptionsOf(options));
  }
  return bytes;
}

}  // namespace brigade::zero::internal
