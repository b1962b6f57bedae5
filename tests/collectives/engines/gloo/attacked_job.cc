#include "brigade/tests/collectives/engines/gloo/attacked_job.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/collectives/bootstrap/job.h"
#include "brigade/collectives/engines/gloo/gloo_engine.h"
#include "brigade/collectives/internal/handshake.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/forwarding_store.h"
#include "brigade/tests/zero/toy_model.h"

namespace brigade::collectives::testing {
namespace {

// No rank waits as long: who does has been held up by a stranger, and the job fails.
constexpr absl::Duration kTimeout = absl::Seconds(60);
// When the strangers have heard nothing for so long, they have had their turn.
constexpr absl::Duration kQuiet = absl::Milliseconds(100);
// Of a rank.
constexpr rlim_t kDescriptors = 256;
constexpr int kTrainings = 3;
constexpr size_t kMostRecorded = 64, kMostFrameBytes = 256;

// Memory that all processes share.
struct Board {
  std::array<std::atomic<pid_t>, kRanks> processes = {};
  // Places at which the slow rank waits or has waited, and those that the strangers are done with.
  std::atomic<int> reached = 0, attacked = 0;
  // Ranks that have trained in the group of Split; that are over.
  std::atomic<int> trained = 0, over = 0;
  std::atomic<int> ports = 0;
  std::atomic<int64_t> connections = 0;
  char digests[kRanks][kTrainings][17] = {};
  std::atomic<size_t> recorded_count = 0;
  size_t recorded_bytes[kMostRecorded] = {};
  char recorded[kMostRecorded][kMostFrameBytes] = {};
};

void WaitUntil(const std::function<bool()>& condition) {
  while (!condition()) absl::SleepFor(absl::Milliseconds(1));
}

// Where the slow rank waits.
class Gate {
 public:
  Gate(Board& board, std::optional<Phase> attacked) : board_(board), attacked_(attacked) {}

  void Enter(Phase phase) { phase_ = phase; }
  void Wait() {
    if (phase_ != attacked_) return;
    const int place = ++board_.reached;
    WaitUntil([&] { return board_.attacked >= place; });
  }

 private:
  Board& board_;
  const std::optional<Phase> attacked_;
  Phase phase_ = Phase::kStartUp;
};

// The store of the slow rank. Of each group that is made it waits when all others have told where
// they listen, and when it has told so itself: then they are already connecting.
class SlowStore final : public ForwardingStore {
 public:
  SlowStore(std::shared_ptr<Store> store, Gate& gate, Board& board)
      : ForwardingStore(std::move(store)), gate_(gate), board_(board) {}

  absl::Status Set(const std::string& key, const std::string& value,
                   absl::Duration timeout) override {
    const size_t slash = key.rfind('/');
    const std::string prefix = key.substr(0, slash + 1);
    BRIGADE_ASSIGN_OR_RETURN(const auto fields, UnpackFields(value));
    int size = 0;
    if (!absl::SimpleAtoi(fields[0], &size)) return absl::InternalError("no size of a group");
    std::vector<std::string> nonces;
    for (int rank = 0; rank < size; ++rank) {
      if (absl::StrCat(prefix, rank) == key) {
        nonces.push_back(fields[1]);
        continue;
      }
      BRIGADE_ASSIGN_OR_RETURN(const auto other, Get(absl::StrCat(prefix, rank), kTimeout));
      BRIGADE_ASSIGN_OR_RETURN(const auto of_other, UnpackFields(other));
      nonces.push_back(of_other[1]);
    }
    gate_.Wait();
    BRIGADE_RETURN_IF_ERROR(ForwardingStore::Set(key, value, timeout));
    gate_.Wait();
    Record(prefix.substr(0, prefix.size() - 1), nonces);
    return absl::OkStatus();
  }

  absl::Status KeepSurvivors(absl::Span<const int> survivors, absl::Duration timeout) override {
    gate_.Wait();
    return ForwardingStore::KeepSurvivors(survivors, timeout);
  }

