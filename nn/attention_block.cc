#include "brigade/nn/attention_block.h"

#include "absl/strings/str_cat.h"
#include "brigade/nn/attention_passes.h"

namespace brigade::nn {
namespace {

absl::Status CheckPositions(absl::string_view operation, const AttentionShape& shape,
                            absl::string_view what, int64_t first, int64_t count) {
  if (first >= 0 && count >= 1 && first <= shape.context - count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": ", count, " ", what, " from ", first,
                                                 " on, of ", shape.context, " positions"));
}

absl::Status CheckBlock(absl::string_view operation, const AttentionBlock& block) {
  BRIGADE_RETURN_IF_ERROR(internal::CheckAttention(operation, block.shape));
  if (block.shape.segments.exist()) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": segments; a block has one, of all its positions"));
  }
  BRIGADE_RETURN_IF_ERROR(
      CheckPositions(operation, block.shape, "queries", block.first_query, block.queries));
  BRIGADE_RETURN_IF_ERROR(
      CheckPositions(operation, block.shape, "keys", block.first_key, block.keys));
  if (!block.causal || block.queries == block.keys) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": a causal block has ", block.queries,
                                                 " queries and ", block.keys,
                                                 " keys; it must have as many of both"));
}

template <typename T>
AttentionArrays<T> Arrays(const AttentionBlock& block, const void* queries, const void* keys,
                          const void* log_sum_exp) {
  const AttentionShape& shape = block.shape;
  const T* const first_key = Typed<T>(keys) + block.first_key * 2 * shape.width;
  return {.queries = Typed<T>(queries) + block.first_query * 3 * shape.width,
          .keys = first_key,
          .values = first_key + shape.width,
          .log_sum_exp = Typed<Wide<T>>(log_sum_exp) + block.first_query,
          .context = shape.context,
          .query_count = block.queries,
          .key_count = block.keys,
          .causal = block.causal,
          .query_leading = 3 * shape.width,
          .key_leading = 2 * shape.width,
          .heads = shape.heads,
          .head_width = shape.head_width(),
          .scale = internal::ScaleOfScores<T>(shape.head_width())};
}

}  // namespace

absl::Status AttentionOfBlock(const AttentionBlock& block, const void* queries, const void* keys,
                              void* out, void* log_sum_exp, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckBlock("attention_of_block", block));
  const AttentionShape& shape = block.shape;
  return WithType("attention_of_block", shape.dtype, [&](auto tag) -> absl::Status {
    using T = decltype(tag);
    using W = Wide<T>;
    if (shape.batch == 0) return absl::OkStatus();
    const int64_t size = shape.rows() * shape.width;
    const device::Access accesses[] = {Read(Typed<T>(queries), 3 * size),
                                       Read(Typed<T>(keys), 2 * size), Write(Typed<W>(out), size),
                                       Write(Typed<W>(log_sum_exp), shape.statistics())};
    return internal::EnqueueAttention({"attention_of_block", accesses}, shape.batch,
                                      Arrays<T>(block, queries, keys, log_sum_exp),
                                      Typed<W>(out) + block.first_query * shape.width,
                                      Typed<W>(log_sum_exp) + block.first_query, stream);
  });
}

absl::Status MergeAttention(const AttentionShape& shape, int64_t first, int64_t count,
                            const void* from, const void* from_log_sum_exp, void* out,
                            void* log_sum_exp, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(internal::CheckAttention("merge_attention", shape));
  BRIGADE_RETURN_IF_ERROR(CheckPositions("merge_attention", shape, "queries", first, count));
  return WithType("merge_attention", shape.dtype, [&](auto tag) -> absl::Status {
    using W = Wide<decltype(tag)>;
    if (shape.batch == 0) return absl::OkStatus();
    const int64_t size = shape.rows() * shape.width, offset = first * shape.width;
    const MergeAttentionRows<W> rows = {shape.context,
                                        count,
                                        shape.heads,
                                        shape.head_width(),
                                        Typed<W>(from) + offset,
                                        Typed<W>(from_log_sum_exp) + first,
                                        Typed<W>(out) + offset,
                                        Typed<W>(log_sum_exp) + first};
    return EnqueueRows(
        {"merge_attention",
         {Read(Typed<W>(from), size), Read(Typed<W>(from_log_sum_exp), shape.statistics()),
          Write(Typed<W>(out), size), Write(Typed<W>(log_sum_exp), shape.statistics())}},
        shape.batch * shape.heads * count, rows, stream);
  });
}

