#ifndef BRIGADE_TESTS_COLLECTIVES_BOOTSTRAP_ATTACKERS_H_
#define BRIGADE_TESTS_COLLECTIVES_BOOTSTRAP_ATTACKERS_H_

// Strangers to a job: they have sockets, and what they have heard on the wire.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/job_secret.h"

namespace brigade::collectives::testing {

// A frame of the store with this payload, which may say another length than it has.
std::string Frame(const std::string& payload, uint32_t length);
std::string Frame(const std::string& payload);

std::string RandomBytes(size_t size);

// The first that a rank of `size` says to the server of a rank, heard on an earlier connection.
std::string RecordedHello(const JobSecret& secret, int rank_of_server, int rank, int size);

// Who is attacked.
struct Target {
  int port = 0;
  // Whose process listens there.
  int rank = 0;
  // What ranks have sent first on earlier connections, each once.
  std::vector<std::string> recorded = {};
};

struct Attack {
  const char* name;
  // What each of the connections sends; then it holds on.
  std::function<std::vector<std::string>(const Target&)> connections;
  // A store's server closes them when a stranger's time is over, not before.
  bool holds_on = false;
};

// What needs no secret and no recording.
const std::vector<Attack>& Attacks();
// Those, what has been recorded, and a crowd of 1,000.
std::vector<Attack> AttacksOnJobs();

// A port on which a process listens, whatever has opened it.
struct OpenPort {
  int port = 0;
  // Who is on another host does not reach it.
  bool is_loopback = false;
};
// None of a process that has ended.
std::vector<OpenPort> OpenPortsOf(pid_t process);

// The descriptors that this process has.
int OpenDescriptors();
// As many as the system allows for this process.
void RaiseDescriptorLimit();

// The connections of strangers, all of one thread, which no server holds up. Destruction closes
// them.
class Strangers {
 public:
  Strangers() = default;
  ~Strangers();
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  // On a new connection to this host; is sent by Work. An error where this process has no
  // descriptors left.
  absl::Status Send(int port, std::shared_ptr<const std::string> bytes);

  // Sends and hears until nothing has happened for `quiet`.
  void Work(absl::Duration quiet);

  int64_t connections() const { return connections_; }
  // The most that one of them has been told.
  size_t most_heard() const { return most_heard_; }

 private:
  struct Stranger {
    int fd;
    std::shared_ptr<const std::string> bytes;
    size_t sent = 0;
    size_t heard = 0;
  };

  // Whether anything was sent, heard or closed.
  bool Serve(Stranger& stranger, short events);

  std::list<Stranger> open_;
  int64_t connections_ = 0;
  size_t most_heard_ = 0;
};

}  // namespace brigade::collectives::testing

#endif  // BRIGADE_TESTS_COLLECTIVES_BOOTSTRAP_ATTACKERS_H_
