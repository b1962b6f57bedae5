#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_ERROR_FILE_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_ERROR_FILE_H_

#include "absl/status/status.h"
#include "brigade/collectives/bootstrap/job_secret.h"

namespace brigade::collectives {

// Tells torchrun why this process is about to fail, in the file TORCHELASTIC_ERROR_FILE: of those
// that failed, torchrun shows the one with the earliest file as the root cause. Does nothing where
// the variable is not set, or empty.
//
// Source       PyTorch's torch/distributed/elastic/multiprocessing/errors: JSON, message.message
//              and message.extraInfo.timestamp (seconds since 1970, a string).
// Errors       of device::FileReplacement, naming the file.
absl::Status WriteErrorFile(const absl::Status& error);
absl::Status WriteErrorFile(const absl::Status& error, const EnvironmentGetter& get);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_ERROR_FILE_H_
