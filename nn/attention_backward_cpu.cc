// The backward pass on the CPU: a tile of keys against all queries that see them. Source: Dao 2023
// (arXiv 2307.08691), algorithm 2.
//
// Work: 10 operations for each pair of positions and column of a head, those of the diagonal's
// blocks included, and an exponential for each pair.
//
// Every tile of keys adds to the gradients of all later queries. Those of a head are therefore
// added up in parts, each by one thread for every n-th tile of keys; the parts are added up at the
// end. How many there are depends on the shape only. Segments have the same parts, each its own
// rows of them.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "brigade/kernels/simd.h"
#include "brigade/nn/attention_cpu.h"
#include "brigade/nn/attention_tiles.h"

namespace brigade::nn {
namespace {

// What the passes over tiles of keys read besides queries, keys and values.
template <typename T>
struct Upstream {
  const T* dout;
  const Wide<T>* delta;
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

  // Adds to dqueries [queries, width rounded up to kPadding], without the scale, and writes the
  // gradients of keys and values.
  BRIGADE_INLINE BackwardTile(const Heads<T>& heads, const Upstream<T>& up, int64_t head,
                              W* dqueries, const AttentionGradients& to, bool is_wide,
                              char* scratch)
      : heads_(heads), up_(up), head_(head), dqueries_(dqueries), to_(to), is_wide_(is_wide) {
    words_ = WordsOf<Op>(heads.head_width);
    row_stride_ = RoundUp(words_, kPadding);
    stride_ = RoundUp(heads.head_width, kPadding);
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
    keys_here_ = RowsFrom(key, heads_.key_count);
    const auto k = heads_.Keys(head_, key, keys_here_);
    const auto v = heads_.Values(head_, key, keys_here_);
    // What follows overwrites the rows that a transposition needs room for.
    PackTransposed<Op>(k, kTile, keys_transposed_, kTile, query_rows_, row_stride_);
    PackTransposed<Op>(v, kTile, values_transposed_, kTile, query_rows_, row_stride_);
    PackColumns<Op>(k, kTile, keys_, stride_);
    for (int64_t i = 0; i < kTile * stride_; ++i) dkeys_[i] = 0;
    for (int64_t i = 0; i < kTile * stride_; ++i) dvalues_[i] = 0;
    int64_t query = 0;
    if (heads_.causal) {
      AddQueries<true>(key);
      query = key + kTile;
    } else if (keys_here_ < kTile) {
      // Keys that are not there would have any probability, also that of infinity.
      for (; query < heads_.query_count; query += kTile) AddQueries<true>(query);
    }
    for (; query < heads_.query_count; query += kTile) AddQueries<false>(query);
    Write(dkeys_, to_.keys, key, heads_.scale);
    Write(dvalues_, to_.values, key, W(1));
  }

 private:
  BRIGADE_INLINE static int64_t RowsFrom(int64_t row, int64_t rows) {
    return rows - row < kTile ? rows - row : kTile;
  }

  // kMasked: of a causal pass the queries are at the keys' places, and see those up to their own;
  // else they see the keys that there are.
  template <bool kMasked>
  BRIGADE_INLINE void AddQueries(int64_t query) {
    const bool diagonal = kMasked && heads_.causal;
    const int64_t queries = RowsFrom(query, heads_.query_count);
    const auto q = heads_.Queries(head_, query, queries);
    const RowsOf<const T> d = {up_.dout + heads_.At(head_, heads_.begin + query, heads_.width()),
                               heads_.width(), queries, heads_.head_width};
    PackColumns<Op>(q, kTile, query_columns_, stride_);
    PackColumns<Op>(d, kTile, dout_columns_, stride_);
    if constexpr (Op::kDepth != 1) {
      PackRows<Op>(q, kTile, query_rows_, row_stride_);
      PackRows<Op>(d, kTile, dout_rows_, row_stride_);
    }
    const int64_t at = heads_.Statistic(head_, query);
    for (int64_t i = 0; i < kTile; ++i) {
      // A row of padding has dout 0, which makes all that it adds 0.
      lse_[i] = i < queries ? heads_.log_sum_exp[at + i] * std::numbers::log2e_v<W> : W(0);
      delta_[i] = i < queries ? up_.delta[at + i] : W(0);
    }
    const int64_t rows = RoundUp(queries, kRows);
    for (int64_t k = 0; k < kTile; k += Op::kColumns) {
      for (int64_t i = diagonal ? k / kRows * kRows : 0; i < rows; i += kRows) {
        Scores<kMasked>(i, k);
      }
    }
    for (int64_t column = 0; column < stride_; column += Op::kColumns) {
      for (int64_t k = 0; k < kTile; k += kRows) {
        const int64_t from = (diagonal ? k : 0) / Op::kDepth;
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
                   {keys_, stride_}, column, (diagonal ? i + kRows : kTile) / Op::kDepth,
                   dqueries_ + (query + i) * stride_, queries - i);
      }
    }
  }

