#include "brigade/zero/plan/exchange_layout.h"

#include <algorithm>
#include <cmath>

#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/collectives/compressed/top_k_all_reduce.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {

std::vector<ExchangedTensor> ExchangedTensors(const Plan& plan, const ZeroOptions& options,
                                              const Bucket& bucket, int rank) {
  std::vector<ExchangedTensor> tensors;
  for (const ExchangedPiece& piece : ExchangedPieces(plan, options, bucket, rank)) {
    const BucketEntry& entry = bucket.entries[piece.entry];
    const ParameterSpec& spec = plan.parameter(entry.parameter).spec;
    const bool is_matrix = spec.low_rank && spec.shape.size() > 1 && entry.range.size > 0;
    const int64_t rows = is_matrix ? spec.shape[0] : 1;
    const int64_t columns = entry.range.size / rows;
    // Of the parameter's elements.
    const int64_t begin = piece.in_bucket - entry.range.begin, end = begin + piece.size;
    const auto add = [&](int64_t first, int64_t last, int64_t of_rows) {
      if (first == last) return;
      tensors.push_back({{piece.at + first - begin, of_rows, (last - first) / of_rows},
                         entry.range.begin + first,
                         rows > 1});
    };
    const int64_t first_row = columns == 0 ? 0 : (begin + columns - 1) / columns;
    const int64_t last_row = columns == 0 ? 0 : end / columns;
    if (first_row >= last_row) {
      add(begin, end, 1);
      continue;
    }
    add(begin, first_row * columns, 1);
    add(first_row * columns, last_row * columns, last_row - first_row);
    add(last_row * columns, end, 1);
  }
  return tensors;
}

std::vector<collectives::PowerSgdTensor> PowerSgdTensorsOf(const Plan& plan,
                                                           const ZeroOptions& options,
                                                           const Bucket& bucket, int rank) {
  std::vector<collectives::PowerSgdTensor> tensors;
  for (const ExchangedTensor& each : ExchangedTensors(plan, options, bucket, rank)) {
    tensors.push_back(each.tensor);
  }
  return tensors;
}

int FirstOfTheseTensors(const Plan& plan, const ZeroOptions& options, int bucket, int rank) {
  const auto tensors = PowerSgdTensorsOf(plan, options, plan.bucket(bucket), rank);
  const auto is_same = [](const auto& a, const auto& b) {
    return a.offset == b.offset && a.rows == b.rows && a.columns == b.columns;
  };
  for (int first = 0; first < bucket; ++first) {
    if (!plan.bucket(first).trainable) continue;
    const auto others = PowerSgdTensorsOf(plan, options, plan.bucket(first), rank);
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
  const int ranks = ExchangingRanks(plan);
  const int nodes = ExchangingNodes(plan, options);
  const int places = nodes == 1 ? 1 : options.node_ranks;
  const int exchanging = ranks / places;
  const auto sizes = collectives::OneBitErrorCountsOf(count, ranks, nodes);
  layout.own.size = sizes.local;
  layout.own.parts = places;
  layout.second.size = sizes.sum;
  layout.second.parts = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
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

// Of factors.
ErrorLayout LayoutOfMatrices(const Plan& plan, const ZeroOptions& options, const Bucket& bucket,
                             int rank) {
  ErrorLayout layout;
  const int64_t columns = options.gradient_compression->rank;
  for (const auto& [tensor, in_bucket, of_matrix] : ExchangedTensors(plan, options, bucket, rank)) {
    const int64_t size = tensor.rows * tensor.columns;
    if (!collectives::HasFactors(tensor, columns)) {
      const bool may_have_errors = of_matrix && ExchangesBetween(plan, options);
      if (may_have_errors) layout.plain.push_back({in_bucket, tensor.offset, size});
      continue;
    }
    const int64_t factor = columns * tensor.columns;
    layout.second.pieces.push_back({in_bucket, layout.second.size, factor});
    layout.second.size += factor;
    layout.own.pieces.push_back({in_bucket, layout.own.size, size});
    layout.own.size += size;
  }
  return layout;
}

}  // namespace

ErrorLayout ErrorLayoutOf(const Plan& plan, const ZeroOptions& options, const Bucket& bucket,
                          int rank) {
  ErrorLayout layout;
  if (!HasErrors(plan, options) || !bucket.trainable) return layout;
  const GradientCompression method = MethodOf(options);
  if (method == GradientCompression::kPowerSgd) {
    return LayoutOfMatrices(plan, options, bucket, rank);
  }
  for (const ExchangedPiece& piece : ExchangedPieces(plan, options, bucket, rank)) {
    layout.own.pieces.push_back({piece.in_bucket, piece.at, piece.size});
    layout.own.size += piece.size;
  }
  if (method == GradientCompression::kOneBit) CutIntoParts(plan, options, layout);
  return layout;
}

int64_t TopKOf(const ZeroOptions& options, int64_t elements) {
  const double share = options.gradient_compression->density * static_cast<double>(elements);
  return std::min(elements, std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share))));
}

