#include "brigade/tests/collectives/conformance.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/collectives/checked_call.h"

namespace brigade::collectives {
namespace {

using kernels::ReduceOp;
using precision::DType;

// What all of `Group` have: all-reduce, reduce-scatter and all-gather. A rank has slice `slices[rank]` of the larger array.
template <typename T, typename Group>
void ConformCalls(Rank& self, const Memory& memory, Group& group, const std::vector<int>& slices,
                  Algorithm algorithm, int64_t count, const std::string& where) {
  device::Stream& stream = *self.stream;
  const DType dtype = precision::kDType<T>;
  const int size = self.size, slice = slices[self.rank];
  std::vector<int> rank_of_slice(size);
  for (int rank = 0; rank < size; ++rank) rank_of_slice[slices[rank]] = rank;
  for (const bool in_place : {false, true}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      const ReduceOptions options = {dtype, op, algorithm};
      const std::string of_op = absl::StrCat(", op ", static_cast<int>(op), where);
      Check<T>(self, memory, absl::StrCat("all_reduce", of_op))
          .Run(
              count, count, in_place, 0,
              [&](const T* in, T* out) { return group.AllReduce(in, out, count, options, stream); },
              [&](int64_t i) { return Reduced<T>(op, size, i); });
      Check<T>(self, memory, absl::StrCat("reduce_scatter", of_op))
          .Run(
              size * count, count, in_place, slice * count,
              [&](const T* in, T* out) {
                return group.ReduceScatter(in, out, count, options, stream);
              },
              [&](int64_t i) { return Reduced<T>(op, size, slice * count + i); });
    }
    Check<T>(self, memory, absl::StrCat("all_gather", where))
        .Run(
            count, size * count, in_place, slice * count,
            [&](const T* in, T* out) {
              return group.AllGather(in, out, count, {dtype, algorithm}, stream);
            },
            [&](int64_t i) { return As<T>(InputValue(rank_of_slice[i / count], i % count)); });
  }
}

template <typename T>
std::string Where(const Rank& self, absl::string_view algorithm, int64_t count) {
  return absl::StrCat(" ", algorithm, ", ", precision::Name(precision::kDType<T>), ", count ",
                      count, ", rank ", self.rank, " of ", self.size);
}

template <typename T>
void ConformType(Rank& self, const Memory& memory, int64_t count) {
  Communicator& group = *self.communicator;
  device::Stream& stream = *self.stream;
  const DType dtype = precision::kDType<T>;
  const int size = self.size, rank = self.rank;
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  for (const Algorithm algorithm : kAlgorithms) {
    const MoveOptions move = {dtype, algorithm};
    const std::string where = Where<T>(self, Name(algorithm), count);
    ConformCalls<T>(self, memory, group, ranks, algorithm, count, where);
    for (const bool in_place : {false, true}) {
      const int root = (size - 1) / 2;
      Check<T>(self, memory, absl::StrCat("broadcast", where))
          .Run(
              count, count, in_place, 0,
              [&](const T* in, T* out) {
                return group.Broadcast(in, out, count, root, move, stream);
              },
              [&](int64_t i) { return As<T>(InputValue(root, i)); });
    }
    Check<T>(self, memory, absl::StrCat("all_to_all", where))
        .Run(
            size * count, size * count, false, 0,
            [&](const T* in, T* out) { return group.AllToAll(in, out, count, move, stream); },
            [&](int64_t i) {
              return As<T>(InputValue(static_cast<int>(i / count), rank * count + i % count));
            });
  }
  if (size == 1) return;
  // Everyone sends to the next rank: even ranks send first, so that each send finds its receive.
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  Check<T>(self, memory, absl::StrCat("send", Where<T>(self, "", count)))
      .Run(
          count, count, false, 0,
          [&](const T* in, T* out) {
            const bool first = rank % 2 == 0;
            absl::Status status;
            if (!first) status = group.Receive(out, count, previous, {dtype}, stream);
            if (status.ok()) status = group.Send(in, count, next, {dtype}, stream);
            if (first && status.ok()) status = group.Receive(out, count, previous, {dtype}, stream);
            return status;
          },
          [&](int64_t i) { return As<T>(InputValue(previous, i)); });
}

// Bytes that a rank sends of an all-reduce whose parts are even.
void ExpectTrafficOfAllReduce(Rank& self, Hierarchical& group) {
  Communicator& inside = group.inside();
  Communicator& between = group.between();
  const int64_t g = inside.size(), m = between.size(), count = 64 * g * m;
  const auto sent = [](const Communicator& level) {
    int64_t bytes = 0;
    for (int to = 0; to < level.size(); ++to) bytes += level.sent_bytes(to);
    return bytes;
  };
  const auto settle = [&] {  // threads: who comes last counts for all
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
  };
  std::vector<float> array(static_cast<size_t>(count));
  settle();
  const int64_t inside_before = sent(inside), between_before = sent(between);
  settle();
  ASSERT_OK(group.AllReduce(array.data(), array.data(), count, {}, *self.stream));
  settle();
  EXPECT_EQ(sent(inside) - inside_before, 2 * (g - 1) * count / g * 4);
  EXPECT_EQ(sent(between) - between_before, 2 * (m - 1) * count / g / m * 4);
}

// Calls visit(T()) for every type.
template <typename Visit>
void ForEachType(const Visit& visit) {
  visit(float());
  visit(precision::Half());
  visit(precision::BFloat16());
  visit(double());
  visit(int32_t());
  visit(int64_t());
  visit(uint8_t());
}

// body(self, memory) on every rank, with room for the larger arrays of `most` elements a rank.
template <typename Body>
void OnRanksWithMemory(const RanksOptions& options, const NewEngineFn& new_engine, int64_t most,
                       const Body& body) {
  const int64_t bytes = options.size * most * static_cast<int64_t>(sizeof(int64_t)) + 2 * kGuard;
  OnRanks(options, new_engine, [&](Rank& self) {
    Memory memory;
    for (device::Buffer* buffer : {&memory.input, &memory.output}) {
      auto allocated = self.context->Allocate(bytes, device::Purpose::kScratch, "arrays");
      ASSERT_OK(allocated);
      *buffer = *std::move(allocated);
    }
    body(self, memory);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_OK(self.communicator->Barrier(*self.stream));
    EXPECT_OK(self.stream->Synchronize());
  });
}

}  // namespace

