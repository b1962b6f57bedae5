// Devices and errors.

#include <cuda_runtime_api.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/runtime/capture.h"
#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

// Of an H100, as far as programs choose by it.
constexpr int kMajor = 9, kMinor = 0, kProcessors = 132;
constexpr int kVersion = 13000;

cudaError_t CheckOrdinal(const Call& call, int device) {
  if (call.machine.options.devices == 0) return cudaErrorNoDevice;
  const bool is_one = device >= 0 && device < call.machine.options.devices;
  return is_one ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t AttributeOf(cudaDeviceAttr attribute, int& value) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      value = kMajor;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      value = kMinor;
      break;
    case cudaDevAttrMultiProcessorCount:
      value = kProcessors;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      value = 1024;
      break;
    case cudaDevAttrMaxBlockDimZ:
      value = 64;
      break;
    case cudaDevAttrMaxGridDimX:
      value = 2147483647;
      break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      value = 65535;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      value = 2048;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      value = 32;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      value = 48 << 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      value = 227 << 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      value = 228 << 10;
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      value = 1 << 10;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      value = 65536;
      break;
    case cudaDevAttrWarpSize:
      value = kLanes;
      break;
    case cudaDevAttrL2CacheSize:
      value = 50 << 20;
      break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrMemoryPoolsSupported:
      value = 1;
      break;
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrCooperativeLaunch:
      value = 0;
      break;
    default:
      return cudaErrorNotSupported;
  }
  return cudaSuccess;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

const ErrorText kErrors[] = {
#define BRIGADE_ERROR(name, text) \
  { name, #name, text }
    BRIGADE_ERROR(cudaSuccess, "no error"),
    BRIGADE_ERROR(cudaErrorInvalidValue, "invalid argument"),
    BRIGADE_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    BRIGADE_ERROR(cudaErrorInitializationError, "not initialized"),
    BRIGADE_ERROR(cudaErrorCudartUnloading, "the process ends"),
    BRIGADE_ERROR(cudaErrorInvalidConfiguration, "bad sizes of a launch"),
    BRIGADE_ERROR(cudaErrorInvalidSymbol, "no such variable"),
    BRIGADE_ERROR(cudaErrorInvalidPitchValue, "a pitch below the width"),
    BRIGADE_ERROR(cudaErrorInvalidMemcpyDirection, "bad direction of a copy"),
    BRIGADE_ERROR(cudaErrorInsufficientDriver, "the driver is too old"),
    BRIGADE_ERROR(cudaErrorMissingConfiguration, "a launch without sizes"),
    BRIGADE_ERROR(cudaErrorInvalidDeviceFunction, "no such kernel"),
    BRIGADE_ERROR(cudaErrorNoDevice, "no CUDA device"),
    BRIGADE_ERROR(cudaErrorInvalidDevice, "no such device"),
    BRIGADE_ERROR(cudaErrorInvalidKernelImage, "bad device code"),
    BRIGADE_ERROR(cudaErrorNoKernelImageForDevice, "no code for this device"),
    BRIGADE_ERROR(cudaErrorInvalidPtx, "bad PTX"),
    BRIGADE_ERROR(cudaErrorInvalidResourceHandle, "bad handle"),
    BRIGADE_ERROR(cudaErrorIllegalState, "wrong state for this call"),
    BRIGADE_ERROR(cudaErrorNotReady, "not ready"),
    BRIGADE_ERROR(cudaErrorIllegalAddress, "access to an illegal address"),
    BRIGADE_ERROR(cudaErrorLaunchOutOfResources, "too many resources"),
    BRIGADE_ERROR(cudaErrorLaunchTimeout, "a kernel took too long"),
    BRIGADE_ERROR(cudaErrorMisalignedAddress, "misaligned access"),
    BRIGADE_ERROR(cudaErrorLaunchFailure, "a kernel failed"),
    BRIGADE_ERROR(cudaErrorNotPermitted, "not permitted"),
    BRIGADE_ERROR(cudaErrorNotSupported, "not supported"),
    BRIGADE_ERROR(cudaErrorStreamCaptureUnsupported, "not permitted while a stream captures"),
    BRIGADE_ERROR(cudaErrorStreamCaptureInvalidated, "the capture is invalid"),
    BRIGADE_ERROR(cudaErrorStreamCaptureMerge, "two captures would become one"),
    BRIGADE_ERROR(cudaErrorStreamCaptureUnmatched, "not the stream where the capture began"),
    BRIGADE_ERROR(cudaErrorStreamCaptureUnjoined, "a captured stream was not joined"),
    BRIGADE_ERROR(cudaErrorStreamCaptureIsolation, "a capture would wait for work outside of it"),
    BRIGADE_ERROR(cudaErrorStreamCaptureImplicit, "the legacy stream would wait for a capture"),
    BRIGADE_ERROR(cudaErrorCapturedEvent, "the event was recorded in a capture"),
    BRIGADE_ERROR(cudaErrorStreamCaptureWrongThread, "not the thread where the capture began"),
    BRIGADE_ERROR(cudaErrorUnknown, "unknown error"),
#undef BRIGADE_ERROR
};

const ErrorText* FindError(cudaError_t error) {
  for (const ErrorText& each : kErrors) {
    if (each.error == error) return &each;
  }
  return nullptr;
}

// What every later call of this thread on the device returns as well.
cudaError_t StickyError(const Thread& thread) {
  return Machine::Get().devices[static_cast<size_t>(thread.device())]->error;
}

}  // namespace
}  // namespace brigade::emulator

