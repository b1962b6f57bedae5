// The backward pass on the CPU: a tile of keys against all queries that see them. Source: Dao 2023
// (arXiv 2307.08691), algorithm 2.
//
// Work: 10 operations for each pair of positions and column of a head, those of the diagonal's
// blocks included, and an exponential for each pair.
//
// Every tile of keys adds to the gradients of all later queries. Those of a head are therefore
// added up in parts, each by one thread for every n-th tile of keys; the parts are added up at the
// end. How many there are depends on the shape only.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "brigade/nn/attention_cpu.h"
#include "brigade/nn/attention_tiles.h"

namespace brigade::nn {
namespace {

// What the passes over tiles of keys read besides queries, keys and values.
template <typename T>
struct Upstream {
  const T* dout;
  // [head, context]
  const Wide<T>*lse, *delta;
};

template <typename Op>
struct BackwardTile {
  using W = typename Op::W;
  using V = typename Op::V;
  using Word = typename Op::Word;
  using T = typename Op::Number;
  static constexpr int64_t kTile = BackwardSizes<W>::kTile;
  static constexpr int kRows = Op::kRows, kLanes = Op::kLanes;
  // Of the scratch memory, at the largest head.
  static constexpr int64_t kBytes = kTile *
                                    (kMaxHeadWidth * (Op::kDepth == 1 ? 7 : 6) + 2 * kTile + 2) *
                                    static_cast<int64_t>(sizeof(W));

  // Adds to dqueries [context rounded up to kTile, width rounded up to kPadding], without the
  // scale, and writes the gradients of keys and values.
  BRIGADE_INLINE BackwardTile(const Heads<T>& heads, const Upstream<T>& up, int64_t head,
                              W* dqueries, T* dqkv, char* scratch)
      : heads_(heads), up_(up), head_(head), dqueries_(dqueries), dqkv_(dqkv) {
    words_ = WordsOf<Op>(heads.width);
    row_stride_ = RoundUp(words_, kPadding);
    stride_ = RoundUp(heads.width, kPadding);
    Scratch room(scratch);
    keys_ = room.Take<Word>(kTile / Op::kDepth * stride_);
    keys_transposed_ = room.Take<Word>(row_stride_ * kTile);
    values_transposed_ = room.Take<Word>(row_stride_ * kTile);
    dkeys_ = room.Take<W>(kTile * stride_);
    dvalues_ = room.Take<W>(kTile * stride_);
    query_columns_ = room.Take<Word>(kTile / Op::kDepth * stride_);
    dout_columns_ = room.Take<Word>(kTile / Op::kDepth * stride_);
    probabilities_ = room.Take<Word>(kTile / Op::kDepth * kTile);
    dscores_ = room.Take<Word>(kTile / Op::kDepth * kTile);
    if constexpr (Op::kDepth == 1) {
      query_rows_ = query_columns_;
      dout_rows_ = dout_columns_;
      dscore_rows_ = dscores_;
    } else {
      query_rows_ = room.Take<Word>(kTile * row_stride_);
      dout_rows_ = room.Take<Word>(kTile * row_stride_);
      dscore_rows_ = room.Take<Word>(kTile * kTile / Op::kDepth);
    }
    lse_ = room.Take<W>(kTile);
    delta_ = room.Take<W>(kTile);
  }

  BRIGADE_INLINE void Run(int64_t key) {
    const int64_t keys = RowsFrom(key);
    const auto k = heads_.Rows(head_, kKeyPart, key, keys);
    const auto v = heads_.Rows(head_, kValuePart, key, keys);
    // What follows overwrites the rows that a transposition needs room for.
    PackTransposed<Op>(k, kTile, keys_transposed_, kTile, query_rows_, row_stride_);
    PackTransposed<Op>(v, kTile, values_transposed_, kTile, query_rows_, row_stride_);
    PackColumns<Op>(k, kTile, keys_, stride_);
    for (int64_t i = 0; i < kTile * stride_; ++i) dkeys_[i] = 0;
    for (int64_t i = 0; i < kTile * stride_; ++i) dvalues_[i] = 0;
    AddQueries<true>(key);
    for (int64_t query = key + kTile; query < heads_.context; query += kTile) {
      AddQueries<false>(query);
    }
    Write(dkeys_, kKeyPart, key, keys, heads_.scale);
    Write(dvalues_, kValuePart, key, keys, W(1));
  }

