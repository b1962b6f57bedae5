#ifndef BRIGADE_COLLECTIVES_MESSAGES_PROGRAM_RUNNER_H_
#define BRIGADE_COLLECTIVES_MESSAGES_PROGRAM_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "brigade/collectives/program.h"
#include "brigade/collectives/transport.h"
#include "brigade/device/context.h"
#include "brigade/device/thread_pool.h"

namespace brigade::collectives {

// Carries one rank's part of programs out over a transport.
//
// Messages     From one rank to another they go stage by stage, in the order of the instructions of the rank
//              that owns them, in chunks: first what is read from the sender, then what it writes. What a stage
//              reads of what the one before has written goes when that has ended, what is older before that:
//              instructions of a stage that read older parts of a rank come first. A part is read as it was
//              written. A program of several stages writes own arrays only, and every instruction writes an own one.
// Readiness    What a rank expects of others it announces before it sends: where a connection carries both, data
//              would hold the announcement up, and with it the other direction.
// Threads      One at a time.
class ProgramRunner {
 public:
  // Parts go in chunks of `chunk_bytes`. Of 64 MiB between 2 and 4 ranks on Gloo, 1 MiB is slower by 4 %, 256 KiB by 10 to
  // 20 %.
  ProgramRunner(Transport& transport, device::Context& context,
                int64_t chunk_bytes = int64_t{4} << 20);

  absl::Status Run(const Call& call, device::ThreadPool& pool);

  // Bytes of payload given to the transport for a rank. From any thread, also while a program runs.
  int64_t sent_bytes(int to) const {
    return sent_[static_cast<size_t>(to)].load(std::memory_order_relaxed);
  }
  void CountSent(int to, int64_t bytes) {
    sent_[static_cast<size_t>(to)].fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  struct Chunk {
    int64_t begin, count;
  };
  // An own instruction of the stage that runs.
  struct Task {
    Instruction instruction;
    int64_t landing;       // where in landing_
    int64_t expected = 0;  // chunks
    int64_t arrived = 0;
  };

  absl::Status ProvideLanding();
  char* Address(const Part& part, Chunk chunk) const;
  int64_t Chunks(int64_t count) const { return (count + chunk_count_ - 1) / chunk_count_; }
  Chunk ChunkOf(int64_t count, int64_t number) const;
  template <typename Visit>
  absl::Status ForEachChunk(int64_t count, const Visit& visit) const;
  absl::Status SendPart(int to, const Part& part, Chunk chunk);
  bool IsWrittenIn(int stage, const Part& part) const;
  absl::Status SendWhatIsThere(int stage);
  absl::Status Begin(int stage);
  absl::Status ExpectSources();
  absl::Status Execute(Task& task, device::ThreadPool& pool);
  void ReduceChunk(const Task& task, int64_t number, device::ThreadPool& pool);
  absl::Status SendResults(int stage);
  template <typename Visit>
  absl::Status ForEachOfOthers(int stage, const Visit& visit) const;
  bool IsReceivedInPlace(const Instruction& instruction) const;
  int64_t LandingBytes(const Instruction& instruction) const;
  char* Landing(const Task& task, size_t source, int64_t number) const;

  Transport& transport_;
  device::Context& context_;
  const int rank_;
  const int size_;
  const int64_t chunk_bytes_;
  std::vector<std::atomic<int64_t>> sent_;
  Program program_;
  device::Buffer scratch_;
  device::Buffer landing_;  // chunks to be reduced, of each task: [source][number % kAhead]

  // Of the call that runs.
  const Call* call_ = nullptr;
  int64_t element_bytes_ = 0;
  int64_t chunk_count_ = 0;  // elements
  std::vector<Task> tasks_;
  std::vector<const void*> sources_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_MESSAGES_PROGRAM_RUNNER_H_
