// Streams and events.

#include <cuda_runtime_api.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/runtime/capture.h"
#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

cudaError_t Create(Call& call, cudaStream_t* stream, unsigned flags) {
  if (stream == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0) {
    return cudaErrorInvalidValue;
  }
  auto made = std::make_shared<CUstream_st>();
  made->device = call.device.ordinal;
  made->flags = flags;
  made->is_blocking = (flags & cudaStreamNonBlocking) == 0;
  *stream = call.machine.streams.Add(std::move(made));
  return cudaSuccess;
}

cudaError_t Create(Call& call, cudaEvent_t* event, unsigned flags) {
  constexpr unsigned kKnown =
      cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  if (event == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  if ((flags & cudaEventInterprocess) != 0) {
    return call.Refuse(cudaErrorNotSupported, "an event of several processes");
  }
  auto made = std::make_shared<CUevent_st>();
  made->device = call.device.ordinal;
  made->has_time = (flags & cudaEventDisableTiming) == 0;
  *event = call.machine.events.Add(std::move(made));
  return cudaSuccess;
}

cudaError_t Record(Call& call, cudaEvent_t event_handle, cudaStream_t stream_handle) {
  const auto event = call.Find(event_handle);
  const auto stream = call.Find(stream_handle);
  if (event == nullptr || stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (event->device != stream->device) {
    return call.Refuse(cudaErrorInvalidResourceHandle,
                       absl::StrCat(NameOf(*event), " in ", NameOf(*stream)));
  }
  if (stream->capture != nullptr) return RecordCaptured(*stream, *event);
  CompletionPtr record;
  const cudaError_t error = call.Submit(stream, {}, &record);
  if (error != cudaSuccess) return error;
  event->record = std::move(record);
  event->capture = nullptr;
  return cudaSuccess;
}

static_assert(cudaEventRecordExternal == cudaEventWaitExternal);

cudaError_t RefuseExternal(const Call& call, unsigned flags) {
  if (flags != cudaEventRecordExternal) return cudaErrorInvalidValue;
  return call.Refuse(cudaErrorNotSupported, "a graph's node for an event");
}

// Whether the host may query or wait for the stream.
cudaError_t CheckWait(const Call& call, CUstream_st& stream) {
  if (const cudaError_t error = CheckNotCapturing(call, stream)) return error;
  if (const cudaError_t error = call.CheckUnsafe()) return error;
  return stream.is_legacy ? CheckImplicit(call, stream, /*used=*/true) : cudaSuccess;
}

// The same for an event.
cudaError_t CheckWait(const Call& call, const CUevent_st* event) {
  if (event == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = CheckNotCaptured(call, *event)) return error;
  return call.CheckUnsafe();
}

}  // namespace
}  // namespace brigade::emulator

using namespace brigade::emulator;  // NOLINT: the functions are C's, outside of namespaces

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return Api("cudaStreamCreate", Needs::kContext,
             [&](Call& call) { return Create(call, stream, cudaStreamDefault); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return Api("cudaStreamCreateWithFlags", Needs::kContext,
             [&](Call& call) { return Create(call, stream, flags); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return Api("cudaStreamCreateWithPriority", Needs::kContext,
             [&](Call& call) { return Create(call, stream, flags); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return Api("cudaStreamGetFlags", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *flags = stream->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return Api("cudaStreamGetPriority", Needs::kContext, [&](Call& call) {
    if (call.Find(handle) == nullptr) return cudaErrorInvalidResourceHandle;
    *priority = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return Api("cudaStreamGetDevice", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *device = stream->device;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  return Api("cudaStreamGetId", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *id = static_cast<unsigned long long>(stream->number);
    return cudaSuccess;
  });
}

// Its work goes on to the end.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return Api("cudaStreamDestroy", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(handle);
    if (stream == nullptr || stream->is_legacy || handle == cudaStreamPerThread) {
      return cudaErrorInvalidResourceHandle;
    }
    if (const cudaError_t error = CheckNotCapturing(call, *stream)) return error;
    call.machine.Destroy(call, *stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return Api("cudaStreamSynchronize", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = CheckWait(call, *stream)) return error;
    call.waits_for = call.machine.Pending(*stream);
    call.waits_of = &call.machine.DeviceOf(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return Api("cudaStreamQuery", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = CheckWait(call, *stream)) return error;
    for (const CompletionPtr& each : call.machine.Pending(*stream)) {
      if (!each->IsComplete()) return cudaErrorNotReady;
    }
    return call.machine.DeviceOf(*stream).error.load();
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle,
                                unsigned flags) {
  return Api("cudaStreamWaitEvent", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(stream_handle);
    const auto event = call.Find(event_handle);
    if (event == nullptr || stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags != cudaEventWaitDefault) return RefuseExternal(call, flags);
    if (stream->capture != nullptr || event->capture != nullptr) {
      return WaitCaptured(call, *stream, *event);
    }
    if (event->record == nullptr) return cudaSuccess;
    return call.Submit(stream, {}, nullptr, {event->record});
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return Api("cudaEventCreate", Needs::kContext,
             [&](Call& call) { return Create(call, event, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return Api("cudaEventCreateWithFlags", Needs::kContext,
             [&](Call& call) { return Create(call, event, flags); });
}

// What waits for it goes on waiting.
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return Api("cudaEventDestroy", Needs::kContext, [&](Call& call) {
    const auto event = call.Find(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    call.machine.events.Destroy(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Api("cudaEventRecord", Needs::kContext,
             [&](Call& call) { return Record(call, event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return Api("cudaEventRecordWithFlags", Needs::kContext, [&](Call& call) {
    if (flags != cudaEventRecordDefault) return RefuseExternal(call, flags);
    return Record(call, event, stream);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return Api("cudaEventQuery", Needs::kContext, [&](Call& call) {
    const auto event = call.Find(handle);
    if (const cudaError_t error = CheckWait(call, event.get())) return error;
    if (event->record != nullptr && !event->record->IsComplete()) return cudaErrorNotReady;
    return call.machine.DeviceOf(*event).error.load();
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return Api("cudaEventSynchronize", Needs::kContext, [&](Call& call) {
    const auto event = call.Find(handle);
    if (const cudaError_t error = CheckWait(call, event.get())) return error;
    if (event->record != nullptr) call.waits_for = {event->record};
    call.waits_of = &call.machine.DeviceOf(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from_handle,
                                 cudaEvent_t to_handle) {
  return Api("cudaEventElapsedTime", Needs::kContext, [&](Call& call) {
    const auto from = call.Find(from_handle);
    const auto to = call.Find(to_handle);
    if (from == nullptr || to == nullptr) return cudaErrorInvalidResourceHandle;
    for (const auto& event : {from, to}) {
      if (const cudaError_t error = CheckNotCaptured(call, *event)) return error;
      if (event->record == nullptr || !event->has_time) {
        return call.Refuse(
            cudaErrorInvalidResourceHandle,
            absl::StrCat(NameOf(*event),
                         event->has_time ? " was never recorded" : " was made without timing"));
      }
    }
    if (from->device != to->device) {
      return call.Refuse(cudaErrorInvalidResourceHandle,
                         absl::StrCat(NameOf(*from), " and ", NameOf(*to)));
    }
    if (!from->record->IsComplete() || !to->record->IsComplete()) return cudaErrorNotReady;
    *milliseconds =
        std::chrono::duration<float, std::milli>(to->record->time() - from->record->time()).count();
    return cudaSuccess;
  });
}

}  // extern "C"
