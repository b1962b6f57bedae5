#include "brigade/collectives/bootstrap/tcp_store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"

namespace brigade::collectives {
namespace {

using ::brigade::collectives::internal::HostPort;
using ::brigade::collectives::internal::Socket;
using ::brigade::collectives::internal::StoreServer;

constexpr absl::Duration kRetryInterval = absl::Milliseconds(20);
// How much longer than the server a client waits, before it takes the server for stuck.
constexpr absl::Duration kPatience = absl::Seconds(1);

std::string MasterName(const TcpStoreOptions& options) {
  return absl::StrCat("MASTER_ADDR=", options.master_addr, ", MASTER_PORT=", options.master_port);
}

absl::Status Annotated(const absl::Status& status, const std::string& prefix) {
  return absl::Status(status.code(), absl::StrCat(prefix, status.message()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<TcpStore>> TcpStore::Create(const TcpStoreOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("no rank ", options.rank, " in a group of ", options.size));
  }
  if (options.master_port < 1 || options.master_port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("MASTER_PORT=", options.master_port, " is not in 1 to 65535"));
  }
  const absl::Time deadline = absl::Now() + options.timeout;
  std::shared_ptr<TcpStore> store(new TcpStore(options));
  absl::Status status = store->StartServer();
  if (!status.ok()) return status;
  status = store->ConnectTo(0, options.master_addr, options.master_port, deadline);
  if (!status.ok()) return status;
  status = store->ExchangeStandbys(deadline);
  if (status.ok()) return store;
  // Those who still wait hear the same.
  if (options.rank == 0 && absl::IsDeadlineExceeded(status)) {
    {
      device::MutexLock lock(store->mutex_);
      store->socket_.Close();  // or our own server would wait for it
    }
    store->server_->GiveUp(status);
  }
  return status;
}

TcpStore::~TcpStore() {
  socket_.Close();  // or our own server would wait for it
}

absl::Status TcpStore::StartServer() {
  const int port = options_.rank == 0 ? options_.master_port : 0;
  auto server = StoreServer::Start(port, options_.size);
  if (absl::IsAlreadyExists(server.status())) return ExplainPortInUse(server.status());
  if (!server.ok()) {
    return Annotated(server.status(),
                     absl::StrCat("rank ", options_.rank, " cannot listen on port ", port, ": "));
  }
  server_ = *std::move(server);
  return absl::OkStatus();
}

// The port belongs to another program, or to another process that calls itself rank 0: then its
// server says so to all.
absl::Status TcpStore::ExplainPortInUse(const absl::Status& error) {
  absl::Status joined = ConnectTo(0, options_.master_addr, options_.master_port,
                                  absl::Now() + std::min(options_.timeout, kPatience));
  // The process of the server has not joined yet. It is refused when it does, which all ranks hear.
  if (joined.ok()) joined = Get("the second rank 0", options_.timeout).status();
  if (absl::IsAlreadyExists(joined) || absl::IsFailedPrecondition(joined)) return joined;
  return absl::AlreadyExistsError(absl::StrCat(
      "rank 0 cannot listen on MASTER_PORT=", options_.master_port, ": ", error.message()));
}

absl::Status TcpStore::ConnectTo(int rank, const std::string& host, int port, absl::Time deadline) {
  const std::string where =
      rank == 0 ? MasterName(options_) : absl::StrCat("standby ", HostPort(host, port));
  const absl::Time began = absl::Now();
  absl::StatusOr<Socket> socket = Socket::Connect(host, port, deadline);
  absl::Status reason = socket.status();
  // The server may come up after its clients.
  while (absl::IsUnavailable(socket.status()) && absl::Now() + kRetryInterval < deadline) {
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kRetryInterval));
    socket = Socket::Connect(host, port, deadline);
    // The deadline cuts the last attempt short, which then knows less than the one before.
    if (absl::Now() < deadline) reason = socket.status();
  }
  if (!socket.ok()) {
    const absl::Duration tried = absl::Trunc(absl::Now() - began, absl::Milliseconds(1));
    return Annotated(reason, absl::StrCat("cannot reach the store of rank ", rank, " at ", where,
                                          " (tried ", absl::FormatDuration(tried), "): "));
  }

  device::MutexLock lock(mutex_);
  socket_ = *std::move(socket);
  server_rank_ = rank;
  server_name_ = absl::StrCat("the store of rank ", rank, " at ", where);
  failure_ = absl::OkStatus();
  local_host_ = socket_.local_host();
  return Ask({"hello", std::string(internal::kStoreProtocol), absl::StrCat(options_.rank),
              absl::StrCat(options_.size)},
             deadline)
      .status();
}

absl::Status TcpStore::ExchangeStandbys(absl::Time deadline) {
  const absl::Status set = Set(absl::StrCat("standby/", options_.rank),
                               PackFields({local_host(), absl::StrCat(server_->port())}));
  if (!set.ok()) return set;
  absl::StatusOr<std::vector<std::string>> all =
      GetOfAllRanks(*this, "standby/", options_.size, deadline - absl::Now(), MasterName(options_));
  if (absl::IsDeadlineExceeded(all.status())) {
    // The whole time that they had, not what was left of it here.
    const std::string message(all.status().message());
    return absl::DeadlineExceededError(absl::StrCat(message.substr(0, message.rfind(" within ")),
                                                    " within ",
                                                    absl::FormatDuration(options_.timeout)));
  }
  if (!all.ok()) return all.status();
  standbys_ = *std::move(all);
  return absl::OkStatus();
}

absl::Status TcpStore::Set(const std::string& key, const std::string& value) {
  device::MutexLock lock(mutex_);
  return Ask({"set", key, value}, absl::Now() + options_.timeout).status();
}

absl::StatusOr<std::string> TcpStore::Get(const std::string& key, absl::Duration timeout) {
  timeout = std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24 * 365));
  device::MutexLock lock(mutex_);
  const int64_t timeout_ms = absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  return Ask({"get", key, absl::StrCat(timeout_ms)}, absl::Now() + timeout + kPatience);
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
  return ConnectTo(lowest, (*standby)[0], port, absl::Now() + timeout);
}

absl::StatusOr<std::string> TcpStore::Ask(const std::vector<std::string>& request,
                                          absl::Time deadline) {
  if (!failure_.ok()) return failure_;
  // The last answer of the server may have arrived although nothing can be sent to it any more.
  const absl::Status sent = socket_.SendFrame(PackFields(request), deadline);
  const absl::StatusOr<std::string> frame =
      socket_.ReceiveFrame(sent.ok() ? deadline : absl::Now() + absl::Milliseconds(1));
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
  const absl::Status status(static_cast<absl::StatusCode>(code),
                            absl::StrCat((*answer)[1], ", says ", server_name_));
  if (answer->size() > 2) failure_ = status;
  return status;
}

}  // namespace brigade::collectives
