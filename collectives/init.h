#ifndef BRIGADE_COLLECTIVES_INIT_H_
#define BRIGADE_COLLECTIVES_INIT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/job.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/nccl/api.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/collectives/options.h"
#include "brigade/device/context.h"

namespace brigade::collectives {

// Which engine carries the collectives out.
//
// kAuto      kThreads with InitOptions::group; else kNccl for a context on a GPU, kGloo for one on
//            the CPU.
// kThreads   Ranks are threads of this process, on the CPU or on one GPU.
// kGloo      Ranks are processes on one or many hosts, on the CPU.
// kNccl      Ranks are processes on one or many hosts, each with a GPU of its own. Gloo connects
//            them beside NCCL.
enum class Backend : uint8_t { kAuto, kThreads, kGloo, kNccl };

// "auto", "threads", "gloo", "nccl"; InvalidArgument naming what is none of them.
absl::string_view Name(Backend backend);
absl::StatusOr<Backend> ParseBackend(absl::string_view name);

struct InitOptions {
  Backend backend = Backend::kAuto;

  // Of kThreads: the group of this process's ranks; LaunchInfo::rank is the rank in it, and its
  // timeout counts.
  std::shared_ptr<ThreadGroup> group = nullptr;

  // Of kGloo and kNccl: a folder that all hosts share and that is new for each run, where the ranks
  // find each other. Empty: they find each other at MASTER_ADDR and MASTER_PORT.
  std::string rendezvous_folder = {};
  // Where this rank listens, for example "eth0"; GlooOptions::interface says what else it may be.
  std::string interface = {};
  // Of kGloo and kNccl: what must be the same on all ranks, by name; an error names what differs.
  JobValues job_values = {};
  // How long creation waits for all ranks.
  absl::Duration connect_timeout = absl::Seconds(30);
  // How long each wait of a collective may take. Of kNccl: how long a call may run on its stream;
  // what waits over Gloo may take a quarter longer: the comparison of calls, which ends the other
  // ranks where one does not come, and host channels.
  absl::Duration timeout = absl::Minutes(10);

  // Of kNccl: whether calls of all ranks are compared over Gloo, beside NCCL.
  bool verify_collectives = true;
  // Of kNccl: the library to call, for example LoadNccl("/opt/nccl/lib/libnccl.so.2"). None:
  // LoadNccl().
  std::optional<NcclApi> nccl = std::nullopt;

  CommunicatorOptions communicator = {};
};

// The communicator of all ranks that a launcher has started, or of this process's threads:
//
//   BRIGADE_ASSIGN_OR_RETURN(auto launch_info, LaunchInfoFromEnvironment());
//   device::ContextOptions on_gpu = {.device = device::Cuda(launch_info.local_rank)};
//   BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create(on_gpu));
//   BRIGADE_ASSIGN_OR_RETURN(auto world, collectives::Init(launch_info, {}, *context));
//
// A call of all ranks; with processes it returns when all are there. `context` must outlive the
// communicator.
//
// Errors       InvalidArgument naming the option that does not fit the backend, the context's
//              device or the group, or that the backend does not read: before any rank is
//              connected. DeadlineExceeded naming the ranks that did not come; Unavailable naming
//              the address, the port, the folder or the library that does not work.
absl::StatusOr<std::unique_ptr<Communicator>> Init(const LaunchInfo& launch_info,
                                                   const InitOptions& options,
                                                   device::Context& context);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_INIT_H_
