#include "brigade/kernels/sign_pack/sign_pack_math.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/sign_pack/sign_pack_cuda.h"
#else
#include "brigade/kernels/grad_check/grad_check_cpu.h"
#include "brigade/kernels/sign_pack/sign_pack_cpu.h"
#endif

namespace brigade::vendored {

struct alignas(kernels::kSignAlignment) Signs {
  uint8_t bytes[kernels::SignBytes(kSize)];
};

void RunSignPack() {
  Array<float> array(Values<float>(kSize, 1));
  Array<float> error(Values<float>(kSize, 2));
  Array<float> back(Values<float>(kSize, 3));
  Array<Signs> message(std::vector<Signs>(1));
  // Of one tile.
  Array<double> workspace(std::vector<double>(1 + kernels::kSignStatsDoubles));
  Array<float> scale(std::vector<float>(1));
  kernels::SignPackSegment segment = {};
  segment.array = array.data();
  segment.error = error.data();
  segment.message = message.data();
  segment.size = kSize;
  kernels::SignUnpackSegment again = {};
  again.messages = message.data();
  again.array = back.data();
  again.size = kSize;
  kernels::SignUnpackParameters parameters;
  parameters.factor = 0.75f;
#ifdef ON_CUDA
  Check(kernels::LaunchSignPack<float>(&segment, 1, workspace.data(), scale.data(), nullptr));
  Check(kernels::LaunchSignUnpack<float>(&again, 1, parameters, nullptr));
#else
  kernels::SignTileSumsRange<float>(segment, 0, kSize, workspace.data());
  const kernels::GradStats stats = kernels::GradCheckFinishCpu(workspace.data(), 1);
  *scale.data() = kernels::SignScale(stats, kSize);
  kernels::SignPackRange<float>(segment, *scale.data(), 512, kSize);
  kernels::SignPackRange<float>(segment, *scale.data(), 0, 512);
  kernels::SignUnpackRange<float>(again, parameters, /*past_caches=*/false, 0, kSize);
#endif
  scale.Print("sign_pack scale");
  message.Print("sign_pack message");
  error.Print("sign_pack error");
  back.Print("sign_pack back");
}

}  // namespace brigade::vendored
