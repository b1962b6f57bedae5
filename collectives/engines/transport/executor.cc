#include "brigade/collectives/engines/transport/executor.h"

#include <algorithm>

#include "brigade/collectives/engines/combine.h"
#include "brigade/collectives/engines/grow_buffer.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {

TransportExecutor::TransportExecutor(Transport& transport, device::Context& context,
                                     int64_t chunk_bytes)
    : transport_(transport),
      context_(context),
      rank_(transport.rank()),
      size_(transport.size()),
      chunk_bytes_(chunk_bytes),
      sent_(static_cast<size_t>(size_)) {}

absl::Status TransportExecutor::Run(const Collective& collective, device::ThreadPool& pool) {
  collective_ = &collective;
  element_bytes_ = precision::SizeOf(PartialType(collective.signature));
  chunk_count_ = chunk_bytes_ / element_bytes_;
  BRIGADE_RETURN_IF_ERROR(Reserve(collective.signature));
  program_.Build(collective.signature, size_);
  BRIGADE_RETURN_IF_ERROR(Begin(0));
  BRIGADE_RETURN_IF_ERROR(SendWhatIsThere(0));
  for (int stage = 0; stage < program_.stages(); ++stage) {
    for (const Task& task : tasks_) BRIGADE_RETURN_IF_ERROR(Execute(task, pool));
    BRIGADE_RETURN_IF_ERROR(ForEachOfOthers(stage, [&](int other, const Part& target, Chunk chunk) {
      return transport_.Expect(other, Address(target, chunk), chunk.count * element_bytes_);
    }));
    if (stage + 1 < program_.stages()) {
      BRIGADE_RETURN_IF_ERROR(Begin(stage + 1));
      BRIGADE_RETURN_IF_ERROR(SendWhatIsThere(stage + 1));
    }
    BRIGADE_RETURN_IF_ERROR(SendResults(stage));
    BRIGADE_RETURN_IF_ERROR(ForEachOfOthers(
        stage, [&](int other, const Part&, Chunk) { return transport_.Await(other); }));
  }
  return transport_.Flush();
}

TransportExecutor::Task TransportExecutor::TaskOf(const Instruction& instruction) const {
  const auto is_elsewhere = [&](const Part& part) { return part.rank != rank_; };
  const auto sources =
      std::count_if(instruction.sources.begin(), instruction.sources.end(), is_elsewhere);
  const bool in_place = instruction.sources.size() == 1 && sources == 1 &&
                        instruction.targets.size() == 1 && !is_elsewhere(instruction.targets[0]);
  return {instruction, Chunks(instruction.count), sources, in_place};
}

absl::Status TransportExecutor::Reserve(const CollectiveSignature& signature) {
  const LandingRing ring = LandingRingOf(signature, rank_, size_, chunk_bytes_);
  window_ = ring.window;
  landing_bytes_ = ring.message_bytes;
  BRIGADE_RETURN_IF_ERROR(
      GrowBuffer(ScratchBytes(signature, size_), "collective scratch", context_, scratch_));
  return GrowBuffer(window_ * landing_bytes_, "collective chunks", context_, landing_);
}

char* TransportExecutor::Address(const Part& part, Chunk chunk) const {
  return AddressOf({part.rank, part.side, part.begin + chunk.begin}, *collective_, scratch_.data());
}

char* TransportExecutor::Landing(int64_t message) const {
  return landing_.as<char>().data() + message % window_ * landing_bytes_;
}

TransportExecutor::Chunk TransportExecutor::ChunkOf(int64_t count, int64_t number) const {
  const int64_t begin = number * chunk_count_;
  return {begin, std::min(chunk_count_, count - begin)};
}

template <typename Visit>
absl::Status TransportExecutor::ForEachChunk(int64_t count, const Visit& visit) const {
  for (int64_t number = 0; number < Chunks(count); ++number) {
    BRIGADE_RETURN_IF_ERROR(visit(ChunkOf(count, number)));
  }
  return absl::OkStatus();
}

