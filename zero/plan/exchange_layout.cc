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
    const std::vector<int64_t>& shape = plan.parameter(entry.parameter).spec.shape;
    const int64_t size = entry.range.size;
    const int64_t rows = shape.size() > 1 && size > 0 ? shape[0] : 1;
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
      layout.second_pieces.push_back({range.begin, layout.second, factor});
      layout.second += factor;
    }
    layout.own_pieces.push_back({range.begin, layout.own, range.size});
    layout.own += range.size;
  }
  if (method == GradientCompression::kOneBit) {
    layout.second = collectives::OneBitPart(layout.own, plan.ranks());
    layout.second_in_parts = true;
    layout.second_pieces = layout.own_pieces;
  }
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
      return collectives::OneBitAllReduce::Bytes(plan.ranks(), largest);
    case GradientCompression::kTopK:
      return collectives::TopKAllReduce::Bytes(plan.ranks(), largest, TopKOf(options, largest));
    case GradientCompression::kPowerSgd:
      break;
  }
  int64_t bytes = 0;
  for (int b = 0; b < static_cast<int>(plan.buckets().size()); ++b) {
    if (!plan.bucket(b).trainable || FirstOfTheseTensors(plan, b) != b) continue;
    bytes += collectives::PowerSgdAllReduce::Bytes(ExchangedTensors(plan, plan.bucket(b)),
                                                   {.rank = options.gradient_compression->rank});
  }
  return bytes;
}

}  // namespace brigade::zero::internal
