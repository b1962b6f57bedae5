#include "brigade/collectives/host_threads.h"

#include <sched.h>

#include <algorithm>

#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

TEST(HostThreadsTest, RanksOfAHostShareItsProcessors) {
  cpu_set_t usable = {};
  ASSERT_EQ(sched_getaffinity(0, sizeof(usable), &usable), 0);
  const int processors = CPU_COUNT(&usable);
  for (const int size : {1, 2, 3, processors, processors + 1}) {
    OnThreads({.size = size}, [&](Rank& self) {
      const auto threads = ThreadsOfRank(*self.communicator);
      ASSERT_OK(threads);
      EXPECT_EQ(*threads, std::max(1, processors / size));
    });
  }
}

TEST(HostThreadsTest, ARankThatIsBoundSharesNothing) {
  cpu_set_t usable = {};
  ASSERT_EQ(sched_getaffinity(0, sizeof(usable), &usable), 0);
  const int processors = CPU_COUNT(&usable);
  if (processors < 2) GTEST_SKIP() << "one processor";
  int first = 0;
  while (!CPU_ISSET(first, &usable)) ++first;
  OnThreads({.size = 3}, [&](Rank& self) {
    if (self.rank == 0) {
      cpu_set_t one = {};
      CPU_SET(first, &one);
      ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    }
    const auto threads = ThreadsOfRank(*self.communicator);
    ASSERT_OK(threads);
    EXPECT_EQ(*threads, self.rank == 0 ? 1 : std::max(1, processors / 2));
  });
}

}  // namespace
}  // namespace brigade::collectives
