#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_NCCL_NCCL_RANKS_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_NCCL_NCCL_RANKS_H_

// Ranks that are threads, over EmulatedNccl; their side channel is a ThreadGroup.

#include <functional>
#include <memory>
#include <utility>

#include "brigade/collectives/engines/nccl/nccl_engine.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/emulator/nccl/emulated_nccl.h"
#include "brigade/tests/collectives/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {

using emulator::EmulatedNccl;

inline NcclOptions EmulatedOptions(const RanksOptions& options) {
  NcclOptions nccl;
  nccl.api = EmulatedNccl::Api();
  nccl.timeout = options.timeout;
  return nccl;
}

// For OnRanks. `adapt`, if there is one, changes a rank's options. The side channel's deadline is
// later by as much as ranks may differ in time on a busy machine.
using AdaptFn = std::function<void(int rank, NcclOptions& options)>;
inline CreateEngineFn NcclEngines(const RanksOptions& options, const AdaptFn& adapt = {}) {
  auto group = ThreadGroup::Create({options.size, 2 * options.timeout}).value();
  return [=](int rank, device::Context& context) -> absl::StatusOr<std::unique_ptr<Engine>> {
    NcclOptions nccl = EmulatedOptions(options);
    if (adapt) adapt(rank, nccl);
    auto side = group->Join(rank, context);
    if (!side.ok()) return side.status();
    return CreateNcclEngine(nccl, *std::move(side), context);
  };
}

// Whatever happens in a test, NCCL is called as it wants to be, and nothing is left: also no
// registration when a communicator is destroyed, which would be a misuse.
class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override { EmulatedNccl::Reset(); }
  void TearDown() override {
    EXPECT_THAT(EmulatedNccl::Misuses(), ::testing::IsEmpty());
    EXPECT_EQ(EmulatedNccl::LiveComms(), 0);
    EXPECT_TRUE(EmulatedNccl::FaultHappened()) << "a fault was never asked for";
  }
};

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_NCCL_NCCL_RANKS_H_
