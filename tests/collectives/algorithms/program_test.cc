// Every algorithm's programs, carried out one instruction after the other on plain arrays of sums
// of powers of two: each element of a result says whose inputs it holds. And the rules of program.h
// and engines/transport/executor.h.

#include "brigade/collectives/algorithms/program.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using Place = std::pair<int, int64_t>;  // array, element

// Of an element; the others say which it is.
constexpr int kRankBits = 40;

// One call on all ranks.
class Interpreter {
 public:
  Interpreter(const CollectiveSignature& signature, int size, bool in_place)
      : signature_(signature),
        size_(size),
        in_place_(in_place),
        arrays_(static_cast<size_t>(3 * size)) {
    for (int rank = 0; rank < size; ++rank) {
      const int64_t inputs = InputElements(signature, rank, size);
      const int64_t outputs = OutputElements(signature, rank, size);
      Array(rank, Side::kInput).resize(in_place ? std::max(inputs, outputs) : inputs);
      if (!in_place) Array(rank, Side::kOutput).resize(outputs, kNothing);
      Array(rank, Side::kScratch).resize(ScratchElements(signature, size), kNothing);
      for (int64_t i = 0; i < inputs; ++i) At({rank, Side::kInput, i}) = Input(rank, i);
    }
  }

  // The element that this rank alone gives: its bit, and which element it is.
  int64_t Input(int rank, int64_t i) const { return (int64_t{1} << rank) + (i << kRankBits); }

  void Run() {
    for (int stage = 0; stage < Stages(signature_, size_); ++stage) {
      std::map<Place, int> writer_of;  // of each element, as a place
      std::vector<std::pair<Part, int64_t>> results;
      std::vector<std::pair<Place, int>> reads;
      for (int rank = 0; rank < size_; ++rank) {
        ForEachInstruction(signature_, rank, size_, [&](const Instruction& instruction) {
          if (instruction.stage != stage) return;
          for (int64_t i = 0; i < instruction.count; ++i)
            Do(instruction, i, rank, writer_of, reads, results);
        });
      }
      for (const auto& [place, reader] : reads) {
        const auto writer = writer_of.find(place);
        EXPECT_TRUE(writer == writer_of.end() || writer->second == reader) << Name();
      }
      for (const auto& [part, value] : results) At(part) = value;
    }
  }

  int64_t Output(int rank, int64_t i) { return At({rank, Side::kOutput, i}); }

  std::string Name() const {
    return absl::StrCat(ToString(signature_), " between ", size_, in_place_ ? ", in place" : "");
  }

 private:
  static constexpr int64_t kNothing = int64_t{1} << 60;
  static constexpr int64_t kRanksMask = (int64_t{1} << kRankBits) - 1;

  std::vector<int64_t>& Array(int rank, Side side) {
    return arrays_[static_cast<size_t>(3 * rank) + static_cast<size_t>(side)];
  }
  // In place both sides are one array.
  Part Resolve(Part part) const {
    if (!in_place_ || part.side == Side::kScratch) return part;
    const bool inner = signature_.kind == CollectiveKind::kReduceScatter
                           ? part.side == Side::kOutput
                       : signature_.kind == CollectiveKind::kAllGather ? part.side == Side::kInput
                                                                       : false;
    return {part.rank, Side::kInput, part.begin + (inner ? part.rank * signature_.count : 0)};
  }
  int64_t& At(const Part& part) {
    const Part at = Resolve(part);
    return Array(at.rank, at.side).at(static_cast<size_t>(at.begin));
  }

  void Do(const Instruction& instruction, int64_t i, int rank, std::map<Place, int>& writer_of,
          std::vector<std::pair<Place, int>>& reads,
          std::vector<std::pair<Part, int64_t>>& results) {
    const auto place = [&](Part part) {
      const Part at = Resolve(part);
      return Place(at.rank * 3 + static_cast<int>(at.side), at.begin);
    };
    int64_t sum = 0;
    for (size_t s = 0; s < instruction.sources.size(); ++s) {
      Part part = instruction.sources[s];
      part.begin += i;
      const int64_t value = At(part);
      // Bits add up, the element stays.
      if (s > 0) {
        EXPECT_EQ(value >> kRankBits, sum >> kRankBits) << Name();
      }
      sum = s == 0 ? value : sum + (value & kRanksMask);
      reads.emplace_back(place(part), rank);
    }
    for (Part part : instruction.targets) {
      part.begin += i;
      // In place, a copy of an array to itself.
      if (instruction.sources.size() == 1 && place(part) == reads.back().first) continue;
      EXPECT_TRUE(writer_of.emplace(place(part), rank).second) << Name() << ": written twice";
      results.emplace_back(part, sum);
    }
  }

  const CollectiveSignature signature_;
  const int size_;
  const bool in_place_;
  std::vector<std::vector<int64_t>> arrays_;  // [rank][side]
};

