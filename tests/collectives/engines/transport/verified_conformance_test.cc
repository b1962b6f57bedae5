// Every operation with checksums behind its messages: what arrives is what arrives without.

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "brigade/collectives/engines/transport/transport_engine.h"
#include "brigade/tests/collectives/conformance.h"
#include "brigade/tests/collectives/engines/transport/memory_transport.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

// Of engines that verify. Each group that they make has a network of its own.
class VerifiedEngines {
 public:
  explicit VerifiedEngines(int size) : size_(size), made_(static_cast<size_t>(size)) {}

  CreateEngineFn Create() {
    return [this](int rank, device::Context& context) {
      return CreateTransportEngine(
          std::make_unique<MemoryTransport>(rank, NextNetworkOf(rank)), nullptr,
          // The context outlives the engine.
          std::shared_ptr<device::Context>(std::shared_ptr<void>(), &context),
          {.verify_messages = true});
    };
  }

 private:
  MemoryNetwork& NextNetworkOf(int rank) {
    const std::lock_guard lock(mutex_);
    const size_t group = made_[static_cast<size_t>(rank)]++;
    while (networks_.size() <= group) networks_.emplace_back(size_);
    return networks_[group];
  }

  const int size_;
  std::mutex mutex_;
  // Of each rank.
  std::vector<size_t> made_;
  std::deque<MemoryNetwork> networks_;
};

class VerifiedConformance : public ::testing::TestWithParam<int> {};

TEST_P(VerifiedConformance, EveryOperationOfEveryType) {
  const int size = GetParam();
  VerifiedEngines engines(size);
  Conform({.size = size}, engines.Create(), {0, 1, size + 1, 1003});
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, VerifiedConformance, ::testing::Values(2, 3, 4));

TEST(VerifiedConformanceTest, EveryCallOnNodes) {
  for (const std::vector<int>& nodes : {std::vector<int>{2, 2}, {2, 2, 2}}) {
    RanksOptions options = {.size = 0, .ranks_of_node = nodes};
    for (const int ranks : nodes) options.size += ranks;
    VerifiedEngines engines(options.size);
    ConformOnNodes(options, engines.Create(), {1, 64 * 6 + 1});
  }
}

// Several chunks of each block, the last ones odd.
TEST(VerifiedConformanceTest, AddsManyChunks) {
  constexpr int kSize = 3;
  constexpr int64_t kCount = 1'300'003;
  VerifiedEngines engines(kSize);
  OnRanks({.size = kSize}, engines.Create(), [](Rank& self) {
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
      std::vector<float> array(static_cast<size_t>(kCount));
      const auto value = [](int rank, int64_t i) { return static_cast<float>((i + 3 * rank) % 8); };
      for (int64_t i = 0; i < kCount; ++i) array[static_cast<size_t>(i)] = value(self.rank, i);
      ASSERT_OK(self.communicator->AllReduce(array.data(), array.data(), kCount, kFloat32,
                                             By(algorithm), *self.stream));
      ASSERT_OK(self.stream->Synchronize());
      for (int64_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(array[static_cast<size_t>(i)], value(0, i) + value(1, i) + value(2, i)) << i;
      }
    }
    self.AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::collectives::testing
