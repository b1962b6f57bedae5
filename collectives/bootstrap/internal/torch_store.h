#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_TORCH_STORE_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_TORCH_STORE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {

// A client of the store that torchrun's agent serves, PyTorch's TCPStore. Whoever reaches that
// store can read and write it: it is good for addresses, whose owners then prove who they are.
//
// Protocol     Of a request: its number in a byte, then numbers of 8 bytes, and strings behind
//              their lengths; little-endian. The first one is a magic number. (PyTorch's
//              torch/csrc/distributed/c10d/TCPStoreBackend.hpp and TCPStore.cpp; tried with 2.15.)
// Errors       Unavailable if the store does not answer, or not in this protocol;
//              DeadlineExceeded. After one the connection is of no more use.
class TorchStore {
 public:
  // Over a connection to it.
  static absl::StatusOr<TorchStore> Create(Socket socket, device::SteadyTime deadline);

  // Replaces what was there. Returns when the store has it.
  absl::Status Set(absl::string_view key, absl::string_view value, device::SteadyTime deadline);

  // Waits until the key is set, to a value of at most 256 bytes.
  absl::StatusOr<std::string> Get(absl::string_view key, device::SteadyTime deadline);

 private:
  explicit TorchStore(Socket socket) : socket_(std::move(socket)) {}

  // Of `requests`, of which the last one is to wait for a key.
  absl::Status SendAndWait(const std::string& requests, device::SteadyTime deadline);

  Socket socket_;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_TORCH_STORE_H_