void ExpectResult(const CollectiveSignature& signature, int size, bool in_place) {
  Interpreter run(signature, size, in_place);
  run.Run();
  const int64_t all = (int64_t{1} << size) - 1;
  for (int rank = 0; rank < size; ++rank) {
    for (int64_t i = 0; i < OutputElements(signature, rank, size); ++i) {
      int64_t wanted = all + (i << kRankBits);
      if (signature.kind == CollectiveKind::kReduceScatter)
        wanted = all + ((rank * signature.count + i) << kRankBits);
      if (signature.kind == CollectiveKind::kAllGather) {
        wanted = run.Input(static_cast<int>(i / signature.count), i % signature.count);
      }
      ASSERT_EQ(run.Output(rank, i), wanted)
          << run.Name() << ", rank " << rank << ", element " << i;
    }
  }
}

std::set<int> RanksOf(absl::Span<const Part> parts) {
  std::set<int> ranks;
  for (const Part& part : parts) ranks.insert(part.rank);
  return ranks;
}

// What the runner of messages relies on.
void ExpectRulesOfMessages(const CollectiveSignature& signature, int size) {
  Program program;
  program.Build(signature, size);
  const std::string name = absl::StrCat(ToString(signature), " between ", size);
  for (int stage = 0; stage < program.stages() && program.stages() > 1; ++stage) {
    for (int rank = 0; rank < size; ++rank) {
      std::set<int> fresh_from;                   // ranks of which a fresh part was read
      std::vector<std::pair<int, size_t>> order;  // of the fresh ones: rank, and its place there
      program.ForEach(rank, stage, [&](const Instruction& instruction) {
        ASSERT_EQ(instruction.targets.size(), 1u) << name;
        ASSERT_EQ(instruction.targets[0].rank, rank) << name;
        ASSERT_EQ(RanksOf(instruction.sources).size(), instruction.sources.size()) << name;
        for (const Part& source : instruction.sources) {
          if (source.rank == rank) continue;
          size_t at = 0, found = 0;
          if (stage > 0) {
            program.ForEach(source.rank, stage - 1, [&](const Instruction& before) {
              ++at;
              const Part& written = before.targets[0];
              if (written.side != source.side) return;
              if (written == source && before.count == instruction.count) found = at;
            });
          }
          if (found == 0) {
            EXPECT_EQ(fresh_from.count(source.rank), 0u) << name << ": an older part comes later";
          } else {
            fresh_from.insert(source.rank);
            for (const auto& [from, place] : order) {
              if (from != source.rank) continue;
              EXPECT_LT(place, found) << name << ": out of order";
            }
            order.emplace_back(source.rank, found);
          }
        }
      });
    }
  }
}

void ExpectRight(CollectiveKind kind, Algorithm algorithm, int size, int ranks_per_node,
                 int64_t count) {
  for (const Reduction reduction : {Reduction::kRoundedPerHop, Reduction::kFp32Partials}) {
    if (reduction == Reduction::kFp32Partials && count != 40)
      continue;  // it takes the same program
    CollectiveSignature signature = {kind, algorithm, precision::DType::kBFloat16, {}, count};
    signature.reduction = reduction;
    signature.ranks_per_node = ranks_per_node;
    ExpectResult(signature, size, false);
    ExpectResult(signature, size, true);
    ExpectRulesOfMessages(signature, size);
  }
}

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                     CollectiveKind::kAllGather};

TEST(ProgramTest, EveryAlgorithmGivesItsResultByTheRules) {
  for (const CollectiveKind kind : kKinds) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (int size = 1; size <= 19; ++size) {
        // All-reduces of fewer blocks than ranks, of uneven ones, and of equal ones.
        for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{40}, int64_t{16} * size}) {
          ExpectRight(kind, algorithm, size, 1, count);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(ProgramTest, HierarchicalGivesItsResultOnNodesOfEverySize) {
  for (const CollectiveKind kind : kKinds) {
    for (const auto& [nodes, inside] :
         {std::pair(1, 4), {4, 1}, {2, 2}, {2, 3}, {3, 2}, {4, 4}, {3, 5}, {9, 2}}) {
      const int size = nodes * inside;
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{40}, int64_t{16} * size + 5}) {
        ExpectRight(kind, Algorithm::kHierarchical, size, inside, count);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ProgramTest, DoubleTreeGivesItsResultBetweenOneTo33RanksAndNodes) {
  for (int size = 1; size <= 33; ++size) {
    for (const int inside : {1, 2, 3, 8}) {
      if (size % inside != 0) continue;
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{40}, int64_t{16} * size + 5}) {
        ExpectRight(CollectiveKind::kAllReduce, Algorithm::kDoubleTree, size, inside, count);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ProgramTest, AParameterServerGivesItsResultBetweenOneTo17Ranks) {
  for (int size = 1; size <= 17; ++size) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{40}, int64_t{16} * size + 5}) {
      ExpectRight(CollectiveKind::kAllReduce, Algorithm::kParameterServer, size, 1, count);
    }
    const CollectiveSignature signature = {CollectiveKind::kAllReduce,
                                           Algorithm::kParameterServer,
                                           precision::DType::kFloat32,
                                           {},
                                           100};
    for (int rank = 0; rank < size; ++rank) {
      std::vector<int64_t> elements(static_cast<size_t>(size));
      CountWireElements(signature, rank, absl::MakeSpan(elements));
      for (int to = 0; to < size; ++to) {
        const bool sends = rank != to && (rank == 0 || to == 0);
        EXPECT_EQ(elements[static_cast<size_t>(to)], sends ? 100 : 0) << rank << " to " << to;
      }
    }
  }
}

