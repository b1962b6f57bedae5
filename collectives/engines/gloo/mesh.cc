#include "brigade/collectives/engines/gloo/mesh.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/internal/store_server.h"

namespace brigade::collectives::internal {
namespace {

using GlooContext = ::gloo::transport::Context;

// Gloo's own timeout of a connection is five times this. We close what takes too long before.
constexpr std::chrono::milliseconds kGlooTimeout = std::chrono::hours(24);

void IgnoreSigpipe() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

absl::Status MakeContext(const GlooOptions& options, Mesh& mesh) {
  ::gloo::transport::tcp::attr attr;
  attr.iface = options.interface;
  attr.hostname = options.host;
  if (attr.iface.empty() && attr.hostname.empty()) attr.hostname = options.store->local_host();
  const absl::Status made = Guarded([&] {
    mesh.device = std::static_pointer_cast<::gloo::transport::tcp::Device>(
        ::gloo::transport::tcp::CreateDevice(attr));
    mesh.context = mesh.device->createContext(options.rank, options.size);
    mesh.context->setTimeout(kGlooTimeout);
    for (int rank = 0; rank < options.size; ++rank) {
      if (rank != options.rank) mesh.context->createPair(rank);
    }
  });
  if (made.ok()) return made;
  return absl::UnavailableError(absl::StrCat("rank ", options.rank, " cannot listen on ",
                                             attr.iface.empty()
                                                 ? absl::StrCat("host '", attr.hostname, "'")
                                                 : absl::StrCat("interface '", attr.iface, "'"),
                                             ": ", made.message()));
}

// What a rank publishes: the size of its group, then the address of its end of each pair.
std::string OwnAddresses(const GlooOptions& options, GlooContext& context) {
  std::vector<std::string> fields = {absl::StrCat(options.size)};
  for (int rank = 0; rank < options.size; ++rank) {
    std::string& field = fields.emplace_back();
    if (rank == options.rank) continue;
    const std::vector<char> bytes = context.getPair(rank)->address().bytes();
    field.assign(bytes.begin(), bytes.end());
  }
  return PackFields(fields);
}

absl::StatusOr<std::vector<char>> AddressForUs(const GlooOptions& options, int rank,
                                               const std::string& published) {
  const auto fields = UnpackFields(published);
  if (!fields.ok()) return fields.status();
  if ((*fields)[0] != absl::StrCat(options.size) ||
      fields->size() != static_cast<size_t>(options.size) + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("sizes of '", options.prefix, "' differ: rank ", rank, " joined with ",
                     (*fields)[0], " ranks, rank ", options.rank, " with ", options.size));
  }
  const std::string& address = (*fields)[options.rank + 1];
  return std::vector<char>(address.begin(), address.end());
}

// Connects all pairs at the same time, so that it is known which of them hang.
absl::Status ConnectPairs(const GlooOptions& options, GlooContext& context,
                          const std::vector<std::vector<char>>& addresses, absl::Time deadline) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> hanging, refused;
  std::string refusal;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank != options.rank) hanging.push_back(rank);
  }
  for (const int rank : std::vector<int>(hanging)) {
    threads.emplace_back([&, rank] {
      const absl::Status status = Guarded([&] { context.getPair(rank)->connect(addresses[rank]); });
      std::lock_guard lock(mutex);
      hanging.erase(std::find(hanging.begin(), hanging.end(), rank));
      if (!status.ok()) {
        refused.push_back(rank);
        refusal = std::string(status.message());
      }
      changed.notify_one();
    });
  }
  std::vector<int> late, dead;
  {
    std::unique_lock lock(mutex);
    changed.wait_until(lock, absl::ToChronoTime(deadline),
                       [&] { return hanging.empty() || !refused.empty(); });
    dead = refused;
    if (dead.empty()) late = hanging;
  }
  if (!late.empty() || !dead.empty()) {
    for (int rank = 0; rank < options.size; ++rank) {
      if (rank == options.rank) continue;
      Guarded([&] { context.getPair(rank)->close(); }).IgnoreError();  // ends the wait
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (!late.empty()) {
    return absl::DeadlineExceededError(absl::StrCat(RankNames(late), " joined '", options.prefix,
                                                    "' but did not connect within ",
                                                    absl::FormatDuration(options.connect_timeout)));
  }
  if (dead.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(RankNames(dead), " is gone: ", refusal));
}

}  // namespace

absl::StatusOr<Mesh> ConnectMesh(const GlooOptions& options) {
  const absl::Time deadline = absl::Now() + options.connect_timeout;
  IgnoreSigpipe();
  Mesh mesh;
  absl::Status status = MakeContext(options, mesh);
  if (!status.ok()) return status;

  const std::string prefix = absl::StrCat(options.prefix, "/");
  status =
      options.store->Set(absl::StrCat(prefix, options.rank), OwnAddresses(options, *mesh.context));
  if (!status.ok()) return status;
  const auto published =
      GetOfAllRanks(*options.store, prefix, options.size, options.connect_timeout,
                    absl::StrCat("'", options.prefix, "'"));
  if (!published.ok()) return published.status();
  std::vector<std::vector<char>> addresses(options.size);
  for (int rank = 0; rank < options.size; ++rank) {
    auto address = AddressForUs(options, rank, (*published)[rank]);
    if (!address.ok()) return address.status();
    addresses[rank] = *std::move(address);
  }
  status = ConnectPairs(options, *mesh.context, addresses, deadline);
  if (!status.ok()) return status;
  return mesh;
}

}  // namespace brigade::collectives::internal
