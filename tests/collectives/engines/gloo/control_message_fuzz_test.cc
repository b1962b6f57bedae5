// What a rank makes of the messages and of the published addresses of another one.
//
// Two bits of an input's first byte are the size of the group less one; what follows is a message,
// cut or filled with zeros, and then as a whole what a rank published.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "brigade/collectives/engines/gloo/control_message.h"
#include "brigade/tests/fuzzing/checks.h"

namespace brigade::collectives::internal {
namespace {

void CheckControlMessage(const std::string& bytes, int size) {
  ControlMessage message;
  std::memcpy(static_cast<void*>(&message), bytes.data(), std::min(bytes.size(), sizeof(message)));
  const absl::Status valid = CheckMessage(message, size);
  if (!valid.ok()) return testing::CheckError(valid);
  FUZZ_CHECK(message.kind >= 0 && message.kind < ControlMessage::kKinds);
  FUZZ_CHECK(message.rank < size);
  // Who reports is a rank; only one who answers may wait for none.
  FUZZ_CHECK(message.rank >= (message.kind == ControlMessage::kAbort ? 0 : -1));
  const std::string text = TextOf(message);
  if (!text.empty()) testing::CheckError(absl::UnknownError(text));
  if (message.kind != ControlMessage::kAbort) return;
  const absl::Status reason = ReasonOf(message);
  FUZZ_CHECK(!reason.ok());
  // Every rank passes on what it hears.
  const ControlMessage onward = AbortMessage(reason, message.rank);
  FUZZ_CHECK(CheckMessage(onward, size).ok() && onward.rank == message.rank);
  FUZZ_CHECK(ReasonOf(onward).code() == reason.code());
  FUZZ_CHECK(absl::StartsWith(reason.message(), TextOf(onward)));
}

void CheckPublished(const std::string& bytes, int size) {
  for (int rank = 0; rank < size; ++rank) {
    const auto published = UnpackPublished(bytes, "group", size, (rank + 1) % size, rank);
    if (!published.ok()) {
      testing::CheckError(published.status());
      continue;
    }
    std::vector<std::string> addresses;
    for (int to = 0; to < size; ++to) {
      const auto one = UnpackPublished(bytes, "group", size, rank, to);
      FUZZ_CHECK(one.ok());
      addresses.emplace_back(one->address.begin(), one->address.end());
    }
    FUZZ_CHECK(PackPublished(published->nonce, addresses) == bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int ranks = 1 + data[0] % 4;
  const std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  CheckControlMessage(bytes, ranks);
  CheckPublished(bytes, ranks);
  return 0;
}

}  // namespace brigade::collectives::internal