// Several chunks: one sum of the ranks' numbers stands for all elements of an instruction.
TEST(ProgramTest, DoubleTreeKeepsItsChunksApart) {
  for (const int size : {2, 3, 4, 5, 8, 9, 16, 33}) {
    CollectiveSignature signature = {CollectiveKind::kAllReduce,
                                     Algorithm::kDoubleTree,
                                     precision::DType::kFloat32,
                                     {},
                                     1 << 19};
    std::vector<std::map<int64_t, int64_t>> sums(size);  // [rank][begin]
    std::map<int64_t, int64_t> counts;
    for (int stage = 0; stage < Stages(signature, size); ++stage) {
      auto after = sums;
      for (int rank = 0; rank < size; ++rank) {
        ForEachInstruction(signature, rank, size, [&](const Instruction& instruction) {
          if (instruction.stage != stage) return;
          int64_t sum = 0;
          for (const Part& source : instruction.sources) {
            sum += source.side == Side::kInput ? int64_t{1} << source.rank
                                               : sums[source.rank].at(source.begin);
          }
          after[rank][instruction.targets[0].begin] = sum;
          counts[instruction.targets[0].begin] = instruction.count;
        });
      }
      sums = after;
    }
    int64_t elements = 0;
    for (const auto& [begin, count] : counts) elements += count;
    EXPECT_EQ(elements, signature.count);
    EXPECT_EQ(counts.size(), 2u * 4u);  // chunks of 256 KiB of halves of 1 MiB
    for (const auto& of_rank : sums) {
      EXPECT_EQ(of_rank.size(), counts.size());
      for (const auto& [begin, sum] : of_rank) EXPECT_EQ(sum, (int64_t{1} << size) - 1);
    }
    ExpectRulesOfMessages(signature, size);
  }
}

TEST(ProgramTest, DoubleTreeSendsAtMostTwoArrays) {
  for (const int size : {2, 3, 4, 5, 6, 7, 8, 16, 33, 64}) {
    const CollectiveSignature signature = {CollectiveKind::kAllReduce,
                                           Algorithm::kDoubleTree,
                                           precision::DType::kFloat32,
                                           {},
                                           int64_t{32} << 10};
    for (int rank = 0; rank < size; ++rank) {
      std::vector<int64_t> elements(size);
      CountWireElements(signature, rank, absl::MakeSpan(elements));
      int64_t sent = 0;
      for (const int64_t each : elements) sent += each;
      EXPECT_LE(sent, 2 * signature.count) << rank << " of " << size;
    }
  }
}

TEST(ProgramTest, StagesAreAsManyAsPromised) {
  const auto stages = [](CollectiveKind kind, Algorithm algorithm, int size) {
    return Stages({kind, algorithm, precision::DType::kFloat32, {}, 64}, size);
  };
  for (const int size : {2, 3, 4, 8, 9, 16}) {
    EXPECT_EQ(stages(CollectiveKind::kAllReduce, Algorithm::kDirect, size), 1);
    EXPECT_EQ(stages(CollectiveKind::kAllReduce, Algorithm::kRing, size), 2 * (size - 1));
    EXPECT_EQ(stages(CollectiveKind::kAllReduce, Algorithm::kBidirectionalRing, size),
              2 * (size / 2));
    EXPECT_EQ(stages(CollectiveKind::kAllGather, Algorithm::kBidirectionalRing, size), size / 2);
  }
  EXPECT_EQ(stages(CollectiveKind::kAllReduce, Algorithm::kDoubleTree, 8), 6);
  EXPECT_EQ(stages(CollectiveKind::kAllReduce, Algorithm::kDoubleTree, 9), 6);
  EXPECT_EQ(stages(CollectiveKind::kAllReduce, Algorithm::kHalvingDoubling, 8), 6);
  EXPECT_EQ(stages(CollectiveKind::kAllReduce, Algorithm::kHalvingDoubling, 9), 8);
  EXPECT_EQ(stages(CollectiveKind::kReduceScatter, Algorithm::kHalvingDoubling, 16), 4);
}

}  // namespace
}  // namespace brigade::collectives
