#include "brigade/collectives/algorithms/wire_elements.h"

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "brigade/collectives/algorithms/program.h"

namespace brigade::collectives {

void ForEachSent(const CollectiveSignature& signature, int rank, int size,
                 absl::FunctionRef<void(int to, int64_t elements)> add) {
  if (size == 1) return;
  const int64_t count = signature.count;
  const auto block = [&](int i) {
    return BlockBegin(count, size, i % size + 1) - BlockBegin(count, size, i % size);
  };
  const bool sums = signature.kind == CollectiveKind::kAllReduce;
  const bool is_ring =
      signature.algorithm == Algorithm::kRing || signature.algorithm == Algorithm::kNative;
  if (is_ring && HasAlgorithms(signature.kind)) {
    // An all-reduce passes on all blocks but one, twice.
    add((rank + 1) % size,
        sums ? 2 * count - block(rank + 1) - block(rank + 2) : (size - 1) * count);
    return;
  }
  if (HasAlgorithms(signature.kind) && signature.algorithm != Algorithm::kDirect) {
    absl::InlinedVector<int64_t, 64> elements(static_cast<size_t>(size));
    CountWireElements(signature, rank, absl::MakeSpan(elements));
    for (int to = 0; to < size; ++to) add(to, elements[static_cast<size_t>(to)]);
    return;
  }
  if (signature.kind == CollectiveKind::kBarrier) return;
  if (signature.kind == CollectiveKind::kBroadcast && rank != signature.root) return;
  if (signature.kind == CollectiveKind::kShift) {
    if (signature.root != 0) add((rank + signature.root) % size, count);
    return;
  }
  for (int to = 0; to < size; ++to) {
    if (to != rank) add(to, sums ? block(to) + block(rank) : count);
  }
}

int64_t WireElements(const CollectiveSignature& signature, int rank, int size) {
  int64_t sum = 0;
  ForEachSent(signature, rank, size, [&](int, int64_t elements) { sum += elements; });
  return sum;
}

int64_t WireBytes(const CollectiveSignature& signature, int rank, int size) {
  return WireElements(signature, rank, size) * precision::SizeOf(PartialType(signature));
}

}  // namespace brigade::collectives
