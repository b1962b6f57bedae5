#ifndef BRIGADE_TESTS_PARALLEL_TENSOR_TENSOR_LAB_H_
#define BRIGADE_TESTS_PARALLEL_TENSOR_TENSOR_LAB_H_

// A model's tensor shards on any number of ranks, which are threads: each takes its part of whole
// arrays, and what it computes goes back to its place in whole arrays. The same tests run on the
// CPU and, by BRIGADE_LAB_DEVICE of their target, on a GPU.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/functions.h"
#include "brigade/nn/random.h"
#include "brigade/nn/workspace.h"
#include "brigade/parallel/shard.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/parallel/tensor/shard_sums.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/emulated.h"
#include "gtest/gtest.h"

#ifndef BRIGADE_LAB_DEVICE
#define BRIGADE_LAB_DEVICE device::Cpu()
#endif

namespace brigade::parallel {

inline const bool kOnGpu = (BRIGADE_LAB_DEVICE).kind == device::DeviceKind::kCuda;

// In [-1, 1), by the array's number and the element's index.
template <typename T>
std::vector<T> Noise(int64_t size, uint64_t number) {
  std::vector<T> values(static_cast<size_t>(size));
  nn::Random random(11, number);
  for (T& value : values) value = T(2 * random.Uniform() - 1);
  return values;
}

template <typename T>
std::vector<double> InDouble(const std::vector<T>& values) {
  std::vector<double> doubles;
  for (const T& value : values) doubles.push_back(static_cast<double>(nn::Widen(value)));
  return doubles;
}

template <typename T>
constexpr double UnitRoundoff() {
  return sizeof(T) == 8                           ? 0x1p-53
         : sizeof(T) == 4                         ? 0x1p-24
         : std::is_same_v<T, precision::BFloat16> ? 0x1p-8
                                                  : 0x1p-11;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// One rank.
class TensorLab {
 public:
  static constexpr int64_t kRows = 64, kWidth = 64;

  TensorLab(collectives::Rank& self, const TensorShards& shards)
      : self_(self),
        shards_(shards),
        workspace_(nn::Workspace::Create(*self.context, precision::DType::kFloat64,
                                         {.rows = kRows, .sums = 2 * kWidth, .width = kWidth})
                       .value()),
        blas_(nn::Blas::Create(*self.context, int64_t{1} << 20).value()) {}

  collectives::Rank& self() { return self_; }
  device::Stream& stream() { return *self_.stream; }
  const TensorShards& shards() const { return shards_; }
  const nn::Workspace& workspace() const { return workspace_; }
  nn::Blas& blas() { return *blas_; }

  // To all others, so far; and what the rank has of scratch now.
  int64_t sent_bytes() const {
    int64_t bytes = 0;
    for (int to = 0; to < shards_.ranks; ++to) bytes += self_.communicator->sent_bytes(to);
    return bytes;
  }
  int64_t scratch_bytes() const {
    return self_.context->memory_stats().current_bytes(device::Purpose::kScratch);
  }

  // Memory of the device, with its 0xFF of birth.
  template <typename T>
  absl::Span<T> Raw(int64_t size) {
    arrays_.push_back(
        self_.context
            ->Allocate(size * static_cast<int64_t>(sizeof(T)), device::Purpose::kScratch, "array")
            .value());
    return arrays_.back().as<T>();
  }

  // From and to the host; they wait.
  template <typename T>
  void Write(const std::vector<T>& from, absl::Span<T> to) const {
    EXPECT_OK(
        self_.stream->Copy(to.data(), from.data(), static_cast<int64_t>(from.size() * sizeof(T))));
    EXPECT_OK(self_.stream->Synchronize());
  }
  template <typename T>
  std::vector<T> Read(absl::Span<T> from) const {
    std::vector<T> to(from.size());
    EXPECT_OK(
        self_.stream->Copy(to.data(), from.data(), static_cast<int64_t>(from.size() * sizeof(T))));
    EXPECT_OK(self_.stream->Synchronize());
    return to;
  }
  template <typename T>
  absl::Span<T> Array(const std::vector<T>& values) {
    const absl::Span<T> array = Raw<T>(static_cast<int64_t>(values.size()));
    Write(values, array);
    return array;
  }

  // This rank's part of a whole array.
  template <typename T>
  absl::Span<T> Cut(const Shard& shard, const std::vector<T>& whole) {
    std::vector<T> local(static_cast<size_t>(shard.local_size(shards_)));
    ForEachRun(shard, shards_, [&](const ShardRun& run) {
      std::copy_n(whole.begin() + run.global, run.size, local.begin() + run.local);
    });
    return Array(local);
  }

  // The other way; of what is not cut, what the first rank has.
  template <typename T>
  void Join(const Shard& shard, absl::Span<T> local, std::vector<T>& whole) const {
    const std::vector<T> mine = Read(local);
    if (!shard.counts_on(shards_)) return;
    ForEachRun(shard, shards_, [&](const ShardRun& run) {
      std::copy_n(mine.begin() + run.local, run.size, whole.begin() + run.global);
    });
  }

  // This rank's rows of a whole array: all, or its own of each piece.
  template <typename T>
  absl::Span<T> CutRows(const RowPieces& pieces, int64_t columns, const std::vector<T>& whole) {
    std::vector<T> local;
    for (int p = 0; p < pieces.count(); ++p) {
      const RowRange rows = pieces.OwnAmongAll(p);
      const auto first = whole.begin() + rows.first * columns;
      local.insert(local.end(), first, first + rows.count * columns);
    }
    return Array(local);
  }

  // The other way. Ranks that have all rows must agree in every bit.
  template <typename T>
  void JoinRows(const RowPieces& pieces, int64_t columns, absl::Span<T> local,
                std::vector<T>& whole) const {
    const std::vector<T> mine = Read(local);
    if (pieces.shares_rows()) {
      for (int p = 0; p < pieces.count(); ++p) {
        std::copy_n(mine.begin() + pieces.Own(p).first * columns, pieces.Own(p).count * columns,
                    whole.begin() + pieces.OwnAmongAll(p).first * columns);
      }
      return;
    }
    if (shards_.rank == 0) whole = mine;
    self_.AwaitOthers();
    EXPECT_TRUE(SameBits(mine, whole)) << "rank " << shards_.rank;
  }

 private:
  collectives::Rank& self_;
  const TensorShards shards_;
  nn::Workspace workspace_;
  std::unique_ptr<nn::Blas> blas_;
  std::vector<device::Buffer> arrays_;
};

// body(lab) on each of options.size ranks that share `count` shards.
inline void OnTensorRanks(int count, collectives::RanksOptions options,
                          const std::function<void(TensorLab&)>& body) {
  options.device = BRIGADE_LAB_DEVICE;
  collectives::OnThreads(options, [&](collectives::Rank& self) {
    TensorLab lab(self, {count, options.size, self.rank});
    body(lab);
    // Others may still read this rank's arrays.
    EXPECT_OK(self.stream->Synchronize());
    self.AwaitOthers();
  });
}
inline void OnTensorRanks(int count, int ranks, const std::function<void(TensorLab&)>& body) {
  OnTensorRanks(count, collectives::RanksOptions{.size = ranks}, body);
}

// Numbers of shards that several numbers of ranks can share; fewer on the emulator, which is slow.
inline std::vector<int> Counts() {
  return testing::IsEmulated() ? std::vector<int>{2, 4} : std::vector<int>{1, 2, 4, 8};
}

// Calls body(count, ranks) for numbers of shards, and of ranks that can share them.
inline void ForEachSharing(const std::function<void(int count, int ranks)>& body) {
  for (const int count : Counts()) {
    for (int ranks = 1; ranks <= count; ranks *= 2) body(count, ranks);
  }
  // No powers of two: one for each rank.
  body(3, 3);
  if (!testing::IsEmulated()) body(6, 6);
}

}  // namespace brigade::parallel

#endif  // BRIGADE_TESTS_PARALLEL_TENSOR_TENSOR_LAB_H_