 private:
  BRIGADE_INLINE int64_t RowsFrom(int64_t row) const {
    return heads_.context - row < kTile ? heads_.context - row : kTile;
  }

  // kDiagonal: the queries are at the keys' places, and see those up to their own.
  template <bool kDiagonal>
  BRIGADE_INLINE void AddQueries(int64_t query) {
    const int64_t queries = RowsFrom(query);
    const auto q = heads_.Rows(head_, kQueryPart, query, queries);
    const RowsOf<const T> d = {up_.dout + heads_.At(head_, query, heads_.out_leading),
                               heads_.out_leading, queries, heads_.width};
    PackColumns<Op>(q, kTile, query_columns_, stride_);
    PackColumns<Op>(d, kTile, dout_columns_, stride_);
    if constexpr (Op::kDepth != 1) {
      PackRows<Op>(q, kTile, query_rows_, row_stride_);
      PackRows<Op>(d, kTile, dout_rows_, row_stride_);
    }
    const int64_t at = head_ * heads_.context + query;
    for (int64_t i = 0; i < kTile; ++i) {
      // A row of padding has dout 0, which makes all that it adds 0.
      lse_[i] = i < queries ? up_.lse[at + i] * std::numbers::log2e_v<W> : W(0);
      delta_[i] = i < queries ? up_.delta[at + i] : W(0);
    }
    const int64_t rows = RoundUp(queries, kRows);
    for (int64_t k = 0; k < kTile; k += Op::kColumns) {
      for (int64_t i = kDiagonal ? k / kRows * kRows : 0; i < rows; i += kRows) {
        Scores<kDiagonal>(i, k);
      }
    }
    for (int64_t column = 0; column < stride_; column += Op::kColumns) {
      for (int64_t k = 0; k < kTile; k += kRows) {
        const int64_t from = (kDiagonal ? k : 0) / Op::kDepth;
        const int64_t steps = rows / Op::kDepth - from;
        // On the diagonal of a short tile no query sees such keys.
        if (steps <= 0) break;
        AddProduct({probabilities_ + from * kTile + k, 1, kTile},
                   {dout_columns_ + from * stride_, stride_}, column, steps,
                   dvalues_ + k * stride_);
        AddProduct({dscores_ + from * kTile + k, 1, kTile},
                   {query_columns_ + from * stride_, stride_}, column, steps, dkeys_ + k * stride_);
      }
      for (int64_t i = 0; i < rows; i += kRows) {
        AddProduct({dscore_rows_ + i * (kTile / Op::kDepth), kTile / Op::kDepth, 1},
                   {keys_, stride_}, column, (kDiagonal ? i + kRows : kTile) / Op::kDepth,
                   dqueries_ + (query + i) * stride_);
      }
    }
  }

