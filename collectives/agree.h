#ifndef BRIGADE_COLLECTIVES_AGREE_H_
#define BRIGADE_COLLECTIVES_AGREE_H_

// What ranks tell each other on the host before they go on together. Calls of all ranks, a few
// AllGatherHost each, over any communicator or host channel; errors are the communicator's.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/collectives/communicator.h"

namespace brigade::collectives {

// The bytes of all ranks, in the order of ranks, of any length each, none included. The longest
// counts for all: every rank sends as many and has room for `size` times as many.
absl::StatusOr<std::vector<std::string>> AllGatherBytes(const std::string& bytes,
                                                        Communicator& communicator);

// OK if all ranks give OK; else this rank's own error, or, if it has none, that of the first rank
// that has one: the same code, and after "rank 3: " the first 511 bytes of its message, up to a
// zero byte, made printable.
absl::Status AgreeOnStatus(const absl::Status& mine, Communicator& communicator);

// OK if all ranks have the same lines, of which they exchange a hash. Else InvalidArgument, on all
// ranks, with the first line that differs: "ranks disagree: rank 0 has ...; rank 2 has ...", of
// each at most 800 bytes, printable; "nothing", where a rank has fewer lines.
absl::Status AgreeOnLines(absl::Span<const std::string> lines, Communicator& communicator);

// A hash of 64 bits, the same on every machine, for what is too long for a line.
//
// Source       Fowler, Noll, Vo: FNV-1a.
uint64_t Fnv1a(absl::string_view bytes);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_AGREE_H_
