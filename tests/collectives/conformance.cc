#include "brigade/tests/collectives/conformance.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/collectives/checked_call.h"
#include "brigade/tests/testing/sanitizer.h"
#include "gmock/gmock.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::IsOk;
using ::brigade::testing::StatusIs;
using kernels::ReduceOp;
using precision::DType;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Reduction kReductions[] = {Reduction::kRoundedOnce, Reduction::kRoundedPerHop,
                                     Reduction::kFp32Partials};

// Minima and maxima are rounded nowhere: each is taken with one other way of rounding sums.
std::vector<ReduceOp> OpsOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kRoundedOnce:
      return {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};
    case Reduction::kRoundedPerHop:
      return {ReduceOp::kSum, ReduceOp::kMin};
    case Reduction::kFp32Partials:
      return {ReduceOp::kSum, ReduceOp::kMax};
  }
  return {};
}

// All-reduce and reduce-scatter.
template <typename T>
void ConformReductions(Rank& self, const Memory& memory, Reduction reduction, Algorithm algorithm,
                       int64_t count, const std::string& where) {
  Communicator& group = *self.communicator;
  device::Stream& stream = *self.stream;
  const DType dtype = precision::kDType<T>;
  const int size = self.size, rank = self.rank;
  for (const bool in_place : {false, true}) {
    for (const ReduceOp op : OpsOf(reduction)) {
      const ReduceOptions options = {op, reduction, algorithm};
      const std::string of_op = absl::StrCat(", ", Name(op), where);
      Check<T>(self, memory, absl::StrCat("all_reduce", of_op))
          .Run(
              count, count, in_place, 0,
              [&](const T* in, T* out) {
                return group.AllReduce(in, out, count, dtype, options, stream);
              },
              [&](int64_t i) { return Reduced<T>(op, size, i); });
      if (HasAllReducesAlone(algorithm)) continue;
      Check<T>(self, memory, absl::StrCat("reduce_scatter", of_op))
          .Run(
              size * count, count, in_place, rank * count,
              [&](const T* in, T* out) {
                return group.ReduceScatter(in, out, count, dtype, options, stream);
              },
              [&](int64_t i) { return Reduced<T>(op, size, rank * count + i); });
    }
  }
}

template <typename T>
void ConformGathers(Rank& self, const Memory& memory, Algorithm algorithm, int64_t count,
                    const std::string& where) {
  for (const bool in_place : {false, true}) {
    Check<T>(self, memory, absl::StrCat("all_gather", where))
        .Run(
            count, self.size * count, in_place, self.rank * count,
            [&](const T* in, T* out) {
              return self.communicator->AllGather(in, out, count, precision::kDType<T>, {algorithm},
                                                  *self.stream);
            },
            [&](int64_t i) { return As<T>(InputValue(static_cast<int>(i / count), i % count)); });
  }
}

template <typename T>
std::string Where(const Rank& self, absl::string_view algorithm, int64_t count) {
  return absl::StrCat(" ", algorithm, ", ", precision::Name(precision::kDType<T>), ", count ",
                      count, ", rank ", self.rank, " of ", self.size);
}

template <typename T>
void ConformAlgorithms(Rank& self, const Memory& memory, const std::vector<Algorithm>& algorithms,
                       int64_t count) {
  for (const Algorithm algorithm : algorithms) {
    for (const Reduction reduction : kReductions) {
      if (!Exists(reduction, algorithm)) continue;
      const std::string way = absl::StrCat(Name(algorithm), ", ", Name(reduction));
      ConformReductions<T>(self, memory, reduction, algorithm, count, Where<T>(self, way, count));
    }
    if (HasAllReducesAlone(algorithm)) continue;
    ConformGathers<T>(self, memory, algorithm, count, Where<T>(self, Name(algorithm), count));
  }
}