absl::Status AttentionDelta(const AttentionShape& shape, const void* out, const void* dout,
                            void* delta, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(internal::CheckAttention("attention_delta", shape));
  return WithType("attention_delta", shape.dtype, [&](auto tag) -> absl::Status {
    using T = decltype(tag);
    if (shape.batch == 0) return absl::OkStatus();
    const int64_t size = shape.rows() * shape.width;
    // Of queries and keys it needs the places alone.
    AttentionArrays<T> arrays = {};
    arrays.context = arrays.query_count = shape.context;
    arrays.heads = shape.heads;
    arrays.head_width = shape.head_width();
    const AttentionDeltaRows<T, true> rows = {arrays, Typed<T>(out), Typed<T>(dout),
                                              Typed<Wide<T>>(delta)};
    return EnqueueRows({"attention_delta",
                        {Read(Typed<T>(out), size), Read(Typed<T>(dout), size),
                         Write(Typed<Wide<T>>(delta), shape.statistics())}},
                       shape.statistics(), rows, stream);
  });
}

absl::Status AttentionBackwardOfBlock(const AttentionBlock& block, const void* queries,
                                      const void* keys, const void* log_sum_exp, const void* delta,
                                      const void* dout, void* workspace, void* dqueries, bool adds,
                                      void* dkeys, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckBlock("attention_backward_of_block", block));
  const AttentionShape& shape = block.shape;
  return WithType("attention_backward_of_block", shape.dtype, [&](auto tag) -> absl::Status {
    using T = decltype(tag);
    using W = Wide<T>;
    if (shape.batch == 0) return absl::OkStatus();
    const int64_t size = shape.rows() * shape.width;
    const AttentionArrays<T> arrays = Arrays<T>(block, queries, keys, log_sum_exp);
    const W* const deltas = Typed<W>(delta) + block.first_query;
    const T* const up = Typed<T>(dout) + block.first_query * shape.width;
    W* const to_queries = Typed<W>(dqueries) + block.first_query * shape.width;
    W* const to_keys = Typed<W>(dkeys) + block.first_key * 2 * shape.width;
    W* const to_values = to_keys + shape.width;
    const AttentionGradients to = {to_queries,  to_keys,         to_values,
                                   shape.width, 2 * shape.width, adds};
    W* const parts = Typed<W>(internal::AttentionParts(shape, workspace));
    const bool cpu = stream.device().kind == device::DeviceKind::kCpu;
    const device::Access accesses[] = {Read(Typed<T>(queries), 3 * size),
                                       Read(Typed<T>(keys), 2 * size),
                                       Read(Typed<W>(log_sum_exp), shape.statistics()),
                                       Read(Typed<W>(delta), shape.statistics()),
                                       Read(Typed<T>(dout), size),
                                       device::Writes(parts, cpu ? AttentionPartsBytes(shape) : 0),
                                       Write(Typed<W>(dqueries), size),
                                       Write(Typed<W>(dkeys), 2 * size)};
    const device::Operation operation = {"attention_backward_of_block", accesses};
#if BRIGADE_CUDA
    if constexpr (sizeof(T) == 2) {
      if (!cpu && internal::IsTiled(shape.head_width(), arrays.queries, arrays.keys, arrays.values,
                                    up, to_queries, to_keys, to_values)) {
        return stream.Launch(operation, [&](void* cuda_stream) {
          return device::CudaStatus(
              LaunchTiledAttentionBackward(internal::Tiled(shape.batch, arrays), arrays.queries,
                                           arrays.keys, arrays.values, arrays.log_sum_exp, deltas,
                                           up, to_queries, adds, to_keys, to_values,
                                           static_cast<cudaStream_t>(cuda_stream)),
              operation.name);
        });
      }
    }
#endif
    return internal::EnqueueAttentionBackward<W>(operation, shape.batch, arrays, deltas, up, parts,
                                                 to, stream);
  });
}

}  // namespace brigade::nn
