#ifndef BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_EXECUTOR_H_
#define BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "brigade/collectives/algorithms/program.h"
#include "brigade/collectives/algorithms/workspace.h"
#include "brigade/collectives/engines/transport/transport.h"
#include "brigade/device/context.h"
#include "brigade/device/threads/thread_pool.h"

namespace brigade::collectives {

// Carries one rank's part of programs out over a transport.
//
// Messages     From one rank to another they go stage by stage, in chunks: first what is read from
//              the sender, in the order of the reader's instructions, then what the sender's write.
//              A part that the stage before wrote as it is read, the same elements and no more, is
//              passed on behind all others: instructions that read such parts of a rank come last,
//              in the order in which it writes them. Of each other rank an instruction reads one
//              part. A program of several stages writes own arrays only, and every instruction
//              writes an own one.
// Readiness    What a rank expects of others in a stage it announces before it sends for that
//              stage, as far as it has room: behind data on the same connection the announcement,
//              and with it the other direction, would wait.
// Memory       For messages to be reduced, of each rank that an instruction reads: 4 chunks, or
//              less if they are shorter.
// Threads      One at a time.
class TransportExecutor {
 public:
  TransportExecutor(Transport& transport, device::Context& context,
                    int64_t chunk_bytes = kTransportChunkBytes);

  // Allocates what Run needs.
  absl::Status Reserve(const CollectiveSignature& signature);
  absl::Status Run(const Collective& collective, device::ThreadPool& pool);

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
    int64_t chunks;
    // How many of its sources are on other ranks.
    int64_t sources;
    // A copy from elsewhere to here needs no landing.
    bool in_place;
  };

  char* Address(const Part& part, Chunk chunk) const;
  int64_t Chunks(int64_t count) const { return (count + chunk_count_ - 1) / chunk_count_; }
  Chunk ChunkOf(int64_t count, int64_t number) const;
  template <typename Visit>
  absl::Status ForEachChunk(int64_t count, const Visit& visit) const;
  absl::Status SendPart(int to, const Part& part, Chunk chunk);
  bool IsWrittenIn(int stage, const Part& part, int64_t count) const;
  absl::Status SendWhatIsThere(int stage);
  absl::Status Begin(int stage);
  absl::Status ExpectSources();
  absl::Status Execute(const Task& task, device::ThreadPool& pool);
  void ReduceChunk(const Instruction& instruction, Chunk chunk, device::ThreadPool& pool);
  absl::Status SendResults(int stage);
  template <typename Visit>
  absl::Status ForEachOfOthers(int stage, const Visit& visit) const;
  Task TaskOf(const Instruction& instruction) const;
  char* Landing(int64_t message) const;

  Transport& transport_;
  device::Context& context_;
  const int rank_;
  const int size_;
  const int64_t chunk_bytes_;
  std::vector<std::atomic<int64_t>> sent_;
  Program program_;
  device::Buffer scratch_;
  // Messages to be reduced, in a ring.
  device::Buffer landing_;

  // Of the call that runs.
  const Collective* collective_ = nullptr;
  // Of an element that goes to another rank.
  int64_t element_bytes_ = 0;
  // Elements of a chunk.
  int64_t chunk_count_ = 0;
  // Of a message in landing_.
  int64_t landing_bytes_ = 0;
  // Messages that may be expected at once.
  int64_t window_ = 0;
  std::vector<const void*> sources_;

  // Of the stage that runs. Messages are expected and consumed in one order.
  std::vector<Task> tasks_;
  // The next chunk to expect.
  size_t expecting_task_ = 0;
  int64_t expecting_chunk_ = 0;
  // Counts of messages.
  int64_t expected_ = 0, consumed_ = 0;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_EXECUTOR_H_
