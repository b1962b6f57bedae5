// Kernels with one fault each. A comment "fault: KERNEL" stands on the line, or the lines, that the
// emulator is to name. The good ones do the same right.

#include <cuda_pipeline.h>

#include <cstdint>

namespace brigade::emulator {
namespace {

constexpr int kThreads = 128;
constexpr unsigned kAll = 0xffffffff;

}  // namespace

extern "C" {

__global__ void Good(const float* in, float* out, int64_t size) {
  __shared__ float shared[kThreads];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  shared[threadIdx.x] = i < size ? in[i] : 0.0f;
  __syncthreads();
  float sum = shared[threadIdx.x] + shared[kThreads - 1 - threadIdx.x];
  sum += __shfl_xor_sync(kAll, sum, 1);
  if (i < size) out[i] = sum;
}

__global__ void OffByOne(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size) out[i] = in[i + 1];  // fault: OffByOne
}

__global__ void MissingTail(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  out[i] = i < size ? in[i] : 0.0f;  // fault: MissingTail
}

__global__ void MissingBarrier(const float* in, float* out, int64_t size) {
  __shared__ float shared[kThreads];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  shared[threadIdx.x] = i < size ? in[i] : 0.0f;           // fault: MissingBarrier
  const float other = shared[kThreads - 1 - threadIdx.x];  // fault: MissingBarrier
  if (i < size) out[i] = other;
}

// The reads of one round may come after the writes of the next.
__global__ void MissingSecondBarrier(const float* in, float* out, int64_t size) {
  __shared__ float shared[kThreads];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  float sum = 0;
  for (int round = 0; round < 3; ++round) {
    shared[threadIdx.x] = i < size ? in[i] + round : 0.0f;  // fault: MissingSecondBarrier
    __syncthreads();
    sum += shared[(threadIdx.x + 40) % kThreads];  // fault: MissingSecondBarrier
  }
  if (i < size) out[i] = sum;
}

// Lanes of a warp need not run in step.
__global__ void MissingWarpBarrier(const float* in, float* out, int64_t size) {
  __shared__ float shared[kThreads];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  shared[threadIdx.x] = i < size ? in[i] : 0.0f;
  const float other = shared[threadIdx.x ^ 1];  // fault: MissingWarpBarrier
  if (i < size) out[i] = other;
}

__global__ void WarpBarrier(const float* in, float* out, int64_t size) {
  __shared__ float shared[kThreads];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  shared[threadIdx.x] = i < size ? in[i] : 0.0f;
  __syncwarp();
  const float other = shared[threadIdx.x ^ 1];
  if (i < size) out[i] = other;
}

__global__ void BarrierInBranch(const float* in, float* out, int64_t size) {
  __shared__ float shared[kThreads];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  shared[threadIdx.x] = in[i];
  __syncthreads();  // fault: BarrierInBranch
  out[i] = shared[threadIdx.x];
}

__global__ void Misaligned(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (4 * i + 5 > size) return;
  const float4 four = *reinterpret_cast<const float4*>(in + 4 * i + 1);  // fault: Misaligned
  out[i] = four.x + four.w;
}

__global__ void WrongMask(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  float value = i < size ? in[i] : 0.0f;
  // Half of the warp never comes.
  if (threadIdx.x % 32 < 16) value += __shfl_xor_sync(kAll, value, 1);  // fault: WrongMask
  __syncthreads();
  if (i < size) out[i] = value;
}

__global__ void EndsItself(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i == 40) __trap();  // fault: EndsItself
  if (i < size) out[i] = in[i];
}

__global__ void MaskWithoutItself(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  float value = i < size ? in[i] : 0.0f;
  value += __shfl_xor_sync(0x0000ffff, value, 1);  // fault: MaskWithoutItself
  if (i < size) out[i] = value;
}

__global__ void LaneOutsideOfMask(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  float value = i < size ? in[i] : 0.0f;
  if (threadIdx.x % 32 < 16) {
    value += __shfl_xor_sync(0x0000ffff, value, 16);  // fault: LaneOutsideOfMask
  }
  if (i < size) out[i] = value;
}

__global__ void SharedNotWritten(const float* in, float* out, int64_t size) {
  __shared__ float shared[kThreads];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (threadIdx.x < 100) shared[threadIdx.x] = i < size ? in[i] : 0.0f;
  __syncthreads();
  const float value = shared[kThreads - 1 - threadIdx.x];  // fault: SharedNotWritten
  if (i < size) out[i] = value;
}

__global__ void SharedOutOfRange(const float* in, float* out, int64_t size) {
  __shared__ float shared[kThreads];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  shared[threadIdx.x] = i < size ? in[i] : 0.0f;
  __syncthreads();
  const float value = shared[threadIdx.x + size];  // fault: SharedOutOfRange
  if (i < size) out[i] = value;
}

__global__ void TwoBlocksOneWord(const float* in, float* out, int64_t size) {
  if (threadIdx.x == 0 && size > 0) out[0] = in[blockIdx.x];  // fault: TwoBlocksOneWord
}

__global__ void ReadsWhatAnotherBlockWrites(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  out[i] = in[i];
  if (blockIdx.x == 1) out[i] = out[i - kThreads];  // fault: ReadsWhatAnotherBlockWrites
}

__global__ void TwoThreadsOneWord(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size) out[i / 2] = in[i];  // fault: TwoThreadsOneWord
}

__global__ void Endless(const float* in, volatile float* out, int64_t size) {
  while (out[0] == in[0]) {  // fault: Endless
    if (size < 0) return;
  }
}

__global__ void DividesByZero(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int divisor = i < size ? static_cast<int>(in[i]) : 1;
  const int quotient = 1000 / divisor;  // fault: DividesByZero
  if (i < size) out[i] = static_cast<float>(quotient);
}

// Each thread copies four floats, and takes four from the other end of the block.
__global__ void GoodCopy(const float* in, float* out, int64_t size) {
  __shared__ float4 shared[kThreads];
  const int64_t i = int64_t{threadIdx.x} * 4;
  if (blockIdx.x > 0) return;
  __pipeline_memcpy_async(&shared[threadIdx.x], in + (i < size ? i : 0), 16, i < size ? 0 : 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  if (i < size) out[i] = shared[kThreads - 1 - threadIdx.x].x;
}

__global__ void CopyWithoutWait(const float* in, float* out, int64_t size) {
  __shared__ float4 shared[kThreads];
  const int64_t i = int64_t{threadIdx.x} * 4;
  if (blockIdx.x > 0) return;
  __pipeline_memcpy_async(&shared[threadIdx.x], in + (i < size ? i : 0), 16, i < size ? 0 : 16);
  __pipeline_commit();
  __syncthreads();
  if (i < size) out[i] = shared[kThreads - 1 - threadIdx.x].x;  // fault: CopyWithoutWait
}

// A product of ones that all lanes must take part in.
__global__ void ProductOfSomeLanes(const float* in, float* out, int64_t size) {
  float sum[4] = {};
  if (threadIdx.x < 80) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4}, {%4}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(0x3c003c00));  // fault: ProductOfSomeLanes
  }
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size) out[i] = in[i] + sum[0];
}

// Sums that are cut off instead of rounded: nothing is wrong but the bits.
__global__ void WrongRounding(const float* in, float* out, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size) out[i] = __fadd_rz(in[i], 1e-7f);
}

}  // extern "C"
}  // namespace brigade::emulator
