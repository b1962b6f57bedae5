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
  // A folder that all hosts share, a new one for each run: the store is there, and not at
  // MASTER_ADDR. Empty for MASTER_ADDR.
  std::string folder;
  // As in GlooOptions.
  std::string interface;
  // For all ranks to join.
  absl::Duration connect_timeout = absl::Seconds(30);
  // Of each wait in a call.
  absl::Duration timeout = absl::Minutes(10);
};

// The communicator of all processes that a launcher has started:
//
//   BRIGADE_ASSIGN_OR_RETURN(auto launch_info, LaunchInfoFromEnvironment());
//   BRIGADE_ASSIGN_OR_RETURN(auto world, JoinGlooWorld(launch_info, {}, *context));
//
// Returns when all are there. Errors as of TcpStore or FileStore, and of CreateGlooTransport: they
// name the ranks that did not join, or the address, port or folder that does not work.
absl::StatusOr<std::unique_ptr<Communicator>> JoinGlooWorld(const LaunchInfo& launch_info,
                                                            const GlooWorldOptions& options,
                                                            device::Context& context);

// The same, but its engine: for what is built on one.
absl::StatusOr<std::unique_ptr<Engine>> CreateGlooWorldEngine(const LaunchInfo& launch_info,
                                                              const GlooWorldOptions& options,
                                                              device::Context& context);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_WORLD_H_
