#ifndef BRIGADE_DATA_TOKENIZERS_BPE_TRAINING_H_
#define BRIGADE_DATA_TOKENIZERS_BPE_TRAINING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/data/tokenizers/bpe_tokenizer.h"

namespace brigade::data {

struct BpeTrainingOptions {
  // Tokens in all: special ones, 256 bytes, and one for each merge. Fewer where no pair is left.
  int64_t vocabulary = 0;
  // A pair that comes less often is not merged; 1 or more.
  int64_t least_count = 2;
  SplitPattern pattern = SplitPattern::kGpt2;
  bool add_prefix_space = false;
  // They get the first ids, in this order.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

// Learns a byte-level BPE from text: the pair of neighbours that comes most often within pieces
// becomes a token, again and again; of pairs that come equally often the one with the smaller left
// id, then the smaller right id. Ids go to special tokens, to bytes in the order of their symbols
// (byte_symbols.h), to merges in their order.
//
// Determinism  A function of the pieces and their counts; the same merges and ids as Hugging Face's
//              BpeTrainer with ByteLevel's alphabet gives.
// Memory       About 100 bytes for each different piece, and 12 for each of its bytes.
// Source       Sennrich, Haddow and Birch, 2016.
class BpeTraining {
 public:
  // InvalidArgument naming the option: no room for a byte each, a special token that is empty,
  // twice there or one byte.
  static absl::StatusOr<BpeTraining> Create(BpeTrainingOptions options);

  // Counts the pieces of a text. InvalidArgument naming the byte that is not valid UTF-8.
  absl::Status Add(absl::string_view text);
  // Different pieces, and all.
  int64_t different_pieces() const { return static_cast<int64_t>(counts_.size()); }
  int64_t pieces() const { return pieces_; }

  // The tokenizer of all that was added.
  absl::StatusOr<std::unique_ptr<BpeTokenizer>> Train() const;

 private:
  explicit BpeTraining(BpeTrainingOptions options) : options_(std::move(options)) {}

  BpeTrainingOptions options_;
  absl::flat_hash_map<std::string, int64_t> counts_;
  int64_t pieces_ = 0;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_BPE_TRAINING_H_
