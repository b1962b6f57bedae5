#include "brigade/data/tokenizers/bpe_model.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/device/printable.h"

namespace brigade::data {
namespace {

// Above it a heap finds the first merge, below it a search in a few cache lines. Untuned.
constexpr size_t kFew = 48;

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::Create(BpeTokens tokens) {
  BpeModel model;
  model.tokens_ = std::move(tokens);
  model.id_of_byte_.fill(-1);
  model.id_of_.reserve(model.tokens_.tokens.size());
  for (const auto& [id, bytes] : model.tokens_.tokens) {
    if (id < 0) return Invalid("token ", device::Quoted(bytes), " has the id ", id);
    const auto [same, is_new] = model.id_of_.emplace(bytes, id);
    if (!is_new) {
      return Invalid("tokens ", std::min(same->second, id), " and ", std::max(same->second, id),
                     " are both ", device::Quoted(bytes));
    }
    if (bytes.size() == 1) model.id_of_byte_[static_cast<uint8_t>(bytes[0])] = id;
    model.vocabulary_ = std::max(model.vocabulary_, int64_t{id} + 1);
  }
  const auto& merges = model.tokens_.merges;
  if (merges.size() >= static_cast<size_t>(kNoRank)) return Invalid(merges.size(), " merges");
  model.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merges[rank];
    const std::string *const first = model.TokenOf(left), *const second = model.TokenOf(right);
    if (first == nullptr || second == nullptr) {
      return Invalid("merge ", rank, " is of token ", first == nullptr ? left : right,
                     ", which is not there");
    }
    const int32_t id = model.IdOf(*first + *second);
    if (id < 0) {
      return Invalid("merge ", rank, " makes ", device::Quoted(*first + *second),
                     ", which is no token");
    }
    model.merges_[Pair(left, right)] = {static_cast<int32_t>(rank), id};
  }
  return model;
}

const std::string* BpeModel::TokenOf(int32_t id) const {
  const auto found = tokens_.tokens.find(id);
  return found == tokens_.tokens.end() ? nullptr : &found->second;
}

int32_t BpeModel::IdOf(absl::string_view token) const {
  const auto found = id_of_.find(token);
  return found == id_of_.end() ? -1 : found->second;
}

absl::Status BpeModel::EncodePiece(absl::string_view piece, std::vector<int32_t>& ids) const {
  if (tokens_.whole_pieces) {
    const int32_t id = IdOf(piece);
    if (id >= 0) {
      ids.push_back(id);
      return absl::OkStatus();
    }
  }
  std::array<int32_t, kFew> few;
  std::vector<int32_t> many;
  absl::Span<int32_t> symbols = absl::MakeSpan(few).subspan(0, std::min(kFew, piece.size()));
  if (piece.size() > kFew) {
    many.resize(piece.size());
    symbols = absl::MakeSpan(many);
  }
  for (size_t i = 0; i < piece.size(); ++i) {
    const auto byte = static_cast<uint8_t>(piece[i]);
    symbols[i] = id_of_byte_[byte];
    if (symbols[i] < 0) return Invalid("the tokenizer has no token for byte ", byte);
  }
  if (piece.size() > kFew) {
    MergeMany(symbols, ids);
  } else {
    MergeFew(symbols, ids);
  }
  return absl::OkStatus();
}

void BpeModel::MergeFew(absl::Span<const int32_t> symbols, std::vector<int32_t>& ids) const {
  std::array<int32_t, kFew> tokens;
  // Of a token with the one behind it; the last one's has no rank.
  std::array<Merge, kFew> merges;
  size_t size = symbols.size();
  std::copy(symbols.begin(), symbols.end(), tokens.begin());
  for (size_t i = 0; i + 1 < size; ++i) merges[i] = MergeOf(tokens[i], tokens[i + 1]);
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    tokens[best] = merges[best].id;
    for (size_t i = best + 1; i + 1 < size; ++i) {
      tokens[i] = tokens[i + 1];
      merges[i] = merges[i + 1];
    }
    --size;
    if (best > 0) merges[best - 1] = MergeOf(tokens[best - 1], tokens[best]);
    if (best + 1 < size) merges[best] = MergeOf(tokens[best], tokens[best + 1]);
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(size));
}

void BpeModel::MergeMany(absl::Span<const int32_t> symbols, std::vector<int32_t>& ids) const {
  // Symbols as a list whose places stay; -1 is the id of what has become part of another one.
  struct Symbol {
    int32_t id;
    int64_t before, behind;
  };
  const int64_t size = std::ssize(symbols);
  std::vector<Symbol> list(symbols.size());
  const auto at = [&](int64_t place) -> Symbol& { return list[static_cast<size_t>(place)]; };
  // The first merge on top, of equal ones the leftmost: rank, place, and the pair that it is of.
  using Candidate = std::tuple<int32_t, int64_t, int32_t, int32_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int64_t place) {
    if (place < 0 || at(place).behind >= size) return;
    const int32_t left = at(place).id, right = at(at(place).behind).id;
    const Merge merge = MergeOf(left, right);
    if (merge.rank != kNoRank) queue.emplace(merge.rank, place, left, right);
  };
  for (int64_t i = 0; i < size; ++i) at(i) = {symbols[static_cast<size_t>(i)], i - 1, i + 1};
  for (int64_t i = 0; i < size; ++i) consider(i);
  while (!queue.empty()) {
    const auto [rank, place, left, right] = queue.top();
    queue.pop();
    Symbol& first = at(place);
    if (first.id != left || first.behind >= size || at(first.behind).id != right) continue;
    Symbol& second = at(first.behind);
    first.id = MergeOf(left, right).id;
    second.id = -1;
    first.behind = second.behind;
    if (first.behind < size) at(first.behind).before = place;
    consider(first.before);
    consider(place);
  }
  for (int64_t i = 0; i < size; i = at(i).behind) ids.push_back(at(i).id);
}

}  // namespace brigade::data
