#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_JOB_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_JOB_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/bootstrap/job_secret.h"

namespace brigade::collectives {

// What must be the same on all ranks, by name: {"seed", "7"}, {"model", "12 layers of 768"}.
using JobValues = std::vector<std::pair<std::string, std::string>>;

// How a process knows the others of its job, and strangers from them.
struct JobIdentity {
  // None: of ranks that all are on one host, the one that rank 0 leaves there for its user; else
  // everybody's.
  std::optional<JobSecret> secret = std::nullopt;
  // The launcher's, for example "slurm 4711.0"; "" if it gives none.
  std::string name = {};
  JobValues values = {};
};

// 16 hexadecimal digits for a value that is large, such as data: BLAKE2b (RFC 7693).
std::string DigestOf(absl::string_view bytes);

// As one string, and back: InvalidArgument for what PackValues does not make.
std::string PackValues(const JobValues& values);
absl::StatusOr<JobValues> UnpackValues(absl::string_view packed);

// Whether both are surely of one job, though their values may differ: then one was started wrongly.
// A secret that was given is such a sign, since only they know it.
bool AreOfOneJob(const JobIdentity& a, absl::string_view name_of_other);

// "seed is 7, not 3; data is 'b', not 'a'": what of `other` differs from `own`; "" if nothing does.
std::string Differences(const JobValues& other, const JobValues& own);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_JOB_H_
