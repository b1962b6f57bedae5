#include "brigade/digests/copies.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace brigade::digests {
namespace {

// What copies have in common; the first field orders narrow ones before wide ones.
struct Key {
  int width;
  int first_shard;
  int place;

  friend bool operator<(const Key& a, const Key& b) {
    return std::tie(a.width, a.first_shard, a.place) < std::tie(b.width, b.first_shard, b.place);
  }
};

constexpr int kAny = -1;

std::string NameOf(const CopyHolders& holders) {
  if (holders.size() == 1) return absl::StrCat("rank ", holders[0]);
  return absl::StrCat("ranks ", holders.front(), " to ", holders.back(), " together");
}

std::string NamesOf(const std::vector<CopyHolders>& copies) {
  std::string names;
  for (size_t i = 0; i < copies.size(); ++i) {
    const char* const before = i == 0 ? "" : i + 1 < copies.size() ? ", " : " and ";
    absl::StrAppend(&names, before, NameOf(copies[i]));
  }
  return names;
}

}  // namespace

std::string ToHex(const kernels::TensorDigest& digest) {
  return absl::StrFormat("%016x%016x", digest.words[0], digest.words[1]);
}

std::vector<Comparison> ComparisonsOf(const std::vector<TensorName>& tensors,
                                      const std::vector<RankShare>& shares) {
  std::vector<Comparison> comparisons;
  for (const DigestKind kind : {DigestKind::kGradients, DigestKind::kWeights}) {
    for (const bool narrow : {true, false}) {
      for (size_t t = 0; t < tensors.size(); ++t) {
        std::map<Key, std::map<std::tuple<int, int>, CopyHolders>> of_key;
        for (size_t r = 0; r < shares.size(); ++r) {
          const RankShare& share = shares[r];
          if (!share.holds[t]) continue;
          const int rank = static_cast<int>(r);
          const int shard = share.is_cut[t] ? share.first_shard : kAny;
          // Copies by the rank that has all of it.
          const bool is_whole = kind == DigestKind::kWeights && share.has_whole_weights;
          if (is_whole) {
            if (narrow) of_key[{0, shard, kAny}][{rank, 0}].push_back(rank);
          } else if (narrow) {
            // Slices, of the group's ranks: those with one place have the same. What other tensor
            // ranks have alike may be cut otherwise.
            of_key[{0, share.first_shard, share.place}][{share.shard_group, rank}].push_back(rank);
          } else if (!share.is_cut[t] && share.shard_group == 0) {
            // Whole groups, one for each tensor rank.
            of_key[{1, kAny, kAny}][{share.first_shard, 0}].push_back(rank);
          }
        }
        for (auto& [key, copies] : of_key) {
          if (copies.size() < 2) continue;
          Comparison comparison = {kind, static_cast<int>(t), {}};
          for (auto& [holder, ranks] : copies) comparison.copies.push_back(std::move(ranks));
          comparisons.push_back(std::move(comparison));
        }
      }
    }
  }
  return comparisons;
}

double Covered(const std::vector<TensorName>& tensors, const std::vector<RankShare>& shares,
               const std::vector<Comparison>& comparisons) {
  std::set<std::pair<int, int>> compared;
  for (const Comparison& each : comparisons) {
    if (each.kind != DigestKind::kWeights) continue;
    for (const CopyHolders& holders : each.copies) {
      for (const int rank : holders) compared.insert({rank, each.tensor});
    }
  }
  double all = 0, covered = 0;
  for (size_t r = 0; r < shares.size(); ++r) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (!shares[r].holds[t]) continue;
      const auto size = static_cast<double>(tensors[t].size);
      all += size;
      if (compared.count({static_cast<int>(r), static_cast<int>(t)}) != 0) covered += size;
    }
  }
  return all == 0 ? 0 : covered / all;
}

absl::Status CheckCopies(int64_t step, bool skipped, const std::vector<TensorName>& tensors,
                         const std::vector<Comparison>& comparisons, const DigestTable& table) {
  for (const Comparison& each : comparisons) {
    if (skipped && each.kind == DigestKind::kGradients) continue;
    std::map<std::pair<uint64_t, uint64_t>, std::vector<CopyHolders>> versions;
    for (const CopyHolders& holders : each.copies) {
      std::pair<uint64_t, uint64_t> sum = {0, 0};
      for (const int rank : holders) {
        const kernels::TensorDigest& part = table.Of(rank, each.kind, each.tensor);
        sum.first += part.words[0];
        sum.second += part.words[1];
      }
      versions[sum].push_back(holders);
    }
    if (versions.size() == 1) continue;
    size_t most = 0, of_most = 0;
    for (const auto& [digest, copies] : versions) {
      if (copies.size() > most) most = copies.size(), of_most = 0;
      if (copies.size() == most) ++of_most;
    }
    const TensorName& tensor = tensors[static_cast<size_t>(each.tensor)];
    const std::string what = absl::StrCat(
        "step ", step, ", unit \"", tensor.unit, "\": the ",
        each.kind == DigestKind::kGradients ? "summed gradient" : "weights", " of ", tensor.name);
    if (of_most > 1) {
      std::string sides;
      for (const auto& [digest, copies] : versions) {
        absl::StrAppend(&sides, sides.empty() ? "" : " against ", NamesOf(copies), " (",
                        ToHex({{digest.first, digest.second}}), ")");
      }
      return absl::DataLossError(
          absl::StrCat(what, " should be the same bits, but are not: ", sides,
                       ". No side has most copies, so which one is wrong cannot be told"));
    }
    std::vector<CopyHolders> alone, right;
    for (const auto& [digest, copies] : versions) {
      std::vector<CopyHolders>& side = copies.size() == most ? right : alone;
      side.insert(side.end(), copies.begin(), copies.end());
    }
    std::sort(alone.begin(), alone.end());
    return absl::DataLossError(absl::StrCat(what, " should be the same bits, but ", NamesOf(alone),
                                            alone.size() == 1 ? " is" : " are",
                                            " alone with others than ", NamesOf(right),
                                            ": a fault of memory, processor or network there"));
  }
  return absl::OkStatus();
}

}  // namespace brigade::digests
