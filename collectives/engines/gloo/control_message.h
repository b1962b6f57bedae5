#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_CONTROL_MESSAGE_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_CONTROL_MESSAGE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// What ranks tell each other besides payload, and what becomes of it: bytes of a peer in, checked
// values out.
namespace brigade::collectives::internal {

struct ControlMessage {
  enum Kind : int32_t { kAbort, kLeave, kProbe, kAnswer, kKinds };

  Kind kind = kAbort;
  // kAbort: of the status; kAnswer: for how many milliseconds the sender may still wait in another
  // group, 0 if it does not.
  int32_t code = 0;
  // kAbort: who reports; kAnswer: whom the sender waits for, or -1.
  int32_t rank = -1;
  // kAbort: the message; kAnswer: what the sender does; cut if need be.
  char text[1012] = {};
};

// Unavailable for what no rank of a group of `size` says.
absl::Status CheckMessage(const ControlMessage& message, int size);

// Cuts what is too long.
void SetText(absl::string_view text, ControlMessage& message);
// As device::Printable.
std::string TextOf(const ControlMessage& message);

// kAbort and its error, which is never OK.
ControlMessage AbortMessage(const absl::Status& reason, int reporter);
absl::Status ReasonOf(const ControlMessage& abort);

// What a rank of a group of `size` publishes: a nonce, and where it listens.
std::string PackPublished(int size, absl::string_view nonce, absl::string_view address);

struct Published {
  std::string nonce, address;
};
// What rank `from` published, for rank `to`. InvalidArgument for what PackPublished does not make,
// FailedPrecondition if `from` is of a group, called `group`, of another size.
absl::StatusOr<Published> UnpackPublished(absl::string_view packed, absl::string_view group,
                                          int size, int from, int to);

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_CONTROL_MESSAGE_H_
