// The forward pass on the CPU: a tile of queries against all keys that they see. Source: Dao 2023
// (arXiv 2307.08691), algorithm 1, with the scores transposed: a vector has as many queries, so
// that maxima and sums over keys need no sums across a vector, and keys and values are packed
// without a transposition.
//
// Work: 4 operations for each pair of positions and column of a head, those of the diagonal's
// blocks included; and an exponential for each pair.

#include <cmath>
#include <cstdint>
#include <limits>

#include "brigade/kernels/simd.h"
#include "brigade/nn/attention_cpu.h"
#include "brigade/nn/attention_tiles.h"

namespace brigade::nn {
namespace {

template <typename Op>
struct ForwardTile {
  using W = typename Op::W;
  using V = typename Op::V;
  using Word = typename Op::Word;
  using T = typename Op::Number;
  static constexpr int64_t kQueries = ForwardSizes<W>::kQueries, kKeys = ForwardSizes<W>::kKeys;
  // Of the scratch memory, at the largest head.
  static constexpr int64_t kBytes =
      (kMaxHeadWidth * (kQueries + 2 * kKeys + kQueries) + kKeys * kQueries + 3 * kQueries) *
      static_cast<int64_t>(sizeof(W));
  // Queries of which the softmax takes care at once.
  static constexpr int kVectors = 4, kGroup = kVectors * Op::kLanes;

  BRIGADE_INLINE ForwardTile(const Heads<T>& heads, int64_t head, int64_t first, void* out,
                             bool is_wide, W* lse, char* scratch)
      : heads_(heads), head_(head), first_(first), out_(out), is_wide_(is_wide), lse_(lse) {
    const int64_t width = heads.head_width;
    rows_ = heads.query_count - first < kQueries ? heads.query_count - first : kQueries;
    words_ = WordsOf<Op>(width);
    row_stride_ = RoundUp(words_, kPadding);
    stride_ = RoundUp(width, kPadding);
    Scratch room(scratch);
    queries_ = room.Take<Word>(row_stride_ * kQueries);
    keys_ = room.Take<Word>(kKeys * row_stride_);
    values_ = room.Take<Word>(kKeys / Op::kDepth * stride_);
    scores_ = room.Take<W>(kKeys * kQueries);
    // Words of probabilities take the place of the scores that they come from.
    probabilities_ = reinterpret_cast<Word*>(scores_);
    sums_ = room.Take<W>(kQueries * stride_);
    max_ = room.Take<W>(kQueries);
    total_ = room.Take<W>(kQueries);
    decay_ = room.Take<W>(kQueries);
  }

  BRIGADE_INLINE void Run() {
    PackTransposed<Op>(heads_.Queries(head_, first_, rows_), kQueries, queries_, kQueries, keys_,
                       row_stride_);
    for (int64_t i = 0; i < kQueries; ++i) {
      max_[i] = -std::numeric_limits<W>::infinity();
      total_[i] = 0;
    }
    for (int64_t i = 0; i < kQueries * stride_; ++i) sums_[i] = 0;
    const int64_t end = heads_.causal ? first_ + rows_ : heads_.key_count;
    for (int64_t key = 0; key < end; key += kKeys) AddKeys(key);
    Store();
  }

 private:
  BRIGADE_INLINE void AddKeys(int64_t key) {
    const int64_t left = heads_.key_count - key, keys = left < kKeys ? left : kKeys;
    PackRows<Op>(heads_.Keys(head_, key, keys), kKeys, keys_, row_stride_);
    PackColumns<Op>(heads_.Values(head_, key, keys), kKeys, values_, stride_);
    // Query i sees key k of the tile if slope * i >= k + offset: those up to its own place, or all
    // that there are.
    const int64_t slope = heads_.causal ? 1 : 0, offset = heads_.causal ? key - first_ : 1 - keys;
    // The keys that are seen by one of queries [i, i + queries); more than kKeys stand for all.
    const auto seen_by = [&](int64_t i, int64_t queries)
                             BRIGADE_SIMD_BODY { return slope * (i + queries - 1) + 1 - offset; };
    for (int64_t i = 0; i < rows_; i += Op::kColumns) {
      for (int64_t k = 0; k < kKeys && k < seen_by(i, Op::kColumns); k += Op::kRows) {
        MultiplyBlock<Op, Op::kVectors>(
            {keys_ + k * row_stride_, row_stride_, 1}, {queries_ + i, kQueries}, words_,
            [&](auto& sums) BRIGADE_SIMD_BODY {
              for (int m = 0; m < Op::kRows; ++m) {
                for (int v = 0; v < Op::kVectors; ++v) {
                  Op::Store(scores_ + (k + m) * kQueries + i + v * Op::kLanes, sums[m][v]);
                }
              }
            });
      }
    }
    for (int64_t i = 0; i < rows_; i += kGroup) {
      const int64_t seen = seen_by(i, kGroup);
      if (seen_by(i, 1) >= kKeys) {
        Softmax<false>(i, kKeys, offset);
      } else if (seen > 0) {
        Softmax<true>(i, seen < kKeys ? seen : kKeys, offset);
      }
    }
    for (int64_t column = 0; column < stride_; column += Op::kColumns) {
      for (int64_t i = offset < 0 ? 0 : offset / Op::kRows * Op::kRows; i < rows_; i += Op::kRows) {
        const int64_t seen = seen_by(i, Op::kRows);
        Multiply<Op>({probabilities_ + i, 1, kQueries}, {values_, stride_}, column, stride_,
                     (seen < kKeys ? seen + Op::kDepth - 1 : kKeys) / Op::kDepth,
                     [&](auto& sums) BRIGADE_SIMD_BODY {
                       constexpr int kHere = kVectorsOf<decltype(sums)>;
                       for (int m = 0; m < Op::kRows; ++m) {
                         for (int v = 0; v < kHere; ++v) {
                           W* const to = sums_ + (i + m) * stride_ + column + v * Op::kLanes;
                           Op::Store(to, Op::Load(to) * decay_[i + m] + sums[m][v]);
                         }
                       }
                     });
      }
    }
  }

