#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_PROCESSES_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_PROCESSES_H_

#include <sys/types.h>

#include <atomic>
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

// Limits of time are those of a calm machine times this.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowness = 4;
#else
inline constexpr int kSlowness = 1;
#endif

// What a rank's process tells the test.
struct Report {
  absl::Status status;  // of the test's role, or Aborted if the process died or hung
  double seconds = 0;   // from Fault::Begin to Fault::End, or to the end of the role
};

// Marks when the fault happens, in any process, and when this process knows of it.
class Fault {
 public:
  explicit Fault(std::atomic<int64_t>& began_ns) : began_ns_(began_ns) {}
  void Begin() { began_ns_ = absl::GetCurrentTimeNanos(); }
  void End() { ended_ns_ = absl::GetCurrentTimeNanos(); }
  double Seconds() const {
    const int64_t began = began_ns_;
    const int64_t ended = ended_ns_ != 0 ? ended_ns_ : absl::GetCurrentTimeNanos();
    return began == 0 ? 0 : static_cast<double>(ended - began) * 1e-9;
  }

 private:
  std::atomic<int64_t>& began_ns_;  // shared by all processes of a RunRanks
  int64_t ended_ns_ = 0;
};

// Runs role(rank, fault) in a process for each rank, and returns their reports. Processes that are
// stopped, or run after all others are done or after `limit`, are killed. Call it from a process
// without threads.
using Role = std::function<absl::Status(int rank, Fault& fault)>;
std::vector<Report> RunRanks(int size, absl::Duration limit, const Role& role);

// A TCP port of this host that was free a moment ago.
int FreePort();

// The store and the transport of a rank, as most tests want them.
TcpStoreOptions StoreOptions(int rank, int size, int port,
                             absl::Duration timeout = absl::Seconds(20));
absl::StatusOr<std::unique_ptr<GlooTransport>> Join(int rank, int size, int port,
                                                    absl::Duration timeout);

// Sends `bytes` to the next rank and receives as many from the one before; Internal if they are
// wrong.
absl::Status ExchangeInRing(Transport& transport, int64_t bytes);

}  // namespace brigade::collectives::testing

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_PROCESSES_H_
