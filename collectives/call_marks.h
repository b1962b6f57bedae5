#ifndef BRIGADE_COLLECTIVES_CALL_MARKS_H_
#define BRIGADE_COLLECTIVES_CALL_MARKS_H_

// Marks of collectives in a trace: which operations of a stream belong to which call. An engine
// makes one operation of a call or many, waits for other ranks among them, and none of their names
// says of what call they are.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// While it lives, calls of the context's communicators stand between two marks on their stream:
// operations that do nothing. Of each rank for itself: the others know nothing of it.
//
// Cost         Without any, a call looks at one number. With it, two operations a call.
// Lifetime     The context outlives it.
// Threads      Safe from any thread; a call that is being made may or may not be marked.
class MarkedCalls {
 public:
  explicit MarkedCalls(const device::Context& context);
  ~MarkedCalls();
  MarkedCalls(const MarkedCalls&) = delete;
  MarkedCalls& operator=(const MarkedCalls&) = delete;

  // Whether calls of this context are marked.
  static bool Contain(const device::Context& context);

 private:
  const device::Context& context_;
};

// What a call's first mark says.
struct CallMark {
  // That of its kind: "all_gather".
  absl::string_view name;
  // By this rank, to others, in the call.
  int64_t sent_bytes = 0;
};

// The marks before and behind a call that `rank` of `size` makes, whose algorithm is resolved.
absl::Status MarkCall(const CollectiveSignature& signature, int rank, int size,
                      device::Stream& stream);
absl::Status MarkEndOfCall(device::Stream& stream);

// Of an operation's name in a trace; none: it is no first mark. Its name lives as long as `name`.
std::optional<CallMark> CallMarkOf(absl::string_view name);
bool IsEndOfCall(absl::string_view name);

// The event for which a rank's stream waits until other ranks have come to a call, where an engine
// has one.
inline constexpr absl::string_view kCallBegins = "collective begins";

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_CALL_MARKS_H_
