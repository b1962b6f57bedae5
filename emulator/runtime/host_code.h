#ifndef BRIGADE_EMULATOR_RUNTIME_HOST_CODE_H_
#define BRIGADE_EMULATOR_RUNTIME_HOST_CODE_H_

// The kernels and variables that host code has registered, on a device. Under Machine::mutex.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {

struct FatBinary;

struct HostVariable {
  FatBinary* binary = nullptr;
  std::string name;
  size_t bytes = 0;
};

// A kernel by the function that stands for it in host code; its module is loaded on the device.
struct LoadedKernel {
  const LoadedModule* module = nullptr;
  const Kernel* kernel = nullptr;
};
// The first time, the call waits for the kernels of libraries that are in streams of the device, as
// lazy loading may: a program whose kernels wait for each other loads them before.
cudaError_t FindKernel(Call& call, const void* function, LoadedKernel& kernel);

// A variable by the one that stands for it in host code, and its address on the device.
cudaError_t FindVariable(Call& call, const void* symbol, HostVariable& variable, uint64_t& address);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_RUNTIME_HOST_CODE_H_
