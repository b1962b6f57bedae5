#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_LAUNCH_INFO_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_LAUNCH_INFO_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "brigade/collectives/bootstrap/job_secret.h"

namespace brigade::collectives {

// Where torchrun's agent serves a store of its own at MASTER_PORT, and the key under which rank 0
// tells its port there.
struct AgentStore {
  std::string host;
  int port = 0;
  std::string key;

  friend bool operator==(const AgentStore&, const AgentStore&) = default;
};

// Which process of a group this is, and where its store is served.
struct LaunchInfo {
  // Whether a launcher has started the process, also if it is the only one.
  bool launched = false;
  int rank = 0;
  int size = 1;
  // Among the processes of this host; 0 if no variable says it.
  int local_rank = 0;
  // The host of rank 0, and a free port of it.
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  // Instead of master_port.
  std::optional<AgentStore> agent_store = std::nullopt;
  // BRIGADE_JOB_SECRET, or what is in the file that BRIGADE_JOB_SECRET_FILE names.
  std::optional<JobSecret> secret = std::nullopt;
  // The launcher's name for the job; "" if it gives none.
  std::string job = {};
};

// Reads what the launcher says. The first set that is present counts, and is never mixed with
// another one:
//
//   torchrun and the like   RANK, WORLD_SIZE, LOCAL_RANK
//   Open MPI's mpirun       OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
//   Slurm's srun            SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
//
// The job's name is TORCHELASTIC_RUN_ID, PMIX_NAMESPACE, or SLURM_JOB_ID with SLURM_STEP_ID, in the
// same order.
//
// With TORCHELASTIC_USE_AGENT_STORE=True the agent holds MASTER_PORT: rank 0 takes a free one, and
// the others learn it in the agent's store. Where all ranks are on one host (LOCAL_WORLD_SIZE is
// WORLD_SIZE), master_addr is then its loopback. (docs/decisions/0082)
//
// MASTER_ADDR and MASTER_PORT are read in each case. Without MASTER_ADDR it is the first host of
// SLURM_STEP_NODELIST under srun, and 127.0.0.1 otherwise. With no set at all this is rank 0 of 1.
//
// Errors       InvalidArgument naming the variable and its value: one of a set without the other,
//              not a number, a rank outside the group, a port outside 1 to 65535. A secret's as in
//              JobSecret::FromEnvironment.
absl::StatusOr<LaunchInfo> LaunchInfoFromEnvironment();
absl::StatusOr<LaunchInfo> LaunchInfoFromEnvironment(const EnvironmentGetter& get);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_LAUNCH_INFO_H_
