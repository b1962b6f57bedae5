#include "brigade/collectives/bootstrap/tcp_store.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/collectives/internal/handshake.h"
#include "brigade/device/printable.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives {
namespace {

using ::brigade::collectives::internal::HostPort;
using ::brigade::collectives::internal::IsLoopback;
using ::brigade::collectives::internal::Socket;
using ::brigade::collectives::internal::StoreServer;
using ::brigade::collectives::internal::TorchStore;
using ::brigade::device::Printable;
using ::brigade::device::SteadyTime;

constexpr absl::Duration kRetryInterval = absl::Milliseconds(20);
// How much longer than the server a client waits, before it takes the server for stuck.
constexpr absl::Duration kPatience = absl::Seconds(1);
// How long the group that had the port before may take to go.
constexpr absl::Duration kPatienceWithOthers = absl::Seconds(2);

std::string MasterName(const TcpStoreOptions& options) {
  const std::optional<AgentStore>& agent = options.agent_store;
  return absl::StrCat("MASTER_ADDR=", agent.has_value() ? agent->host : options.master_addr,
                      ", MASTER_PORT=", agent.has_value() ? agent->port : options.master_port,
                      agent.has_value() ? " of torchrun's store" : "");
}

absl::StatusOr<TorchStore> ConnectToAgent(const AgentStore& agent, SteadyTime deadline) {
  absl::StatusOr<Socket> socket = Socket::Connect(agent.host, agent.port, deadline);
  if (!socket.ok()) return socket.status();
  return TorchStore::Create(*std::move(socket), deadline);
}

absl::Status Annotated(const absl::Status& status, const std::string& prefix) {
  return absl::Status(status.code(), absl::StrCat(prefix, status.message()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<TcpStore>> TcpStore::Create(const TcpStoreOptions& options) {
  absl::Status status = CheckRank(options.rank, options.size);
  if (!status.ok()) return status;
  const std::optional<AgentStore>& agent = options.agent_store;
  const int port = agent.has_value() ? agent->port : options.master_port;
  if (port < 1 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("MASTER_PORT=", port, " is not in 1 to 65535"));
  }
  const SteadyTime deadline = SteadyTime::Now() + options.timeout;
  std::shared_ptr<TcpStore> store(new TcpStore(options));
  if (options.rank == 0) status = store->StartMaster(deadline);
  if (!status.ok()) return status;
  const int master_port = options.rank == 0 ? store->server_->port() : agent.has_value() ? 0 : port;
  status = store->ConnectTo(0, options.master_addr, master_port, deadline).status;
  store->agent_store_.reset();
  if (!status.ok()) return status;
  if (options.rank != 0) {
    // Where the others reach this process, they reach its standby.
    const std::string host = store->local_host();
    // A host may reach itself by a loopback of its own, by which others do not reach it.
    const bool is_reached = IsLoopback(options.master_addr) || !IsLoopback(host);
    absl::StatusOr<Socket> listener = Socket::Listen(is_reached ? host : "", 0);
    if (!listener.ok()) {
      return Annotated(listener.status(), absl::StrCat("rank ", options.rank, " cannot listen on ",
                                                       store->local_host(), ": "));
    }
    status = store->StartServer(*std::move(listener));
    if (!status.ok()) return status;
  }
  status = store->ExchangeStandbys(deadline);
  if (status.ok()) return store;
  // Those who still wait hear the same.
  if (options.rank == 0 && absl::IsDeadlineExceeded(status)) {
    {
      device::MutexLock lock(store->mutex_);
      store->socket_.Close();  // or our own server would wait for it
    }
    return store->server_->GiveUp(status);
  }
  return status;
}

TcpStore::~TcpStore() {
  socket_.Close();  // or our own server would wait for it
  if (server_ == nullptr) return;
  server_->Stop(absl::UnavailableError("its process has closed it"), StoreServer::kLinger);
  // While the port is still ours: the next job's file is not taken away.
  host_secret_.reset();
}

absl::StatusOr<JobSecret> TcpStore::FindSecret(int port) const {
  if (secret_.has_value()) return *secret_;
  const absl::StatusOr<JobSecret> secret = options_.job.secret.has_value() ? *options_.job.secret
                                           : !IsLoopback(options_.master_addr) ? JobSecret::Public()
                                           : host_secret_.has_value()
                                               ? host_secret_->secret()
                                               : internal::HostSecret::Read(port);
  // A port that was told may be that of another job of the same secret, which has to hear a
  // stranger, not a rank that was started wrongly.
  if (!secret.ok() || !options_.agent_store.has_value()) return secret;
  return secret->Derive({"torchrun", options_.agent_store->key});
}

absl::Status TcpStore::StartServer(Socket listener) {
  const int port = listener.local_port();
  const absl::StatusOr<JobSecret> secret = FindSecret(port);
  if (!secret.ok()) return secret.status();
  auto server = StoreServer::Start(
      std::move(listener),
      {.secret = *secret, .rank = options_.rank, .size = options_.size, .job = options_.job});
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  return absl::OkStatus();
}

absl::Status TcpStore::StartMaster(SteadyTime deadline) {
  const int wanted = options_.agent_store.has_value() ? 0 : options_.master_port;
  absl::StatusOr<Socket> listener = Socket::Listen(options_.master_addr, wanted);
  const SteadyTime patience = std::min(deadline, SteadyTime::Now() + kPatienceWithOthers);
  while (absl::IsAlreadyExists(listener.status())) {
    // The port belongs to another program, to another process that calls itself rank 0, whose
    // server says so to all, or still to the group before.
    const Entry joined = ConnectTo(0, options_.master_addr, options_.master_port,
                                   std::min(deadline, SteadyTime::Now() + kPatience));
    const bool ends = SteadyTime::Now() > patience;
    // Never OK: rank 0 is here.
    if (joined.answered && (ends || !joined.whole)) return joined.status;
    if (ends) {
      return absl::AlreadyExistsError(
          absl::StrCat("rank 0 cannot listen on MASTER_PORT=", options_.master_port, ": ",
                       listener.status().message()));
    }
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kRetryInterval));
    listener = Socket::Listen(options_.master_addr, wanted);
  }
  if (!listener.ok()) {
    return Annotated(listener.status(),
                     absl::StrCat("rank 0 cannot listen on ", MasterName(options_), ": "));
  }
  const int port = listener->local_port();
  if (!options_.job.secret.has_value() && IsLoopback(options_.master_addr)) {
    auto published = internal::HostSecret::Publish(port);
    if (!published.ok()) return published.status();
    host_secret_.emplace(*std::move(published));
  } else if (!options_.job.secret.has_value() && options_.size > 1) {
    absl::FPrintF(
        stderr,
        "brigade: the ranks of %s share no secret, so that who reaches the port can join: "
        "set BRIGADE_JOB_SECRET\n",
        MasterName(options_));
  }
  const absl::Status started = StartServer(*std::move(listener));
  return started.ok() && options_.agent_store.has_value() ? TellPort(port, deadline) : started;
}

absl::Status TcpStore::TellPort(int port, SteadyTime deadline) {
  const AgentStore& agent = *options_.agent_store;
  absl::Status last;
  while (true) {
    absl::StatusOr<TorchStore> store = ConnectToAgent(agent, deadline);
    const absl::Status told =
        store.ok() ? store->Set(agent.key, absl::StrCat(port), deadline) : store.status();
    if (told.ok()) return told;
    // As in ConnectTo.
    if (last.ok() || SteadyTime::Now() < deadline) last = told;
    if (!absl::IsUnavailable(told) || SteadyTime::Now() + kRetryInterval > deadline) {
      return Annotated(last,
                       absl::StrCat("rank 0 cannot tell its port at ", MasterName(options_), ": "));
    }
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kRetryInterval));
  }
}