  // From scores of queries [i, i + kGroup) and `keys` keys to probabilities, as yet without their
  // sum; what was added up before decays by the rise of the maximum.
  template <bool kMasked>
  BRIGADE_INLINE void Softmax(int64_t i, int64_t keys, int64_t offset) {
    // The last key of the tile that a query sees.
    V last[kVectors], max[kVectors], shift[kVectors], decay[kVectors], total[kVectors];
    const W unit = heads_.unit;
    for (int v = 0; v < kVectors; ++v) {
      last[v] = heads_.causal ? Op::Lanes() + static_cast<W>(i + v * Op::kLanes - offset)
                              : V{} + static_cast<W>(-offset);
      max[v] = Op::Load(max_ + i + v * Op::kLanes);
      total[v] = V{};
    }
    const auto score = [&](int64_t k, int v) BRIGADE_SIMD_BODY {
      const V value = Op::Load(scores_ + k * kQueries + i + v * Op::kLanes);
      if constexpr (!kMasked) return value;
      const V hidden = V{} - std::numeric_limits<W>::infinity();
      return last[v] >= V{} + static_cast<W>(k) ? value : hidden;
    };
    for (int64_t k = 0; k < keys; ++k) {
      for (int v = 0; v < kVectors; ++v) max[v] = Op::Max(score(k, v), max[v]);
    }
    for (int v = 0; v < kVectors; ++v) {
      // Exactly 1 if the maximum stays: a rounding here would add up over the tiles.
      decay[v] = Exp2<Op>((Op::Load(max_ + i + v * Op::kLanes) - max[v]) * unit);
      shift[v] = max[v] * unit;
      Op::Store(max_ + i + v * Op::kLanes, max[v]);
      Op::Store(decay_ + i + v * Op::kLanes, decay[v]);
    }
    for (int64_t k = 0; k < keys; k += Op::kDepth) {
      for (int v = 0; v < kVectors; ++v) {
        const V p = Exp2<Op>(score(k, v) * unit - shift[v]);
        total[v] += p;
        if constexpr (Op::kDepth == 1) {
          Op::Store(probabilities_ + k * kQueries + i + v * Op::kLanes, p);
        } else {
          const V next = Exp2<Op>(score(k + 1, v) * unit - shift[v]);
          total[v] += next;
          Op::StoreBits(probabilities_ + k / 2 * kQueries + i + v * Op::kLanes,
                        Op::RoundToPairs(p, next));
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      W* const to = total_ + i + v * Op::kLanes;
      Op::Store(to, Op::Load(to) * decay[v] + total[v]);
    }
  }

  BRIGADE_INLINE void Store() {
    WithWidth<T>(is_wide_, [&](auto tag) BRIGADE_SIMD_BODY {
      using Out = decltype(tag);
      Out* const all =
          static_cast<Out*>(out_) + heads_.At(head_, heads_.begin + first_, heads_.width());
      for (int64_t i = 0; i < rows_; ++i) {
        const W inverse = W(1) / total_[i];
        Out* const to = all + i * heads_.width();
        const W* const from = sums_ + i * stride_;
        BRIGADE_SIMD_LOOP
        for (int64_t c = 0; c < heads_.head_width; ++c) to[c] = Out(from[c] * inverse);
      }
    });
    W* const lse = lse_ + heads_.Statistic(head_, first_);
    for (int64_t i = 0; i < rows_; ++i) lse[i] = max_[i] * heads_.scale + std::log(total_[i]);
  }

  const Heads<T>& heads_;
  const int64_t head_, first_;
  void* const out_;
  const bool is_wide_;
  W* const lse_;
  int64_t rows_, words_, row_stride_, stride_;
  Word *queries_, *keys_, *values_, *probabilities_;
  W *scores_, *sums_, *max_, *total_, *decay_;
};

}  // namespace

template <typename T>
void AttentionOnCpu(const AttentionArrays<T>& in, int64_t heads, void* out, bool is_wide,
                    Wide<T>* log_sum_exp, device::ThreadPool& pool) {
  constexpr int64_t kQueries = ForwardSizes<Wide<T>>::kQueries;
  const Heads<T> all(in);
  const int64_t tiles = (in.query_count + kQueries - 1) / kQueries;
  pool.ParallelFor(heads * tiles, [&](int64_t chunk) {
    // A head's last tiles have the most work: they go first.
    const int64_t head = chunk / tiles, slot = tiles - 1 - chunk % tiles;
    alignas(64) char scratch[kScratchBytes];
    ForTilesOfSlot<kQueries>(all, head, slot, [&](const Heads<T>& segment, int64_t first) {
      RunWithOperands<T>([&](auto operands) BRIGADE_SIMD_BODY {
        using Op = decltype(operands);
        static_assert(ForwardTile<Op>::kBytes <= kScratchBytes);
        ForwardTile<Op>(segment, head, first, out, is_wide, log_sum_exp, scratch).Run();
      });
    });
  });
}

#define BRIGADE_INSTANTIATE(T)                                                            \
  template void AttentionOnCpu(const AttentionArrays<T>&, int64_t, void*, bool, Wide<T>*, \
                               device::ThreadPool&)
BRIGADE_INSTANTIATE(float);
BRIGADE_INSTANTIATE(precision::Half);
BRIGADE_INSTANTIATE(precision::BFloat16);
BRIGADE_INSTANTIATE(double);

}  // namespace brigade::nn
