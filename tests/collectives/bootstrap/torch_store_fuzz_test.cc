// What a rank makes of what the store of torchrun's agent, or who has taken its place, answers.
//
// The first byte of an input says whether the rank sets a key or asks for one; what follows is what
// the other end sends.

#include <sys/socket.h>

#include <string>
#include <utility>

#include "brigade/collectives/bootstrap/internal/torch_store.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/fuzzing/checks.h"

namespace brigade::collectives::internal {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  int fds[2];
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  const Socket agent(fds[1]);
  FUZZ_CHECK(send(agent.fd(), data + 1, size - 1, MSG_NOSIGNAL) == static_cast<ssize_t>(size - 1));
  FUZZ_CHECK(shutdown(agent.fd(), SHUT_WR) == 0);
  const device::SteadyTime never = device::SteadyTime::InfiniteFuture();
  auto store = TorchStore::Create(Socket(fds[0]), never);
  FUZZ_CHECK(store.ok());
  const bool stops_waiting = size > 1 && data[1] == 0;
  if (data[0] % 2 == 0) {
    const absl::Status set = store->Set("key", "value", never);
    FUZZ_CHECK(set.ok() == stops_waiting);
    if (!set.ok()) testing::CheckError(set);
    return 0;
  }
  const absl::StatusOr<std::string> value = store->Get("key", never);
  if (!value.ok()) {
    testing::CheckError(value.status());
    return 0;
  }
  // As long as it says, and what it says.
  FUZZ_CHECK(stops_waiting && value->size() <= 256 && value->size() + 10 <= size);
  FUZZ_CHECK(*value == std::string(reinterpret_cast<const char*>(data + 10), value->size()));
  return 0;
}

}  // namespace brigade::collectives::internal
