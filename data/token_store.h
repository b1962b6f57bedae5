#ifndef BRIGADE_DATA_TOKEN_STORE_H_
#define BRIGADE_DATA_TOKEN_STORE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace brigade::data {

// Ids of tokens, one behind the other, in as few bytes as the vocabulary allows: 1, 2 or 4 each. So
// a text takes about its own size, whatever tokens it is made of.
class TokenStore {
 public:
  explicit TokenStore(int64_t vocabulary)
      : vocabulary_(vocabulary),
        width_(vocabulary <= 1 << 8    ? 1
               : vocabulary <= 1 << 16 ? 2
                                       : 4) {}

  int64_t vocabulary() const { return vocabulary_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size() / width_); }

  // Ids of 0 to vocabulary - 1.
  void Append(absl::Span<const int32_t> ids);
  // Those from `begin` on, which must be there.
  void Read(int64_t begin, absl::Span<int32_t> ids) const;
  // Gives back what was taken for more.
  void ShrinkToFit() { bytes_.shrink_to_fit(); }

 private:
  int64_t vocabulary_;
  size_t width_;
  std::vector<uint8_t> bytes_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKEN_STORE_H_
