#include "brigade/data/tokenizers/bpe_training.h"

#include <algorithm>
#include <array>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/data/tokenizers/byte_symbols.h"
#include "brigade/data/tokenizers/utf8.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {
namespace {

using Pair = std::pair<int32_t, int32_t>;

// Pieces as ids, and how often each pair of neighbours comes in them.
class PairCounts {
 public:
  // What Next takes.
  struct Best {
    int64_t count = 0;
    Pair pair;
  };

  void AddPiece(std::vector<int32_t> ids, int64_t count) {
    const auto piece = static_cast<int32_t>(pieces_.size());
    for (size_t i = 0; i + 1 < ids.size(); ++i) Raise({ids[i], ids[i + 1]}, count, piece);
    pieces_.push_back({std::move(ids), count});
  }

  // The pair that comes most often, 0 times if none is left.
  Best Next() {
    PushChanged();
    while (!queue_.empty()) {
      const Entry top = queue_.top();
      queue_.pop();
      const Pair pair = {-std::get<1>(top), -std::get<2>(top)};
      const auto found = of_pair_.find(pair);
      if (found == of_pair_.end() || found->second.count == 0) continue;
      if (found->second.count == std::get<0>(top)) return {std::get<0>(top), pair};
      // It has become rarer since; a pair that comes more often has been pushed again.
      if (found->second.count < std::get<0>(top)) Push(pair, found->second.count);
    }
    return {};
  }

  void Merge(Pair pair, int32_t id) {
    const auto found = of_pair_.find(pair);
    const std::vector<int32_t> pieces = std::move(found->second.pieces);
    of_pair_.erase(found);
    int32_t last = -1;
    for (const int32_t piece : pieces) {
      // A piece where it comes twice is there twice in a row, or is without it by now.
      if (piece != last) MergeIn(piece, pair, id);
      last = piece;
    }
  }

 private:
  struct Piece {
    std::vector<int32_t> ids;
    int64_t count;
  };
  struct OfPair {
    int64_t count = 0;
    // Where it is, or has been.
    std::vector<int32_t> pieces;
  };
  // The largest is the best: count, then ids, smaller ones first.
  using Entry = std::tuple<int64_t, int32_t, int32_t>;

  void Push(Pair pair, int64_t count) { queue_.emplace(count, -pair.first, -pair.second); }

  void Raise(Pair pair, int64_t count, int32_t piece) {
    OfPair& of_pair = of_pair_[pair];
    of_pair.count += count;
    if (of_pair.pieces.empty() || of_pair.pieces.back() != piece) of_pair.pieces.push_back(piece);
    more_.push_back(pair);
  }

  void PushChanged() {
    std::sort(more_.begin(), more_.end());
    more_.erase(std::unique(more_.begin(), more_.end()), more_.end());
    for (const Pair& pair : more_) {
      const auto found = of_pair_.find(pair);
      if (found != of_pair_.end() && found->second.count > 0) Push(pair, found->second.count);
    }
    more_.clear();
  }

  void MergeIn(int32_t number, Pair pair, int32_t id) {
    auto& [ids, count] = pieces_[static_cast<size_t>(number)];
    size_t to = 0;
    for (size_t from = 0; from < ids.size(); ++to) {
      const bool is_pair =
          from + 1 < ids.size() && ids[from] == pair.first && ids[from + 1] == pair.second;
      if (!is_pair) {
        ids[to] = ids[from++];
        continue;
      }
      // Neighbours of before: the one at its left may be of this merge, too.
      if (to > 0) {
        Lower({ids[to - 1], pair.first}, pair, count);
        Raise({ids[to - 1], id}, count, number);
      }
      if (from + 2 < ids.size()) {
        Lower({pair.second, ids[from + 2]}, pair, count);
        Raise({id, ids[from + 2]}, count, number);
      }
      ids[to] = id;
      from += 2;
    }
    ids.resize(to);
  }

  // The merged pair itself is no longer counted.
  void Lower(Pair pair, Pair merged, int64_t count) {
    if (pair == merged) return;
    const auto found = of_pair_.find(pair);
    if (found != of_pair_.end()) found->second.count -= count;
  }

