#include "brigade/collectives/engines/gloo/control_message.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/device/printable.h"

namespace brigade::collectives::internal {

absl::Status CheckMessage(const ControlMessage& message, int size) {
  const int lowest = message.kind == ControlMessage::kAbort ? 0 : -1;
  if (message.kind < 0 || message.kind >= ControlMessage::kKinds || message.rank < lowest ||
      message.rank >= size || (message.kind == ControlMessage::kAnswer && message.code < 0)) {
    return absl::UnavailableError("what it says is no control message");
  }
  return absl::OkStatus();
}

void SetText(absl::string_view text, ControlMessage& message) {
  text.copy(message.text, sizeof(message.text) - 1);
}

std::string TextOf(const ControlMessage& message) {
  return device::Printable(
      absl::string_view(message.text, strnlen(message.text, sizeof(message.text))));
}

ControlMessage AbortMessage(const absl::Status& reason, int reporter) {
  ControlMessage message;
  message.kind = ControlMessage::kAbort;
  message.code = static_cast<int32_t>(reason.code());
  message.rank = reporter;
  SetText(reason.message(), message);
  return message;
}

absl::Status ReasonOf(const ControlMessage& abort) {
  return ErrorOfCode(abort.code, TextOf(abort));
}

std::string PackPublished(int size, absl::string_view nonce, absl::string_view address) {
  return PackFields({absl::StrCat(size), std::string(nonce), std::string(address)});
}

absl::StatusOr<Published> UnpackPublished(absl::string_view packed, absl::string_view group,
                                          int size, int from, int to) {
  const auto fields = UnpackFields(packed);
  if (!fields.ok()) return fields.status();
  if (fields->size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", from, " publishes what no rank of this version does"));
  }
  if ((*fields)[0] != absl::StrCat(size)) {
    return absl::FailedPreconditionError(
        absl::StrCat("sizes of '", group, "' differ: rank ", from, " joined with ",
                     device::Printable((*fields)[0]), " ranks, rank ", to, " with ", size));
  }
  return Published{(*fields)[1], (*fields)[2]};
}

}  // namespace brigade::collectives::internal