absl::StatusOr<int> TcpStore::LearnPort(SteadyTime deadline) {
  const AgentStore& agent = *options_.agent_store;
  if (!agent_store_.has_value()) {
    absl::StatusOr<TorchStore> store = ConnectToAgent(agent, deadline);
    if (!store.ok()) return store.status();
    agent_store_ = *std::move(store);
  }
  const absl::StatusOr<std::string> told = agent_store_->Get(agent.key, deadline);
  if (!told.ok()) {
    agent_store_.reset();
    return Annotated(told.status(), "rank 0 has not told its port: ");
  }
  int port = 0;
  if (!absl::SimpleAtoi(*told, &port) || port < 1 || port > 65535) {
    return absl::UnavailableError(absl::StrCat("\"", Printable(*told), "\" is no port"));
  }
  return port;
}

TcpStore::Entry TcpStore::ConnectTo(int rank, const std::string& host, int port,
                                    SteadyTime deadline) {
  const std::string where =
      rank == 0 ? MasterName(options_) : absl::StrCat("standby ", HostPort(host, port));
  const SteadyTime began = SteadyTime::Now();
  // The deadline cuts the last attempt short, which then knows less than the one before, unless it
  // has reached somebody who tells what is missing.
  Entry last;
  // What the last one said that took the connection: one that is gone now leaves just its port.
  std::string met;
  while (true) {
    Entry entry = Enter(rank, where, host, port, deadline);
    if (entry.status.ok()) return entry;
    if (entry.reached) met = std::string(entry.status.message());
    const bool in_time = SteadyTime::Now() + kRetryInterval < deadline;
    // The server may come up after its clients; the group before one's own goes away. Another job
    // stays, as does one who has this rank.
    const bool may_change = absl::IsUnavailable(entry.status) ||
                            absl::IsPermissionDenied(entry.status) ||
                            (absl::IsNotFound(entry.status) && !entry.answered) ||
                            (entry.whole && SteadyTime::Now() < began + kPatienceWithOthers);
    if (last.status.ok() || SteadyTime::Now() < deadline ||
        absl::IsDeadlineExceeded(entry.status)) {
      last = std::move(entry);
    }
    if (!in_time || !may_change) break;
    {
      device::MutexLock lock(mutex_);
      socket_.Close();  // or the group before would wait for us to go
    }
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kRetryInterval));
  }
  if (last.answered) return last;
  const absl::Duration tried = absl::Trunc(SteadyTime::Now() - began, absl::Milliseconds(1));
  absl::Status status =
      Annotated(last.status, absl::StrCat("cannot reach the store of rank ", rank, " at ", where,
                                          " (tried ", absl::FormatDuration(tried), "): "));
  if (!last.reached && !met.empty()) {
    status = absl::Status(status.code(), absl::StrCat(status.message(), "; before: ", met));
  }
  return {std::move(status)};
}