  std::vector<Piece> pieces_;
  absl::flat_hash_map<Pair, OfPair> of_pair_;
  std::priority_queue<Entry> queue_;
  // Pairs that have come more often since the last Next.
  std::vector<Pair> more_;
};

// Bytes by their symbols: the order in which they get ids.
std::vector<uint8_t> BytesBySymbol() {
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  std::sort(bytes.begin(), bytes.end(),
            [](uint8_t a, uint8_t b) { return SymbolOfByte(a) < SymbolOfByte(b); });
  return bytes;
}

}  // namespace

absl::StatusOr<BpeTraining> BpeTraining::Create(BpeTrainingOptions options) {
  const auto invalid = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(what...));
  };
  const int64_t least = 256 + std::ssize(options.special_tokens);
  if (options.vocabulary < least || options.vocabulary > INT32_MAX) {
    return invalid("a vocabulary of ", options.vocabulary, " tokens; 256 bytes and ",
                   options.special_tokens.size(), " special tokens make at least ", least);
  }
  if (options.least_count < 1)
    return invalid("a least count of ", options.least_count, ", not 1 or more");
  absl::flat_hash_map<absl::string_view, int> seen;
  for (const std::string& token : options.special_tokens) {
    // One of a single byte would be that byte's token.
    if (token.size() < 2 || ValidUtf8Prefix(token) != token.size() || ++seen[token] > 1) {
      return invalid("the special token ", device::Quoted(token),
                     " is too short, not valid UTF-8, or there twice");
    }
  }
  return BpeTraining(std::move(options));
}

absl::Status BpeTraining::Add(absl::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("byte ", valid, " of the text is ",
                                                   static_cast<uint8_t>(text[valid]),
                                                   ", which is not valid UTF-8 there"));
  }
  std::string with_blank;
  if (options_.add_prefix_space && !text.empty() && text[0] != ' ') {
    with_blank = absl::StrCat(" ", text);
    text = with_blank;
  }
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = PieceEnd(options_.pattern, text, begin);
    ++counts_[text.substr(begin, end - begin)];
    ++pieces_;
    begin = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BpeTokenizer>> BpeTraining::Train() const {
  BpeTokens tokens;
  BpeOptions options = {.pattern = options_.pattern, .add_prefix_space = options_.add_prefix_space};
  int32_t next = 0;
  for (const std::string& special : options_.special_tokens) {
    options.added.push_back({.id = next, .content = special});
    tokens.tokens.emplace(next++, special);
  }
  std::array<int32_t, 256> id_of_byte;
  absl::flat_hash_map<std::string, int32_t> id_of;
  for (const auto& [id, bytes] : tokens.tokens) id_of.emplace(bytes, id);
  for (const uint8_t byte : BytesBySymbol()) {
    id_of_byte[byte] = next;
    const std::string bytes(1, static_cast<char>(byte));
    id_of.emplace(bytes, next);
    tokens.tokens.emplace(next++, bytes);
  }

  PairCounts counts;
  std::vector<const std::pair<const std::string, int64_t>*> pieces;
  pieces.reserve(counts_.size());
  for (const auto& each : counts_) pieces.push_back(&each);
  // In one order, whatever the hash map's is; it changes nothing of the result.
  std::sort(pieces.begin(), pieces.end(), [](auto* a, auto* b) { return a->first < b->first; });
  for (const auto* piece : pieces) {
    std::vector<int32_t> ids;
    ids.reserve(piece->first.size());
    for (const char byte : piece->first) ids.push_back(id_of_byte[static_cast<uint8_t>(byte)]);
    counts.AddPiece(std::move(ids), piece->second);
  }
  while (next < options_.vocabulary) {
    const PairCounts::Best best = counts.Next();
    if (best.count < options_.least_count) break;
    const std::string bytes =
        tokens.tokens.at(best.pair.first) + tokens.tokens.at(best.pair.second);
    // Bytes that are a token already, by other merges, stay that token.
    const auto [known, is_new] = id_of.emplace(bytes, next);
    if (is_new) tokens.tokens.emplace(next++, bytes);
    tokens.merges.push_back(best.pair);
    counts.Merge(best.pair, known->second);
  }
  return BpeTokenizer::Create(std::move(tokens), std::move(options));
}

}  // namespace brigade::data
