// Ranks carry programs out from memory to memory: results are right, and each rank announces what
// it expects before it sends.

#include "brigade/collectives/engines/transport/executor.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/transport/checked_transport.h"
#include "brigade/tests/collectives/engines/transport/memory_transport.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

float Element(int64_t i, int rank) { return static_cast<float>(i % 1000 + rank); }

float Result(const CollectiveSignature& signature, int64_t i, int rank, int size) {
  if (signature.kind == CollectiveKind::kAllGather) {
    return Element(i % signature.count, static_cast<int>(i / signature.count));
  }
  if (signature.kind == CollectiveKind::kReduceScatter) i += rank * signature.count;
  float sum = 0;
  for (int each = 0; each < size; ++each) sum += Element(i, each);
  return sum;
}

// Returns how many messages went early. In place, input and output are one array.
int RunAndCheck(const CollectiveSignature& signature, int size, int64_t chunk_bytes,
                bool in_place) {
  SCOPED_TRACE(absl::StrCat(ToString(signature), " of ", size, in_place ? " in place" : ""));
  MemoryNetwork network(size);
  std::atomic<int> early_sends = 0;
  OnThreadsOf(size, [&](int rank) {
    ASSERT_OK_AND_ASSIGN(const auto context, device::Context::Create({}));
    device::ThreadPool pool(1);
    MemoryTransport transport(rank, network);
    CheckedTransport checked(transport);
    TransportExecutor executor(checked, *context, chunk_bytes);
    const int64_t inputs = InputElements(signature, rank, size);
    const int64_t outputs = OutputElements(signature, rank, size);
    std::vector<float> first(std::max(inputs, outputs)), second(outputs);
    float* const own_part = first.data() + rank * signature.count;
    float* input = first.data();
    float* output = in_place ? first.data() : second.data();
    if (in_place && signature.kind == CollectiveKind::kAllGather) input = own_part;
    if (in_place && signature.kind == CollectiveKind::kReduceScatter) output = own_part;
    for (int64_t i = 0; i < inputs; ++i) input[i] = Element(i, rank);
    const Collective call = {.signature = signature, .input = input, .output = output};
    ASSERT_OK(checked.Begin({signature, 0}, (rank + 1) % size, (rank + size - 1) % size));
    ASSERT_OK(executor.Run(call, pool));
    early_sends += transport.early_sends();
    for (int64_t i = 0; i < outputs; ++i) {
      ASSERT_EQ(output[i], Result(signature, i, rank, size)) << "element " << i;
    }
  });
  return early_sends;
}

template <typename Visit>
void ForEachCall(int64_t count, const Visit& visit) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
    for (const Algorithm algorithm : kAlgorithms) {
      CollectiveSignature signature;
      signature.kind = kind;
      signature.algorithm = algorithm;
      signature.dtype = precision::DType::kFloat32;
      signature.count = count;
      visit(signature);
    }
  }
}

// The algorithms that know of nodes, between four ranks on two nodes and eight on four.
template <typename Visit>
void ForEachCallOnNodes(const Visit& visit) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
    for (const Algorithm algorithm : {Algorithm::kHierarchical, Algorithm::kDoubleTree}) {
      if (algorithm == Algorithm::kDoubleTree && kind != CollectiveKind::kAllReduce) continue;
      CollectiveSignature signature = {kind, algorithm, precision::DType::kFloat32, {}, 1003};
      signature.ranks_per_node = 2;
      visit(signature);
    }
  }
}

TEST(TransportExecutorTest, CarriesPartsOfMoreChunksThanMayBeOnTheirWay) {
  constexpr int64_t kChunkBytes = 64;  // and the last one is shorter
  ForEachCall(1003, [](const CollectiveSignature& signature) {
    for (const int size : {2, 3, 4, 5, 8}) {
      for (const bool in_place : {false, true}) RunAndCheck(signature, size, kChunkBytes, in_place);
    }
  });
}

TEST(TransportExecutorTest, AddsMoreArraysThanAKernelTakesAtOnce) {
  CollectiveSignature signature;
  signature.algorithm = Algorithm::kDirect;
  signature.dtype = precision::DType::kFloat32;
  signature.count = 16 * 66 + 5;
  for (const bool in_place : {false, true}) RunAndCheck(signature, 66, 64, in_place);
}

TEST(TransportExecutorTest, CarriesProgramsOfNodes) {
  ForEachCallOnNodes([](const CollectiveSignature& signature) {
    for (const int size : {4, 8}) {
      for (const bool in_place : {false, true}) RunAndCheck(signature, size, 64, in_place);
    }
  });
}

// On one connection the announcement would wait behind the data. Rings of more than two send to one
// neighbour and expect of the other.
TEST(TransportExecutorTest, AnnouncesBeforeItSends) {
  ForEachCall(16 * 1003, [](const CollectiveSignature& signature) {
    const bool is_ring = signature.algorithm == Algorithm::kRing ||
                         signature.algorithm == Algorithm::kBidirectionalRing;
    for (const int size : {2, 4, 8}) {
      if (size > 2 && is_ring) continue;
      EXPECT_EQ(RunAndCheck(signature, size, 1 << 20, false), 0)
          << ToString(signature) << " of " << size;
    }
  });
}

}  // namespace
}  // namespace brigade::collectives::testing
