#ifndef BRIGADE_EMULATOR_NCCL_CUDA_STREAMS_H_
#define BRIGADE_EMULATOR_NCCL_CUDA_STREAMS_H_

#include "brigade/emulator/nccl/streams.h"

namespace brigade::emulator {

// CUDA's streams and memory, as emulator/runtime implements them.
NcclStreams& CudaStreams();

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_CUDA_STREAMS_H_
