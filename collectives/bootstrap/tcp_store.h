#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_TCP_STORE_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_TCP_STORE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "brigade/collectives/bootstrap/internal/host_secret.h"
#include "brigade/collectives/bootstrap/internal/store_server.h"
#include "brigade/collectives/bootstrap/internal/torch_store.h"
#include "brigade/collectives/bootstrap/job.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/bootstrap/store.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives {

struct TcpStoreOptions {
  int rank = 0;
  int size = 1;
  // The address of the host of rank 0, and a free port there: the same for all ranks.
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  // Instead of master_port: rank 0 takes a free one.
  std::optional<AgentStore> agent_store = std::nullopt;
  // For all ranks to join.
  absl::Duration timeout = absl::Seconds(30);
  JobIdentity job = {};
};

// A store that rank 0 serves. Needs nothing but the address: no server is started by hand. Every
// rank keeps a server ready, so that the survivors can go on when rank 0 is dead.
//
// Security     docs/security.md. Servers listen at the address by which the ranks reach each other,
//              and serve who proves to know the job's secret.
// Threads      One for the server of this rank.
// Destruction  Where others use this rank's server, waits up to a second until they have let go.
class TcpStore : public Store {
 public:
  // Returns when all ranks have joined.
  //
  // Errors     Name MASTER_ADDR and MASTER_PORT with their values. DeadlineExceeded naming the
  //            ranks that did not come; Unavailable if rank 0 cannot be reached in time;
  //            AlreadyExists on rank 0 if the port is in use, saying by whom; InvalidArgument for a
  //            host that does not exist. Two ranks with the same number, different sizes, or
  //            different values of JobIdentity::values: as in Store, at once on all ranks, where a
  //            launcher's name or a secret that was given tells that they are of one job; else
  //            the one who came later is refused alone, and the others name it if they miss one.
  static absl::StatusOr<std::shared_ptr<TcpStore>> Create(const TcpStoreOptions& options);

  ~TcpStore() override;

  absl::Status Set(const std::string& key, const std::string& value,
                   absl::Duration timeout) override;
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override;
  absl::Status Remove(const std::string& key, absl::Duration timeout) override;

  // Moves to the server of the lowest survivor, unless that is the one in use.
  absl::Status KeepSurvivors(absl::Span<const int> survivors, absl::Duration timeout) override;

  std::string local_host() const override {
    device::MutexLock lock(mutex_);
    return local_host_;
  }

  JobSecret secret() const override { return secret_.value_or(JobSecret::Public()); }

 private:
  explicit TcpStore(const TcpStoreOptions& options) : options_(options) {}

  absl::Status StartMaster(device::SteadyTime deadline);
  absl::Status StartServer(internal::Socket listener);
  // For a server at this port of its host.
  absl::StatusOr<JobSecret> FindSecret(int port) const;
  // By the agent's store.
  absl::Status TellPort(int port, device::SteadyTime deadline);
  absl::StatusOr<int> LearnPort(device::SteadyTime deadline);
  // What came of joining a server: whether it has answered, and that its group was complete.
  struct Entry {
    absl::Status status;
    bool answered = false;
    bool whole = false;
    // Somebody took the connection.
    bool reached = false;
  };
  // Port 0: the one that is told in the agent's store.
  Entry ConnectTo(int rank, const std::string& host, int port, device::SteadyTime deadline);
  Entry Enter(int rank, const std::string& where, const std::string& host, int port,
              device::SteadyTime deadline);
  absl::Status ExchangeStandbys(device::SteadyTime deadline);
  absl::StatusOr<std::string> Ask(const std::vector<std::string>& request,
                                  device::SteadyTime deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TcpStoreOptions options_;
  // Of rank 0, where the ranks were given none.
  std::optional<internal::HostSecret> host_secret_;
  // What the first server that was joined has proved to know.
  std::optional<JobSecret> secret_;
  std::unique_ptr<internal::StoreServer> server_;
  // Of the agent, while this rank looks for rank 0.
  std::optional<internal::TorchStore> agent_store_;
  // By rank: fields host, port.
  std::vector<std::string> standbys_;

  // Held during a request.
  mutable device::Mutex mutex_;
  internal::Socket socket_ ABSL_GUARDED_BY(mutex_);
  std::string local_host_ ABSL_GUARDED_BY(mutex_);
  int server_rank_ ABSL_GUARDED_BY(mutex_) = 0;
  // For the texts of errors.
  std::string server_name_ ABSL_GUARDED_BY(mutex_);
  // What the server said last.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool met_whole_group_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_TCP_STORE_H_
