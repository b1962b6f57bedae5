#include "brigade/collectives/engines/gloo/mesh.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/collectives/engines/gloo/control_channel.h"
#include "brigade/collectives/engines/gloo/control_message.h"
#include "brigade/device/threads/mutex.h"
#include "gloo/transport/unbound_buffer.h"

namespace brigade::collectives::internal {
namespace {

using GlooContext = ::gloo::transport::Context;

// Of a pair that somebody else has connected to.
constexpr int kMostTries = 3;
// Gloo's own timeout of a connection is five times this. We close what takes too long before.
constexpr std::chrono::milliseconds kGlooTimeout = std::chrono::hours(24);
// Beside control messages and payload.
constexpr uint64_t kConfirmTag = kControlTag + 1;
// How much longer a rank that is connected waits for those that are not, who know why.
constexpr absl::Duration kExplanationTimeout = absl::Milliseconds(500);

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

// The first rank that fails tells why, before it closes connections and others see what comes of
// it: they say the same.
absl::Status AgreedFailure(const GlooOptions& options, const absl::Status& own) {
  if (!absl::IsDeadlineExceeded(own) && !absl::IsUnavailable(own)) return own;
  const std::string key = absl::StrCat(options.prefix, "/failure");
  absl::StatusOr<std::string> first = options.store->Get(key, absl::ZeroDuration());
  if (absl::IsDeadlineExceeded(first.status())) {
    const std::string packed = PackFields({absl::StrCat(static_cast<int>(own.code())),
                                           std::string(own.message()), absl::StrCat(options.rank)});
    const absl::Status told = options.store->Set(key, packed);
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

// Does call(rank) for all other ranks at the same time, so that it is known which of them hang. At
// the deadline, or when one is refused, end(rank) ends the calls. `failing` is what those do not do
// who are late.
absl::Status ForAllOthers(const GlooOptions& options, absl::Time deadline,
                          absl::string_view failing, const std::function<void(int rank)>& call,
                          const std::function<void(int rank)>& end) {
  std::vector<int> others;
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank != options.rank) others.push_back(rank);
  }
  Connections connections(others);
  std::vector<std::thread> threads;
  for (const int rank : others) {
    threads.emplace_back([&, rank] { connections.End(rank, Guarded([&] { call(rank); })); });
  }
  const auto [late, refused, refusal] = connections.Await(deadline);
  absl::Status status;
  if (!late.empty()) {
    status = absl::DeadlineExceededError(
        absl::StrCat(RankNames(late), " joined '", options.prefix, "' but did not ", failing,
                     " within ", absl::FormatDuration(options.connect_timeout)));
  } else if (!refused.empty()) {
    status = absl::UnavailableError(
        absl::StrCat(RankNames(refused), refused.size() == 1 ? " is" : " are", " gone: ", refusal));
  }
  if (!status.ok()) {
    status = AgreedFailure(options, status);
    for (const int rank : others) {
      end(rank);
    }
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}

// Returns when all others have said that they are connected with all.
absl::Status Confirm(const GlooOptions& options, GlooContext& context, absl::Time deadline) {
  struct Word {
    char in = 0, out = 0;
    std::unique_ptr<::gloo::transport::UnboundBuffer> receiver, sender;
  };
  std::vector<Word> words(static_cast<size_t>(options.size));
  for (Word& word : words) {
    word.receiver = context.createUnboundBuffer(&word.in, sizeof(word.in));
    word.sender = context.createUnboundBuffer(&word.out, sizeof(word.out));
  }
  const auto exchange = [&words](int rank) {
    const Word& word = words[static_cast<size_t>(rank)];
    word.receiver->recv(rank, kConfirmTag);
    word.sender->send(rank, kConfirmTag);
    word.receiver->waitRecv(nullptr, kForever);
    word.sender->waitSend(nullptr, kForever);
  };
  const auto end = [&words](int rank) {
    words[static_cast<size_t>(rank)].receiver->abortWaitRecv();
    words[static_cast<size_t>(rank)].sender->abortWaitSend();
  };
  return ForAllOthers(options, deadline, "connect with all others", exchange, end);
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
  if (!published.ok()) return AgreedFailure(options, published.status());
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
  status = ForAllOthers(
      options, deadline, "connect",
      [&](int rank) { mesh.context->getPair(rank)->connect(addresses[rank]); },
      [&](int rank) { Guarded([&] { mesh.context->getPair(rank)->close(); }).IgnoreError(); });
  if (!status.ok()) return status;
  mesh.confirmed = Confirm(options, *mesh.context, deadline + kExplanationTimeout);
  // Who has proved itself has read the nonce. A store that is gone is the next group's trouble.
  options.store->Remove(absl::StrCat(prefix, options.rank)).IgnoreError();
  return mesh;
}

}  // namespace brigade::collectives::internal
