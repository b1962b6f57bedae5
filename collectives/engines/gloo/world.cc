#include "brigade/collectives/engines/gloo/world.h"

#include <utility>

#include "brigade/collectives/bootstrap/file_store.h"
#include "brigade/collectives/engines/gloo/gloo_engine.h"
#include "brigade/collectives/bootstrap/tcp_store.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

absl::StatusOr<std::shared_ptr<Store>> NewStore(const Placement& placement,
                                                const GlooWorldOptions& options) {
  if (options.folder.empty()) {
    TcpStoreOptions tcp;
    tcp.rank = placement.rank;
    tcp.size = placement.size;
    tcp.master_addr = placement.master_addr;
    tcp.master_port = placement.master_port;
    tcp.timeout = options.connect_timeout;
    return TcpStore::Create(tcp);
  }
  FileStoreOptions file;
  file.rank = placement.rank;
  file.size = placement.size;
  file.folder = options.folder;
  file.timeout = options.connect_timeout;
  return FileStore::Create(file);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> NewGlooWorldEngine(const Placement& placement,
                                                           const GlooWorldOptions& options,
                                                           device::Context& context) {
  GlooOptions gloo;
  gloo.rank = placement.rank;
  gloo.size = placement.size;
  gloo.interface = options.interface;
  gloo.connect_timeout = options.connect_timeout;
  gloo.timeout = options.timeout;
  if (placement.size > 1) {
    BRIGADE_ASSIGN_OR_RETURN(store, NewStore(placement, options));
    gloo.store = std::move(store);
  }
  return NewGlooEngine(gloo, context);
}

absl::StatusOr<std::unique_ptr<Communicator>> JoinGlooWorld(const Placement& placement,
                                                            const GlooWorldOptions& options,
                                                            device::Context& context) {
  BRIGADE_ASSIGN_OR_RETURN(engine, NewGlooWorldEngine(placement, options, context));
  return Communicator::Create(std::move(engine), context);
}

}  // namespace brigade::collectives