std::vector<int64_t> InterestingCounts(int size) {
  return {0, 1, size - 1, size, size + 1, 16 * size, 1000, 1003};
}

void Conform(const RanksOptions& options, const NewEngineFn& new_engine,
             const std::vector<int64_t>& counts) {
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  OnRanksWithMemory(options, new_engine, most, [&](Rank& self, const Memory& memory) {
    for (const int64_t count : counts) {
      ForEachType([&](auto type) {
        if (::testing::Test::HasFatalFailure()) return;
        ConformType<decltype(type)>(self, memory, count);
      });
    }
  });
}

void ConformHierarchical(const RanksOptions& options, const NewEngineFn& new_engine,
                         const std::vector<int64_t>& node_of_rank,
                         const HierarchicalOptions& algorithms,
                         const std::vector<int64_t>& counts) {
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  OnRanksWithMemory(options, new_engine, most, [&](Rank& self, const Memory& memory) {
    const auto group = Hierarchical::Create(*self.communicator, node_of_rank[self.rank], algorithms,
                                            *self.context);
    ASSERT_OK(group);
    std::vector<int> slices;
    for (int rank = 0; rank < self.size; ++rank) slices.push_back((*group)->slice_of_rank(rank));
    const std::string levels =
        absl::StrCat("in ", Name(algorithms.inside), " and ", Name(algorithms.between));
    for (const int64_t count : counts) {
      ForEachType([&](auto type) {
        using T = decltype(type);
        if (::testing::Test::HasFatalFailure()) return;
        ConformCalls<T>(self, memory, **group, slices, {}, count, Where<T>(self, levels, count));
      });
    }
    // With ranks beyond a power of two, halving and doubling sends more.
    if (algorithms.inside == Algorithm::kHalvingDoubling) return;
    if (algorithms.between == Algorithm::kHalvingDoubling) return;
    ExpectTrafficOfAllReduce(self, **group);
  });
}

void ConformSplit(const NewEngineFn& new_engine) {
  OnRanks({.size = 5}, new_engine, [](Rank& self) {
    // Ranks 0, 2, 4 backwards; 1 alone; 3 in none.
    const int color = self.rank == 3 ? -1 : self.rank % 2;
    auto split = self.communicator->Split(color, -self.rank);
    ASSERT_OK(split);
    if (self.rank == 3) {
      EXPECT_EQ(*split, nullptr);
    } else {
      Communicator& part = **split;
      EXPECT_EQ(part.size(), self.rank == 1 ? 1 : 3);
      EXPECT_EQ(part.rank(), self.rank == 1 ? 0 : 2 - self.rank / 2);
      const float mine = static_cast<float>(self.rank);
      std::vector<float> all(static_cast<size_t>(part.size()));
      ASSERT_OK(part.AllGather(&mine, all.data(), 1, {}, *self.stream));
      ASSERT_OK(self.stream->Synchronize());
      EXPECT_EQ(all, self.rank == 1 ? std::vector<float>({1}) : std::vector<float>({4, 2, 0}));
      auto whole_part = part.Split(0, 0);
      ASSERT_OK(whole_part);
      ASSERT_OK((*whole_part)->Barrier(*self.stream));
      ASSERT_OK(self.stream->Synchronize());
    }
    // Again, all together: every rank has counted the first split.
    auto again = self.communicator->Split(0, 0);
    ASSERT_OK(again);
    EXPECT_EQ((*again)->size(), 5);
    ASSERT_OK((*again)->Barrier(*self.stream));
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
  });
}

}  // namespace brigade::collectives
