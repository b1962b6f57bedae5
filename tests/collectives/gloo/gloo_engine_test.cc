// Programs over Gloo. Here the ranks are threads that talk over the loopback; processes are in gloo_fault_test.

#include "brigade/collectives/gloo/gloo_engine.h"

#include "brigade/tests/collectives/conformance.h"
#include "brigade/tests/collectives/gloo/processes.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

NewEngineFn GlooEngines(const RanksOptions& options) {
  const int port = testing::FreePort();
  return [options, port](int rank,
                         device::Context& context) -> absl::StatusOr<std::unique_ptr<Engine>> {
    auto store = TcpStore::Create(testing::StoreOptions(rank, options.size, port));
    if (!store.ok()) return store.status();
    GlooOptions gloo;
    gloo.rank = rank;
    gloo.size = options.size;
    gloo.store = *std::move(store);
    gloo.timeout = absl::FromChrono(options.timeout);
    return NewGlooEngine(gloo, context);
  };
}

class GlooConformance : public ::testing::TestWithParam<int> {};

TEST_P(GlooConformance, EveryOperationOfEveryType) {
  const RanksOptions options = {.size = GetParam()};
  const int size = GetParam();
  Conform(options, GlooEngines(options), {0, 1, size + 1, 1003});
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, GlooConformance, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace brigade::collectives
