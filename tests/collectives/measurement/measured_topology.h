#ifndef BRIGADE_TESTS_COLLECTIVES_MEASUREMENT_MEASURED_TOPOLOGY_H_
#define BRIGADE_TESTS_COLLECTIVES_MEASUREMENT_MEASURED_TOPOLOGY_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "brigade/collectives/measurement/measure.h"
#include "brigade/tests/collectives/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {

// Measures with this rank's node of `nodes`, and expects figures that machines have, however busy,
// the same bits as on all other ranks, and the array back. A call of all ranks.
inline void ExpectMeasuredTopology(Rank& self, const std::vector<int64_t>& nodes,
                                   const std::vector<int>& ranks_of_node) {
  const int64_t before =
      self.context->memory_stats().current_bytes(device::Purpose::kCommunication);
  const auto measured =
      MeasureTopology(*self.communicator, nodes[self.rank], *self.context, *self.stream);
  ASSERT_OK(measured);
  EXPECT_LT(self.context->memory_stats().current_bytes(device::Purpose::kCommunication),
            before + kMostMeasuredBytes);
  const Topology& topology = *measured;
  EXPECT_OK(Validate(topology));
  EXPECT_EQ(topology.ranks_of_node, ranks_of_node);
  EXPECT_TRUE(std::isfinite(topology.reduced_bytes_per_s));
  EXPECT_GT(topology.reduced_bytes_per_s, 0);
  EXPECT_TRUE(std::isfinite(topology.memory_bytes_per_s));
  EXPECT_GT(topology.memory_bytes_per_s, 0);
  EXPECT_GT(topology.call_s, 0);
  EXPECT_EQ(topology.inside.ports, 1);
  for (const Level& level : {topology.inside, topology.between}) {
    EXPECT_TRUE(std::isfinite(level.latency_s));
    EXPECT_GT(level.bytes_per_s, 0);
    EXPECT_LT(level.bytes_per_s, 1e13);
    EXPECT_LE(level.ports, *std::max_element(ranks_of_node.begin(), ranks_of_node.end()));
  }
  std::vector<int64_t> bits = {topology.inside.ports, topology.between.ports};
  for (const double each :
       {topology.inside.latency_s, topology.inside.bytes_per_s, topology.between.latency_s,
        topology.between.bytes_per_s, topology.reduced_bytes_per_s, topology.memory_bytes_per_s,
        topology.message_s, topology.call_s}) {
    bits.push_back(std::bit_cast<int64_t>(each));
  }
  const auto all = self.communicator->AllGatherHost(bits);
  ASSERT_OK(all);
  for (size_t i = 0; i < all->size(); ++i) EXPECT_EQ((*all)[i], bits[i % bits.size()]) << i;
}

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_MEASUREMENT_MEASURED_TOPOLOGY_H_