 private:
  // The frames with which the ranks of the group begin.
  void Record(const std::string& group, const std::vector<std::string>& nonces) {
    std::vector<std::string> known = {"gloo", group};
    known.insert(known.end(), nonces.begin(), nonces.end());
    const JobSecret of_group = secret().Derive(known);
    const auto size = static_cast<int>(nonces.size());
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < from; ++to) {
        if (board_.recorded_count == kMostRecorded) continue;
        const std::string knock = internal::ClientHandshake(of_group, to).Knock();
        const uint32_t length = htonl(static_cast<uint32_t>(knock.size()));
        const std::string frame =
            std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + knock;
        const size_t at = board_.recorded_count++;
        board_.recorded_bytes[at] = frame.copy(board_.recorded[at], kMostFrameBytes);
      }
    }
  }

  Gate& gate_;
  Board& board_;
};

// Three steps of the toy model. The slow rank waits before the second.
absl::Status Train(Rank& self, Gate* gate, char (&digest)[17]) {
  zero::ZeroOptions options;
  options.stage = 2;
  options.bucket_elements = 1000;
  BRIGADE_ASSIGN_OR_RETURN(auto zero, zero::CreateZero(zero::ToyModel(), options, self));
  BRIGADE_RETURN_IF_ERROR(zero::InitializeToy(*zero));
  zero::ToyTrainer trainer(*zero, self);
  for (int step = 0; step < 3; ++step) {
    if (step == 1 && gate != nullptr) gate->Wait();
    BRIGADE_RETURN_IF_ERROR(trainer.Step());
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto parameters, zero::Exported(*zero));
  std::string bytes;
  for (const std::vector<float>& parameter : parameters) {
    bytes.append(reinterpret_cast<const char*>(parameter.data()), parameter.size() * sizeof(float));
  }
  std::snprintf(digest, sizeof(digest), "%s", DigestOf(bytes).c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Engine>> Join(int rank, int port, Gate* gate, Board& board,
                                             device::Context& context) {
  if (gate != nullptr) gate->Wait();
  BRIGADE_ASSIGN_OR_RETURN(std::shared_ptr<Store> store,
                           TcpStore::Create(StoreOptions(rank, kRanks, port, kTimeout)));
  if (gate != nullptr) store = std::make_shared<SlowStore>(std::move(store), *gate, board);
  GlooOptions options;
  options.rank = rank;
  options.size = kRanks;
  options.store = std::move(store);
  options.connect_timeout = kTimeout;
  options.timeout = kTimeout;
  return CreateGlooEngine(options, context);
}

absl::Status RunRank(int rank, int port, std::optional<Phase> attacked, Board& board) {
  // Besides those of its parent, which holds a port of each job that it has run.
  const rlim_t most = kDescriptors + static_cast<rlim_t>(OpenDescriptors());
  const rlimit limit = {most, most};
  setrlimit(RLIMIT_NOFILE, &limit);
  board.processes[static_cast<size_t>(rank)] = getpid();
  Gate own_gate(board, attacked);
  Gate* const gate = rank == kSlowRank ? &own_gate : nullptr;
  const auto enter = [&](Phase phase) { own_gate.Enter(phase); };

  Rank self = {rank, kRanks, CreateRankContext(rank, {}), nullptr, nullptr};
  BRIGADE_ASSIGN_OR_RETURN(self.stream, self.context->CreateStream("compute"));
  enter(Phase::kStartUp);
  BRIGADE_ASSIGN_OR_RETURN(auto engine, Join(rank, port, gate, board, *self.context));
  BRIGADE_ASSIGN_OR_RETURN(self.communicator,
                           Communicator::Create(std::move(engine), *self.context));
  enter(Phase::kTraining);
  BRIGADE_RETURN_IF_ERROR(Train(self, gate, board.digests[rank][0]));

  enter(Phase::kSplit);
  BRIGADE_ASSIGN_OR_RETURN(auto part, self.communicator->Split(0, -rank));
  std::swap(part, self.communicator);
  BRIGADE_RETURN_IF_ERROR(Train(self, nullptr, board.digests[rank][1]));
  std::swap(part, self.communicator);
  ++board.trained;
  WaitUntil([&] { return board.trained == kRanks || board.over != 0; });
  if (rank == kLostRank) kill(getpid(), SIGKILL);

  enter(Phase::kShrink);
  BRIGADE_ASSIGN_OR_RETURN(auto rest, self.communicator->Shrink({kLostRank}));
  std::swap(rest, self.communicator);
  BRIGADE_RETURN_IF_ERROR(Train(self, nullptr, board.digests[rank][2]));
  // No rank leaves while another one needs it.
  BRIGADE_RETURN_IF_ERROR(self.communicator->Barrier(*self.stream));
  return self.stream->Synchronize();
}

// The ports of all ranks that live, when all of them but the slow one have one.
std::vector<Target> TargetsOf(const Board& board, const AttackOnJob& attack) {
  std::vector<Target> targets;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto& process = board.processes[static_cast<size_t>(rank)];
    WaitUntil([&] { return process != 0; });
    const auto may_have_none = [&] {
      return rank == kSlowRank || (rank == kLostRank && attack.phase == Phase::kShrink) ||
             board.over != 0;
    };
    WaitUntil([&] { return may_have_none() || !OpenPortsOf(process).empty(); });
    for (const OpenPort& open : OpenPortsOf(process)) {
      Target& target = targets.emplace_back(open.port, rank, attack.recorded);
      target.recorded.push_back(RecordedHello(*StoreOptions(rank, kRanks, open.port).job.secret,
                                              rank, kSlowRank, kRanks));
      for (size_t i = 0; i < board.recorded_count; ++i) {
        target.recorded.emplace_back(board.recorded[i], board.recorded_bytes[i]);
      }
      if (!open.is_loopback) target.rank = -1;
    }
  }
  return targets;
}

absl::Status AttackRanks(const AttackOnJob& attack, Board& board) {
  RaiseDescriptorLimit();
  Strangers strangers;
  while (board.over == 0) {
    const int reached = board.reached;
    if (reached > board.attacked) {
      const std::vector<Target> targets = TargetsOf(board, attack);
      std::map<int, size_t> ports_of;
      for (const Target& target : targets) ++ports_of[target.rank];
      if (ports_of.count(-1) != 0) return absl::InternalError("a port is open to other hosts");
      for (const Target& target : targets) {
        const std::vector<std::string> connections = attack.attack.connections(target);
        // 1,000 for each process, not for each of its ports.
        const size_t share =
            connections.size() < 1000 ? connections.size() : 1000 / ports_of[target.rank];
        std::shared_ptr<const std::string> bytes;
        for (size_t i = 0; i < share; ++i) {
          if (bytes == nullptr || *bytes != connections[i]) {
            bytes = std::make_shared<const std::string>(connections[i]);
          }
          BRIGADE_RETURN_IF_ERROR(strangers.Send(target.port, bytes));
        }
      }
      board.ports += static_cast<int>(targets.size());
      strangers.Work(kQuiet);
      board.attacked = reached;
    }
    strangers.Work(absl::Milliseconds(5));
  }
  board.connections = strangers.connections();
  // Who repeats a rank's first frame is asked to prove himself.
  const bool replays = std::strcmp(attack.attack.name, "AReplay") == 0;
  if (strangers.most_heard() > (replays ? 256 : 0)) {
    return absl::InternalError(absl::StrCat("a stranger heard ", strangers.most_heard(), " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

const char* Name(Phase phase) {
  switch (phase) {
    case Phase::kStartUp:
      return "StartUp";
    case Phase::kTraining:
      return "Training";
    case Phase::kSplit:
      return "Split";
    case Phase::kShrink:
      return "Shrink";
  }
  return "Invalid";
}

AttackedJob RunJob(const std::optional<AttackOnJob>& attack) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Board& board = *new (memory) Board;
  const int port = FreePort();
  std::optional<Phase> attacked;
  if (attack.has_value()) attacked = attack->phase;
  AttackedJob job;
  job.reports =
      RunRanks(kRanks + (attack.has_value() ? 1 : 0), [&](int rank, Fault&) -> absl::Status {
        if (rank == kRanks) {
          const absl::Status status = AttackRanks(*attack, board);
          board.attacked = 1'000'000;  // nobody waits for one who is gone
          return status;
        }
        const absl::Status status = RunRank(rank, port, attacked, board);
        ++board.over;
        return status;
      });
  for (const auto& of_rank : board.digests) {
    job.digests.emplace_back(std::begin(of_rank), std::end(of_rank));
  }
  for (size_t i = 0; i < board.recorded_count; ++i) {
    job.recorded.emplace_back(board.recorded[i], board.recorded_bytes[i]);
  }
  job.places = board.reached;
  job.ports = board.ports;
  job.connections = board.connections;
  munmap(memory, sizeof(Board));
  return job;
}

}  // namespace brigade::collectives::testing
