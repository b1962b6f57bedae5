#ifndef BRIGADE_KERNELS_DIGEST_DIGEST_CUDA_H_
#define BRIGADE_KERNELS_DIGEST_DIGEST_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/digest/digest_math.h"

namespace brigade::kernels {

// Digest on `stream`, without checks of the arguments: what Digest (digest.h) does once it has
// checked them. `segments` is host memory, what they point to and `digests` device memory. A launch
// for each 580 segments.
cudaError_t LaunchDigest(const DigestSegment* segments, int64_t count, TensorDigest* digests,
                         cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DIGEST_DIGEST_CUDA_H_
