// The limit on a GPU against the one on the CPU, which limit_stats_test holds to its definition.

#include <limits>

#include "absl/strings/str_cat.h"
#include "brigade/optim/limit_stats.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

TEST(LimitStatsGpuTest, GivesTheCpusBits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double sum : {0.0, 35.0, 36.0, 1e300, kInfinity}) {
    for (const double others : {0.0, 35.999, 36.0, kInfinity}) {
      struct Arrays {
        kernels::GradStats* gradients;
        kernels::GradStats* others;
        kernels::StepState* state;
      };
      const auto lay = [](char* base) {
        kernels::Layout layout(base);
        return Arrays{layout.Take<kernels::GradStats>(2), layout.Take<kernels::GradStats>(1),
                      layout.Take<kernels::StepState>(1)};
      };
      kernels::ExpectSameOnBoth(
          absl::StrCat("limit_stats of ", sum, " and ", others),
          [&](char* base) {
            const Arrays arrays = lay(base);
            arrays.gradients[0] = {0, 1};
            arrays.gradients[1] = {sum, sum < kInfinity ? 1 : 0};
            arrays.others[0] = {others, others < kInfinity ? 1 : 0};
            *arrays.state = {};
            arrays.state->loss_scale = 0.5f;
          },
          [&](char* base, device::Stream& stream) {
            const Arrays arrays = lay(base);
            return LimitStats({arrays.gradients, 2}, arrays.others, arrays.state, 2.0, 6.0, stream);
          });
    }
  }
}

}  // namespace
}  // namespace brigade::optim