  // Probabilities and the gradients of scores of queries [i, i + kRows) and keys
  // [k, k + kColumns).
  template <bool kDiagonal>
  BRIGADE_INLINE void Scores(int64_t i, int64_t k) {
    V p[kRows][Op::kVectors];
    MultiplyBlock<Op, Op::kVectors>(
        {query_rows_ + i * row_stride_, row_stride_, 1}, {keys_transposed_ + k, kTile}, words_,
        [&](auto& sums) BRIGADE_SIMD_BODY {
          const V unit = V{} + heads_.unit;
#pragma GCC unroll 8
          for (int m = 0; m < kRows; ++m) {
            for (int v = 0; v < Op::kVectors; ++v) {
              p[m][v] = Exp2<Op>(sums[m][v] * unit - lse_[i + m]);
              if constexpr (kDiagonal) {
                const V last = V{} + static_cast<W>(i + m - k - v * kLanes);
                p[m][v] = Op::Lanes() <= last ? p[m][v] : V{};
              }
            }
          }
        });
    MultiplyBlock<Op, Op::kVectors>(
        {dout_rows_ + i * row_stride_, row_stride_, 1}, {values_transposed_ + k, kTile}, words_,
        [&](auto& sums) BRIGADE_SIMD_BODY {
#pragma GCC unroll 8
          for (int m = 0; m < kRows; m += Op::kDepth) {
            V d[Op::kDepth][Op::kVectors];
            for (int s = 0; s < Op::kDepth; ++s) {
              for (int v = 0; v < Op::kVectors; ++v) {
                d[s][v] = p[m + s][v] * (sums[m + s][v] - delta_[i + m + s]);
                // As p: what a query does not see may be NaN.
                if constexpr (kDiagonal) {
                  const V last = V{} + static_cast<W>(i + m + s - k - v * kLanes);
                  d[s][v] = Op::Lanes() <= last ? d[s][v] : V{};
                }
              }
            }
            for (int v = 0; v < Op::kVectors; ++v) {
              const int64_t to = (i + m) / Op::kDepth * kTile + k + v * kLanes;
              if constexpr (Op::kDepth == 1) {
                Op::Store(probabilities_ + to, p[m][v]);
                Op::Store(dscores_ + to, d[0][v]);
              } else {
                Op::StoreBits(probabilities_ + to, Op::RoundToPairs(p[m][v], p[m + 1][v]));
                Op::StoreBits(dscores_ + to, Op::RoundToPairs(d[0][v], d[1][v]));
              }
            }
            if constexpr (Op::kDepth == 2) {
              for (int s = 0; s < 2; ++s) {
                Op::StoreBits(dscore_rows_ + ((i + m + s) * kTile + k) / 2,
                              Op::Round(d[s][0], d[s][1]));
              }
            }
          }
        });
  }

  // to += left right, kRows rows of what begins at `column`.
  BRIGADE_INLINE void AddProduct(Left<Word> left, Right<Word> right, int64_t column, int64_t steps,
                                 W* to) {
    Multiply<Op>(left, right, column, stride_, steps, [&](auto& sums) BRIGADE_SIMD_BODY {
      for (int m = 0; m < kRows; ++m) {
        for (int v = 0; v < kVectorsOf<decltype(sums)>; ++v) {
          W* const sum = to + m * stride_ + column + v * kLanes;
          Op::Store(sum, Op::Load(sum) + sums[m][v]);
        }
      }
    });
  }

  BRIGADE_INLINE void Write(const W* from, HeadPart part, int64_t row, int64_t rows, W scale) {
    T* const to = dqkv_ + heads_.At(head_, row, heads_.leading) + part * heads_.out_leading;
    for (int64_t r = 0; r < rows; ++r) {
#pragma GCC ivdep
      for (int64_t c = 0; c < heads_.width; ++c) {
        to[r * heads_.leading + c] = T(from[r * stride_ + c] * scale);
      }
    }
  }