  // Probabilities and the gradients of scores of queries [i, i + kRows) and keys
  // [k, k + kColumns).
  template <bool kMasked>
  BRIGADE_INLINE void Scores(int64_t i, int64_t k) {
    // The last key that query i + m sees, from that of a vector's first lane on.
    const auto last_of = [&](int m, int v) BRIGADE_SIMD_BODY {
      const int64_t last = heads_.causal ? i + m : keys_here_ - 1;
      return V{} + static_cast<W>(last - k - v * kLanes);
    };
    V p[kRows][Op::kVectors];
    MultiplyBlock<Op, Op::kVectors>({query_rows_ + i * row_stride_, row_stride_, 1},
                                    {keys_transposed_ + k, kTile}, words_,
                                    [&](auto& sums) BRIGADE_SIMD_BODY {
                                      const V unit = V{} + heads_.unit;
#pragma GCC unroll 8
                                      for (int m = 0; m < kRows; ++m) {
                                        for (int v = 0; v < Op::kVectors; ++v) {
                                          p[m][v] = Exp2<Op>(sums[m][v] * unit - lse_[i + m]);
                                          if constexpr (kMasked) {
                                            const V last = last_of(m, v);
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
                if constexpr (kMasked) {
                  const V last = last_of(m + s, v);
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

  // to += left right, kRows rows of what begins at `column`, or as many as there are.
  BRIGADE_INLINE void AddProduct(Left<Word> left, Right<Word> right, int64_t column, int64_t steps,
                                 W* to, int64_t rows = kRows) {
    Multiply<Op>(left, right, column, stride_, steps, [&](auto& sums) BRIGADE_SIMD_BODY {
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        // Behind a segment are the rows of the next one.
        if (m >= rows) break;
        for (int v = 0; v < kVectorsOf<decltype(sums)>; ++v) {
          W* const sum = to + m * stride_ + column + v * kLanes;
          Op::Store(sum, Op::Load(sum) + sums[m][v]);
        }
      }
    });
  }

  BRIGADE_INLINE void Write(const W* from, void* all, int64_t key, W scale) {
    WithWidth<T>(is_wide_, [&](auto tag) BRIGADE_SIMD_BODY {
      using Out = decltype(tag);
      Out* const to =
          static_cast<Out*>(all) + heads_.At(head_, heads_.begin + key, to_.key_leading);
      for (int64_t r = 0; r < keys_here_; ++r) {
        BRIGADE_SIMD_LOOP
        for (int64_t c = 0; c < heads_.head_width; ++c) {
          to[r * to_.key_leading + c] = Out(from[r * stride_ + c] * scale);
        }
      }
    });
  }

  const Heads<T>& heads_;
  const Upstream<T>& up_;
  const int64_t head_;
  W* const dqueries_;
  const AttentionGradients& to_;
  const bool is_wide_;
  int64_t words_, row_stride_, stride_;
  // Of the tile.
  int64_t keys_here_ = 0;
  Word *keys_, *keys_transposed_, *values_transposed_, *query_columns_, *dout_columns_;
  Word *query_rows_, *dout_rows_, *probabilities_, *dscores_, *dscore_rows_;
  W *dkeys_, *dvalues_, *lse_, *delta_;
};

int64_t TileOf(const AttentionShape& shape) {
  return shape.dtype == precision::DType::kFloat64 ? BackwardSizes<double>::kTile
                                                   : BackwardSizes<float>::kTile;
}

// Parts of a head: enough to keep 16 threads busy, untuned for more.
int64_t PartsOfHead(int64_t heads, int64_t tiles) {
  constexpr int64_t kWanted = 16;
  return std::clamp<int64_t>(kWanted / heads, 1, tiles);
}

// Numbers in a part.
int64_t PartSize(int64_t queries, int64_t tile, int64_t head_width) {
  return RoundUp(queries, tile) * RoundUp(head_width, kPadding);
}

// The gradient of queries [begin, end) of a head.
template <typename Out, typename T>
BRIGADE_INLINE void AddParts(const Heads<T>& heads, int64_t head, int64_t begin, int64_t end,
                             const Wide<T>* parts, int64_t count, int64_t size,
                             const AttentionGradients& gradients) {
  const int64_t stride = RoundUp(heads.head_width, kPadding);
  for (int64_t row = begin; row < end; ++row) {
    Out* const to =
        static_cast<Out*>(gradients.queries) + heads.At(head, row, gradients.query_leading);
    const Wide<T>* const from = parts + row * stride;
    BRIGADE_SIMD_LOOP
    for (int64_t c = 0; c < heads.head_width; ++c) {
      Wide<T> sum = from[c];
      for (int64_t part = 1; part < count; ++part) sum += from[part * size + c];
      StoreGradient(to + c, gradients.adds_queries, sum * heads.scale);
    }
  }
}

}  // namespace

int64_t AttentionPartsBytes(const AttentionShape& shape) {
  const int64_t tile = TileOf(shape), tiles = (shape.context + tile - 1) / tile;
  const int64_t heads = shape.batch * shape.heads;
  return heads * PartsOfHead(heads, tiles) * PartSize(shape.context, tile, shape.head_width()) *
         (shape.dtype == precision::DType::kFloat64 ? 8 : 4);
}

template <typename T>
void AttentionBackwardOnCpu(const AttentionArrays<T>& in, int64_t heads, const Wide<T>* delta,
                            const T* dout, Wide<T>* parts, const AttentionGradients& to,
                            bool is_wide, device::ThreadPool& pool) {
  constexpr int64_t kTile = BackwardSizes<Wide<T>>::kTile;
  const Heads<T> all(in);
  const Upstream<T> up = {dout, delta};
  const int64_t count = PartsOfHead(heads, (in.key_count + kTile - 1) / kTile);
  const int64_t size = PartSize(in.query_count, kTile, in.head_width);
  pool.ParallelFor(heads * count, [&](int64_t chunk) {
    const int64_t head = chunk / count;
    Wide<T>* const part = parts + chunk * size;
    std::memset(part, 0, static_cast<size_t>(size) * sizeof(*part));
    alignas(64) char scratch[kScratchBytes];
    for (int64_t begin = 0; begin < in.key_count;) {
      const int64_t end = in.segments.End(head / in.heads, begin, in.key_count);
      const Heads<T> segment = all.Segment(begin, end);
      // A tile that is alone may be of any part: it is of one that depends on its place.
      const int64_t turn = end - begin <= kTile ? begin / kTile : 0;
      RunWithOperands<T>([&](auto operands) BRIGADE_SIMD_BODY {
        using Op = decltype(operands);
        static_assert(BackwardTile<Op>::kBytes <= kScratchBytes);
        BackwardTile<Op> tile(segment, up, head, part + begin * RoundUp(in.head_width, kPadding),
                              to, is_wide, scratch);
        for (int64_t key = (chunk + turn) % count * kTile; key < segment.key_count;
             key += count * kTile) {
          tile.Run(key);
        }
      });
      begin = end;
    }
  });
  const int64_t tiles = (in.query_count + kTile - 1) / kTile;
  pool.ParallelFor(heads * tiles, [&](int64_t chunk) {
    const int64_t head = chunk / tiles, begin = chunk % tiles * kTile;
    const int64_t end = std::min(begin + kTile, in.query_count);
    kernels::RunSimd([&]() BRIGADE_SIMD_BODY {
      WithWidth<T>(is_wide, [&](auto tag) BRIGADE_SIMD_BODY {
        AddParts<decltype(tag)>(all, head, begin, end, parts + head * count * size, count, size,
                                to);
      });
    });
  });
}

#define BRIGADE_INSTANTIATE(T)                                                              \
  template void AttentionBackwardOnCpu(const AttentionArrays<T>&, int64_t, const Wide<T>*,  \
                                       const T*, Wide<T>*, const AttentionGradients&, bool, \
                                       device::ThreadPool&)
BRIGADE_INSTANTIATE(float);
BRIGADE_INSTANTIATE(precision::Half);
BRIGADE_INSTANTIATE(precision::BFloat16);
BRIGADE_INSTANTIATE(double);

}  // namespace brigade::nn
