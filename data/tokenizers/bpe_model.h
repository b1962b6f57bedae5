#ifndef BRIGADE_DATA_TOKENIZERS_BPE_MODEL_H_
#define BRIGADE_DATA_TOKENIZERS_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::data {

// Tokens of bytes, and which neighbours become one.
struct BpeTokens {
  // The token's bytes by id; ids may be left out.
  absl::flat_hash_map<int32_t, std::string> tokens = {};
  // Pairs of ids, those that are merged first in front.
  std::vector<std::pair<int32_t, int32_t>> merges = {};
  // A piece that is a token as a whole becomes it, whatever merges say, as Llama 3 has it.
  bool whole_pieces = false;
};

// Byte pair encoding: the bytes of a piece, each a token, of which again and again the two
// neighbours whose merge comes first become one, of equal ones the leftmost.
//
// Cost         O(n log n) for a piece of n bytes.
// Source       Sennrich, Haddow and Birch, 2016; of bytes, Radford et al., 2019.
class BpeModel {
 public:
  // InvalidArgument naming what is wrong: a negative id, a token that two ids have, a merge of no
  // tokens, or one whose product is no token.
  static absl::StatusOr<BpeModel> Create(BpeTokens tokens);

  // Above all ids.
  int64_t vocabulary() const { return vocabulary_; }
  const BpeTokens& tokens() const { return tokens_; }

  // Appends the ids of a piece. InvalidArgument naming a byte that has no token.
  absl::Status EncodePiece(absl::string_view piece, std::vector<int32_t>& ids) const;
  // The bytes of a token; null if there is none of this id.
  const std::string* TokenOf(int32_t id) const;
  // -1: no token has these bytes.
  int32_t IdOf(absl::string_view token) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  static constexpr int32_t kNoRank = INT32_MAX;

  BpeModel() = default;

  static uint64_t Pair(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Merge MergeOf(int32_t left, int32_t right) const {
    const auto found = merges_.find(Pair(left, right));
    return found == merges_.end() ? Merge{kNoRank, 0} : found->second;
  }
  void MergeFew(absl::Span<const int32_t> symbols, std::vector<int32_t>& ids) const;
  void MergeMany(absl::Span<const int32_t> symbols, std::vector<int32_t>& ids) const;

  BpeTokens tokens_;
  int64_t vocabulary_ = 0;
  std::array<int32_t, 256> id_of_byte_ = {};
  absl::flat_hash_map<std::string, int32_t> id_of_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_BPE_MODEL_H_
