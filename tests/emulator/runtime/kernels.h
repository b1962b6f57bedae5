#ifndef BRIGADE_TESTS_EMULATOR_RUNTIME_KERNELS_H_
#define BRIGADE_TESTS_EMULATOR_RUNTIME_KERNELS_H_

#include <cuda_runtime_api.h>

namespace brigade::emulator {

// Each launches one kernel and returns cudaGetLastError().

// data[i] += value, for i below size.
cudaError_t Add(int* data, int size, int value, cudaStream_t stream);
// *out = *in
cudaError_t CopyOne(int* out, const int* in, cudaStream_t stream);
// Of the module's variable of device memory, `scale`.
cudaError_t ReadScale(int* out, cudaStream_t stream);
extern const void* const scale_symbol;
// Writes and reads as many bytes of dynamic shared memory.
cudaError_t UseShared(int* out, int bytes, cudaStream_t stream);
extern const void* const use_shared_kernel;
// A store 4 bytes aside of where it is aligned.
cudaError_t StoreMisaligned(int* data, cudaStream_t stream);
// Blocks of any size.
cudaError_t LaunchOf(unsigned blocks, unsigned threads, cudaStream_t stream);

}  // namespace brigade::emulator

#endif  // BRIGADE_TESTS_EMULATOR_RUNTIME_KERNELS_H_
