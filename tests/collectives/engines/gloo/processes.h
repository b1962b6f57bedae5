#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_PROCESSES_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_PROCESSES_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/tcp_store.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"

namespace brigade::collectives::testing {

// A deadline that tests wait for. On a busy machine no rank needs as long to begin a wait, or to
// exchange a message.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr absl::Duration kDeadline = absl::Seconds(2);
#else
inline constexpr absl::Duration kDeadline = absl::Seconds(1);
#endif
// One that no test waits for: an error that is not DeadlineExceeded came before it.
inline constexpr absl::Duration kNever = absl::Hours(1);

// What a rank's process tells the test.
struct Report {
  // Of the test's role, or Aborted if the process died or is stopped.
  absl::Status status;
  double seconds = 0;  // from Fault::Begin to Fault::End, or to the end of the role
};

// Memory that all processes of a RunRanks share.
struct SharedState {
  std::atomic<int64_t> fault_began_ns = 0;
  std::atomic<int64_t> arrivals = 0;
};

// Marks when the fault happens, in any process, and when this process knows of it.
class Fault {
 public:
  Fault(SharedState& shared, int size) : shared_(shared), size_(size) {}
  void Begin() { shared_.fault_began_ns = NowNs(); }
  void End() { ended_ns_ = NowNs(); }
  double Seconds() const {
    const int64_t began = shared_.fault_began_ns;
    const int64_t ended = ended_ns_ != 0 ? ended_ns_ : NowNs();
    return began == 0 ? 0 : static_cast<double>(ended - began) * 1e-9;
  }

  // Waits until all processes have made this call as often as this one, or the role of one is over.
  void AwaitAll();

 private:
  // Of the clock that all processes of a machine share, and nobody sets.
  static int64_t NowNs() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  SharedState& shared_;
  const int size_;
  int64_t awaited_ = 0;  // arrivals
  int64_t ended_ns_ = 0;
};

// Runs role(rank, fault) in a process for each rank, and returns their reports. Processes that are
// stopped are killed when all others have reported. Call it from a process without threads.
using Role = std::function<absl::Status(int rank, Fault& fault)>;
std::vector<Report> RunRanks(int size, const Role& role);

// A TCP port of this host where nobody listens. As long as this process or a child of it lives, the
// system gives it to nobody who does not ask for it by its number.
int FreePort();

// The store and the transport of a rank, as most tests want them.
TcpStoreOptions StoreOptions(int rank, int size, int port, absl::Duration timeout = kNever);
absl::StatusOr<std::unique_ptr<GlooTransport>> Join(int rank, int size, int port,
                                                    absl::Duration timeout);

// Sends `bytes` to the next rank and receives as many from the one before; Internal if they are
// wrong. Once at a time in a process.
absl::Status ExchangeInRing(Transport& transport, int64_t bytes);

}  // namespace brigade::collectives::testing

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_PROCESSES_H_
