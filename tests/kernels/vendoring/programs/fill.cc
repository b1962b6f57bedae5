#include "brigade/kernels/fill/fill_math.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/fill/fill_cuda.h"
#else
#include "brigade/kernels/fill/fill_cpu.h"
#include "brigade/kernels/nontemporal_store.h"
#endif

namespace brigade::vendored {

void RunFill() {
  Array<uint16_t> array(std::vector<uint16_t>(kSize, 0));
  kernels::FillSegment segment = {};
  segment.data = array.data() + 1;
  segment.size = kSize - 1;
  const auto pattern = kernels::MakeFillPattern(uint16_t{0x3c01});
#ifdef ON_CUDA
  Check(kernels::LaunchFill(&segment, 1, pattern, sizeof(uint16_t), nullptr));
#else
  kernels::FillRange(segment, pattern, sizeof(uint16_t), /*past_caches=*/true, 0, segment.size);
  kernels::NontemporalStoreFence();
#endif
  array.Print("fill array");
}

}  // namespace brigade::vendored
