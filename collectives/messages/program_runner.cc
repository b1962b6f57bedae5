#include "brigade/collectives/messages/program_runner.h"

#include <algorithm>

#include "brigade/collectives/scratch.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/reduce/reduce_cpu.h"

namespace brigade::collectives {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;  // 1 MiB is slower by 4 %, 256 KiB by 10 to 20 %
constexpr int64_t kAhead = 4;                      // chunks of a source that may be on their way

}  // namespace

ProgramRunner::ProgramRunner(Transport& transport, device::Context& context)
    : transport_(transport),
      context_(context),
      rank_(transport.rank()),
      size_(transport.size()),
      sent_(static_cast<size_t>(size_)) {}

absl::Status ProgramRunner::Run(const Call& call, device::ThreadPool& pool) {
  call_ = &call;
  element_bytes_ = precision::SizeOf(call.shape.dtype);
  chunk_count_ = kChunkBytes / element_bytes_;
  const int64_t scratch = ScratchElements(call.shape, size_) * element_bytes_;
  BRIGADE_RETURN_IF_ERROR(Provide(scratch, "collective scratch", context_, scratch_));
  program_.Build(call.shape, size_);
  BRIGADE_RETURN_IF_ERROR(ProvideLanding());
  BRIGADE_RETURN_IF_ERROR(SendWhatIsThere(0));
  for (int stage = 0; stage < program_.stages(); ++stage) {
    if (stage + 1 < program_.stages()) BRIGADE_RETURN_IF_ERROR(SendWhatIsThere(stage + 1));
    absl::Status done;
    program_.ForEach(rank_, stage, [&](const Instruction& instruction) {
      if (done.ok()) done = Execute(instruction, pool);
    });
    BRIGADE_RETURN_IF_ERROR(done);
    BRIGADE_RETURN_IF_ERROR(ReceiveWhatOthersWrite(stage));
  }
  return transport_.Flush();
}

// As many chunks as the instruction with the most sources has on their way.
absl::Status ProgramRunner::ProvideLanding() {
  int64_t sources = 0;
  landing_bytes_ = 0;
  for (int stage = 0; stage < program_.stages(); ++stage) {
    program_.ForEach(rank_, stage, [&](const Instruction& instruction) {
      if (IsReceivedInPlace(instruction)) return;
      const int64_t count = std::min(chunk_count_, instruction.count);
      sources = std::max(sources, static_cast<int64_t>(instruction.sources.size()));
      landing_bytes_ = std::max(landing_bytes_, count * element_bytes_);
    });
  }
  return Provide(sources * kAhead * landing_bytes_, "collective chunks", context_, landing_);
}

char* ProgramRunner::Address(const Part& part, Chunk chunk) const {
  return AddressOf({part.rank, part.side, part.begin + chunk.begin}, *call_, scratch_.data());
}

char* ProgramRunner::Landing(size_t source, int64_t number) {
  const int64_t slot = static_cast<int64_t>(source) * kAhead + number % kAhead;
  return landing_.as<char>().data() + slot * landing_bytes_;
}

ProgramRunner::Chunk ProgramRunner::ChunkOf(int64_t count, int64_t number) const {
  const int64_t begin = number * chunk_count_;
  return {begin, std::min(chunk_count_, count - begin)};
}

template <typename Visit>
absl::Status ProgramRunner::ForEachChunk(int64_t count, const Visit& visit) const {
  for (int64_t number = 0; number < Chunks(count); ++number) {
    BRIGADE_RETURN_IF_ERROR(visit(ChunkOf(count, number)));
  }
  return absl::OkStatus();
}

absl::Status ProgramRunner::SendPart(int to, const Part& part, Chunk chunk) {
  const int64_t bytes = chunk.count * element_bytes_;
  CountSent(to, bytes);
  return transport_.Send(to, Address(part, chunk), bytes);
}

bool ProgramRunner::IsWrittenIn(int stage, const Part& part) const {
  bool is_written = false;
  program_.ForEach(rank_, stage, [&](const Instruction& instruction) {
    for (const Part& target : instruction.targets) is_written |= target == part;
  });
  return is_written;
}

