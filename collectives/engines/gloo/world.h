#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_WORLD_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_WORLD_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/device/context.h"

namespace brigade::collectives {

struct GlooWorldOptions {
  std::string
      folder;  // shared by all hosts: meet there, and not at MASTER_ADDR. A new one for each run
  std::string
      interface;  // on which this rank listens ("eth0"); GlooOptions says what else it may be
  absl::Duration connect_timeout = absl::Seconds(30);  // for all ranks to come
  absl::Duration timeout = absl::Minutes(10);          // of each wait in a call
};

// The communicator of all processes that a launcher has started:
//
//   BRIGADE_ASSIGN_OR_RETURN(auto launch_info, LaunchInfoFromEnvironment());
//   BRIGADE_ASSIGN_OR_RETURN(auto world, JoinGlooWorld(launch_info, {}, *context));
//
// Returns when all are there. Errors as of TcpStore or FileStore, and of CreateGlooTransport: they name the ranks that
// did not come, or the address, port or folder that does not work.
absl::StatusOr<std::unique_ptr<Communicator>> JoinGlooWorld(const LaunchInfo& launch_info,
                                                            const GlooWorldOptions& options,
                                                            device::Context& context);

// The same, but its engine: for what is built on one.
absl::StatusOr<std::unique_ptr<Engine>> CreateGlooWorldEngine(const LaunchInfo& launch_info,
                                                              const GlooWorldOptions& options,
                                                              device::Context& context);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_WORLD_H_
