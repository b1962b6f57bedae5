// Programs over Gloo. Here the ranks are threads that talk over the loopback; processes are in
// gloo_engine_fault_test.

#include "brigade/collectives/engines/gloo/gloo_engine.h"

#include <vector>

#include "brigade/precision/float16.h"
#include "brigade/tests/collectives/bits.h"
#include "brigade/tests/collectives/conformance.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using precision::BFloat16;

class GlooConformance : public ::testing::TestWithParam<int> {};

// gloo_conformance_soak_test has the other counts.
TEST_P(GlooConformance, EveryOperationOfEveryType) {
  const int size = GetParam();
  const RanksOptions options = {.size = size};
  if (size <= 4) {
    Conform(options, GlooEngines(options), {0, 1, size + 1, 1003});
  } else {
    Conform(options, GlooEngines(options), {16 * size + 1});
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, GlooConformance, ::testing::ValuesIn(WorldSizes()));

TEST(GlooEngineTest, SplitsByColorInTheOrderOfKeys) { ConformSplit(GlooEngines({.size = 5})); }

TEST(GlooEngineTest, RunsInRegisteredMemory) {
  ConformRegistration({.size = 3}, GlooEngines({.size = 3}));
}

TEST(GlooEngineTest, EveryCallOnNodes) {
  for (const std::vector<int>& nodes : {std::vector<int>{2, 2}, {2, 2, 2}, {1, 1, 1, 1, 1}}) {
    RanksOptions options = {.size = 0, .ranks_of_node = nodes};
    for (const int ranks : nodes) options.size += ranks;
    ConformOnNodes(options, GlooEngines(options), {1, 64 * 6 + 1});
  }
}

TEST(GlooEngineTest, SendsAndAllocatesWhatIsSaidBeforehand) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 2}}) {
    RanksOptions options = {.size = 0, .ranks_of_node = nodes};
    for (const int ranks : nodes) options.size += ranks;
    ConformTrafficAndMemory(options, GlooEngines(options), EngineKind::kTransport);
  }
}

template <typename T>
class GlooBits : public ::testing::Test {};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(GlooBits, Types);

TYPED_TEST(GlooBits, OfEachAlgorithm) {
  for (const int size : {2, 3, 4}) {
    const RanksOptions options = {.size = size};
    ExpectBitsOfTheAlgorithms<TypeParam>(options, GlooEngines(options), 1027);
  }
}

// Several chunks of each block, the last ones odd, where slots to receive into are used again.
template <typename T>
void AddManyChunks(int size, int64_t count) {
  const auto value = [](int rank, int64_t i) {
    return static_cast<float>((i * 5 + rank * 3 + i / 7) % 8 - 3);
  };
  const RanksOptions options = {.size = size};
  OnRanks(options, GlooEngines(options), [&](Rank& self) {
    std::vector<T> array(static_cast<size_t>(count));
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
      for (int64_t i = 0; i < count; ++i) array[i] = T(value(self.rank, i));
      ASSERT_OK(self.communicator->AllReduce(array.data(), array.data(), count,
                                             precision::kDType<T>, By(algorithm), *self.stream));
      ASSERT_OK(self.stream->Synchronize());
      for (int64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int rank = 0; rank < size; ++rank) sum += value(rank, i);
        ASSERT_EQ(static_cast<float>(array[i]), sum)
            << Name(algorithm) << ", rank " << self.rank << " of " << size << ", element " << i;
      }
    }
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
  });
}

TEST(GlooEngineTest, AddsManyChunksOfFloatInPlace) {
  for (const int size : {2, 3}) AddManyChunks<float>(size, 1'300'003);
  // A block of 5 chunks and a bit: more than are on their way at a time.
  AddManyChunks<float>(4, 4 * 5 * (64 << 10) + 4 * 16 + 1);
}

TEST(GlooEngineTest, AddsManyChunksOfBFloat16InPlace) {
  for (const int size : {2, 3, 4}) AddManyChunks<BFloat16>(size, 700'003);
}

}  // namespace
}  // namespace brigade::collectives::testing