  const Heads<T>& heads_;
  const Upstream<T>& up_;
  const int64_t head_;
  W* const dqueries_;
  T* const dqkv_;
  int64_t words_, row_stride_, stride_;
  Word *keys_, *keys_transposed_, *values_transposed_, *query_columns_, *dout_columns_;
  Word *query_rows_, *dout_rows_, *probabilities_, *dscores_, *dscore_rows_;
  W *dkeys_, *dvalues_, *lse_, *delta_;
};

int64_t TileOf(const AttentionShape& shape) {
  return shape.dtype == precision::DType::kFloat64 ? BackwardSizes<double>::kTile
                                                   : BackwardSizes<float>::kTile;
}

// Parts of a head: enough to keep 16 threads busy, untuned for more.
int64_t PartsOfHead(const AttentionShape& shape) {
  constexpr int64_t kWanted = 16;
  const int64_t tiles = (shape.context + TileOf(shape) - 1) / TileOf(shape);
  return std::clamp<int64_t>(kWanted / (shape.batch * shape.heads), 1, tiles);
}

// Numbers in a part.
int64_t PartSize(const AttentionShape& shape) {
  return RoundUp(shape.context, TileOf(shape)) * RoundUp(shape.head_width(), kPadding);
}

// The queries' gradient of positions [begin, end) of a head.
template <typename T>
BRIGADE_INLINE void AddParts(const Heads<T>& heads, int64_t head, int64_t begin, int64_t end,
                             const Wide<T>* parts, int64_t count, int64_t size, T* dqkv) {
  const int64_t stride = RoundUp(heads.width, kPadding);
  for (int64_t row = begin; row < end; ++row) {
    T* const to = dqkv + heads.At(head, row, heads.leading);
    const Wide<T>* const from = parts + row * stride;
#pragma GCC ivdep
    for (int64_t c = 0; c < heads.width; ++c) {
      Wide<T> sum = from[c];
      for (int64_t part = 1; part < count; ++part) sum += from[part * size + c];
      to[c] = T(sum * heads.scale);
    }
  }
}

}  // namespace

int64_t AttentionPartsBytes(const AttentionShape& shape) {
  return shape.batch * shape.heads * PartsOfHead(shape) * PartSize(shape) *
         (shape.dtype == precision::DType::kFloat64 ? 8 : 4);
}

template <typename T>
void AttentionBackwardOnCpu(const AttentionShape& shape, const T* qkv, const Wide<T>* log_sum_exp,
                            const Wide<T>* delta, const T* dout, Wide<T>* parts, T* dqkv,
                            device::ThreadPool& pool) {
  constexpr int64_t kTile = BackwardSizes<Wide<T>>::kTile;
  const Heads<T> heads(shape, qkv);
  const Upstream<T> up = {dout, log_sum_exp, delta};
  const int64_t count = PartsOfHead(shape), size = PartSize(shape);
  const int64_t all_heads = shape.batch * shape.heads;
  pool.ParallelFor(all_heads * count, [&](int64_t chunk) {
    const int64_t head = chunk / count;
    Wide<T>* const part = parts + chunk * size;
    std::memset(part, 0, static_cast<size_t>(size) * sizeof(*part));
    alignas(64) char scratch[kScratchBytes];
    RunWithOperands<T>([&](auto operands) BRIGADE_SIMD_BODY {
      using Op = decltype(operands);
      static_assert(BackwardTile<Op>::kBytes <= kScratchBytes);
      BackwardTile<Op> tile(heads, up, head, part, dqkv, scratch);
      for (int64_t key = chunk % count * kTile; key < shape.context; key += count * kTile) {
        tile.Run(key);
      }
    });
  });
  const int64_t tiles = (shape.context + kTile - 1) / kTile;
  pool.ParallelFor(all_heads * tiles, [&](int64_t chunk) {
    const int64_t head = chunk / tiles, begin = chunk % tiles * kTile;
    const int64_t end = std::min(begin + kTile, shape.context);
    kernels::RunSimd([&]() BRIGADE_SIMD_BODY {
      AddParts(heads, head, begin, end, parts + head * count * size, count, size, dqkv);
    });
  });
}

#define BRIGADE_INSTANTIATE(T)                                                          \
  template void AttentionBackwardOnCpu(const AttentionShape&, const T*, const Wide<T>*, \
                                       const Wide<T>*, const T*, Wide<T>*, T*,          \
                                       device::ThreadPool&)
BRIGADE_INSTANTIATE(float);
BRIGADE_INSTANTIATE(precision::Half);
BRIGADE_INSTANTIATE(precision::BFloat16);
BRIGADE_INSTANTIATE(double);

}  // namespace brigade::nn