AddedElements AddedElementsOf(const Plan& plan, const ZeroOptions& options, const Bucket& bucket,
                              int rank) {
  if (!HasErrors(plan, options) || !bucket.trainable) return {};
  const ErrorLayout layout = ErrorLayoutOf(plan, options, bucket, rank);
  const int64_t exchanged = ExchangedElements(plan, options, bucket, rank);
  AddedElements added = {
      .own = layout.own.size, .second = layout.second.size, .plain = layout.plain};
  if (options.averages_moments()) {
    added.first =
        HasWholeMoments(plan, options) ? exchanged : UpdatedRange(plan, options, bucket, rank).size;
  }
  if (options.has_local_steps()) added.moved = exchanged;
  return added;
}

int64_t ExchangeSums(const Plan& plan, const ZeroOptions& options, int rank) {
  int64_t gradients = 0;
  for (const auto& list : LocalGradientLists(plan, options, [](int) { return nullptr; })) {
    gradients += kernels::GradCheckWorkspaceSize(list.segments);
  }
  std::vector<kernels::GradSegment> segments;
  for (const Bucket& bucket : plan.buckets()) {
    const AddedElements added = AddedElementsOf(plan, options, bucket, rank);
    for (const int64_t size : {added.own, added.second, added.first, added.moved}) {
      segments.push_back({nullptr, size});
    }
    for (const ErrorPiece& piece : added.plain) segments.push_back({nullptr, piece.size});
  }
  return std::max(gradients, kernels::GradCheckWorkspaceSize(segments));
}

int64_t ExchangeControlBytes(const Plan& plan, const ZeroOptions& options, int rank) {
  const auto groups = static_cast<int64_t>(options.optimizer.groups.size());
  const int64_t statistics =
      HasErrors(plan, options) ? static_cast<int64_t>(sizeof(kernels::GradStats)) : 0;
  return ZeroOneBytes(options) +
         ExchangeSums(plan, options, rank) * static_cast<int64_t>(sizeof(double)) + statistics +
         DecisionBytes(options) + (2 + 3 * groups) * static_cast<int64_t>(sizeof(float));
}

int64_t ExchangeBytes(const Plan& plan, const ZeroOptions& options, int rank) {
  if (!HasErrors(plan, options)) return 0;
  const int64_t largest = LargestExchange(plan, options, rank);
  // The slices of this place in all groups are padding alone.
  if (largest == 0) return 0;
  switch (MethodOf(options)) {
    case GradientCompression::kOneBit:
      return collectives::OneBitAllReduce::Bytes(ExchangingRanks(plan), largest,
                                                 ExchangingNodes(plan, options));
    case GradientCompression::kTopK:
      return collectives::TopKAllReduce::Bytes(ExchangingRanks(plan), largest,
                                               TopKOf(options, largest));
    case GradientCompression::kPowerSgd:
      break;
  }
  int64_t bytes = 0;
  for (int b = 0; b < static_cast<int>(plan.buckets().size()); ++b) {
    if (!plan.bucket(b).trainable || FirstOfTheseTensors(plan, options, b, rank) != b) continue;
    const auto tensors = PowerSgdTensorsOf(plan, options, plan.bucket(b), rank);
    if (tensors.empty()) continue;
    bytes += collectives::PowerSgdAllReduce::Bytes(tensors, PowerSgdOptionsOf(options));
  }
  return bytes;
}

}  // namespace brigade::zero::internal
