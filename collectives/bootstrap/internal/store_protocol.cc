#include "brigade/collectives/bootstrap/internal/store_protocol.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/collectives/internal/stranger_log.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {
namespace {

using ::brigade::device::Printable;
using ::brigade::device::SteadyTime;

// What ranks tell each other is small, and fits into the socket's memory; a client that cannot take
// an answer within this is stuck.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(1);

}  // namespace

StoreProtocol::StoreProtocol(const StoreServerOptions& options, StrangerListener on_stranger)
    : options_(options), on_stranger_(std::move(on_stranger)), token_(Nonce()) {}

StoreProtocol::Client& StoreProtocol::Accept(std::string address, Sender send) {
  return clients_.emplace_back(std::move(address), std::move(send), options_.secret, options_.rank);
}

bool StoreProtocol::MakeRoom(const absl::Status& accepted) {
  const bool is_short = absl::IsResourceExhausted(accepted);
  int unproved = 0;
  Client* oldest = nullptr;
  for (Client& client : clients_) {
    if (client.handshake.is_proved() || client.closed) continue;
    if (unproved++ == 0) oldest = &client;
  }
  const bool are_many = accepted.ok() && unproved >= kMostUnproved;
  if (oldest == nullptr || (!is_short && !are_many)) return false;
  CloseStranger(*oldest, is_short ? std::string(accepted.message()) : "too many connect at once");
  return true;
}

void StoreProtocol::Hear(Client& client, bool has_gone) {
  std::string frame;
  while (!client.closed) {
    const uint32_t most = client.handshake.is_proved() ? kMostFrameBytes : kMostUnprovedBytes;
    const absl::StatusOr<bool> taken = client.received.Take(most, frame);
    if (!taken.ok()) {
      CloseStranger(client, std::string(taken.status().message()));
    } else if (!*taken) {
      break;
    } else {
      HearFrame(client, frame);
    }
  }
  if (client.closed) return;
  if (has_gone) {
    client.handshake.is_proved() ? Close(client) : CloseStranger(client, "it has gone");
  } else if (client.received.size() > 0 && HalfSentBytes() > MostBytes()) {
    CloseStranger(client, "too much is half sent");
  }
}

size_t StoreProtocol::MostBytes() const {
  const auto size = static_cast<size_t>(options_.size);
  return std::min(kMostStoreBytes + size * kMostStoreBytesPerRank,
                  static_cast<size_t>(device::MostFileBytes()));
}

size_t StoreProtocol::HalfSentBytes() const {
  size_t bytes = 0;
  for (const Client& client : clients_) bytes += client.received.size();
  return bytes;
}

void StoreProtocol::HearFrame(Client& client, const std::string& frame) {
  if (client.handshake.is_proved()) {
    const auto request = UnpackFields(frame);
    return request.ok() ? Handle(client, *request)
                        : CloseStranger(client, std::string(request.status().message()));
  }
  const absl::StatusOr<std::string> answer = client.handshake.Hear(frame);
  if (!answer.ok()) return CloseStranger(client, std::string(answer.status().message()));
  if (!answer->empty()) {
    // It fits into the memory of a new connection.
    if (!client.send(*answer, absl::ZeroDuration())) CloseStranger(client, "it has gone");
  }
}

void StoreProtocol::Handle(Client& client, const std::vector<std::string>& request) {
  if (client.done) return;
  int64_t timeout_ms = 0;
  if (client.rank < 0) {
    Hello(client, request);
  } else if (request[0] == "set" && request.size() == 3) {
    Set(client, request[1], request[2]);
  } else if (request[0] == "get" && request.size() == 3 &&
             absl::SimpleAtoi(request[2], &timeout_ms) && timeout_ms >= 0) {
    const auto found = values_.find(request[1]);
    if (found != values_.end()) {
      Answer(client, absl::OkStatus(), found->second);
    } else {
      client.awaiting = request[1];
      client.deadline = SteadyTime::Now() + absl::Milliseconds(timeout_ms);
    }
  } else if (request[0] == "remove" && request.size() == 2) {
    const auto found = values_.find(request[1]);
    if (found != values_.end()) {
      values_bytes_ -= found->first.size() + found->second.size();
      values_.erase(found);
    }
    Answer(client, absl::OkStatus());
  } else {
    Answer(client, absl::InvalidArgumentError("unknown request"));
  }
}

