#include "brigade/nn/attention.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/nn/attention_passes.h"

namespace brigade::nn {
namespace internal {

absl::Status CheckAttention(absl::string_view operation, const AttentionShape& shape) {
  if (shape.batch < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": batch is ", shape.batch, "; it must be at least 0"));
  }
  for (const auto& [name, size] :
       {std::pair<const char*, int64_t>{"context", shape.context}, {"heads", shape.heads}}) {
    if (size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(operation, ": ", name, " is ", size, "; it must be at least 1"));
    }
  }
  if (shape.width % shape.heads != 0 || shape.head_width() < 1 ||
      shape.head_width() > kMaxHeadWidth) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": width is ", shape.width, " for ",
                                                   shape.heads, " heads; each must be 1 to ",
                                                   kMaxHeadWidth, " wide"));
  }
  return CheckSegments(operation, shape.segments, shape.context);
}

namespace {

int64_t DeltaBytes(const AttentionShape& shape) {
  const int64_t size = shape.dtype == precision::DType::kFloat64 ? sizeof(double) : sizeof(float);
  return (shape.statistics() * size + 255) / 256 * 256;
}

}  // namespace

void* AttentionParts(const AttentionShape& shape, void* workspace) {
  char* const end = static_cast<char*>(workspace) + DeltaBytes(shape);
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(end) %
                                         static_cast<uintptr_t>(kAttentionPartsAlignment));
  return past == 0 ? end : end + (kAttentionPartsAlignment - past);
}

}  // namespace internal

namespace {

// All positions, of queries, keys and values side by side.
template <typename T>
AttentionArrays<T> Whole(const AttentionShape& shape, const void* qkv, const void* log_sum_exp) {
  const T* const queries = Typed<T>(qkv);
  return {.queries = queries,
          .keys = queries + shape.width,
          .values = queries + 2 * shape.width,
          .log_sum_exp = Typed<Wide<T>>(log_sum_exp),
          .context = shape.context,
          .query_count = shape.context,
          .key_count = shape.context,
          .causal = true,
          .query_leading = 3 * shape.width,
          .key_leading = 3 * shape.width,
          .heads = shape.heads,
          .head_width = shape.head_width(),
          .scale = internal::ScaleOfScores<T>(shape.head_width()),
          .segments = shape.segments};
}

}  // namespace

absl::Status Attention(const AttentionShape& shape, const void* qkv, void* out, void* log_sum_exp,
                       device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(internal::CheckAttention("attention", shape));
  return WithType("attention", shape.dtype, [&](auto tag) -> absl::Status {
    using T = decltype(tag);
    if (shape.batch == 0) return absl::OkStatus();
    T* const to = Typed<T>(out);
    Wide<T>* const lse = Typed<Wide<T>>(log_sum_exp);
    const device::Access accesses[] = {ReadPositions(shape.segments, shape.batch, shape.context),
                                       ReadEnds(shape.segments, shape.batch, shape.context),
                                       Read(Typed<T>(qkv), shape.rows() * 3 * shape.width),
                                       Write(to, shape.rows() * shape.width),
                                       Write(lse, shape.statistics())};
    return internal::EnqueueAttention({"attention", accesses}, shape.batch,
                                      Whole<T>(shape, qkv, log_sum_exp), to, lse, stream);
  });
}

