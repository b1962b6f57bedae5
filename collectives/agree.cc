#include "brigade/collectives/agree.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/device/printable.h"
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

std::string BytesOf(const std::vector<uint64_t>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(uint64_t));
}

// Element `index` of values that BytesOf gave.
uint64_t ValueIn(const std::string& bytes, size_t index) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

// The first rank whose bytes are not rank 0's; 0 if all are alike.
size_t FirstToDiffer(const std::vector<std::string>& all) {
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const std::string& bytes) { return bytes != all[0]; });
  return other == all.end() ? 0 : static_cast<size_t>(other - all.begin());
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

absl::Status AgreeOnLines(absl::Span<const std::string> lines, Communicator& communicator) {
  std::vector<uint64_t> hashes;
  for (const std::string& line : lines) hashes.push_back(Fnv1a(line));
  BRIGADE_ASSIGN_OR_RETURN(
      const auto sums,
      AllGatherBytes(BytesOf({hashes.size(), Fnv1a(BytesOf(hashes))}), communicator));
  if (FirstToDiffer(sums) == 0) return absl::OkStatus();

  // Which line is the first that differs, and how.
  size_t most = 0;
  for (const std::string& sum : sums) most = std::max(most, size_t{ValueIn(sum, 0)});
  hashes.resize(most);
  BRIGADE_ASSIGN_OR_RETURN(const auto shared, AllGatherBytes(BytesOf(hashes), communicator));
  size_t first = 0;
  const auto alike = [&](size_t line) {
    return std::all_of(shared.begin(), shared.end(), [&](const std::string& each) {
      return ValueIn(each, line) == ValueIn(shared[0], line);
    });
  };
  while (first + 1 < most && alike(first)) ++first;
  BRIGADE_ASSIGN_OR_RETURN(
      const auto texts,
      AllGatherBytes(first < lines.size() ? lines[first] : "nothing", communicator));
  const size_t other = FirstToDiffer(texts);
  return absl::InvalidArgumentError(absl::StrCat("ranks disagree: rank 0 has ",
                                                 device::Printable(texts[0], 800), "; rank ", other,
                                                 " has ", device::Printable(texts[other], 800)));
}

uint64_t Fnv1a(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

}  // namespace brigade::collectives
