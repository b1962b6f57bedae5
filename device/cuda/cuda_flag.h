#ifndef BRIGADE_DEVICE_CUDA_CUDA_FLAG_H_
#define BRIGADE_DEVICE_CUDA_CUDA_FLAG_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace brigade::device::internal {

// A word of page-locked memory for each stream, which the host counts up and the stream waits for.
// Whoever gets a word that another stream had goes on counting: a wait that is behind in the old
// stream stays satisfied.
//
// Lifetime     Words go back to a list of the process; their memory, a page for 64 of them, is
//              never freed, because a borrowed stream may look at a word after its Stream has
//              ended.
// Errors       ResourceExhausted.
absl::StatusOr<std::shared_ptr<uint32_t>> TakeCudaFlag();

// Whether streams of the current device can wait for a word. Tries it in `idle`, a stream without
// work.
bool CudaCanWaitForFlags(cudaStream_t idle, const uint32_t* flag);

// What the stream does from now on comes after the word has counted to `count`, by a cyclic
// comparison.
cudaError_t CudaWaitForFlag(cudaStream_t stream, const uint32_t* flag, uint32_t count);

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CUDA_CUDA_FLAG_H_
