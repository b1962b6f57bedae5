#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_MESH_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_MESH_H_

#include <exception>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"
#include "brigade/collectives/engines/gloo/proved_pair.h"
#include "gloo/transport/tcp/device.h"

namespace brigade::collectives::internal {

// Runs call(), which may throw what Gloo throws; Unavailable with its message.
template <typename F>
absl::Status Guarded(F&& call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::UnavailableError(error.what());
  } catch (...) {
    return absl::UnavailableError("an unknown exception");
  }
}

// A context of Gloo in which this rank is connected with all others, and the device with its
// thread.
struct Mesh {
  std::shared_ptr<::gloo::transport::tcp::Device> device;
  std::shared_ptr<ProvedContext> context;
  // Whether all others are connected with all too. Else the group is not whole, and those that take
  // it for whole are to be told so over these connections.
  absl::Status confirmed;
};

// Errors as in CreateGlooTransport.
absl::StatusOr<Mesh> ConnectMesh(const GlooOptions& options);

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_MESH_H_
