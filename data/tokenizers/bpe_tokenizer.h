#ifndef BRIGADE_DATA_TOKENIZERS_BPE_TOKENIZER_H_
#define BRIGADE_DATA_TOKENIZERS_BPE_TOKENIZER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/data/tokenizers/added_tokens.h"
#include "brigade/data/tokenizers/bpe_model.h"
#include "brigade/data/tokenizers/split_pattern.h"
#include "brigade/data/tokenizers/tokenizer.h"

namespace brigade::data {

// A byte-level BPE tokenizer: what tokenizer.json says (tokenizer_json.h), or TrainBpe finds.
struct BpeOptions {
  SplitPattern pattern = SplitPattern::kGpt2;
  // A text, and what follows an added token, gets a blank in front unless it begins with one.
  bool add_prefix_space = false;
  std::vector<AddedToken> added = {};
  std::vector<int32_t> before_text = {};
  std::vector<int32_t> after_text = {};
  // By its text; without it the first of <|endoftext|>, <|end_of_text|>, </s> and <eos> that is an
  // added token.
  std::string end_of_text = {};
};

class BpeTokenizer : public Tokenizer {
 public:
  // InvalidArgument naming what is wrong: what BpeModel::Create refuses, an added token that is
  // empty, is there twice or has a negative id, an end_of_text that is no added token.
  static absl::StatusOr<std::unique_ptr<BpeTokenizer>> Create(BpeTokens tokens, BpeOptions options);

  const BpeModel& model() const { return model_; }
  const BpeOptions& options() const { return options_; }

  int64_t vocabulary() const override { return vocabulary_; }
  absl::Status Encode(absl::string_view text, SpecialText special,
                      std::vector<int32_t>& ids) const override;
  absl::Status Decode(absl::Span<const int32_t> ids, std::string& text) const override;
  bool is_bytewise() const override { return false; }
  std::optional<int32_t> IdOf(absl::string_view special_token) const override;
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  absl::Span<const int32_t> before_text() const override { return options_.before_text; }
  absl::Span<const int32_t> after_text() const override { return options_.after_text; }

 private:
  BpeTokenizer(BpeModel model, BpeOptions options);

  absl::Status EncodeText(absl::string_view text, std::vector<int32_t>& ids) const;

  const BpeModel model_;
  const BpeOptions options_;
  const AddedTokens added_;
  absl::flat_hash_map<int32_t, std::string> added_by_id_;
  int64_t vocabulary_;
  std::optional<int32_t> end_of_text_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_BPE_TOKENIZER_H_
