#ifndef BRIGADE_COLLECTIVES_ALGORITHMS_PROGRAM_H_
#define BRIGADE_COLLECTIVES_ALGORITHMS_PROGRAM_H_

// What a collective does, as data: the algorithms, written once. An engine carries a program out, a
// test counts its bytes or runs it on plain arrays.
//
// A program gives each rank instructions, each in a stage. An instruction reduces parts of ranks'
// arrays, in the order given, and writes the result to parts of ranks' outputs; with one source it
// is a copy. It may read what others wrote in earlier stages, and nothing that anybody writes in
// its own stage, its own targets aside. Partners are ranks of which one has an instruction that
// names the other; a stage begins on a rank when it and its partners have ended the one before.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "brigade/collectives/collective.h"

namespace brigade::collectives {

enum class Side : uint8_t { kInput, kOutput, kScratch };

// Elements of a rank's array from `begin` on; the instruction says how many.
struct Part {
  int rank = 0;
  Side side = Side::kInput;
  int64_t begin = 0;

  friend bool operator==(const Part&, const Part&) = default;
};

// The type of the elements: that of the collective in inputs and outputs, that of partial sums in
// scratch.
inline precision::DType TypeOf(Side side, const CollectiveSignature& signature) {
  return side == Side::kScratch ? PartialType(signature) : signature.dtype;
}

// Where it lies on its rank, which makes `collective` and lends `scratch`.
inline char* AddressOf(const Part& part, const Collective& collective, void* scratch) {
  const void* base = collective.input;
  if (part.side == Side::kOutput) base = collective.output;
  if (part.side == Side::kScratch) base = scratch;
  return const_cast<char*>(static_cast<const char*>(base)) +
         part.begin * precision::SizeOf(TypeOf(part.side, collective.signature));
}

struct Instruction {
  int stage = 0;
  absl::Span<const Part> sources;
  absl::Span<const Part> targets;
  // At least 1.
  int64_t count = 0;
};

// The types of the instruction's sources, which are alike, and of its targets, likewise. Where they
// differ it has one source and one target, of its own rank, and converts.
inline precision::DType SourceType(const Instruction& instruction,
                                   const CollectiveSignature& signature) {
  return TypeOf(instruction.sources[0].side, signature);
}
inline precision::DType TargetType(const Instruction& instruction,
                                   const CollectiveSignature& signature) {
  return TypeOf(instruction.targets[0].side, signature);
}

// How many stages the call has; all ranks have the same.
int Stages(const CollectiveSignature& signature, int size);

// Elements of scratch, and their bytes, that each rank lends to the call.
int64_t ScratchElements(const CollectiveSignature& signature, int size);
int64_t ScratchBytes(const CollectiveSignature& signature, int size);

// Calls visit(instruction) for each instruction of `rank`, in order of stages. The spans are good
// during the visit. Not for send and receive, which two ranks settle between themselves.
void ForEachInstruction(const CollectiveSignature& signature, int rank, int size,
                        absl::FunctionRef<void(const Instruction&)> visit);

// The programs of all ranks for one call, laid out to be carried out. Build again costs nothing for
// the same shape, and no allocation for one that is no longer.
class Program {
 public:
  void Build(const CollectiveSignature& signature, int size);

  int stages() const { return stages_; }

  // What `rank` does in `stage`: calls visit(instruction).
  template <typename Visit>
  void ForEach(int rank, int stage, const Visit& visit) const {
    const size_t cell = static_cast<size_t>(rank * stages_ + stage);
    for (size_t i = begins_[cell]; i < begins_[cell + 1]; ++i) visit(Get(i));
  }

  // Whether the rank has an instruction in the stage.
  bool Acts(int rank, int stage) const {
    const auto cell = static_cast<size_t>(rank * stages_ + stage);
    return begins_[cell] < begins_[cell + 1];
  }
  bool Acts(int rank) const {
    return begins_[static_cast<size_t>(rank * stages_)] <
           begins_[static_cast<size_t>((rank + 1) * stages_)];
  }

  bool ArePartners(int a, int b) const {
    return partners_[static_cast<size_t>(a * size_ + b)] != 0;
  }

 private:
  struct Entry {
    int stage;
    // Indices into parts_.
    size_t sources, targets, end;
    int64_t count;
  };

  Instruction Get(size_t i) const {
    const Entry& entry = entries_[i];
    const absl::Span<const Part> parts(parts_);
    return {entry.stage, parts.subspan(entry.sources, entry.targets - entry.sources),
            parts.subspan(entry.targets, entry.end - entry.targets), entry.count};
  }

  CollectiveSignature signature_;
  int size_ = 0;
  int stages_ = 0;
  std::vector<Part> parts_;
  std::vector<Entry> entries_;
  // Indices into the instructions: [rank][stage], and the end.
  std::vector<size_t> begins_;
  // [rank][rank].
  std::vector<char> partners_;
};

// Where block `block` of `blocks` of an array begins: blocks differ by at most 16 elements, and
// begin at multiples of 16, so that vectors stay whole.
int64_t BlockBegin(int64_t count, int blocks, int block);

// Adds to elements[to] what `rank` sends to each rank `to`, in elements of the type of partial
// sums.
void CountWireElements(const CollectiveSignature& signature, int rank,
                       absl::Span<int64_t> elements);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ALGORITHMS_PROGRAM_H_
