#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_HOST_SECRET_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_HOST_SECRET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/bootstrap/job_secret.h"

namespace brigade::collectives::internal {

// The secret of the job at a port of this host's loopback, in a file that only its user can read:
// /tmp/brigade-UID/NETWORK.PORT.secret, where NETWORK is the number of the network namespace, which
// containers that share /tmp may have of their own. For ranks that are all on one host and were
// given none. Of two jobs at one port of 127.0.0.1 and 127.0.0.2 the later one is found.
//
// Errors       FailedPrecondition naming what is wrong with the folder or the file.
class HostSecret {
 public:
  // Makes a new one; for the process that listens at the port. The file goes with it.
  static absl::StatusOr<HostSecret> Publish(int port);
  ~HostSecret();
  HostSecret(HostSecret&& other) noexcept;
  HostSecret& operator=(HostSecret&&) = delete;

  // What is published there; NotFound if nothing is.
  static absl::StatusOr<JobSecret> Read(int port);

  const JobSecret& secret() const { return secret_; }

 private:
  HostSecret(std::string path, const JobSecret& secret) : path_(std::move(path)), secret_(secret) {}

  std::string path_;
  JobSecret secret_;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_HOST_SECRET_H_