// One attempt.
TcpStore::Entry TcpStore::Enter(int rank, const std::string& where, const std::string& host,
                                int port, SteadyTime deadline) {
  if (port == 0) {
    // That of the group before, until this one's rank 0 has told its own.
    const absl::StatusOr<int> told = LearnPort(deadline);
    if (!told.ok()) return {told.status()};
    port = *told;
  }
  // The rank 0 that leaves it there may not be there yet.
  const absl::StatusOr<JobSecret> secret = FindSecret(port);
  if (!secret.ok()) return {secret.status()};
  absl::StatusOr<Socket> socket = Socket::Connect(host, port, deadline);
  if (!socket.ok()) return {socket.status()};
  const absl::Status proved = internal::ProveToServer(*secret, rank, *socket, deadline);
  if (!proved.ok()) return {proved, /*answered=*/false, /*whole=*/false, /*reached=*/true};

  device::MutexLock lock(mutex_);
  socket_ = *std::move(socket);
  server_rank_ = -1;
  server_name_ = absl::StrCat("the store of rank ", rank, " at ", where);
  failure_ = absl::OkStatus();
  met_whole_group_ = false;
  local_host_ = socket_.local_host();
  const bool is_own = server_ != nullptr && rank == options_.rank;
  const absl::Status heard =
      Ask({"hello", absl::StrCat(options_.rank), absl::StrCat(options_.size),
           is_own ? server_->token() : "", options_.job.name, PackValues(options_.job.values)},
          deadline)
          .status();
  if (heard.ok()) {
    server_rank_ = rank;
    // The file may be another job's, or gone, when a standby is needed.
    if (!secret_.has_value()) secret_ = *secret;
  }
  return {heard, /*answered=*/true, met_whole_group_, /*reached=*/true};
}