void StoreProtocol::Hello(Client& client, const std::vector<std::string>& request) {
  int rank = -1, size = 0;
  const bool is_hello = request.size() == 6 && request[0] == "hello" &&
                        absl::SimpleAtoi(request[1], &rank) && absl::SimpleAtoi(request[2], &size);
  const absl::StatusOr<JobValues> values = UnpackValues(is_hello ? request[5] : "");
  if (!values.ok()) return CloseStranger(client, "it speaks another protocol");
  ++hellos_;
  client.deadline = SteadyTime::InfiniteFuture();
  const std::string& address = client.address;
  const bool one_job = AreOfOneJob(options_.job, request[4]);
  const std::string job = Printable(request[4]);
  const std::string differences = Printable(Differences(*values, options_.job.values));
  const bool is_ours = request[3] == token_;
  if (!failure_.ok()) return AnswerLast(client, failure_, kLast);
  if (!is_ours && !options_.job.name.empty() && !job.empty() && !one_job) {
    return Refuse(client,
                  absl::AlreadyExistsError(absl::StrCat("the port is of job ", options_.job.name,
                                                        ", not of ", job, ", to which rank ", rank,
                                                        " (", address, ") belongs")),
                  /*concerns_all=*/false);
  }
  if (size != options_.size) {
    return Refuse(client,
                  absl::FailedPreconditionError(absl::StrCat(
                      "world sizes differ: rank ", rank, " (", address, ") was started with ", size,
                      " ranks, the store's server with ", options_.size)),
                  one_job);
  }
  if (rank < 0 || rank >= size) {
    return Refuse(client, absl::InvalidArgumentError(absl::StrCat("no rank ", rank, " of ", size)),
                  one_job);
  }
  if (!differences.empty()) {
    return Refuse(client,
                  absl::FailedPreconditionError(absl::StrCat(
                      "rank ", rank, " (", address, ") was started otherwise than rank ",
                      options_.rank, ", or in another job: ", differences)),
                  one_job);
  }
  const auto other = addresses_.find(rank);
  if (other != addresses_.end() || (rank == options_.rank && !is_ours)) {
    const std::string owner = other != addresses_.end() ? other->second : "the store's server";
    return Refuse(client,
                  absl::AlreadyExistsError(absl::StrCat("two processes have rank ", rank, ": ",
                                                        owner, " and ", address)),
                  one_job);
  }
  if (whole_) {
    return Refuse(client, absl::UnavailableError("it is of a group that is complete"), false);
  }
  client.rank = rank;
  addresses_[rank] = address;
  whole_ = addresses_.size() == static_cast<size_t>(options_.size);
  Answer(client, absl::OkStatus());
}

void StoreProtocol::Refuse(Client& client, const absl::Status& why, bool concerns_all) {
  // A whole group does not suffer from one who comes too late.
  if (whole_) return AnswerLast(client, why, kWhole);
  AnswerLast(client, why, kLast);
  if (concerns_all) {
    FailAll(why);
  } else {
    refusal_ = std::string(why.message());
  }
}

void StoreProtocol::Set(Client& client, const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  if (found != values_.end() && found->second != value) {
    Answer(client, absl::AlreadyExistsError(absl::StrCat("key '", key, "' has another value")));
    return;
  }
  if (found == values_.end()) {
    const size_t bytes = key.size() + value.size();
    if (bytes > MostBytes() - values_bytes_) {
      Answer(client, absl::ResourceExhaustedError(absl::StrCat("no room for ", bytes,
                                                               " bytes beside ", values_bytes_,
                                                               ", of at most ", MostBytes())));
      return;
    }
    values_bytes_ += bytes;
    values_.emplace(key, value);
  }
  Answer(client, absl::OkStatus());
  for (Client& other : clients_) {
    if (other.awaiting == key) Answer(other, absl::OkStatus(), value);
  }
}

void StoreProtocol::Close(Client& client) {
  client.closed = true;
  client.received = FrameBuffer();
  client.deadline = SteadyTime::InfiniteFuture();
  client.awaiting.reset();
  if (client.rank >= 0) addresses_.erase(client.rank);
}

void StoreProtocol::CloseStranger(Client& client, const std::string& why) {
  on_stranger_(client.address, why);
  Close(client);
}

SteadyTime StoreProtocol::NextDeadline() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  for (const Client& client : clients_) next = std::min(next, client.deadline);
  return next;
}

void StoreProtocol::Expire() {
  for (Client& client : clients_) {
    if (client.deadline > SteadyTime::Now() || client.closed) continue;
    if (client.rank < 0) {
      CloseStranger(client, absl::StrCat("it said nothing that counts for ",
                                         absl::FormatDuration(kHandshakeTimeout)));
    } else {
      Answer(client, absl::DeadlineExceededError(
                         absl::StrCat("nobody has set key '", client.awaiting.value_or(""), "'")));
    }
  }
}

void StoreProtocol::FailAll(const absl::Status& reason) {
  failure_ = reason;
  for (Client& client : clients_) {
    if (!client.done && client.rank >= 0) AnswerLast(client, reason, kLast);
  }
}

void StoreProtocol::Answer(Client& client, const absl::Status& status, const std::string& value) {
  Send(client, PackFields({absl::StrCat(static_cast<int>(status.code())),
                           status.ok() ? value : std::string(status.message())}));
}

void StoreProtocol::AnswerLast(Client& client, const absl::Status& status, absl::string_view how) {
  Send(client, PackFields({absl::StrCat(static_cast<int>(status.code())),
                           std::string(status.message()), std::string(how)}));
  client.done = true;
}

void StoreProtocol::Send(Client& client, const std::string& frame) {
  client.awaiting.reset();
  client.deadline = SteadyTime::InfiniteFuture();
  if (client.closed) return;
  // What follows half a message would not be understood.
  if (!client.send(frame, kAnswerTimeout)) Close(client);
}

}  // namespace brigade::collectives::internal
