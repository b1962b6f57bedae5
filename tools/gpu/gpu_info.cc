// Prints the first GPU as one JSON object and exits with 0; exits with 77 and a reason on stderr
// where there is none.

#include <cuda_runtime.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace {

constexpr int kNoGpu = 77;

int NoGpu(cudaError_t error) {
  std::fprintf(stderr, "no GPU: %s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
  return kNoGpu;
}

// 13.0 of 13000.
std::string Version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument != "--help" && argument != "-h") {
      std::fprintf(stderr, "\"%s\" is no flag; see --help\n", argv[i]);
      return 1;
    }
    std::puts(
        "usage: gpu_info\n\nPrints the first GPU as one JSON object; ends with 77 where there is "
        "none.");
    return 0;
  }
  int devices = 0, driver = 0, runtime = 0;
  cudaDeviceProp gpu;
  if (cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess) return NoGpu(error);
  if (devices == 0) return NoGpu(cudaErrorNoDevice);
  if (cudaError_t error = cudaGetDeviceProperties(&gpu, 0); error != cudaSuccess)
    return NoGpu(error);
  if (cudaError_t error = cudaDriverGetVersion(&driver); error != cudaSuccess) return NoGpu(error);
  if (cudaError_t error = cudaRuntimeGetVersion(&runtime); error != cudaSuccess)
    return NoGpu(error);
  std::string module = "unknown";
  std::ifstream("/sys/module/nvidia/version") >> module;
  std::printf(
      "{\"device\": \"%s\", \"compute_capability\": \"%d.%d\", \"memory_bytes\": %zu, "
      "\"processors\": %d, "
      "\"driver\": \"%s\", \"driver_cuda\": \"%s\", \"cuda_runtime\": \"%s\"}\n",
      gpu.name, gpu.major, gpu.minor, gpu.totalGlobalMem, gpu.multiProcessorCount, module.c_str(),
      Version(driver).c_str(), Version(runtime).c_str());
  return 0;
}
