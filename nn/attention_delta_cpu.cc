// What the gradients of a query's scores have in common, delta = the sum of P dP over the keys that
// it sees, for 16-bit types on the CPU. It is as well the sum of dout * out, but `out` was rounded:
// the gradients of a query's scores would all be off in the same direction, and those of queries
// and keys by more than their small elements (docs/mixed_precision.md).
//
// Work: 4 operations for each pair of positions and column of a head, beside the backward pass's
// 10.

#include <algorithm>
#include <cstdint>
#include <numbers>

#include "brigade/nn/attention_cpu.h"
#include "brigade/nn/attention_tiles.h"

namespace brigade::nn {
namespace {

template <typename Op>
class DeltaTile {
 public:
  using W = typename Op::W;
  using V = typename Op::V;
  using Word = typename Op::Word;
  using T = typename Op::Number;
  static constexpr int64_t kQueries = ForwardSizes<W>::kQueries, kKeys = ForwardSizes<W>::kKeys;
  static constexpr int64_t kBytes =
      (kMaxHeadWidth * (2 * kQueries + 2 * kKeys) + 2 * kQueries) * static_cast<int64_t>(sizeof(W));

  BRIGADE_INLINE DeltaTile(const Heads<T>& heads, int64_t head, int64_t first, char* scratch)
      : heads_(heads), head_(head), first_(first) {
    rows_ = std::min(heads.query_count - first, kQueries);
    words_ = WordsOf<Op>(heads.head_width);
    stride_ = RoundUp(words_, kPadding);
    Scratch room(scratch);
    queries_ = room.Take<Word>(stride_ * kQueries);
    upstream_ = room.Take<Word>(stride_ * kQueries);
    keys_ = room.Take<Word>(kKeys * stride_);
    values_ = room.Take<Word>(kKeys * stride_);
    lse_ = room.Take<W>(kQueries);
    sums_ = room.Take<W>(kQueries);
  }

  // Of the tile's queries; `dout` is that of all.
  BRIGADE_INLINE void Run(const T* dout, const W* lse, W* delta) {
    PackTransposed<Op>(heads_.Queries(head_, first_, rows_), kQueries, queries_, kQueries, keys_,
                       stride_);
    PackTransposed<Op>({dout + heads_.At(head_, heads_.begin + first_, heads_.width()),
                        heads_.width(), rows_, heads_.head_width},
                       kQueries, upstream_, kQueries, keys_, stride_);
    for (int64_t i = 0; i < kQueries; ++i) {
      lse_[i] = i < rows_ ? lse[i] * std::numbers::log2e_v<W> : W(0);
      sums_[i] = 0;
    }
    for (int64_t key = 0; key < first_ + rows_; key += kKeys) {
      const int64_t keys = std::min(heads_.key_count - key, kKeys);
      PackRows<Op>(heads_.Keys(head_, key, keys), kKeys, keys_, stride_);
      PackRows<Op>(heads_.Values(head_, key, keys), kKeys, values_, stride_);
      // Query i sees key k of the tile if i >= k + offset.
      const int64_t offset = key - first_;
      for (int64_t i = 0; i < rows_; i += Op::kColumns) {
        for (int64_t k = 0; k < kKeys && i + Op::kColumns > k + offset; k += Op::kRows) {
          AddBlock(i, k, offset);
        }
      }
    }
    for (int64_t i = 0; i < rows_; ++i) delta[i] = sums_[i];
  }

 private:
  // Queries [i, i + kColumns) and keys [k, k + kRows).
  BRIGADE_INLINE void AddBlock(int64_t i, int64_t k, int64_t offset) {
    V p[Op::kRows][Op::kVectors];
    MultiplyBlock<Op, Op::kVectors>(
        {keys_ + k * stride_, stride_, 1}, {queries_ + i, kQueries}, words_,
        [&](auto& scores) BRIGADE_SIMD_BODY {
          for (int v = 0; v < Op::kVectors; ++v) {
            const V lse = Op::Load(lse_ + i + v * Op::kLanes);
            // The last key that a query sees.
            const V last = Op::Lanes() + static_cast<W>(i + v * Op::kLanes - offset);
#pragma GCC unroll 8
            for (int m = 0; m < Op::kRows; ++m) {
              const V value = Exp2<Op>(scores[m][v] * heads_.unit - lse);
              p[m][v] = last >= V{} + static_cast<W>(k + m) ? value : V{};
            }
          }
        });
    MultiplyBlock<Op, Op::kVectors>({values_ + k * stride_, stride_, 1}, {upstream_ + i, kQueries},
                                    words_, [&](auto& products) BRIGADE_SIMD_BODY {
                                      for (int v = 0; v < Op::kVectors; ++v) {
                                        V sum = {};
                                        for (int m = 0; m < Op::kRows; ++m)
                                          sum += p[m][v] * products[m][v];
                                        W* const to = sums_ + i + v * Op::kLanes;
                                        Op::Store(to, Op::Load(to) + sum);
                                      }
                                    });
  }

  const Heads<T>& heads_;
  const int64_t head_, first_;
  int64_t rows_, words_, stride_;
  Word *queries_, *upstream_, *keys_, *values_;
  W *lse_, *sums_;
};

}  // namespace

template <typename T>
void AttentionDeltaOnCpu(const AttentionArrays<T>& in, int64_t heads, const T* dout, Wide<T>* delta,
                         device::ThreadPool& pool) {
  constexpr int64_t kQueries = ForwardSizes<Wide<T>>::kQueries;
  const Heads<T> all(in);
  const int64_t tiles = (in.query_count + kQueries - 1) / kQueries;
  pool.ParallelFor(heads * tiles, [&](int64_t chunk) {
    // As in the forward pass.
    const int64_t head = chunk / tiles, slot = tiles - 1 - chunk % tiles;
    alignas(64) char scratch[kScratchBytes];
    ForTilesOfSlot<kQueries>(all, head, slot, [&](const Heads<T>& segment, int64_t first) {
      const int64_t at = segment.Statistic(head, first);
      RunWithOperands<T>([&](auto operands) BRIGADE_SIMD_BODY {
        using Op = decltype(operands);
        static_assert(DeltaTile<Op>::kBytes <= kScratchBytes);
        DeltaTile<Op>(segment, head, first, scratch).Run(dout, in.log_sum_exp + at, delta + at);
      });
    });
  });
}

#define BRIGADE_INSTANTIATE(T)                                                              \
  template void AttentionDeltaOnCpu(const AttentionArrays<T>&, int64_t, const T*, Wide<T>*, \
                                    device::ThreadPool&)
BRIGADE_INSTANTIATE(precision::Half);
BRIGADE_INSTANTIATE(precision::BFloat16);

}  // namespace brigade::nn
