#include "brigade/kernels/reduce/reduce_math.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/reduce/reduce_cuda.h"
#else
#include "brigade/kernels/reduce/reduce_cpu.h"
#endif

namespace brigade::vendored {

using precision::Half;

void RunReduce() {
  Array<Half> first(Values<Half>(kSize, 1));
  Array<Half> second(Values<Half>(kSize, 2));
  Array<Half> sum(Values<Half>(kSize, 3));
#ifdef ON_CUDA
  kernels::ReduceArrays arrays = {};
  arrays.sources[0] = first.data();
  arrays.sources[1] = second.data();
  arrays.targets[0] = sum.data();
  arrays.source_count = 2;
  arrays.target_count = 1;
  arrays.size = kSize;
  Check(kernels::LaunchReduce<Half>(arrays, kernels::ReduceOp::kSum, nullptr));
#else
  const void* const sources[] = {first.data(), second.data()};
  void* const targets[] = {sum.data()};
  kernels::ReduceLists lists = {};
  lists.sources = sources;
  lists.source_count = 2;
  lists.targets = targets;
  lists.target_count = 1;
  kernels::ReduceRange<Half>(lists, kernels::ReduceOp::kSum, /*past_caches=*/false, 0, kSize);
#endif
  sum.Print("reduce sum");
}

}  // namespace brigade::vendored
