#include "brigade/collectives/agree.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

// A code and 511 bytes of a message.
constexpr size_t kStatusBytes = 512;

// The first `bytes` bytes of all ranks; zeros stand for those that a rank does not have.
absl::StatusOr<std::vector<std::string>> AllGatherPadded(const std::string& mine, size_t bytes,
                                                         Communicator& communicator) {
  const size_t words = (bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
  std::vector<int64_t> values(words);
  std::copy_n(mine.data(), std::min(mine.size(), bytes), reinterpret_cast<char*>(values.data()));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, communicator.AllGatherHost(values));
  std::vector<std::string> shared;
  for (size_t rank = 0; rank < static_cast<size_t>(communicator.size()); ++rank) {
    shared.emplace_back(reinterpret_cast<const char*>(all.data() + rank * words), bytes);
  }
  return shared;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> AllGatherBytes(const std::string& bytes,
                                                        Communicator& communicator) {
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                           communicator.AllGatherHost({static_cast<int64_t>(bytes.size())}));
  const auto most = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  BRIGADE_ASSIGN_OR_RETURN(auto all, AllGatherPadded(bytes, most, communicator));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].resize(static_cast<size_t>(sizes[rank]));
  }
  return all;
}

absl::Status AgreeOnStatus(const absl::Status& mine, Communicator& communicator) {
  std::string record(1, static_cast<char>(mine.code()));
  absl::StrAppend(&record, mine.message());
  BRIGADE_ASSIGN_OR_RETURN(const auto all, AllGatherPadded(record, kStatusBytes, communicator));
  if (!mine.ok()) return mine;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const int code = static_cast<unsigned char>(all[rank][0]);
    if (code == 0) continue;
    const std::string message = all[rank].substr(1);
    return ErrorOfCode(code,
                       absl::StrCat("rank ", rank, ": ", message.substr(0, message.find('\0'))));
  }
  return absl::OkStatus();
}

}  // namespace brigade::collectives