absl::Status TcpStore::ExchangeStandbys(SteadyTime deadline) {
  const absl::Status set =
      Set(absl::StrCat("standby/", options_.rank),
          PackFields({local_host(), absl::StrCat(server_->port())}), deadline - SteadyTime::Now());
  if (!set.ok()) return set;
  absl::StatusOr<std::vector<std::string>> all = GetOfAllRanks(
      *this, "standby/", options_.size, deadline - SteadyTime::Now(), MasterName(options_));
  if (absl::IsDeadlineExceeded(all.status())) {
    // The whole time that they had, not what was left of it here.
    const std::string message(all.status().message());
    device::MutexLock lock(mutex_);
    // What rank 0 says knows more.
    if (!failure_.ok()) return failure_;
    return absl::DeadlineExceededError(absl::StrCat(message.substr(0, message.rfind(" within ")),
                                                    " within ",
                                                    absl::FormatDuration(options_.timeout)));
  }
  if (!all.ok()) return all.status();
  standbys_ = *std::move(all);
  return absl::OkStatus();
}

absl::Status TcpStore::Set(const std::string& key, const std::string& value,
                           absl::Duration timeout) {
  device::MutexLock lock(mutex_);
  return Ask({"set", key, value}, SteadyTime::Now() + timeout).status();
}

absl::StatusOr<std::string> TcpStore::Get(const std::string& key, absl::Duration timeout) {
  timeout = std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24 * 365));
  device::MutexLock lock(mutex_);
  const int64_t timeout_ms = absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  return Ask({"get", key, absl::StrCat(timeout_ms)}, SteadyTime::Now() + timeout + kPatience);
}

absl::Status TcpStore::Remove(const std::string& key, absl::Duration timeout) {
  device::MutexLock lock(mutex_);
  return Ask({"remove", key}, SteadyTime::Now() + timeout).status();
}

absl::Status TcpStore::KeepSurvivors(absl::Span<const int> survivors, absl::Duration timeout) {
  if (std::count(survivors.begin(), survivors.end(), options_.rank) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options_.rank, " is not among the survivors"));
  }
  const int lowest = *std::min_element(survivors.begin(), survivors.end());
  const int highest = *std::max_element(survivors.begin(), survivors.end());
  if (lowest < 0 || highest >= options_.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("no rank ", lowest < 0 ? lowest : highest, " in a group of ", options_.size));
  }
  {
    device::MutexLock lock(mutex_);
    if (server_rank_ == lowest) return absl::OkStatus();
  }
  const auto standby = UnpackFields(standbys_[lowest]);
  int port = 0;
  if (!standby.ok() || standby->size() != 2 || !absl::SimpleAtoi((*standby)[1], &port)) {
    return absl::InternalError(absl::StrCat("rank ", lowest, " announced no standby address"));
  }
  return ConnectTo(lowest, (*standby)[0], port, SteadyTime::Now() + timeout).status;
}

absl::StatusOr<std::string> TcpStore::Ask(const std::vector<std::string>& request,
                                          SteadyTime deadline) {
  if (!failure_.ok()) return failure_;
  // The last answer of the server may have arrived although nothing can be sent to it any more.
  const absl::Status sent = socket_.SendFrame(PackFields(request), deadline);
  const absl::StatusOr<std::string> frame =
      socket_.ReceiveFrame(sent.ok() ? deadline : SteadyTime::Now() + absl::Milliseconds(1));
  if (!frame.ok()) {
    const absl::Status& error = sent.ok() ? frame.status() : sent;
    failure_ = absl::UnavailableError(absl::StrCat(server_name_, " is gone: ", error.message()));
    return failure_;
  }
  const auto answer = UnpackFields(*frame);
  int code = 0;
  if (!answer.ok() || answer->size() < 2 || !absl::SimpleAtoi((*answer)[0], &code)) {
    failure_ = absl::UnavailableError(absl::StrCat(server_name_, " speaks another protocol"));
    return failure_;
  }
  if (code == 0) return (*answer)[1];
  const absl::Status status =
      ErrorOfCode(code, absl::StrCat((*answer)[1], ", says ", server_name_));
  if (answer->size() > 2) {
    failure_ = status;
    met_whole_group_ = (*answer)[2] == internal::kWhole;
  }
  return status;
}

}  // namespace brigade::collectives
