#include "brigade/collectives/internal/handshake.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {
namespace {

absl::Status Stranger() { return absl::PermissionDeniedError("it does not know the job's secret"); }

}  // namespace

absl::StatusOr<std::string> ServerHandshake::Hear(absl::string_view frame) {
  const absl::StatusOr<std::vector<std::string>> fields = UnpackFields(frame);
  if (!fields.ok()) return Stranger();
  if (step_ == 0 && fields->size() == 3 && (*fields)[0] == kProtocol &&
      secret_.IsSignatureOf((*fields)[2], {"knock", absl::StrCat(rank_), (*fields)[1]})) {
    step_ = 1;
    client_nonce_ = (*fields)[1];
    server_nonce_ = Nonce();
    return PackFields({server_nonce_, secret_.Sign({"server", absl::StrCat(rank_), client_nonce_,
                                                    server_nonce_})});
  }
  if (step_ == 1 && fields->size() == 1 &&
      secret_.IsSignatureOf((*fields)[0],
                            {"client", absl::StrCat(rank_), client_nonce_, server_nonce_})) {
    step_ = 2;
    return "";
  }
  return Stranger();
}

std::string ClientHandshake::Knock() const {
  return PackFields({std::string(kProtocol), client_nonce_,
                     secret_.Sign({"knock", absl::StrCat(rank_), client_nonce_})});
}

absl::StatusOr<std::string> ClientHandshake::Hear(absl::string_view frame) const {
  const absl::StatusOr<std::vector<std::string>> fields = UnpackFields(frame);
  if (!fields.ok() || fields->size() != 2 ||
      !secret_.IsSignatureOf((*fields)[1],
                             {"server", absl::StrCat(rank_), client_nonce_, (*fields)[0]})) {
    return Stranger();
  }
  return PackFields({secret_.Sign({"client", absl::StrCat(rank_), client_nonce_, (*fields)[0]})});
}

absl::Status ProveToServer(const JobSecret& secret, int rank, Socket& socket,
                           device::SteadyTime deadline) {
  deadline = std::min(deadline, device::SteadyTime::Now() + kHandshakeTimeout);
  const ClientHandshake handshake(secret, rank);
  const absl::Status sent = socket.SendFrame(handshake.Knock(), deadline);
  const absl::StatusOr<std::string> frame =
      sent.ok() ? socket.ReceiveFrame(deadline, kMostUnprovedBytes) : sent;
  if (!frame.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "it does not answer one who knows this job's secret: ", frame.status().message()));
  }
  const absl::StatusOr<std::string> proof = handshake.Hear(*frame);
  return proof.ok() ? socket.SendFrame(*proof, deadline) : proof.status();
}

}  // namespace brigade::collectives::internal
