// Ranks over a stand-in for NCCL, when one of them does something else than the others.

#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/fault_conformance.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

EngineUnderTest OverNccl() {
  return {[](const RanksOptions& options) { return NcclEngines(options); },
          /*compares_sends_at_once=*/false};
}

class NcclFaults : public NcclTest, public ::testing::WithParamInterface<Action> {};

TEST_P(NcclFaults, WhenRanksDiffer) { ConformWhenRanksDiffer(GetParam(), OverNccl()); }

INSTANTIATE_TEST_SUITE_P(Rank0, NcclFaults, ::testing::ValuesIn(AllActions()),
                         [](const auto& info) { return Name(info.param); });

TEST_F(NcclTest, WhenArgumentsDiffer) { ConformWhenArgumentsDiffer(OverNccl()); }

TEST_F(NcclTest, WhenAStreamHangs) { ConformWhenAStreamHangs(OverNccl()); }

TEST_F(NcclTest, WhenARankHasLeft) { ConformWhenARankHasLeft(OverNccl()); }

}  // namespace
}  // namespace brigade::collectives