absl::Status TransportExecutor::SendPart(int to, const Part& part, Chunk chunk) {
  const int64_t bytes = chunk.count * element_bytes_;
  CountSent(to, bytes);
  return transport_.Send(to, Address(part, chunk), bytes);
}

bool TransportExecutor::IsWrittenIn(int stage, const Part& part, int64_t count) const {
  bool is_written = false;
  program_.ForEach(rank_, stage, [&](const Instruction& instruction) {
    for (const Part& target : instruction.targets) {
      is_written |= target == part && instruction.count == count;
    }
  });
  return is_written;
}

// What others read in a stage, without what the stage before writes as it is read: that is passed
// on.
absl::Status TransportExecutor::SendWhatIsThere(int stage) {
  absl::Status status;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_ || !program_.ArePartners(rank_, other)) continue;
    program_.ForEach(other, stage, [&](const Instruction& instruction) {
      for (const Part& source : instruction.sources) {
        if (source.rank != rank_ || !status.ok()) continue;
        if (stage > 0 && IsWrittenIn(stage - 1, source, instruction.count)) continue;
        status = ForEachChunk(instruction.count,
                              [&](Chunk chunk) { return SendPart(other, source, chunk); });
      }
    });
  }
  return status;
}

absl::Status TransportExecutor::Begin(int stage) {
  tasks_.clear();
  program_.ForEach(rank_, stage,
                   [&](const Instruction& instruction) { tasks_.push_back(TaskOf(instruction)); });
  expecting_task_ = 0;
  expecting_chunk_ = expected_ = consumed_ = 0;
  return ExpectSources();
}

// As far ahead as there is room.
absl::Status TransportExecutor::ExpectSources() {
  for (; expecting_task_ < tasks_.size(); ++expecting_task_, expecting_chunk_ = 0) {
    const auto& [instruction, chunks, sources, in_place] = tasks_[expecting_task_];
    for (; expecting_chunk_ < chunks; ++expecting_chunk_) {
      if (expected_ + sources > consumed_ + window_) return absl::OkStatus();
      const Chunk chunk = ChunkOf(instruction.count, expecting_chunk_);
      for (const Part& source : instruction.sources) {
        if (source.rank == rank_) continue;
        char* const to = in_place ? Address(instruction.targets[0], chunk) : Landing(expected_);
        BRIGADE_RETURN_IF_ERROR(transport_.Expect(source.rank, to, chunk.count * element_bytes_));
        ++expected_;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status TransportExecutor::Execute(const Task& task, device::ThreadPool& pool) {
  for (int64_t number = 0; number < task.chunks; ++number) {
    for (const Part& source : task.instruction.sources) {
      if (source.rank != rank_) BRIGADE_RETURN_IF_ERROR(transport_.Await(source.rank));
    }
    if (!task.in_place) {
      ReduceChunk(task.instruction, ChunkOf(task.instruction.count, number), pool);
    }
    consumed_ += task.sources;
    BRIGADE_RETURN_IF_ERROR(ExpectSources());
  }
  return absl::OkStatus();
}

void TransportExecutor::ReduceChunk(const Instruction& instruction, Chunk chunk,
                                    device::ThreadPool& pool) {
  int64_t message = consumed_;
  sources_.clear();
  for (const Part& source : instruction.sources) {
    sources_.push_back(source.rank == rank_ ? Address(source, chunk) : Landing(message++));
  }
  for (const Part& target : instruction.targets) {
    if (target.rank != rank_) continue;
    void* const to = Address(target, chunk);
    CombineCpu(instruction, collective_->signature, chunk.count, sources_, {&to, 1}, pool);
  }
}

// To the targets on other ranks, and to those who read them in the next stage.
absl::Status TransportExecutor::SendResults(int stage) {
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
          if (source == *own && next.count == instruction.count) send(other);
        }
      });
    }
  });
  return status;
}

// Calls visit(other, target, chunk) for what others write into arrays of this rank, while it
// returns OK.
template <typename Visit>
absl::Status TransportExecutor::ForEachOfOthers(int stage, const Visit& visit) const {
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
