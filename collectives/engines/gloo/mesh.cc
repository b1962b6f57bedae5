#include "brigade/collectives/engines/gloo/mesh.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/collectives/engines/gloo/control_message.h"
#include "brigade/collectives/engines/gloo/peer_sockets.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {
namespace {

using ::brigade::device::SteadyTime;

// Gloo's context has no timeout of its own to begin with, and hands it to the sockets, on which
// nothing waits: waits are ours, and end by kForever.
constexpr std::chrono::milliseconds kGlooTimeout = std::chrono::hours(24);

// What the store has left for a last word, when the time for joining is over.
constexpr absl::Duration kFarewell = absl::Seconds(1);

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

// The first rank that fails tells why, before it closes connections and others see what comes of
// it: they say the same.
absl::Status AgreedFailure(const GlooOptions& options, const absl::Status& own) {
  if (!absl::IsDeadlineExceeded(own) && !absl::IsUnavailable(own)) return own;
  const std::string key = absl::StrCat(options.prefix, "/failure");
  absl::StatusOr<std::string> first = options.store->Get(key, absl::ZeroDuration());
  if (absl::IsDeadlineExceeded(first.status())) {
    const std::string packed = PackFields({absl::StrCat(static_cast<int>(own.code())),
                                           std::string(own.message()), absl::StrCat(options.rank)});
    const absl::Status told = options.store->Set(key, packed, kFarewell);
    if (told.ok()) return own;
    first = told;
    if (absl::IsAlreadyExists(told)) first = options.store->Get(key, absl::ZeroDuration());
  }
  // Where the store is gone, so is the rank that serves it: that may be what it began with.
  if (first.status() == own) return own;
  if (!first.ok()) {
    return absl::Status(own.code(), absl::StrCat(first.status().message(), "; ", own.message()));
  }
  const auto fields = UnpackFields(*first);
  int code = 0;
  if (!fields.ok() || fields->size() != 3 || !absl::SimpleAtoi((*fields)[0], &code) ||
      (*fields)[1] == own.message()) {
    return own;
  }
  return ErrorOfCode(code, absl::StrCat((*fields)[1], " (reported by rank ", (*fields)[2], ")"));
}

}  // namespace

absl::StatusOr<Mesh> ConnectMesh(const GlooOptions& options) {
  const SteadyTime deadline =
      std::min(options.connect_deadline, SteadyTime::Now() + options.connect_timeout);
  IgnoreSigpipe();
  Mesh mesh;
  absl::StatusOr<Socket> listener = CreateContext(options, mesh);
  if (!listener.ok()) return listener.status();

  const std::string prefix = absl::StrCat(options.prefix, "/");
  const absl::Status set = options.store->Set(
      absl::StrCat(prefix, options.rank),
      PackPublished(options.size, Nonce(), AddressOf(*listener)), deadline - SteadyTime::Now());
  if (!set.ok()) return set;
  const auto published =
      GetOfAllRanks(*options.store, prefix, options.size, options.connect_timeout,
                    absl::StrCat("'", options.prefix, "'"), deadline);
  if (!published.ok()) return AgreedFailure(options, published.status());
  // The group's secret is made of the job's and of what only those know who read the store.
  std::vector<std::string> known = {"gloo", options.prefix}, addresses;
  for (int rank = 0; rank < options.size; ++rank) {
    auto peer =
        UnpackPublished((*published)[rank], options.prefix, options.size, rank, options.rank);
    if (!peer.ok()) return peer.status();
    known.push_back(std::move(peer->nonce));
    addresses.push_back(std::move(peer->address));
  }
  auto peers = ConnectPeers(
      options, options.store->secret().Derive(known), *std::move(listener), addresses, deadline,
      [&options](const absl::Status& own) { return AgreedFailure(options, own); });
  if (!peers.ok()) return peers.status();
  mesh.confirmed = peers->confirmed;
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank == options.rank) continue;
    const absl::Status adopted =
        Guarded([&] { mesh.context->pair(rank).Adopt(std::move(peers->sockets[rank])); });
    if (adopted.ok() || !mesh.confirmed.ok()) continue;
    mesh.confirmed =
        absl::UnavailableError(absl::StrCat("rank ", rank, " is gone: ", adopted.message()));
  }
  // Who is connected has read it. A store that is gone is the next group's trouble.
  options.store
      ->Remove(absl::StrCat(prefix, options.rank),
               std::max(deadline - SteadyTime::Now(), kFarewell))
      .IgnoreError();
  return mesh;
}

}  // namespace brigade::collectives::internal
