// MPI's own all-reduce: its ranks are processes of mpi_all_reduce, which mpirun starts once and
// which are told their turns by a socket.

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/collectives/contestants.h"
#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {
namespace {

class Mpi final : public Contestant {
 public:
  // Ends the processes by the end of their orders.
  ~Mpi() override {
    if (socket_ >= 0) close(socket_);
    if (process_ > 0) waitpid(process_, nullptr, 0);
  }

  // NotFound that says what is missing.
  absl::Status Start(int ranks) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
      return absl::UnavailableError(std::strerror(errno));
    }
    socket_ = sockets[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, sockets[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, sockets[1], STDOUT_FILENO);
    const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    std::string words[] = {"mpirun",
                           "-np",
                           absl::StrCat(ranks),
                           "--allow-run-as-root",
                           "--oversubscribe",
                           (program / "mpi_all_reduce").string()};
    char* arguments[std::size(words) + 1] = {};
    for (size_t i = 0; i < std::size(words); ++i) arguments[i] = words[i].data();
    const int error =
        posix_spawnp(&process_, words[0].c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(sockets[1]);
    if (error != 0) {
      process_ = 0;
      return absl::NotFoundError(absl::StrCat("mpirun: ", std::strerror(error)));
    }
    const std::string first = ReadLine();
    return first == "ready" ? absl::OkStatus()
                            : absl::NotFoundError(first.empty() ? "mpirun has failed" : first);
  }

  const std::string& name() const override { return name_; }
  bool can(collectives::CollectiveKind kind, precision::DType dtype) const override {
    return kind == collectives::CollectiveKind::kAllReduce && dtype == precision::DType::kFloat32;
  }

  absl::StatusOr<Outcome> Run(const Turn& turn, Arrays&) override {
    const std::string order = absl::StrCat(turn.whole, " ", int{turn.in_place}, " ", turn.times,
                                           " ", int{turn.check}, "\n");
    if (send(socket_, order.data(), order.size(), MSG_NOSIGNAL) < 0) {
      return absl::UnavailableError("mpi_all_reduce has ended");
    }
    const std::string answer = ReadLine();
    Outcome outcome;
    if (std::sscanf(answer.c_str(), "%lf %" SCNd64, &outcome.seconds, &outcome.wrong) != 2) {
      return absl::UnavailableError(absl::StrCat("mpi_all_reduce says '", answer, "'"));
    }
    return outcome;
  }

 private:
  std::string ReadLine() {
    std::string line;
    for (char c = 0; read(socket_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }

  const std::string name_ = "MPI_Allreduce";
  int socket_ = -1;
  pid_t process_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contestant>> CreateMpi(int ranks) {
  auto mpi = std::make_unique<Mpi>();
  BRIGADE_RETURN_IF_ERROR(mpi->Start(ranks));
  return mpi;
}

}  // namespace brigade::benchmarks
