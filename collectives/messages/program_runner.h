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
//              reads of what the one before has written goes chunk by chunk as soon as it is there, what is
//              older before that: instructions of a stage that read older parts of a rank come first. A part is
//              read as it was written. A program of several stages writes own arrays only, and every instruction
//              writes an own one.
// Threads      One at a time.
class ProgramRunner {
 public:
  ProgramRunner(Transport& transport, device::Context& context);

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

  absl::Status ProvideLanding();
  char* Address(const Part& part, Chunk chunk) const;
  int64_t Chunks(int64_t count) const { return (count + chunk_count_ - 1) / chunk_count_; }
  Chunk ChunkOf(int64_t count, int64_t number) const;
  template <typename Visit>
  absl::Status ForEachChunk(int64_t count, const Visit& visit) const;
  absl::Status SendPart(int to, const Part& part, Chunk chunk);
  bool IsWrittenIn(int stage, const Part& part) const;
  absl::Status SendWhatIsThere(int stage);
  absl::Status Execute(const Instruction& instruction, device::ThreadPool& pool);
  absl::Status ExpectSources(const Instruction& instruction, Chunk chunk, int64_t number);
  void ReduceChunk(const Instruction& instruction, Chunk chunk, int64_t number,
                   device::ThreadPool& pool);
  absl::Status PassOn(const Instruction& instruction, const Part& own, Chunk chunk);
  absl::Status ReceiveWhatOthersWrite(int stage);
  bool IsReceivedInPlace(const Instruction& instruction) const;
  char* Landing(size_t source, int64_t number);

  Transport& transport_;
  device::Context& context_;
  const int rank_;
  const int size_;
  std::vector<std::atomic<int64_t>> sent_;
  Program program_;
  device::Buffer scratch_;
  device::Buffer landing_;  // chunks to be reduced: [source][number % kAhead]

  // Of the call that runs.
  const Call* call_ = nullptr;
  int64_t element_bytes_ = 0;
  int64_t landing_bytes_ = 0;  // of a chunk in landing_
  int64_t chunk_count_ = 0;    // elements
  std::vector<const void*> sources_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_MESSAGES_PROGRAM_RUNNER_H_
