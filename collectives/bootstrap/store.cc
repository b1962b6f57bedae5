#include "brigade/collectives/bootstrap/store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/device/threads/steady_time.h"
#include "gloo/common/error.h"

namespace brigade::collectives {
namespace {

using ::brigade::device::SteadyTime;

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw ::gloo::IoException(status.ToString());
}

}  // namespace

void Store::set(const std::string& key, const std::vector<char>& data) {
  ThrowIfError(Set(key, std::string(data.begin(), data.end()), absl::FromChrono(kDefaultTimeout)));
}

std::vector<char> Store::get(const std::string& key) {
  const absl::StatusOr<std::string> value = Get(key, absl::FromChrono(kDefaultTimeout));
  ThrowIfError(value.status());
  return std::vector<char>(value->begin(), value->end());
}

void Store::wait(const std::vector<std::string>& keys) { wait(keys, kDefaultTimeout); }

void Store::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const SteadyTime deadline = SteadyTime::Now() + absl::FromChrono(timeout);
  for (const std::string& key : keys) ThrowIfError(Get(key, deadline - SteadyTime::Now()).status());
}

absl::Status CheckRank(int rank, int size) {
  if (size > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", size, " ranks; there are at most ", kMostRanks));
  }
  if (size < 1 || rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("no rank ", rank, " in a group of ", size));
  }
  return absl::OkStatus();
}

std::string RankNames(absl::Span<const int> ranks) {
  constexpr size_t kMost = 32;
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMost) return absl::StrCat(names, " and ", ranks.size() - i, " others");
    if (i > 0) absl::StrAppend(&names, i + 1 == ranks.size() ? " and " : ", ");
    absl::StrAppend(&names, ranks[i]);
  }
  return names;
}

absl::StatusOr<std::vector<std::string>> GetOfAllRanks(Store& store, const std::string& prefix,
                                                       int size, absl::Duration timeout,
                                                       const std::string& where,
                                                       SteadyTime deadline) {
  deadline = std::min(deadline, SteadyTime::Now() + timeout);
  std::vector<std::string> values(size);
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    const absl::Duration left = std::max(deadline - SteadyTime::Now(), absl::ZeroDuration());
    absl::StatusOr<std::string> value = store.Get(absl::StrCat(prefix, rank), left);
    if (value.ok()) {
      values[rank] = *std::move(value);
    } else if (absl::IsDeadlineExceeded(value.status())) {
      missing.push_back(rank);
    } else {
      return value.status();
    }
  }
  if (missing.empty()) return values;
  return absl::DeadlineExceededError(absl::StrCat(RankNames(missing), " did not join ", where,
                                                  " within ", absl::FormatDuration(timeout)));
}

}  // namespace brigade::collectives
