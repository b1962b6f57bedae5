// Launches of kernels and host functions, and what is known of kernels.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/emulator/runtime/host_code.h"
#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

// What hardware makes of the mistake: an error from then on, or none.
cudaError_t ErrorOf(FindingKind kind) {
  switch (kind) {
    case FindingKind::kOutOfBounds:
      return cudaErrorIllegalAddress;
    case FindingKind::kMisaligned:
      return cudaErrorMisalignedAddress;
    case FindingKind::kEndless:
      return cudaErrorLaunchTimeout;
    case FindingKind::kBarrier:
    case FindingKind::kTrap:
      return cudaErrorLaunchFailure;
    default:
      return cudaSuccess;
  }
}

void Record(Device& device, const Kernel& kernel, const LaunchOptions& options,
            const LaunchCounts& counts) {
  LaunchRecord record;
  record.kernel = kernel.name;
  record.device = device.ordinal;
  record.grid = options.grid;
  record.block = options.block;
  record.executed = counts.executed();
  record.loads = counts.GlobalLoads(kernel);
  record.stores = counts.GlobalStores(kernel);
  record.wide = counts.GlobalLoads(kernel, 16);
  record.wide += counts.GlobalStores(kernel, 16);
  for (const auto& each : counts.instructions) record.bank_conflicts += each.shared.bank_conflicts;
  record.read_again = counts.read_again;
  record.written_again = counts.written_again;
  Machine& machine = Machine::Get();
  const brigade::device::MutexLock lock(machine.mutex);
  if (machine.records_launches) machine.launches.push_back(std::move(record));
}

cudaError_t Run(Device& device, const LoadedKernel& loaded, const std::vector<uint8_t>& parameters,
                const LaunchOptions& options) {
  Machine& machine = Machine::Get();
  const auto result = Launch(*loaded.module, *loaded.kernel, parameters, options);
  if (!result.ok()) {
    machine.Add({Report::Kind::kCall, {}, std::string(result.status().message())});
    return cudaErrorLaunchFailure;
  }
  cudaError_t error = cudaSuccess;
  for (const Finding& finding : result->findings) {
    machine.Add({Report::Kind::kKernel, finding.kind, finding.ToString()});
    if (error == cudaSuccess) error = ErrorOf(finding.kind);
  }
  Record(device, *loaded.kernel, options, result->counts);
  return error;
}

constexpr int kSharedBytes = 48 << 10, kSharedBytesOnRequest = 227 << 10;

int SharedBytes(const Kernel& kernel) {
  int64_t bytes = 0;
  for (const SharedVariable& variable : kernel.shared) bytes += variable.bytes;
  return static_cast<int>(bytes);
}

int MostDynamicSharedBytes(const Device& device, const Kernel& kernel) {
  const auto found = device.most_dynamic_shared_bytes.find(&kernel);
  if (found != device.most_dynamic_shared_bytes.end()) return found->second;
  return std::max(0, kSharedBytes - SharedBytes(kernel));
}

int Extent(unsigned size) { return static_cast<int>(std::min(size, 0x7fffffffu)); }
Dim3 SizeOf(dim3 size) { return {Extent(size.x), Extent(size.y), Extent(size.z)}; }

cudaError_t LaunchFunction(Call& call, const void* function, dim3 grid, dim3 block,
                           void** arguments, size_t shared_bytes, cudaStream_t stream_handle) {
  const auto stream = call.Find(stream_handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->device != call.device.ordinal) {
    return call.Refuse(cudaErrorInvalidResourceHandle,
                       absl::StrCat(NameOf(*stream), ", but device ", call.device.ordinal,
                                    " is the thread's current one"));
  }
  LoadedKernel loaded;
  if (const cudaError_t error = FindKernel(call, function, loaded)) return error;
  const Kernel& kernel = *loaded.kernel;
  std::vector<uint8_t> parameters(static_cast<size_t>(kernel.parameter_bytes));
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    const Parameter& parameter = kernel.parameters[i];
    std::memcpy(parameters.data() + parameter.offset, arguments[i],
                static_cast<size_t>(parameter.bytes));
  }
  LaunchOptions options;
  options.grid = SizeOf(grid);
  options.block = SizeOf(block);
  options.dynamic_shared_bytes = static_cast<int64_t>(shared_bytes);
  options.threads = call.machine.options.threads;
  options.seed = call.seed();
  if (shared_bytes > static_cast<size_t>(MostDynamicSharedBytes(call.device, kernel))) {
    return call.Refuse(cudaErrorInvalidValue,
                       absl::StrCat(shared_bytes, " bytes of dynamic shared memory, but ",
                                    MostDynamicSharedBytes(call.device, kernel),
                                    " are allowed; see cudaFuncSetAttribute"));
  }
  if (const absl::Status sizes = CheckLaunch(kernel, parameters, options); !sizes.ok()) {
    return call.Refuse(cudaErrorInvalidConfiguration, sizes.message());
  }
  const auto run = [loaded, options, parameters = std::move(parameters)](Device& device) {
    return Run(device, loaded, parameters, options);
  };
  return call.Submit(stream, {Work::Kind::kKernel, run});
}