// What others read in a stage, and what the stage before does not write: that is passed on.
absl::Status ProgramRunner::SendWhatIsThere(int stage) {
  absl::Status status;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_ || !program_.ArePartners(rank_, other)) continue;
    program_.ForEach(other, stage, [&](const Instruction& instruction) {
      for (const Part& source : instruction.sources) {
        if (source.rank != rank_ || !status.ok()) continue;
        if (stage > 0 && IsWrittenIn(stage - 1, source)) continue;
        status = ForEachChunk(instruction.count,
                              [&](Chunk chunk) { return SendPart(other, source, chunk); });
      }
    });
  }
  return status;
}

// A copy from elsewhere to here alone needs no landing.
bool ProgramRunner::IsReceivedInPlace(const Instruction& instruction) const {
  return instruction.sources.size() == 1 && instruction.sources[0].rank != rank_ &&
         instruction.targets.size() == 1 && instruction.targets[0].rank == rank_;
}

absl::Status ProgramRunner::ExpectSources(const Instruction& instruction, Chunk chunk,
                                          int64_t number) {
  const bool in_place = IsReceivedInPlace(instruction);
  for (size_t i = 0; i < instruction.sources.size(); ++i) {
    const int from = instruction.sources[i].rank;
    if (from == rank_) continue;
    char* const to = in_place ? Address(instruction.targets[0], chunk) : Landing(i, number);
    BRIGADE_RETURN_IF_ERROR(transport_.Expect(from, to, chunk.count * element_bytes_));
  }
  return absl::OkStatus();
}

absl::Status ProgramRunner::Execute(const Instruction& instruction, device::ThreadPool& pool) {
  const int64_t chunks = Chunks(instruction.count);
  const Part* own = nullptr;
  for (const Part& target : instruction.targets) {
    if (target.rank == rank_) own = &target;
  }
  int64_t expected = 0;
  for (int64_t number = 0; number < chunks; ++number) {
    const Chunk chunk = ChunkOf(instruction.count, number);
    for (; expected < std::min(chunks, number + kAhead); ++expected) {
      BRIGADE_RETURN_IF_ERROR(
          ExpectSources(instruction, ChunkOf(instruction.count, expected), expected));
    }
    for (const Part& source : instruction.sources) {
      if (source.rank != rank_) BRIGADE_RETURN_IF_ERROR(transport_.Await(source.rank));
    }
    if (!IsReceivedInPlace(instruction)) ReduceChunk(instruction, chunk, number, pool);
    BRIGADE_RETURN_IF_ERROR(PassOn(instruction, *own, chunk));
  }
  return absl::OkStatus();
}

void ProgramRunner::ReduceChunk(const Instruction& instruction, Chunk chunk, int64_t number,
                                device::ThreadPool& pool) {
  sources_.clear();
  for (size_t i = 0; i < instruction.sources.size(); ++i) {
    const Part& source = instruction.sources[i];
    sources_.push_back(source.rank == rank_ ? Address(source, chunk) : Landing(i, number));
  }
  for (const Part& target : instruction.targets) {
    if (target.rank != rank_) continue;
    void* const to = Address(target, chunk);
    kernels::ReduceCpu(sources_, {&to, 1}, chunk.count, call_->shape.dtype, call_->shape.op, pool);
  }
}

// The result goes to the other targets, and to those who read it in the next stage.
absl::Status ProgramRunner::PassOn(const Instruction& instruction, const Part& own, Chunk chunk) {
  for (const Part& target : instruction.targets) {
    if (target.rank != rank_) BRIGADE_RETURN_IF_ERROR(SendPart(target.rank, own, chunk));
  }
  if (instruction.stage + 1 == program_.stages()) return absl::OkStatus();
  absl::Status status;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_ || !program_.ArePartners(rank_, other)) continue;
    program_.ForEach(other, instruction.stage + 1, [&](const Instruction& next) {
      for (const Part& source : next.sources) {
        if (source == own && status.ok()) status = SendPart(other, own, chunk);
      }
    });
  }
  return status;
}

absl::Status ProgramRunner::ReceiveWhatOthersWrite(int stage) {
  absl::Status status;
  for (const bool expect : {true, false}) {
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      program_.ForEach(other, stage, [&](const Instruction& instruction) {
        for (const Part& target : instruction.targets) {
          if (target.rank != rank_ || !status.ok()) continue;
          status = ForEachChunk(instruction.count, [&](Chunk chunk) {
            return expect ? transport_.Expect(other, Address(target, chunk),
                                              chunk.count * element_bytes_)
                          : transport_.Await(other);
          });
        }
      });
    }
  }
  return status;
}

}  // namespace brigade::collectives