absl::Status AttentionBackward(const AttentionShape& shape, const void* qkv, const void* out,
                               const void* log_sum_exp, const void* dout, void* workspace,
                               void* dqkv, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(internal::CheckAttention("attention_backward", shape));
  return WithType("attention_backward", shape.dtype, [&](auto tag) -> absl::Status {
    using T = decltype(tag);
    using W = Wide<T>;
    if (shape.batch == 0) return absl::OkStatus();
    const int64_t size = shape.rows() * shape.width;
    const T* const in = Typed<T>(qkv);
    const T* const up = Typed<T>(dout);
    const W* const lse = Typed<W>(log_sum_exp);
    T* const to = Typed<T>(dqkv);
    W* const delta = Typed<W>(workspace);
    const AttentionArrays<T> arrays = Whole<T>(shape, qkv, log_sum_exp);
    const bool cpu = stream.device().kind == device::DeviceKind::kCpu;
    const auto positions = ReadPositions(shape.segments, shape.batch, shape.context);
    const auto ends = ReadEnds(shape.segments, shape.batch, shape.context);
    const AttentionGradients gradients = {to, to + shape.width, to + 2 * shape.width,
                                          3 * shape.width, 3 * shape.width};
#if BRIGADE_CUDA
    if constexpr (sizeof(T) == 2) {
      if (!cpu && internal::IsTiled(shape.head_width(), in, Typed<T>(out), up, to)) {
        const device::Access tiled_accesses[] = {positions,
                                                 ends,
                                                 Read(in, 3 * size),
                                                 Read(Typed<T>(out), size),
                                                 Read(lse, shape.statistics()),
                                                 Read(up, size),
                                                 Write(delta, shape.statistics()),
                                                 Write(to, 3 * size)};
        const device::Operation tiled = {"attention_backward", tiled_accesses};
        return stream.Launch(tiled, [&](void* cuda_stream) {
          return device::CudaStatus(
              LaunchTiledAttentionBackward(
                  TiledAttentionShape{shape.batch, shape.context, shape.heads, shape.head_width(),
                                      shape.segments},
                  in, Typed<T>(out), lse, up, delta, to, static_cast<cudaStream_t>(cuda_stream)),
              tiled.name);
        });
      }
    }
#endif
    const device::Access delta_accesses[] = {positions,
                                             ends,
                                             Read(in, 3 * size),
                                             Read(Typed<T>(out), size),
                                             Read(lse, shape.statistics()),
                                             Read(up, size),
                                             Write(delta, shape.statistics())};
    const device::Operation delta_operation = {"attention_delta", delta_accesses};
    if (cpu && sizeof(T) < sizeof(W)) {
      if constexpr (sizeof(T) < sizeof(W)) {
        const int64_t heads = shape.batch * shape.heads;
        BRIGADE_RETURN_IF_ERROR(stream.Enqueue(delta_operation, [=](device::ThreadPool& pool) {
          AttentionDeltaOnCpu(arrays, heads, up, delta, pool);
          return absl::OkStatus();
        }));
      }
    } else {
      const AttentionDeltaRows<T> rows = {arrays, Typed<T>(out), up, delta};
      BRIGADE_RETURN_IF_ERROR(EnqueueRows(delta_operation, shape.statistics(), rows, stream));
    }
    W* const parts = Typed<W>(internal::AttentionParts(shape, workspace));
    const device::Access accesses[] = {positions,
                                       ends,
                                       Read(in, 3 * size),
                                       Read(lse, shape.statistics()),
                                       Read(delta, shape.statistics()),
                                       Read(up, size),
                                       device::Writes(parts, cpu ? AttentionPartsBytes(shape) : 0),
                                       Write(to, 3 * size)};
    return internal::EnqueueAttentionBackward<T>({"attention_backward", accesses}, shape.batch,
                                                 arrays, static_cast<const W*>(delta), up, parts,
                                                 gradients, stream);
  });
}

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, device::Device device) {
  if (shape.batch < 1 || shape.context < 1 || shape.heads < 1) return 0;
  const int64_t delta_bytes = internal::DeltaBytes(shape);
  if (device.kind != device::DeviceKind::kCpu) return delta_bytes;
  return delta_bytes + AttentionPartsBytes(shape) + kAttentionPartsAlignment;
}

int64_t MostAttentionWorkspaceBytes(const AttentionShape& shape, device::Device device) {
  int64_t most = AttentionWorkspaceBytes(shape, device);
  // Larger batches have a part for each head.
  constexpr int64_t kMostParts = 16;
  AttentionShape smaller = shape;
  for (smaller.batch = 1; smaller.batch < std::min(shape.batch, kMostParts); ++smaller.batch) {
    most = std::max(most, AttentionWorkspaceBytes(smaller, device));
  }
  return most;
}

}  // namespace brigade::nn
