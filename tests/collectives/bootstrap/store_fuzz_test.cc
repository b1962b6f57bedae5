// What a store's server makes of what its clients send, once they have proved what they know, and
// of what strangers send beside them.
//
// An input is a byte that chooses the group, and events: a byte (2 bits for the client, 3 for what
// happens, see Event, 3 flags; kGet with kIsShort removes), one for a length, and so many bytes.
// Lines are the fields of a request, so that their lengths are right by themselves.

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/collectives/bootstrap/internal/store_protocol.h"
#include "brigade/tests/fuzzing/checks.h"

namespace brigade::collectives::internal {
namespace {

enum Event { kBytes, kFrame, kRequest, kHello, kSet, kGet, kGoes, kTimePasses };
constexpr int kIsStranger = 32, kIsStuck = 64, kIsShort = 128;
constexpr size_t kClients = 4;

const JobSecret& Secret() {
  static const auto& secret = *new JobSecret(JobSecret::Random());
  return secret;
}

StoreServerOptions OptionsOf(int choice) {
  StoreServerOptions options = {.secret = Secret(), .rank = 0, .size = 1 + choice % 4};
  if (choice & 4) options.job.name = "slurm 1";
  if (choice & 8) options.job.secret = Secret();
  if (choice & 16) options.job.values = {{"seed", "7"}, {"data", "a"}};
  return options;
}

std::string FrameOf(absl::string_view payload) {
  const auto size = static_cast<uint32_t>(payload.size());
  std::string frame;
  for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>(size >> shift);
  return absl::StrCat(frame, payload);
}

// What is unpacked is what was packed, and nothing else is taken for it.
void CheckPacking(absl::string_view bytes) {
  const auto fields = UnpackFields(bytes);
  if (fields.ok()) FUZZ_CHECK(PackFields(*fields) == bytes);
  const auto values = UnpackValues(bytes);
  if (values.ok()) FUZZ_CHECK(PackValues(*values) == bytes);
}

// One connection, as the other end sees it.
struct Peer {
  StoreProtocol::Client* client = nullptr;
  // Does not know the secret.
  bool is_stranger = false;
  bool is_stuck = false;
  // Whether it has made its proof, and may hear answers.
  bool is_proved = false;
  bool has_last = false;
  std::vector<std::vector<std::string>> answers;

  bool Take(absl::string_view frame) {
    FUZZ_CHECK(!is_stranger);
    if (is_stuck) return false;
    const auto fields = UnpackFields(frame);
    FUZZ_CHECK(fields.ok());
    FUZZ_CHECK(!has_last);
    answers.push_back(*fields);
    if (!is_proved) {
      FUZZ_CHECK(answers.size() == 1 && fields->size() == 2);
      return true;
    }
    int code = -1;
    FUZZ_CHECK(fields->size() == 2 || fields->size() == 3);
    FUZZ_CHECK(absl::SimpleAtoi((*fields)[0], &code) && code >= 0);
    if (code != 0) testing::CheckError(ErrorOfCode(code, (*fields)[1]));
    if (fields->size() == 3) {
      FUZZ_CHECK((*fields)[2] == kLast || (*fields)[2] == kWhole);
      has_last = true;
    }
    return true;
  }
};

class Group {
 public:
  explicit Group(const StoreServerOptions& options)
      : protocol_(options, [](const std::string&, const std::string& why) {
          FUZZ_CHECK(!why.empty() && why.size() < 200);
        }) {}

  void Happen(int event, const std::string& bytes) {
    Peer& peer = PeerOf(event % kClients, event & kIsStranger);
    peer.is_stuck = event & kIsStuck;
    const std::vector<std::string> lines = absl::StrSplit(bytes, '\n');
    switch (static_cast<Event>(event / 4 % 8)) {
      case kBytes:
        return ReceiveAny(peer, bytes);
      case kFrame:
        CheckPacking(bytes);
        return ReceiveAny(peer, FrameOf(bytes));
      case kRequest:
        return ReceiveAny(peer, FrameOf(PackFields(lines)));
      case kHello:
        return SayHello(peer, lines);
      case kSet:
        return Set(peer, lines[0], bytes.substr(std::min(bytes.size(), lines[0].size() + 1)));
      case kGet:
        return event & kIsShort ? Remove(peer, lines[0]) : Get(peer, lines[0]);
      case kGoes:
        protocol_.Hear(*peer.client, /*has_gone=*/true);
        FUZZ_CHECK(peer.client->closed);
        return;
      case kTimePasses:
        protocol_.Expire();
        protocol_.MakeRoom(event & kIsShort ? absl::ResourceExhaustedError("no descriptors")
                                            : absl::OkStatus());
        if (bytes == "fail") protocol_.FailAll(absl::UnavailableError("the end"));
        ForgetClosed();
    }
  }