using namespace brigade::emulator;  // NOLINT: the functions are C's, outside of namespaces

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* const found = FindError(error);
  return found == nullptr ? "unrecognized error code" : found->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* const found = FindError(error);
  return found == nullptr ? "unrecognized error code" : found->text;
}

cudaError_t cudaGetLastError() {
  Thread& thread = ThisThread();
  const cudaError_t last = std::exchange(thread.last_error, cudaSuccess);
  const cudaError_t sticky = StickyError(thread);
  return sticky != cudaSuccess ? sticky : last;
}

cudaError_t cudaPeekAtLastError() {
  const Thread& thread = ThisThread();
  const cudaError_t sticky = StickyError(thread);
  return sticky != cudaSuccess ? sticky : thread.last_error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return Api("cudaGetDeviceCount", Needs::kNothing, [&](Call& call) {
    *count = call.machine.options.devices;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return Api("cudaGetDevice", Needs::kNothing, [&](Call& call) {
    *device = ThisThread().device();
    return call.machine.options.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return Api("cudaSetDevice", Needs::kNothing, [&](Call& call) {
    if (const cudaError_t error = CheckOrdinal(call, device)) return error;
    std::vector<int>& contexts = ThisThread().contexts;
    if (contexts.empty()) contexts.push_back(device);
    contexts.back() = device;
    Device& chosen = *call.machine.devices[static_cast<size_t>(device)];
    chosen.has_context = true;
    return chosen.error.load();
  });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return Api("cudaInitDevice", Needs::kNothing, [&](Call& call) {
    if (const cudaError_t error = CheckOrdinal(call, device)) return error;
    call.machine.devices[static_cast<size_t>(device)]->has_context = true;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return Api("cudaDeviceSynchronize", Needs::kContext, [&](Call& call) {
    if (const cudaError_t error = CheckNoneCaptures(call)) return error;
    if (const cudaError_t error = call.CheckUnsafe()) return error;
    call.waits_for = call.machine.Pending(call.device);
    call.waits_of = &call.device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Api("cudaGetDeviceProperties", Needs::kNothing, [&](Call& call) {
    if (const cudaError_t error = CheckOrdinal(call, device)) return error;
    std::memset(properties, 0, sizeof(*properties));
    std::strncpy(properties->name, "Brigade's emulator", sizeof(properties->name) - 1);
    properties->totalGlobalMem = static_cast<size_t>(call.machine.options.device_bytes);
    properties->major = kMajor;
    properties->minor = kMinor;
    properties->multiProcessorCount = kProcessors;
    const auto get = [](cudaDeviceAttr attribute) {
      int value = 0;
      AttributeOf(attribute, value);
      return value;
    };
    properties->maxThreadsPerBlock = get(cudaDevAttrMaxThreadsPerBlock);
    properties->maxThreadsPerMultiProcessor = get(cudaDevAttrMaxThreadsPerMultiProcessor);
    properties->maxBlocksPerMultiProcessor = get(cudaDevAttrMaxBlocksPerMultiprocessor);
    properties->sharedMemPerBlock = static_cast<size_t>(get(cudaDevAttrMaxSharedMemoryPerBlock));
    properties->sharedMemPerBlockOptin =
        static_cast<size_t>(get(cudaDevAttrMaxSharedMemoryPerBlockOptin));
    properties->sharedMemPerMultiprocessor =
        static_cast<size_t>(get(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
    properties->regsPerBlock = get(cudaDevAttrMaxRegistersPerBlock);
    properties->regsPerMultiprocessor = get(cudaDevAttrMaxRegistersPerMultiprocessor);
    properties->warpSize = get(cudaDevAttrWarpSize);
    properties->l2CacheSize = get(cudaDevAttrL2CacheSize);
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = get(cudaDevAttrMaxGridDimX);
    properties->maxGridSize[1] = properties->maxGridSize[2] = get(cudaDevAttrMaxGridDimY);
    properties->unifiedAddressing = properties->canMapHostMemory = 1;
    properties->concurrentKernels = properties->memoryPoolsSupported = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return Api("cudaDeviceGetAttribute", Needs::kNothing, [&](Call& call) {
    if (const cudaError_t error = CheckOrdinal(call, device)) return error;
    const cudaError_t error = AttributeOf(attribute, *value);
    if (error == cudaSuccess) return error;
    return call.Refuse(error, absl::StrCat("attribute ", static_cast<int>(attribute)));
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return Api("cudaDeviceGetStreamPriorityRange", Needs::kContext, [&](Call&) {
    *least = *greatest = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return Api("cudaDeviceCanAccessPeer", Needs::kNothing, [&](Call& call) {
    for (int each : {device, peer}) {
      if (const cudaError_t error = CheckOrdinal(call, each)) return error;
    }
    *can = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Machine::Get().options.devices == 0 ? 0 : kVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

}  // extern "C"
