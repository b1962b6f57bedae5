#include "brigade/kernels/top_k/top_k_math.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/top_k/top_k_cuda.h"
#else
#include "brigade/kernels/top_k/top_k_cpu.h"
#endif

namespace brigade::vendored {

void RunTopK() {
  constexpr int64_t kCount = 123;
  Array<float> array(Values<float>(kSize, 1));
  Array<float> values(std::vector<float>(kCount, 0.0f));
  Array<int32_t> indices(std::vector<int32_t>(kCount, 0));
  Array<uint32_t> workspace(std::vector<uint32_t>(kernels::TopKWorkspaceSize(kSize)));
  kernels::TopKSegment segment = {};
  segment.array = array.data();
  segment.values = values.data();
  segment.indices = indices.data();
  segment.workspace = workspace.data();
  segment.size = kSize;
  segment.k = kCount;
#ifdef ON_CUDA
  Check(kernels::LaunchTopK<float>(&segment, 1, /*clear=*/true, nullptr));
#else
  kernels::TopKArray<float>(segment, /*clear=*/true);
#endif
  values.Print("top_k values");
  indices.Print("top_k indices");
  array.Print("top_k rest");
}

}  // namespace brigade::vendored
