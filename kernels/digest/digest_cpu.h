#ifndef BRIGADE_KERNELS_DIGEST_DIGEST_CPU_H_
#define BRIGADE_KERNELS_DIGEST_DIGEST_CPU_H_

#include <cstdint>

#include "brigade/kernels/digest/digest_math.h"

namespace brigade::kernels {

// The digest of the bytes [begin, end) of a segment's memory, in the calling thread: what each
// thread of Digest (digest.h) does. The words of ranges are added up, modulo 2^64, in any order.
//
// Ranges  Any cut gives the same sum.
TensorDigest DigestRange(const DigestSegment& segment, int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DIGEST_DIGEST_CPU_H_
