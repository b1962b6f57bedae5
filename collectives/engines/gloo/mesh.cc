#include "brigade/collectives/engines/gloo/mesh.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/collectives/engines/gloo/control_message.h"
#include "brigade/collectives/engines/gloo/peer_sockets.h"
#include "brigade/collectives/internal/socket.h"

namespace brigade::collectives::internal {
namespace {

// Gloo's context has no timeout of its own to begin with, and hands it to the sockets, on which
// nothing waits: waits are ours, and end by kForever.
constexpr std::chrono::milliseconds kGlooTimeout = std::chrono::hours(24);

void IgnoreSigpipe() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

// Pairs that are not connected, and the socket on which this rank listens.
absl::StatusOr<Socket> CreateContext(const GlooOptions& options, Mesh& mesh) {
  ::gloo::transport::tcp::attr attr;
  attr.iface = options.interface;
  attr.hostname = options.host;
  if (attr.iface.empty() && attr.hostname.empty()) attr.hostname = options.store->local_host();
  absl::StatusOr<Socket> listener = Socket();
  const absl::Status made = Guarded([&] {
    listener = ListenForPeers(::gloo::transport::tcp::CreateDeviceAttr(attr));
    mesh.device = std::static_pointer_cast<::gloo::transport::tcp::Device>(
        ::gloo::transport::tcp::CreateDevice(attr));
    mesh.context = std::make_shared<ProvedContext>(mesh.device, options.rank, options.size);
    mesh.context->setTimeout(kGlooTimeout);
    mesh.context->CreatePairs();
  });
  if (made.ok() && listener.ok()) return listener;
  return absl::UnavailableError(
      absl::StrCat("rank ", options.rank, " cannot listen on ",
                   attr.iface.empty() ? absl::StrCat("host '", attr.hostname, "'")
                                      : absl::StrCat("interface '", attr.iface, "'"),
                   ": ", made.ok() ? listener.status().message() : made.message()));
}

}  // namespace

absl::StatusOr<Mesh> ConnectMesh(const GlooOptions& options) {
  const absl::Time deadline =
      std::min(options.connect_deadline, absl::Now() + options.connect_timeout);
  IgnoreSigpipe();
  Mesh mesh;
  absl::StatusOr<Socket> listener = CreateContext(options, mesh);
  if (!listener.ok()) return listener.status();

  const std::string prefix = absl::StrCat(options.prefix, "/");
  const absl::Status set =
      options.store->Set(absl::StrCat(prefix, options.rank),
                         PackPublished(options.size, Nonce(), AddressOf(*listener)));
  if (!set.ok()) return set;
  const auto published =
      GetOfAllRanks(*options.store, prefix, options.size, options.connect_timeout,
                    absl::StrCat("'", options.prefix, "'"), deadline);
  if (!published.ok()) return published.status();
  // The group's secret is made of the job's and of what only those know who read the store.
  std::vector<std::string> known = {"gloo", options.prefix}, addresses;
  for (int rank = 0; rank < options.size; ++rank) {
    auto peer =
        UnpackPublished((*published)[rank], options.prefix, options.size, rank, options.rank);
    if (!peer.ok()) return peer.status();
    known.push_back(std::move(peer->nonce));
    addresses.push_back(std::move(peer->address));
  }
  auto sockets = ConnectPeers(options, options.store->secret().Derive(known), *std::move(listener),
                              addresses, deadline);
  if (!sockets.ok()) return sockets.status();
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank == options.rank) continue;
    const absl::Status adopted =
        Guarded([&] { mesh.context->pair(rank).Adopt(std::move((*sockets)[rank])); });
    if (!adopted.ok()) {
      return absl::UnavailableError(absl::StrCat("rank ", rank, " is gone: ", adopted.message()));
    }
  }
  return mesh;
}

}  // namespace brigade::collectives::internal
