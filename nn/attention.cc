#include "brigade/nn/attention.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/attention_cpu.h"
#include "brigade/nn/attention_math.h"
#include "brigade/nn/enqueue.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/nn/attention_cuda.h"
#endif

namespace brigade::nn {
namespace {

absl::Status Validate(absl::string_view operation, const AttentionShape& shape) {
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
  return absl::OkStatus();
}

int64_t DeltaBytes(const AttentionShape& shape) {
  const int64_t size = shape.dtype == precision::DType::kFloat64 ? sizeof(double) : sizeof(float);
  return (shape.statistics() * size + 255) / 256 * 256;
}

// Behind delta, at the next whole vector.
void* PartsOf(const AttentionShape& shape, void* workspace) {
  char* const end = static_cast<char*>(workspace) + DeltaBytes(shape);
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(end) %
                                         static_cast<uintptr_t>(kAttentionPartsAlignment));
  return past == 0 ? end : end + (kAttentionPartsAlignment - past);
}

template <typename T>
AttentionArrays<T> Arrays(const AttentionShape& shape, const void* qkv, const void* log_sum_exp) {
  return {Typed<T>(qkv),
          Typed<Wide<T>>(log_sum_exp),
          shape.context,
          shape.heads,
          shape.head_width(),
          static_cast<Wide<T>>(1 / std::sqrt(static_cast<double>(shape.head_width())))};
}

#if BRIGADE_CUDA
// Whether there are kernels with tensor cores for arrays of a 16-bit type; otherwise a warp takes a
// row.
template <typename... Arrays>
bool IsTiled(const AttentionShape& shape, const Arrays*... arrays) {
  return HasTiledAttention(shape.head_width()) &&
         ((reinterpret_cast<uintptr_t>(arrays) % kTiledAttentionAlignment == 0) && ...);
}

TiledAttentionShape Tiled(const AttentionShape& shape) {
  return {shape.batch, shape.context, shape.heads, shape.head_width()};
}
#endif

}  // namespace

absl::Status Attention(const AttentionShape& shape, const void* qkv, void* out, void* log_sum_exp,
                       device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Validate("attention", shape));
  return WithType("attention", shape.dtype, [&](auto tag) -> absl::Status {
    using T = decltype(tag);
    if (shape.batch == 0) return absl::OkStatus();
    const T* const in = Typed<T>(qkv);
    T* const to = Typed<T>(out);
    Wide<T>* const lse = Typed<Wide<T>>(log_sum_exp);
    const device::Access accesses[] = {Read(in, shape.rows() * 3 * shape.width),
                                       Write(to, shape.rows() * shape.width),
                                       Write(lse, shape.statistics())};
    const device::Operation operation = {"attention", accesses};
    if (stream.device().kind == device::DeviceKind::kCpu) {
      return stream.Enqueue(operation, [=](device::ThreadPool& pool) {
        AttentionOnCpu(shape, in, to, lse, pool);
        return absl::OkStatus();
      });
    }
#if BRIGADE_CUDA
    if constexpr (sizeof(T) == 2) {
      if (IsTiled(shape, in, to)) {
        return stream.Launch(operation, [&](void* cuda_stream) {
          return device::CudaStatus(LaunchTiledAttention(Tiled(shape), in, to, lse,
                                                         static_cast<cudaStream_t>(cuda_stream)),
                                    operation.name);
        });
      }
    }
#endif
    const AttentionRows<T> formula = {Arrays<T>(shape, qkv, log_sum_exp), to, lse};
    return EnqueueRows(operation, shape.statistics(), formula, stream);
  });
}

absl::Status AttentionBackward(const AttentionShape& shape, const void* qkv, const void* out,
                               const void* log_sum_exp, const void* dout, void* workspace,
                               void* dqkv, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Validate("attention_backward", shape));
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
    const AttentionArrays<T> arrays = Arrays<T>(shape, qkv, log_sum_exp);
    const bool cpu = stream.device().kind == device::DeviceKind::kCpu;
#if BRIGADE_CUDA
    if constexpr (sizeof(T) == 2) {
      if (!cpu && IsTiled(shape, in, Typed<T>(out), up, to)) {
        const device::Access tiled_accesses[] = {
            Read(in, 3 * size), Read(Typed<T>(out), size),        Read(lse, shape.statistics()),
            Read(up, size),     Write(delta, shape.statistics()), Write(to, 3 * size)};
        const device::Operation tiled = {"attention_backward", tiled_accesses};
        return stream.Launch(tiled, [&](void* cuda_stream) {
          return device::CudaStatus(
              LaunchTiledAttentionBackward(Tiled(shape), in, Typed<T>(out), lse, up, delta, to,
                                           static_cast<cudaStream_t>(cuda_stream)),
              tiled.name);
        });
      }
    }
#endif
    const device::Access delta_accesses[] = {Read(in, 3 * size), Read(Typed<T>(out), size),
                                             Read(lse, shape.statistics()), Read(up, size),
                                             Write(delta, shape.statistics())};
    const device::Operation delta_operation = {"attention_delta", delta_accesses};
    if (cpu && sizeof(T) < sizeof(W)) {
      if constexpr (sizeof(T) < sizeof(W)) {
        BRIGADE_RETURN_IF_ERROR(stream.Enqueue(delta_operation, [=](device::ThreadPool& pool) {
          AttentionDeltaOnCpu(shape, in, lse, up, delta, pool);
          return absl::OkStatus();
        }));
      }
    } else {
      const AttentionDeltaRows<T> rows = {arrays, Typed<T>(out), up, delta};
      BRIGADE_RETURN_IF_ERROR(EnqueueRows(delta_operation, shape.statistics(), rows, stream));
    }
    W* const parts = Typed<W>(PartsOf(shape, workspace));
    const device::Access accesses[] = {Read(in, 3 * size),
                                       Read(lse, shape.statistics()),
                                       Read(delta, shape.statistics()),
                                       Read(up, size),
                                       device::Writes(parts, cpu ? AttentionPartsBytes(shape) : 0),
                                       Write(to, 3 * size)};
    const device::Operation operation = {"attention_backward", accesses};
    if (cpu) {
      return stream.Enqueue(operation, [=](device::ThreadPool& pool) {
        AttentionBackwardOnCpu(shape, in, lse, delta, up, parts, to, pool);
        return absl::OkStatus();
      });
    }
    const AttentionBackwardQueryRows<T> queries = {arrays, up, delta, to};
    BRIGADE_RETURN_IF_ERROR(EnqueueRows(operation, shape.statistics(), queries, stream));
    const AttentionBackwardKeyRows<T> keys = {arrays, up, delta, to};
    return EnqueueRows(operation, shape.statistics(), keys, stream);
  });
}

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, device::Device device) {
  if (shape.batch < 1 || shape.context < 1 || shape.heads < 1) return 0;
  if (device.kind != device::DeviceKind::kCpu) return DeltaBytes(shape);
  return DeltaBytes(shape) + AttentionPartsBytes(shape) + kAttentionPartsAlignment;
}

}  // namespace brigade::nn