 private:
  Peer& PeerOf(size_t number, bool is_stranger) {
    std::unique_ptr<Peer>& peer = peers_[number];
    if (peer != nullptr) return *peer;
    peer = std::make_unique<Peer>();
    peer->client = &protocol_.Accept(
        absl::StrCat("10.0.0.", number),
        [peer = peer.get()](absl::string_view frame, absl::Duration) { return peer->Take(frame); });
    peer->is_stranger = is_stranger;
    if (!is_stranger) Prove(*peer);
    return *peer;
  }

  void Prove(Peer& peer) {
    Receive(peer,
            FrameOf(PackFields({std::string(kProtocol), "c", Secret().Sign({"knock", "0", "c"})})));
    FUZZ_CHECK(peer.answers.size() == 1);
    const std::string nonce = peer.answers[0][0];
    peer.is_proved = true;
    Receive(peer, FrameOf(PackFields({Secret().Sign({"client", "0", "c", nonce})})));
    FUZZ_CHECK(peer.client->handshake.is_proved() && peer.answers.size() == 1);
    peer.answers.clear();
  }

  // Bytes come, and nothing but the begin of a frame stays.
  void Receive(Peer& peer, absl::string_view bytes) {
    if (peer.client->closed) return;
    peer.client->received.Append(bytes);
    protocol_.Hear(*peer.client, /*has_gone=*/false);
    FUZZ_CHECK(peer.client->handshake.is_proved() == peer.is_proved);
    const size_t most = peer.is_proved ? kMostFrameBytes : kMostUnprovedBytes;
    FUZZ_CHECK(peer.client->received.size() < FrameBuffer::kHeaderBytes + most);
  }

  // Those that may remove any key.
  void ReceiveAny(Peer& peer, const std::string& bytes) {
    if (peer.client->received.size() > 0 || bytes.find("remove") != std::string::npos) {
      values_.clear();
    }
    Receive(peer, bytes);
  }

  // Sends a whole request where it can be understood, and returns what is answered at once, if
  // there is an answer.
  std::vector<std::string> Ask(Peer& peer, const std::vector<std::string>& request) {
    if (peer.client->closed || peer.client->received.size() > 0) return {};
    const bool is_heard = peer.client->rank >= 0 && !peer.client->done;
    peer.answers.clear();
    Receive(peer, FrameOf(PackFields(request)));
    FUZZ_CHECK(peer.answers.size() <= 1);
    return is_heard && !peer.answers.empty() ? peer.answers[0] : std::vector<std::string>();
  }

  void SayHello(Peer& peer, std::vector<std::string> lines) {
    lines.resize(std::max<size_t>(lines.size(), 4));
    JobValues values;
    for (size_t i = 4; i + 1 < lines.size(); i += 2) values.emplace_back(lines[i], lines[i + 1]);
    const std::string token = lines[2] == "own" ? protocol_.token() : lines[2];
    Receive(
        peer,
        FrameOf(PackFields({"hello", lines[0], lines[1], token, lines[3], PackValues(values)})));
  }

  // A key is set once: nobody changes its value.
  void Set(Peer& peer, const std::string& key, const std::string& value) {
    const std::vector<std::string> answer = Ask(peer, {"set", key, value});
    if (answer.empty()) return;
    const auto [known, is_new] = values_.emplace(key, value);
    if (answer[0] == "0") {
      FUZZ_CHECK(known->second == value);
    } else if (is_new) {
      // Another request has set it.
      values_.erase(known);
    }
  }

  void Get(Peer& peer, const std::string& key) {
    const std::vector<std::string> answer = Ask(peer, {"get", key, "0"});
    const auto known = values_.find(key);
    if (answer.empty() || known == values_.end()) return;
    FUZZ_CHECK(answer[0] == "0" && answer[1] == known->second);
  }

  void Remove(Peer& peer, const std::string& key) {
    const std::vector<std::string> answer = Ask(peer, {"remove", key});
    if (answer.empty()) return;
    FUZZ_CHECK(answer[0] == "0");
    values_.erase(key);
  }

  void ForgetClosed() {
    for (std::unique_ptr<Peer>& peer : peers_) {
      if (peer != nullptr && peer->client->closed) peer = nullptr;
    }
    protocol_.ForgetClosed();
  }

  StoreProtocol protocol_;
  std::array<std::unique_ptr<Peer>, kClients> peers_;
  // Of those keys that were set here.
  std::map<std::string, std::string> values_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  Group group(OptionsOf(data[0]));
  for (size_t at = 1; at + 1 < size;) {
    const int event = data[at];
    const size_t bytes = std::min<size_t>(data[at + 1], size - at - 2);
    group.Happen(event, std::string(reinterpret_cast<const char*>(data + at + 2), bytes));
    at += 2 + bytes;
  }
  return 0;
}

}  // namespace brigade::collectives::internal
