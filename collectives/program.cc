#include "brigade/collectives/program.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"

namespace brigade::collectives {
namespace {

// Emits the instructions of one rank.
class Writer {
 public:
  Writer(int rank, int size, absl::FunctionRef<void(const Instruction&)> visit)
      : rank_(rank), size_(size), visit_(visit) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  int previous() const { return (rank_ + size_ - 1) % size_; }
  int block(int back) const { return ((rank_ - back) % size_ + size_) % size_; }

  Writer& At(int stage) {
    stage_ = stage;
    sources_.clear();
    targets_.clear();
    return *this;
  }
  Writer& From(int rank, Side side, int64_t begin) {
    sources_.push_back({rank, side, begin});
    return *this;
  }
  Writer& FromAll(int64_t begin) {
    for (int rank = 0; rank < size_; ++rank) From(rank, Side::kInput, begin);
    return *this;
  }
  Writer& To(int rank, Side side, int64_t begin) {
    targets_.push_back({rank, side, begin});
    return *this;
  }
  Writer& ToAll(int64_t begin) {
    for (int rank = 0; rank < size_; ++rank) To(rank, Side::kOutput, begin);
    return *this;
  }
  void Move(int64_t count) {
    if (count > 0) visit_({stage_, sources_, targets_, count});
  }

