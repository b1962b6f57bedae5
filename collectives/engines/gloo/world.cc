#include "brigade/collectives/engines/gloo/world.h"

#include <utility>

#include "brigade/collectives/bootstrap/file_store.h"
#include "brigade/collectives/bootstrap/tcp_store.h"
#include "brigade/collectives/engines/gloo/gloo_engine.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

absl::StatusOr<std::shared_ptr<Store>> NewStore(const LaunchInfo& launch_info,
                                                const GlooWorldOptions& options) {
  if (options.folder.empty()) {
    TcpStoreOptions tcp;
    tcp.rank = launch_info.rank;
    tcp.size = launch_info.size;
    tcp.master_addr = launch_info.master_addr;
    tcp.master_port = launch_info.master_port;
    tcp.timeout = options.connect_timeout;
    return TcpStore::Create(tcp);
  }
  FileStoreOptions file;
  file.rank = launch_info.rank;
  file.size = launch_info.size;
  file.folder = options.folder;
  file.timeout = options.connect_timeout;
  return FileStore::Create(file);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateGlooWorldEngine(const LaunchInfo& launch_info,
                                                              const GlooWorldOptions& options,
                                                              device::Context& context) {
  GlooOptions gloo;
  gloo.rank = launch_info.rank;
  gloo.size = launch_info.size;
  gloo.interface = options.interface;
  gloo.connect_timeout = options.connect_timeout;
  gloo.timeout = options.timeout;
  if (launch_info.size > 1) {
    BRIGADE_ASSIGN_OR_RETURN(auto store, NewStore(launch_info, options));
    gloo.store = std::move(store);
  }
  return CreateGlooEngine(gloo, context);
}

absl::StatusOr<std::unique_ptr<Communicator>> JoinGlooWorld(const LaunchInfo& launch_info,
                                                            const GlooWorldOptions& options,
                                                            device::Context& context) {
  BRIGADE_ASSIGN_OR_RETURN(auto engine, CreateGlooWorldEngine(launch_info, options, context));
  return Communicator::Create(std::move(engine), context);
}

}  // namespace brigade::collectives
