#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_NCCL_FAULTS_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_NCCL_FAULTS_H_

// What tests of faults on EmulatedNccl share.

#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"

namespace brigade::collectives {

// A deadline that tests wait for, and that ranks have only where nothing else ends a call: on a
// busy machine none needs as long to come to one.
inline constexpr auto kTimeout = absl::Seconds(1);

// Made before the ranks: work may be outstanding when these are gone.
struct Arrays {
  std::vector<float> input = std::vector<float>(256, 1.0f);
  std::vector<float> output = std::vector<float>(256);
};

class NcclFaultTest : public NcclTest {
 protected:
  Arrays& ArraysOf(const Rank& self) { return arrays_[static_cast<size_t>(self.rank)]; }

  absl::Status AllReduce(Rank& self, int64_t count = 64, Algorithm algorithm = Algorithm::kNative) {
    Arrays& arrays = ArraysOf(self);
    return self.communicator->AllReduce(arrays.input.data(), arrays.output.data(), count, kFloat32,
                                        By(algorithm), *self.stream);
  }

  // The error that ended the group, wherever it shows.
  absl::Status AwaitEnd(Rank& self) {
    while (self.communicator->status().ok()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // What was aborted ends, without an error.
    EXPECT_OK(self.stream->Synchronize());
    return self.communicator->status();
  }

  void ExpectRebuilt(Rank& self, std::vector<int> lost) {
    auto shrunk = self.communicator->Shrink(lost);
    ASSERT_OK(shrunk);
    Arrays& arrays = ArraysOf(self);
    ASSERT_OK((*shrunk)->AllReduce(arrays.input.data(), arrays.output.data(), 64, kFloat32, {},
                                   *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ((*shrunk)->size(), self.size - static_cast<int>(lost.size()));
    EXPECT_EQ(arrays.output[63], static_cast<float>((*shrunk)->size()));
    ASSERT_OK((*shrunk)->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
  }

  // The deadline is rank 1's; the others wait for it.
  static void LetRank1ExpireFirst(int rank, NcclOptions& options) {
    if (rank == 1) options.timeout = kTimeout;
  }

  void On(const RanksOptions& options, const std::function<void(Rank&)>& body,
          const AdaptFn& adapt = {}) {
    arrays_ = std::vector<Arrays>(static_cast<size_t>(options.size));
    OnRanks(options, NcclEngines(options, adapt), body);
  }

  std::vector<Arrays> arrays_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_NCCL_FAULTS_H_
