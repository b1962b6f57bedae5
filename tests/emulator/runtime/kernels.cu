#include "brigade/tests/emulator/runtime/kernels.h"

namespace brigade::emulator {
namespace {

__device__ int scale = 7;

__global__ void AddKernel(int* data, int size, int value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < size) data[i] += value;
}

__global__ void CopyOneKernel(int* out, const int* in) { *out = *in; }

__global__ void ReadScaleKernel(int* out) { *out = scale; }

__global__ void UseSharedKernel(int* out, int size) {
  extern __shared__ int shared[];
  shared[size - 1] = size;
  *out = shared[size - 1];
}

__global__ void StoreMisalignedKernel(char* data) { *reinterpret_cast<int2*>(data + 4) = {}; }

__global__ void EmptyKernel() {}

}  // namespace

const void* const scale_symbol = &scale;
const void* const use_shared_kernel = reinterpret_cast<const void*>(&UseSharedKernel);

cudaError_t Add(int* data, int size, int value, cudaStream_t stream) {
  constexpr int kThreads = 64;
  AddKernel<<<(size + kThreads - 1) / kThreads, kThreads, 0, stream>>>(data, size, value);
  return cudaGetLastError();
}

cudaError_t CopyOne(int* out, const int* in, cudaStream_t stream) {
  CopyOneKernel<<<1, 1, 0, stream>>>(out, in);
  return cudaGetLastError();
}

cudaError_t ReadScale(int* out, cudaStream_t stream) {
  ReadScaleKernel<<<1, 1, 0, stream>>>(out);
  return cudaGetLastError();
}

cudaError_t UseShared(int* out, int bytes, cudaStream_t stream) {
  UseSharedKernel<<<1, 1, static_cast<size_t>(bytes), stream>>>(
      out, bytes / static_cast<int>(sizeof(int)));
  return cudaGetLastError();
}

cudaError_t StoreMisaligned(int* data, cudaStream_t stream) {
  StoreMisalignedKernel<<<1, 1, 0, stream>>>(reinterpret_cast<char*>(data));
  return cudaGetLastError();
}

cudaError_t LaunchOf(unsigned blocks, unsigned threads, cudaStream_t stream) {
  EmptyKernel<<<blocks, threads, 0, stream>>>();
  return cudaGetLastError();
}

}  // namespace brigade::emulator