// What has no choice of algorithms.
template <typename T>
void ConformDirectCalls(Rank& self, const Memory& memory, int64_t count) {
  Communicator& group = *self.communicator;
  device::Stream& stream = *self.stream;
  const DType dtype = precision::kDType<T>;
  const int size = self.size, rank = self.rank;
  const std::string where = Where<T>(self, "", count);
  for (const bool in_place : {false, true}) {
    const int root = (size - 1) / 2;
    Check<T>(self, memory, absl::StrCat("broadcast", where))
        .Run(
            count, count, in_place, 0,
            [&](const T* in, T* out) {
              return group.Broadcast(in, out, count, dtype, root, stream);
            },
            [&](int64_t i) { return As<T>(InputValue(root, i)); });
  }
  Check<T>(self, memory, absl::StrCat("all_to_all", where))
      .Run(
          size * count, size * count, false, 0,
          [&](const T* in, T* out) { return group.AllToAll(in, out, count, dtype, stream); },
          [&](int64_t i) {
            return As<T>(InputValue(static_cast<int>(i / count), rank * count + i % count));
          });
  for (const int distance : {0, 1, -1, size - 1, 2, 5 * size + 3}) {
    const int from = ((rank - distance) % size + size) % size;
    Check<T>(self, memory, absl::StrCat("shift by ", distance, where))
        .Run(
            count, count, false, 0,
            [&](const T* in, T* out) {
              return group.Shift(in, out, count, dtype, distance, stream);
            },
            [&](int64_t i) { return As<T>(InputValue(from, i)); });
  }
  if (size == 1) return;
  // Everyone sends to the next rank: even ranks send first, so that each send finds its receive.
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  Check<T>(self, memory, absl::StrCat("send", where))
      .Run(
          count, count, false, 0,
          [&](const T* in, T* out) {
            const bool first = rank % 2 == 0;
            absl::Status status;
            if (!first) status = group.Receive(out, count, dtype, previous, stream);
            if (status.ok()) status = group.Send(in, count, dtype, next, stream);
            if (first && status.ok()) status = group.Receive(out, count, dtype, previous, stream);
            return status;
          },
          [&](int64_t i) { return As<T>(InputValue(previous, i)); });
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
void OnRanksWithMemory(const RanksOptions& options, const CreateEngineFn& create_engine,
                       int64_t most, const Body& body) {
  const int64_t bytes = options.size * most * static_cast<int64_t>(sizeof(int64_t)) + 2 * kGuard;
  OnRanks(options, create_engine, [&](Rank& self) {
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

std::vector<int> WorldSizes() {
  if (testing::kSanitizer) return {2, 3, 4};
  return {1, 2, 3, 4, 7, 8};
}

std::vector<int64_t> InterestingCounts(int size) {
  // Larger groups differ from smaller ones in how many ranks do the same.
  if (size > 4) return {1, size - 1, size + 1, 1003};
  return {0, 1, size - 1, size, size + 1, 16 * size, 1000, 1003};
}

void Conform(const RanksOptions& options, const CreateEngineFn& create_engine,
             const std::vector<int64_t>& counts) {
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  OnRanksWithMemory(options, create_engine, most, [&](Rank& self, const Memory& memory) {
    for (const int64_t count : counts) {
      ForEachType([&](auto type) {
        if (::testing::Test::HasFatalFailure()) return;
        using T = decltype(type);
        ConformAlgorithms<T>(self, memory, {std::begin(kAlgorithms), std::end(kAlgorithms)}, count);
        ConformAlgorithms<T>(
            self, memory, {Algorithm::kAuto, Algorithm::kDoubleTree, Algorithm::kParameterServer},
            count);
        ConformDirectCalls<T>(self, memory, count);
      });
    }
  });
}

void ConformOnNodes(const RanksOptions& options, const CreateEngineFn& create_engine,
                    const std::vector<int64_t>& counts) {
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  OnRanksWithMemory(options, create_engine, most, [&](Rank& self, const Memory& memory) {
    for (const int64_t count : counts) {
      ForEachType([&](auto type) {
        if (::testing::Test::HasFatalFailure()) return;
        ConformAlgorithms<decltype(type)>(
            self, memory, {Algorithm::kHierarchical, Algorithm::kDoubleTree, Algorithm::kAuto},
            count);
      });
    }
  });
}

void ConformTrafficAndMemory(const RanksOptions& options, const CreateEngineFn& create_engine,
                             EngineKind kind) {
  constexpr int64_t kCount = 1003;
  OnRanksWithMemory(options, create_engine, 2 * kCount, [&](Rank& self, const Memory& memory) {
    Communicator& group = *self.communicator;
    const auto settle = [&] {  // on threads the rank that comes last counts for all
      ASSERT_OK(group.Barrier(*self.stream));
      ASSERT_OK(self.stream->Synchronize());
      ASSERT_OK(group.AllGatherHost({0}).status());
    };
    const auto sent = [&] {
      int64_t bytes = 0;
      for (int to = 0; to < self.size; ++to) bytes += group.sent_bytes(to);
      return bytes;
    };
    const auto allocated = [&] {
      return self.context->memory_stats().current_bytes(device::Purpose::kCommunication);
    };
    Workspace reserved;
    settle();
    const int64_t allocated_before = allocated();
    for (const CollectiveKind kind_of_call :
         {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
      for (const Algorithm algorithm :
           {Algorithm::kDirect, Algorithm::kRing, Algorithm::kBidirectionalRing,
            Algorithm::kHalvingDoubling, Algorithm::kHierarchical, Algorithm::kDoubleTree,
            Algorithm::kParameterServer}) {
        const bool adds = kind_of_call != CollectiveKind::kAllGather;
        if (kind_of_call != CollectiveKind::kAllReduce && HasAllReducesAlone(algorithm)) continue;
        for (const Reduction reduction : kReductions) {
          if (!Exists(reduction, algorithm) && adds) continue;
          CollectiveSignature signature = {kind_of_call, algorithm, DType::kBFloat16, {}, kCount};
          if (adds) signature.reduction = reduction;
          const auto resolved = group.Resolve(signature);
          ASSERT_OK(resolved);
          const std::string what = absl::StrCat(ToString(*resolved), ", rank ", self.rank);
          ASSERT_OK(group.Reserve(signature));
          reserved = Max(reserved, WorkspaceOf(*resolved, self.rank, self.size, kind));
          EXPECT_EQ(allocated() - allocated_before, reserved.bytes()) << what;
          const int64_t before = sent();
          settle();
          void* const in = memory.input.data();
          void* const out = memory.output.data();
          const ReduceOptions sum = {ReduceOp::kSum, reduction, algorithm};
          if (kind_of_call == CollectiveKind::kAllReduce) {
            ASSERT_OK(group.AllReduce(in, out, kCount, signature.dtype, sum, *self.stream));
          } else if (kind_of_call == CollectiveKind::kReduceScatter) {
            ASSERT_OK(group.ReduceScatter(in, out, kCount, signature.dtype, sum, *self.stream));
          } else {
            ASSERT_OK(group.AllGather(in, out, kCount, signature.dtype, {algorithm}, *self.stream));
          }
          settle();
          EXPECT_EQ(sent() - before, WireBytes(*resolved, self.rank, self.size)) << what;
          EXPECT_EQ(allocated() - allocated_before, reserved.bytes()) << what;
        }
      }
    }
  });
}

void ConformSplit(const CreateEngineFn& create_engine) {
  OnRanks({.size = 5}, create_engine, [](Rank& self) {
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
      ASSERT_OK(part.AllGather(&mine, all.data(), 1, kFloat32, {}, *self.stream));
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

void ConformRegistration(const RanksOptions& options, const CreateEngineFn& create_engine) {
  OnRanks(options, create_engine, [](Rank& self) {
    Communicator& group = *self.communicator;
    device::Stream& stream = *self.stream;
    constexpr int64_t kCount = 3000;
    const int64_t bytes = kCount * self.size * precision::SizeOf(kFloat32);
    auto input = self.context->Allocate(bytes, device::Purpose::kCommunication, "input").value();
    auto output = self.context->Allocate(bytes, device::Purpose::kCommunication, "output").value();
    const std::vector<float> ones(static_cast<size_t>(kCount * self.size), 1.0f);
    std::vector<float> result(ones.size());
    const auto expect_sums = [&](Algorithm algorithm) {
      ASSERT_OK(stream.Copy(input.data(), ones.data(), bytes));
      ASSERT_OK(group.ReduceScatter(
          input.data(), output.data(), kCount, kFloat32,
          {.reduction = Reduction::kRoundedPerHop, .algorithm = algorithm}, stream));
      ASSERT_OK(
          group.AllGather(output.data(), input.data(), kCount, kFloat32, {algorithm}, stream));
      ASSERT_OK(stream.Copy(result.data(), input.data(), bytes));
      ASSERT_OK(stream.Synchronize());
      EXPECT_THAT(result, ::testing::Each(static_cast<float>(self.size)));
    };
    for (int round = 0; round < 2; ++round) {
      auto of_input = group.Register(input.data(), bytes);
      auto of_output = group.Register(output.data(), bytes);
      ASSERT_OK(of_input);
      ASSERT_OK(of_output);
      expect_sums(Algorithm::kAuto);
      Registration moved = *std::move(of_input);
      expect_sums(Algorithm::kRing);
    }
    expect_sums(Algorithm::kAuto);

    EXPECT_OK(group.Register(nullptr, 0));
    EXPECT_THAT(group.Register(nullptr, 4), StatusIs(absl::StatusCode::kInvalidArgument,
                                                     HasSubstr("register: 4 bytes at null")));
    EXPECT_THAT(group.Register(input.data(), -4),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("register: -4 bytes")));
    auto last = group.Register(input.data(), bytes);
    ASSERT_OK(last);
    self.AwaitOthers();
    group.Abort(absl::CancelledError("enough"));
    EXPECT_THAT(group.Register(output.data(), bytes),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
  });
}

}  // namespace brigade::collectives
