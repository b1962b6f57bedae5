#ifndef BRIGADE_KERNELS_DIGEST_DIGEST_H_
#define BRIGADE_KERNELS_DIGEST_DIGEST_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/digest/digest_math.h"

namespace brigade::kernels {

// Adds to digests[s.digest] the digest of each segment s: one read-only pass over a list of parts
// of tensors. A tensor whose parts are each added once, by one call or by many, on one device or on
// many whose digests are added up, has the same digest however it is cut.
//
// digest.words[k] = sum over words i of word_i * kDigestBase[k]^i  (mod 2^64)
//
// where a tensor's bytes, little-endian, are words of 32 bits, and bytes that a part lacks are 0.
// It finds accidents, not intent: whoever may choose the bytes can make others with its digest. A
// difference in one word is always found, one in several words unless both sums happen to agree.
//
// Shapes       Any number of segments of any number of bytes, empty ones included, at any address
//              and any place of the tensor. digests: as many as segments name; not cleared.
// Traffic      The segments' bytes, read once. On the GPU at the memory's rate where the places of
//              words in the tensor agree, modulo 4, with their addresses; else at a fraction of it.
// Aliasing     digests may not overlap anything.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits.
// Determinism  Same bits on every device, for any number of threads, SIMD target and cut.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with bytes, negative size, place, run or stride, overlap, memory known as
//              another device's, a digest that is not there.
// Source       A polynomial hash (Dietzfelbinger et al., 1992), modulo 2^64; tests/spec/digest.h.
absl::Status Digest(absl::Span<const DigestSegment> segments, absl::Span<TensorDigest> digests,
                    device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DIGEST_DIGEST_H_