cudaError_t LaunchHostFunction(Call& call, cudaStream_t stream_handle,
                               std::function<void(cudaError_t)> function, bool runs_after_errors) {
  const auto stream = call.Find(stream_handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  Work work{Work::Kind::kHost, [function = std::move(function)](Device& device) {
              ThisThread().is_in_host_function = true;
              function(device.error);
              ThisThread().is_in_host_function = false;
              return cudaSuccess;
            }};
  work.runs_after_errors = runs_after_errors;
  return call.Submit(stream, std::move(work));
}

// Sizes that <<<>>> gives, on their way to the launch.
struct Configuration {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<Configuration> configurations;

}  // namespace

}  // namespace brigade::emulator

using namespace brigade::emulator;  // NOLINT: the functions are C's, outside of namespaces

extern "C" {

// What nvcc's host code calls. Source: crt/host_runtime.h.

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
  configurations.push_back({grid, block, shared_bytes, static_cast<cudaStream_t>(stream)});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  const Configuration& last = configurations.back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  configurations.pop_back();
  return cudaSuccess;
}

// A kernel's handle is the function that stands for it.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  return Api("cudaLaunchKernel", Needs::kContext, [&](Call& call) {
    return LaunchFunction(call, function, grid, block, arguments, shared_bytes, stream);
  });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  return Api("cudaLaunchKernelExC", Needs::kContext, [&](Call& call) {
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      // A kernel that may start early may also start late.
      if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) continue;
      return call.Refuse(cudaErrorNotSupported,
                         absl::StrCat("launch attribute ", static_cast<int>(config->attrs[i].id)));
    }
    return LaunchFunction(call, function, config->gridDim, config->blockDim, arguments,
                          config->dynamicSmemBytes, config->stream);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return Api("cudaLaunchHostFunc", Needs::kContext, [&](Call& call) {
    if (function == nullptr) return cudaErrorInvalidValue;
    return LaunchHostFunction(
        call, stream, [function, data](cudaError_t) { function(data); },
        /*runs_after_errors=*/false);
  });
}

// Unlike a host function, it learns of the device's error.
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned flags) {
  return Api("cudaStreamAddCallback", Needs::kContext, [&](Call& call) {
    if (callback == nullptr || flags != 0) return cudaErrorInvalidValue;
    return LaunchHostFunction(
        call, stream,
        [stream, callback, data](cudaError_t error) { callback(stream, error, data); },
        /*runs_after_errors=*/true);
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return Api("cudaFuncGetAttributes", Needs::kContext, [&](Call& call) {
    LoadedKernel loaded;
    if (const cudaError_t error = FindKernel(call, function, loaded)) return error;
    const Kernel& kernel = *loaded.kernel;
    *attributes = {};
    attributes->sharedSizeBytes = static_cast<size_t>(SharedBytes(kernel));
    attributes->localSizeBytes = static_cast<size_t>(kernel.local_bytes);
    attributes->maxThreadsPerBlock = kernel.most_threads > 0 ? kernel.most_threads : 1024;
    attributes->maxDynamicSharedSizeBytes = MostDynamicSharedBytes(call.device, kernel);
    attributes->ptxVersion = attributes->binaryVersion = loaded.module->module().architecture;
    return cudaSuccess;
  });
}

// Preferences, of which attributes but the one for dynamic shared memory are, change nothing.
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return Api("cudaFuncSetAttribute", Needs::kContext, [&](Call& call) {
    LoadedKernel loaded;
    if (const cudaError_t error = FindKernel(call, function, loaded)) return error;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    const Kernel& kernel = *loaded.kernel;
    if (value < 0 || value > kSharedBytesOnRequest - SharedBytes(kernel)) {
      return cudaErrorInvalidValue;
    }
    call.device.most_dynamic_shared_bytes[&kernel] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  return Api("cudaFuncGetName", Needs::kContext, [&](Call& call) {
    LoadedKernel loaded;
    if (const cudaError_t error = FindKernel(call, function, loaded)) return error;
    *name = loaded.kernel->name.c_str();
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int block_size, size_t dynamic_shared_bytes, unsigned) {
  return Api(
      "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", Needs::kContext, [&](Call& call) {
        LoadedKernel loaded;
        if (const cudaError_t error = FindKernel(call, function, loaded)) return error;
        if (block_size < 1) return cudaErrorInvalidValue;
        const size_t shared_bytes =
            dynamic_shared_bytes + 1024 + static_cast<size_t>(SharedBytes(*loaded.kernel));
        const int threads = (block_size + kLanes - 1) / kLanes * kLanes;
        *blocks =
            std::min({2048 / threads, 32, static_cast<int>((size_t{228} << 10) / shared_bytes)});
        return cudaSuccess;
      });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int block_size,
                                                          size_t dynamic_shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                                dynamic_shared_bytes, 0);
}

}  // extern "C"
