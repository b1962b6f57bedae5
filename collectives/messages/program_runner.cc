#include "brigade/collectives/messages/program_runner.h"

#include <algorithm>

#include "brigade/collectives/scratch.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/reduce/reduce_cpu.h"

namespace brigade::collectives {
namespace {

constexpr int64_t kAhead = 4;  // chunks of a source that may be on their way

}  // namespace

ProgramRunner::ProgramRunner(Transport& transport, device::Context& context, int64_t chunk_bytes)
    : transport_(transport),
      context_(context),
      rank_(transport.rank()),
      size_(transport.size()),
      chunk_bytes_(chunk_bytes),
      sent_(static_cast<size_t>(size_)) {}

absl::Status ProgramRunner::Run(const Call& call, device::ThreadPool& pool) {
  call_ = &call;
  element_bytes_ = precision::SizeOf(call.shape.dtype);
  chunk_count_ = chunk_bytes_ / element_bytes_;
  const int64_t scratch = ScratchElements(call.shape, size_) * element_bytes_;
  BRIGADE_RETURN_IF_ERROR(Provide(scratch, "collective scratch", context_, scratch_));
  program_.Build(call.shape, size_);
  BRIGADE_RETURN_IF_ERROR(ProvideLanding());
  BRIGADE_RETURN_IF_ERROR(Begin(0));
  BRIGADE_RETURN_IF_ERROR(SendWhatIsThere(0));
  for (int stage = 0; stage < program_.stages(); ++stage) {
    if (stage + 1 < program_.stages()) BRIGADE_RETURN_IF_ERROR(SendWhatIsThere(stage + 1));
    for (Task& task : tasks_) BRIGADE_RETURN_IF_ERROR(Execute(task, pool));
    BRIGADE_RETURN_IF_ERROR(ForEachOfOthers(stage, [&](int other, const Part& target, Chunk chunk) {
      return transport_.Expect(other, Address(target, chunk), chunk.count * element_bytes_);
    }));
    if (stage + 1 < program_.stages()) BRIGADE_RETURN_IF_ERROR(Begin(stage + 1));
    BRIGADE_RETURN_IF_ERROR(SendResults(stage));
    BRIGADE_RETURN_IF_ERROR(ForEachOfOthers(
        stage, [&](int other, const Part&, Chunk) { return transport_.Await(other); }));
  }
  return transport_.Flush();
}

int64_t ProgramRunner::LandingBytes(const Instruction& instruction) const {
  if (IsReceivedInPlace(instruction)) return 0;
  return static_cast<int64_t>(instruction.sources.size()) * kAhead *
         std::min(chunk_count_, instruction.count) * element_bytes_;
}

// As much as the stage with the most chunks on their way needs.
absl::Status ProgramRunner::ProvideLanding() {
  int64_t most = 0;
  for (int stage = 0; stage < program_.stages(); ++stage) {
    int64_t bytes = 0;
    program_.ForEach(rank_, stage,
                     [&](const Instruction& instruction) { bytes += LandingBytes(instruction); });
    most = std::max(most, bytes);
  }
  return Provide(most, "collective chunks", context_, landing_);
}

char* ProgramRunner::Address(const Part& part, Chunk chunk) const {
  return AddressOf({part.rank, part.side, part.begin + chunk.begin}, *call_, scratch_.data());
}

char* ProgramRunner::Landing(const Task& task, size_t source, int64_t number) const {
  const int64_t slot = static_cast<int64_t>(source) * kAhead + number % kAhead;
  const int64_t bytes = std::min(chunk_count_, task.instruction.count) * element_bytes_;
  return landing_.as<char>().data() + task.landing + slot * bytes;
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

absl::Status ProgramRunner::Begin(int stage) {
  tasks_.clear();
  int64_t landing = 0;
  program_.ForEach(rank_, stage, [&](const Instruction& instruction) {
    tasks_.push_back({instruction, landing});
    landing += LandingBytes(instruction);
  });
  return ExpectSources();
}

// As far ahead as there is room, in the order in which others send.
absl::Status ProgramRunner::ExpectSources() {
  for (Task& task : tasks_) {
    const Instruction& instruction = task.instruction;
    const bool in_place = IsReceivedInPlace(instruction);
    const int64_t chunks = Chunks(instruction.count);
    for (; task.expected < std::min(chunks, task.arrived + kAhead); ++task.expected) {
      const Chunk chunk = ChunkOf(instruction.count, task.expected);
      for (size_t i = 0; i < instruction.sources.size(); ++i) {
        const int from = instruction.sources[i].rank;
        if (from == rank_) continue;
        char* const to =
            in_place ? Address(instruction.targets[0], chunk) : Landing(task, i, task.expected);
        BRIGADE_RETURN_IF_ERROR(transport_.Expect(from, to, chunk.count * element_bytes_));
      }
    }
    if (task.expected < chunks) break;
  }
  return absl::OkStatus();
}

absl::Status ProgramRunner::Execute(Task& task, device::ThreadPool& pool) {
  const Instruction& instruction = task.instruction;
  for (int64_t number = 0; number < Chunks(instruction.count); ++number) {
    for (const Part& source : instruction.sources) {
      if (source.rank != rank_) BRIGADE_RETURN_IF_ERROR(transport_.Await(source.rank));
    }
    if (!IsReceivedInPlace(instruction)) ReduceChunk(task, number, pool);
    ++task.arrived;
    BRIGADE_RETURN_IF_ERROR(ExpectSources());
  }
  return absl::OkStatus();
}

void ProgramRunner::ReduceChunk(const Task& task, int64_t number, device::ThreadPool& pool) {
  const Instruction& instruction = task.instruction;
  const Chunk chunk = ChunkOf(instruction.count, number);
  sources_.clear();
  for (size_t i = 0; i < instruction.sources.size(); ++i) {
    const Part& source = instruction.sources[i];
    sources_.push_back(source.rank == rank_ ? Address(source, chunk) : Landing(task, i, number));
  }
  for (const Part& target : instruction.targets) {
    if (target.rank != rank_) continue;
    void* const to = Address(target, chunk);
    kernels::ReduceCpu(sources_, {&to, 1}, chunk.count, call_->shape.dtype, call_->shape.op, pool);
  }
}

// To the targets on other ranks, and to those who read them in the next stage.
absl::Status ProgramRunner::SendResults(int stage) {
  absl::Status status;
  program_.ForEach(rank_, stage, [&](const Instruction& instruction) {
    const Part* own = nullptr;
    for (const Part& target : instruction.targets) {
      if (target.rank == rank_) own = &target;
    }
    const auto send = [&](int to) {
      if (!status.ok()) return;
      status =
          ForEachChunk(instruction.count, [&](Chunk chunk) { return SendPart(to, *own, chunk); });
    };
    for (const Part& target : instruction.targets) {
      if (target.rank != rank_) send(target.rank);
    }
    if (stage + 1 == program_.stages()) return;
    for (int other = 0; other < size_; ++other) {
      if (other == rank_ || !program_.ArePartners(rank_, other)) continue;
      program_.ForEach(other, stage + 1, [&](const Instruction& next) {
        for (const Part& source : next.sources) {
          if (source == *own) send(other);
        }
      });
    }
  });
  return status;
}

// Calls visit(other, target, chunk) for what others write into arrays of this rank, while it returns OK.
template <typename Visit>
absl::Status ProgramRunner::ForEachOfOthers(int stage, const Visit& visit) const {
  absl::Status status;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    program_.ForEach(other, stage, [&](const Instruction& instruction) {
      for (const Part& target : instruction.targets) {
        if (target.rank != rank_ || !status.ok()) continue;
        status = ForEachChunk(instruction.count,
                              [&](Chunk chunk) { return visit(other, target, chunk); });
      }
    });
  }
  return status;
}

}  // namespace brigade::collectives
