#ifndef BRIGADE_LAUNCH_HOSTS_H_
#define BRIGADE_LAUNCH_HOSTS_H_

// On which hosts, and on which of their slots, ranks run.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::launch {

// A machine, and its slots that have a rank each: GPUs by their number there, or places for a
// process on one without.
struct Host {
  std::string name;
  std::vector<int> slots;

  friend bool operator==(const Host&, const Host&) = default;
};

// The most slots that a host may have, and ranks that a job may.
inline constexpr int kMostSlots = 4096;
inline constexpr int kMostRanks = 1 << 20;

// DeepSpeed's hostfile: lines of a name and "slots=N", N from 1 on; what follows a # is a comment,
// and lines of blanks are none. The slots of a host are 0 to N-1.
//
// Errors  InvalidArgument naming `file`, the line and the word: a word that does not belong there,
//         a number that is none, a host for the second time, a name that has other characters than
//         letters, digits, "." "-" "_" or begins with "-", more than kMostRanks slots so far; and
//         no host at all.
absl::StatusOr<std::vector<Host>> HostsFromText(absl::string_view text, absl::string_view file);

// The same of NODE[@NODE...] as Filter takes it, where a host alone has the slot 0. InvalidArgument
// naming the word.
absl::StatusOr<std::vector<Host>> HostsFromList(absl::string_view text);

enum class Choice { kInclude, kExclude };

// What DeepSpeed's --include or --exclude leaves: NODE[@NODE...], NODE = host[:slot[,slot...]], and
// a host alone means all of its slots. What several NODE say of a host is taken together. Order is
// that of `hosts`, slots ascend.
//
// Errors  InvalidArgument naming the flag and the word: a host or slot that is not there, a slot
//         that is no number, an empty word; and when nothing is left.
absl::StatusOr<std::vector<Host>> Filter(const std::vector<Host>& hosts, Choice choice,
                                         absl::string_view text);

// The first `nodes` hosts, and the first `slots` of each; 0: all. InvalidArgument naming flag,
// host and both numbers if there are fewer.
absl::StatusOr<std::vector<Host>> FirstOf(const std::vector<Host>& hosts, int nodes, int slots);

}  // namespace brigade::launch

#endif  // BRIGADE_LAUNCH_HOSTS_H_
