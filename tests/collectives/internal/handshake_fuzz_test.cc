// What both ends of a connection make of what comes before the other end has proved anything.
//
// The first byte of an input is a set of Flags; what follows is what the other end sends.

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/collectives/internal/frame_buffer.h"
#include "brigade/collectives/internal/handshake.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/fuzzing/checks.h"

namespace brigade::collectives::internal {
namespace {

constexpr int kServer = 3;

enum Flags { kClient = 1, kHonestKnock = 2, kHonestProof = 4, kByteByByte = 8 };

const JobSecret& Secret() {
  static const auto& secret = *new JobSecret(JobSecret::Random());
  return secret;
}

// Hears one frame; whether the other end is no stranger. `proves`: whether it may have proved it.
bool Hears(ServerHandshake& handshake, const std::string& frame, bool proves, std::string& answer) {
  const absl::StatusOr<std::string> heard = handshake.Hear(frame);
  FUZZ_CHECK(handshake.is_proved() == (heard.ok() && proves));
  if (!heard.ok()) {
    FUZZ_CHECK(absl::IsPermissionDenied(heard.status()));
    testing::CheckError(heard.status());
    return false;
  }
  answer = *heard;
  return true;
}

void HearAsServer(const std::string& bytes, int flags) {
  ServerHandshake handshake(Secret(), kServer);
  std::string answer;
  if (flags & kHonestKnock) {
    const std::string knock = Secret().Sign({"knock", "3", "c"});
    const std::string frame = PackFields({std::string(kProtocol), "c", knock});
    FUZZ_CHECK(Hears(handshake, frame, /*proves=*/false, answer));
    const auto fields = UnpackFields(answer);
    FUZZ_CHECK(fields.ok() && fields->size() == 2);
    const std::string& nonce = (*fields)[0];
    FUZZ_CHECK(Secret().IsSignatureOf((*fields)[1], {"server", "3", "c", nonce}));
    if (flags & kHonestProof) {
      const std::string proof = PackFields({Secret().Sign({"client", "3", "c", nonce})});
      FUZZ_CHECK(Hears(handshake, proof, /*proves=*/true, answer));
      FUZZ_CHECK(answer.empty() && handshake.is_proved());
      return;
    }
  }
  FrameBuffer buffer;
  std::string frame;
  const size_t piece = flags & kByteByByte ? 1 : bytes.size();
  for (size_t at = 0; at < bytes.size(); at += piece) {
    buffer.Append(absl::string_view(bytes).substr(at, piece));
    while (true) {
      const absl::StatusOr<bool> taken = buffer.Take(kMostUnprovedBytes, frame);
      if (!taken.ok()) return testing::CheckError(taken.status());
      if (!*taken) break;
      FUZZ_CHECK(frame.size() <= kMostUnprovedBytes);
      // Who does not know the secret hears nothing.
      if (!Hears(handshake, frame, /*proves=*/false, answer)) return;
      FUZZ_CHECK(false);
    }
    FUZZ_CHECK(buffer.size() < FrameBuffer::kHeaderBytes + kMostUnprovedBytes);
  }
}

void ProveAsClient(const std::string& bytes) {
  int fds[2];
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  Socket client(fds[0]);
  const Socket server(fds[1]);
  FUZZ_CHECK(send(server.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(bytes.size()));
  FUZZ_CHECK(shutdown(server.fd(), SHUT_WR) == 0);
  testing::CheckError(
      ProveToServer(Secret(), kServer, client, device::SteadyTime::InfiniteFuture()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] & kClient) {
    ProveAsClient(bytes);
  } else {
    HearAsServer(bytes, data[0]);
  }
  return 0;
}

}  // namespace brigade::collectives::internal