 private:
  const int rank_;
  const int size_;
  const absl::FunctionRef<void(const Instruction&)> visit_;
  int stage_ = 0;
  absl::InlinedVector<Part, 64> sources_;  // more ranks than that allocate
  absl::InlinedVector<Part, 64> targets_;
};

void Direct(const CallShape& shape, Writer& writer) {
  const int rank = writer.rank();
  const int64_t count = shape.count;
  switch (shape.kind) {
    case CallKind::kAllReduce: {
      const int64_t begin = BlockBegin(count, writer.size(), rank);
      const int64_t end = BlockBegin(count, writer.size(), rank + 1);
      writer.At(0).FromAll(begin).ToAll(begin).Move(end - begin);
      return;
    }
    case CallKind::kReduceScatter:
      writer.At(0).FromAll(rank * count).To(rank, Side::kOutput, 0).Move(count);
      return;
    case CallKind::kAllGather:
      writer.At(0).From(rank, Side::kInput, 0).ToAll(rank * count).Move(count);
      return;
    case CallKind::kAllToAll:
      for (int from = 0; from < writer.size(); ++from) {
        writer.At(0)
            .From(from, Side::kInput, rank * count)
            .To(rank, Side::kOutput, from * count)
            .Move(count);
      }
      return;
    case CallKind::kBroadcast:
      writer.At(0).From(shape.root, Side::kInput, 0).To(rank, Side::kOutput, 0).Move(count);
      return;
    default:
      return;
  }
}

// In stage s a rank adds its own part to what the previous one has gathered of block rank - s - 1, and hands it
// on; after p - 1 stages block rank + 1 is complete. Then complete blocks go round.
void RingAllReduce(const CallShape& shape, Writer& writer) {
  const int rounds = writer.size() - 1;
  const auto begin = [&](int block) { return BlockBegin(shape.count, writer.size(), block); };
  const auto move = [&](int block) { writer.Move(begin(block + 1) - begin(block)); };
  for (int s = 0; s < rounds; ++s) {
    const int block = writer.block(s + 1);
    writer.At(s)
        .From(writer.previous(), s == 0 ? Side::kInput : Side::kOutput, begin(block))
        .From(writer.rank(), Side::kInput, begin(block))
        .To(writer.rank(), Side::kOutput, begin(block));
    move(block);
  }
  for (int s = 0; s < rounds; ++s) {
    const int block = writer.block(s);
    writer.At(rounds + s)
        .From(writer.previous(), Side::kOutput, begin(block))
        .To(writer.rank(), Side::kOutput, begin(block));
    move(block);
  }
}

// The same, shifted by one so that a rank ends with its own block. What is gathered on the way lies in scratch, each
// block in a place of its own: by messages a rank learns that one was read only when its own has come round.
void RingReduceScatter(const CallShape& shape, Writer& writer) {
  const int64_t count = shape.count;
  const int last = writer.size() - 2;
  for (int s = 0; s <= last; ++s) {
    const int64_t begin = writer.block(s + 2) * count;
    writer.At(s)
        .From(writer.previous(), s == 0 ? Side::kInput : Side::kScratch,
              s == 0 ? begin : (s - 1) * count)
        .From(writer.rank(), Side::kInput, begin)
        .To(writer.rank(), s == last ? Side::kOutput : Side::kScratch, s == last ? 0 : s * count)
        .Move(count);
  }
}

void RingAllGather(const CallShape& shape, Writer& writer) {
  const int64_t count = shape.count;
  const int rank = writer.rank();
  writer.At(0).From(rank, Side::kInput, 0).To(rank, Side::kOutput, rank * count).Move(count);
  for (int s = 0; s < writer.size() - 1; ++s) {
    const int64_t begin = writer.block(s + 1) * count;
    writer.At(s)
        .From(writer.previous(), s == 0 ? Side::kInput : Side::kOutput, s == 0 ? 0 : begin)
        .To(rank, Side::kOutput, begin)
        .Move(count);
  }
}

bool IsRing(const CallShape& shape, int size) {
  return shape.algorithm == Algorithm::kRing && size > 1 &&
         (shape.kind == CallKind::kAllReduce || shape.kind == CallKind::kReduceScatter ||
          shape.kind == CallKind::kAllGather);
}

}  // namespace

int64_t BlockBegin(int64_t count, int blocks, int block) {
  constexpr int64_t kUnit = 16;
  if (block == blocks) return count;
  const int64_t units = (count + kUnit - 1) / kUnit;
  const int64_t each = units / blocks, more = units % blocks;  // the first `more` have one more
  return std::min(count, (block * each + std::min<int64_t>(block, more)) * kUnit);
}

int Stages(const CallShape& shape, int size) {
  if (!IsRing(shape, size)) return 1;
  return shape.kind == CallKind::kAllReduce ? 2 * (size - 1) : size - 1;
}

int64_t ScratchElements(const CallShape& shape, int size) {
  const bool scratch = IsRing(shape, size) && shape.kind == CallKind::kReduceScatter && size > 2;
  return scratch ? (size - 2) * shape.count : 0;
}

void ForEachInstruction(const CallShape& shape, int rank, int size,
                        absl::FunctionRef<void(const Instruction&)> visit) {
  Writer writer(rank, size, visit);
  if (!IsRing(shape, size)) return Direct(shape, writer);
  switch (shape.kind) {
    case CallKind::kAllReduce:
      return RingAllReduce(shape, writer);
    case CallKind::kReduceScatter:
      return RingReduceScatter(shape, writer);
    default:
      return RingAllGather(shape, writer);
  }
}

void Program::Build(const CallShape& shape, int size) {
  if (shape == shape_ && size == size_) return;
  shape_ = shape;
  size_ = size;
  stages_ = Stages(shape, size);
  parts_.clear();
  entries_.clear();
  begins_.clear();
  const bool all_meet = shape.kind == CallKind::kBarrier;
  partners_.assign(static_cast<size_t>(size * size), all_meet ? 1 : 0);
  for (int rank = 0; rank < size; ++rank) {
    const auto add = [&](absl::Span<const Part> parts) {
      for (const Part& part : parts) {
        parts_.push_back(part);
        partners_[static_cast<size_t>(rank * size + part.rank)] = 1;
        partners_[static_cast<size_t>(part.rank * size + rank)] = 1;
      }
    };
    begins_.push_back(entries_.size());
    ForEachInstruction(shape, rank, size, [&](const Instruction& instruction) {
      while (begins_.size() <= static_cast<size_t>(rank * stages_ + instruction.stage)) {
        begins_.push_back(entries_.size());
      }
      Entry entry = {instruction.stage, parts_.size(), 0, 0, instruction.count};
      add(instruction.sources);
      entry.targets = parts_.size();
      add(instruction.targets);
      entry.end = parts_.size();
      entries_.push_back(entry);
    });
    begins_.resize(static_cast<size_t>((rank + 1) * stages_), entries_.size());
  }
  begins_.push_back(entries_.size());
  for (int rank = 0; rank < size; ++rank) partners_[static_cast<size_t>(rank * size + rank)] = 0;
}

void CountWireElements(const CallShape& shape, int rank, absl::Span<int64_t> elements) {
  const int size = static_cast<int>(elements.size());
  for (int owner = 0; owner < size; ++owner) {
    ForEachInstruction(shape, owner, size, [&](const Instruction& instruction) {
      if (owner == rank) {
        for (const Part& target : instruction.targets) {
          if (target.rank != rank) elements[target.rank] += instruction.count;
        }
      } else {
        for (const Part& source : instruction.sources) {
          if (source.rank == rank) elements[owner] += instruction.count;
        }
      }
    });
  }
}

}  // namespace brigade::collectives
