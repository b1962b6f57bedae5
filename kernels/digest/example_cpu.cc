// The digest of a tensor of the CPU, as a whole and in two parts. It needs digest_cpu.cc and
// simd.cc with what they include, and nothing else.
//
// Prints: digest 08d9f497bea00000, the same in two parts

#include <cstdint>
#include <cstdio>

#include "brigade/kernels/digest/digest_cpu.h"

int main() {
  namespace bk = brigade::kernels;
  const float tensor[4] = {1, -7, 3, 4};
  const bk::DigestSegment whole = {tensor,      sizeof(tensor), /*first=*/0,
                                   /*run=*/0,   /*stride=*/0,
                                   /*digest=*/0};
  const bk::TensorDigest digest = bk::DigestRange(whole, 0, whole.size);
  // Any threads may take any bytes; parts in different memory say where in the tensor they begin.
  const bk::TensorDigest first = bk::DigestRange(whole, 0, 6);
  const bk::DigestSegment rest = {tensor + 1, 12, /*first=*/4, 0, 0, 0};
  const bk::TensorDigest second = bk::DigestRange(rest, 2, rest.size);
  const bool same = first.words[0] + second.words[0] == digest.words[0] &&
                    first.words[1] + second.words[1] == digest.words[1];
  std::printf("digest %016llx, %s in two parts\n", static_cast<unsigned long long>(digest.words[0]),
              same ? "the same" : "another");
}
