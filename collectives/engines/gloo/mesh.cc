#include "brigade/collectives/engines/gloo/mesh.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/collectives/engines/gloo/control_message.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives::internal {
namespace {

using GlooContext = ::gloo::transport::Context;

// Of a pair that somebody else has connected to.
constexpr int kMostTries = 3;
// Gloo's own timeout of a connection is five times this. We close what takes too long before.
constexpr std::chrono::milliseconds kGlooTimeout = std::chrono::hours(24);

void IgnoreSigpipe() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

absl::Status CreateContext(const GlooOptions& options, Mesh& mesh) {
  ::gloo::transport::tcp::attr attr;
  attr.iface = options.interface;
  attr.hostname = options.host;
  if (attr.iface.empty() && attr.hostname.empty()) attr.hostname = options.store->local_host();
  const absl::Status made = Guarded([&] {
    mesh.device = std::static_pointer_cast<::gloo::transport::tcp::Device>(
        ::gloo::transport::tcp::CreateDevice(attr));
    mesh.context = std::make_shared<ProvedContext>(mesh.device, options.rank, options.size);
    mesh.context->setTimeout(kGlooTimeout);
    for (int rank = 0; rank < options.size; ++rank) {
      if (rank == options.rank) continue;
      int tries = 0;
      do {
        mesh.context->createPair(rank);
      } while (!mesh.context->pair(rank).IsUntouched() && ++tries < kMostTries);
    }
  });
  if (made.ok()) return made;
  return absl::UnavailableError(absl::StrCat("rank ", options.rank, " cannot listen on ",
                                             attr.iface.empty()
                                                 ? absl::StrCat("host '", attr.hostname, "'")
                                                 : absl::StrCat("interface '", attr.iface, "'"),
                                             ": ", made.message()));
}

std::string OwnAddresses(const GlooOptions& options, const std::string& nonce,
                         GlooContext& context) {
  std::vector<std::string> addresses(options.size);
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank == options.rank) continue;
    const std::vector<char> bytes = context.getPair(rank)->address().bytes();
    addresses[rank].assign(bytes.begin(), bytes.end());
  }
  return PackPublished(nonce, addresses);
}

// What rank `from` says first to rank `to`. Only who reads the store knows the nonces.
std::string ProofOf(const GlooOptions& options, int from, const std::string& nonce_of_from, int to,
                    const std::string& nonce_of_to) {
  return JobSecret::Public().Sign(
      {"gloo", options.prefix, absl::StrCat(from), nonce_of_from, absl::StrCat(to), nonce_of_to});
}

// What the threads know that connect one pair each.
class Connections {
 public:
  explicit Connections(std::vector<int> ranks) : hanging_(std::move(ranks)) {}

  void End(int rank, const absl::Status& status) {
    device::MutexLock lock(mutex_);
    hanging_.erase(std::find(hanging_.begin(), hanging_.end(), rank));
    if (!status.ok()) {
      refused_.push_back(rank);
      refusal_ = std::string(status.message());
    }
    changed_.Signal();
  }

  struct Outcome {
    std::vector<int> late, refused;
    std::string refusal;
  };
  // Waits until all are connected, one is refused, or the time is up: only then some are late.
  Outcome Await(absl::Time deadline) {
    device::MutexLock lock(mutex_);
    while (!hanging_.empty() && refused_.empty() && absl::Now() < deadline) {
      changed_.WaitWithTimeout(mutex_, deadline - absl::Now());
    }
    return {refused_.empty() ? hanging_ : std::vector<int>(), refused_, refusal_};
  }

 private:
  device::Mutex mutex_;
  device::CondVar changed_;
  std::vector<int> hanging_ ABSL_GUARDED_BY(mutex_), refused_ ABSL_GUARDED_BY(mutex_);
  std::string refusal_ ABSL_GUARDED_BY(mutex_);
};

// Connects all pairs at the same time, so that it is known which of them hang.
absl::Status ConnectPairs(const GlooOptions& options, GlooContext& context,
                          const std::vector<std::vector<char>>& addresses, absl::Time deadline) {
  std::vector<int> others;
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank != options.rank) others.push_back(rank);
  }
  Connections connections(others);
  std::vector<std::thread> threads;
  for (const int rank : others) {
    threads.emplace_back([&, rank] {
      connections.End(rank, Guarded([&] { context.getPair(rank)->connect(addresses[rank]); }));
    });
  }
  const auto [late, refused, refusal] = connections.Await(deadline);
  if (!late.empty() || !refused.empty()) {
    for (const int rank : others) {
      Guarded([&] { context.getPair(rank)->close(); }).IgnoreError();  // ends the wait
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (!late.empty()) {
    return absl::DeadlineExceededError(absl::StrCat(RankNames(late), " joined '", options.prefix,
                                                    "' but did not connect within ",
                                                    absl::FormatDuration(options.connect_timeout)));
  }
  if (refused.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(RankNames(refused), refused.size() == 1 ? " is" : " are", " gone: ", refusal));
}

}  // namespace

absl::StatusOr<Mesh> ConnectMesh(const GlooOptions& options) {
  const absl::Time deadline = absl::Now() + options.connect_timeout;
  IgnoreSigpipe();
  Mesh mesh;
  absl::Status status = CreateContext(options, mesh);
  if (!status.ok()) return status;

  const std::string prefix = absl::StrCat(options.prefix, "/");
  const std::string nonce = Nonce();
  status = options.store->Set(absl::StrCat(prefix, options.rank),
                              OwnAddresses(options, nonce, *mesh.context));
  if (!status.ok()) return status;
  const auto published =
      GetOfAllRanks(*options.store, prefix, options.size, options.connect_timeout,
                    absl::StrCat("'", options.prefix, "'"));
  if (!published.ok()) return published.status();
  std::vector<std::vector<char>> addresses(options.size);
  for (int rank = 0; rank < options.size; ++rank) {
    auto peer =
        UnpackPublished((*published)[rank], options.prefix, options.size, rank, options.rank);
    if (!peer.ok()) return peer.status();
    addresses[rank] = std::move(peer->address);
    if (rank == options.rank) continue;
    const Proofs proofs = {ProofOf(options, options.rank, nonce, rank, peer->nonce),
                           ProofOf(options, rank, peer->nonce, options.rank, nonce)};
    if (!mesh.context->pair(rank).Expect(proofs)) {
      return absl::UnavailableError(absl::StrCat("a stranger has taken the place of rank ", rank,
                                                 " in '", options.prefix, "'"));
    }
  }
  status = ConnectPairs(options, *mesh.context, addresses, deadline);
  if (!status.ok()) return status;
  return mesh;
}

}  // namespace brigade::collectives::internal
