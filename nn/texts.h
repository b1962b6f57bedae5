#ifndef BRIGADE_NN_TEXTS_H_
#define BRIGADE_NN_TEXTS_H_

#include <cstdint>

#include "brigade/precision/host_device.h"

namespace brigade::nn {

// The number of different bytes.
inline constexpr int64_t kVocabulary = 256;

// Device memory, [batch, context + 1] bytes: row r = b * context + t of a layer sees token(r) and
// predicts the byte behind it. A text may be of several equal pieces, which are apart in a longer
// one; each has the byte behind its last one: [batch, pieces, context / pieces + 1].
struct Texts {
  const uint8_t* bytes = nullptr;
  int64_t batch = 0;
  int64_t context = 0;
  int64_t pieces = 1;

  BRIGADE_INLINE int64_t rows() const { return batch * context; }
  int64_t size() const { return batch * (context + pieces); }
  BRIGADE_INLINE int64_t token(int64_t r) const { return bytes[Place(r)]; }
  BRIGADE_INLINE int64_t target(int64_t r) const { return bytes[Place(r) + 1]; }
  // Of a row's byte.
  BRIGADE_INLINE int64_t Place(int64_t r) const { return r + r / (context / pieces); }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_TEXTS_H_
