// The scale on a GPU against the scale on the CPU, which amax_scale_test holds to its definition.

#include "brigade/collectives/compressed/amax_scale.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using precision::DType;

TEST(AmaxScaleGpuTest, GivesTheCpusBits) {
  for (const float amax : {0.0f, 0x1p-149f, 3e-5f, 1.0f, 65504.0f, 1e30f, INFINITY}) {
    struct Arrays {
      float* amax;
      AmaxScale* scales;
    };
    const auto lay = [](char* base) {
      kernels::Layout layout(base);
      return Arrays{layout.Take<float>(1), layout.Take<AmaxScale>(2)};
    };
    kernels::ExpectSameOnBoth(
        absl::StrCat("amax_scale of ", amax), [&](char* base) { *lay(base).amax = amax; },
        [&](char* base, device::Stream& stream) {
          const Arrays arrays = lay(base);
          absl::Status status =
              ChooseAmaxScale(arrays.amax, 3, DType::kFloat16, arrays.scales, stream);
          status.Update(
              ChooseAmaxScale(arrays.amax, 3, DType::kBFloat16, arrays.scales + 1, stream));
          return status;
        });
  }
}

}  // namespace
}  // namespace brigade::collectives
