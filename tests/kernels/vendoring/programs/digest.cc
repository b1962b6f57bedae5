#include "brigade/kernels/digest/digest_math.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/digest/digest_cuda.h"
#else
#include "brigade/kernels/digest/digest_cpu.h"
#endif

namespace brigade::vendored {

void RunDigest() {
  // Two tiles and a part of a third.
  constexpr int64_t kElements = 2 * 8192 + kSize;
  Array<float> tensor(Values<float>(kElements, 1));
  Array<kernels::TensorDigest> digest(std::vector<kernels::TensorDigest>(1));
  kernels::DigestSegment segment = {};
  segment.data = tensor.data();
  segment.size = 4 * kElements;
#ifdef ON_CUDA
  Check(kernels::LaunchDigest(&segment, 1, digest.data(), nullptr));
#else
  *digest.data() = kernels::DigestRange(segment, 0, segment.size);
#endif
  digest.Print("digest digest");
}

}  // namespace brigade::vendored
