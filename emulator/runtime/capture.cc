#include "brigade/emulator/runtime/capture.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"

namespace brigade::emulator {
namespace {

// Whether this thread may make a call that can disturb `capture`.
bool MayDisturb(const Capture& capture) {
  const cudaStreamCaptureMode mode = ThisThread().mode;
  if (mode == cudaStreamCaptureModeRelaxed) return true;
  if (capture.thread == std::this_thread::get_id()) {
    return capture.mode == cudaStreamCaptureModeRelaxed;
  }
  return mode != cudaStreamCaptureModeGlobal || capture.mode != cudaStreamCaptureModeGlobal;
}

void AddUnique(const std::vector<size_t>& from, std::vector<size_t>& to) {
  for (size_t node : from) {
    if (std::find(to.begin(), to.end(), node) == to.end()) to.push_back(node);
  }
}

// Whether all streams' nodes come before the end of the origin.
bool AllJoined(const Capture& capture) {
  std::vector<bool> is_before(capture.nodes.size(), false);
  for (size_t node : capture.origin->tail) is_before[node] = true;
  // Nodes come after earlier ones only.
  for (size_t node = capture.nodes.size(); node-- > 0;) {
    if (!is_before[node]) continue;
    for (size_t earlier : capture.nodes[node].after) is_before[earlier] = true;
  }
  return std::all_of(is_before.begin(), is_before.end(), [](bool before) { return before; });
}

}  // namespace

cudaError_t Call::CheckUnsafe() const {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : machine.captures) {
    if (MayDisturb(*capture)) continue;
    capture->is_invalid = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t AddNode(CUstream_st& stream, Work work) {
  Capture& capture = *stream.capture;
  if (capture.is_invalid) return cudaErrorStreamCaptureInvalidated;
  capture.nodes.push_back({std::move(work), stream.device, stream.tail});
  stream.tail = {capture.nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t CheckImplicit(Machine& machine, const CUstream_st& legacy, bool used) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : machine.captures) {
    for (const CUstream_st* stream : capture->streams) {
      if (!stream->is_blocking || stream->device != legacy.device) continue;
      capture->is_invalid |= used;
      error = cudaErrorStreamCaptureImplicit;
    }
  }
  return error;
}

cudaError_t CheckNotCapturing(CUstream_st& stream) {
  if (stream.capture == nullptr) return cudaSuccess;
  stream.capture->is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t CheckNotCaptured(const Call& call, const CUevent_st& event) {
  if (event.capture == nullptr) return cudaSuccess;
  event.capture->is_invalid = true;
  return call.Refuse(cudaErrorCapturedEvent,
                     absl::StrCat("the latest record of ", NameOf(event), " was captured"));
}

cudaError_t RecordCaptured(CUstream_st& stream, CUevent_st& event) {
  if (stream.capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  event.record = nullptr;
  event.capture = stream.capture;
  event.nodes = stream.tail;
  return cudaSuccess;
}

cudaError_t WaitCaptured(const Call& call, CUstream_st& stream, const CUevent_st& event) {
  if (event.capture == nullptr) {
    stream.capture->is_invalid = true;
    return call.Refuse(cudaErrorStreamCaptureIsolation,
                       absl::StrCat(NameOf(stream), " captures, and ", NameOf(event),
                                    " was recorded outside of the capture"));
  }
  Capture& capture = *event.capture;
  if (capture.has_ended) return CheckNotCaptured(call, event);
  if (capture.is_invalid) return cudaErrorStreamCaptureInvalidated;
  if (stream.capture == nullptr) {
    if (stream.is_legacy) {
      capture.is_invalid = true;
      return call.Refuse(
          cudaErrorStreamCaptureImplicit,
          absl::StrCat(NameOf(stream), " cannot join the capture of ", NameOf(event)));
    }
    stream.capture = event.capture;
    capture.streams.insert(&stream);
  } else if (stream.capture != event.capture) {
    capture.is_invalid = stream.capture->is_invalid = true;
    return call.Refuse(
        cudaErrorStreamCaptureMerge,
        absl::StrCat(NameOf(stream), " and ", NameOf(event), " are in different captures"));
  }
  AddUnique(event.nodes, stream.tail);
  return cudaSuccess;
}

}  // namespace brigade::emulator

using brigade::emulator::Api;
using brigade::emulator::Call;
using brigade::emulator::Capture;
using brigade::emulator::Needs;
using brigade::emulator::ThisThread;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return Api("cudaStreamBeginCapture", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->is_legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture != nullptr) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream.get();
    capture->streams.insert(stream.get());
    capture->number = ++call.machine.captures_made;
    stream->capture = capture;
    stream->tail.clear();
    call.machine.captures.push_back(std::move(capture));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return Api("cudaStreamEndCapture", Needs::kContext, [&](Call& call) {
    *graph = nullptr;
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const auto capture = stream->capture;
    if (capture == nullptr) return cudaErrorIllegalState;
    if (capture->origin != stream.get()) {
      capture->is_invalid = true;
      return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->thread != std::this_thread::get_id() &&
        capture->mode != cudaStreamCaptureModeRelaxed) {
      return cudaErrorStreamCaptureWrongThread;
    }
    cudaError_t error = cudaSuccess;
    if (capture->is_invalid) {
      error = cudaErrorStreamCaptureInvalidated;
    } else if (!brigade::emulator::AllJoined(*capture)) {
      error = call.Refuse(cudaErrorStreamCaptureUnjoined,
                          absl::StrCat("a stream has not joined ", NameOf(*stream), " again"));
    }
    capture->has_ended = true;
    for (CUstream_st* member : capture->streams) {
      member->capture = nullptr;
      member->tail.clear();
    }
    auto& captures = call.machine.captures;
    captures.erase(std::find(captures.begin(), captures.end(), capture));
    if (error != cudaSuccess) return error;
    auto made = std::make_shared<CUgraph_st>();
    made->device = stream->device;
    made->nodes = std::move(capture->nodes);
    *graph = call.machine.graphs.Add(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return Api("cudaStreamIsCapturing", Needs::kContext, [&](Call& call) {
    *status = cudaStreamCaptureStatusNone;
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->is_legacy) return CheckImplicit(call.machine, *stream, /*used=*/false);
    if (stream->capture != nullptr) {
      *status = stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
    }
    return cudaSuccess;
  });
}

// Of the graph and its nodes it tells nothing.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  return Api("cudaStreamGetCaptureInfo", Needs::kContext, [&](Call& call) {
    *status = cudaStreamCaptureStatusNone;
    if (graph != nullptr || dependencies != nullptr || edges != nullptr || count != nullptr) {
      return call.Refuse(cudaErrorNotSupported, "the graph of a capture");
    }
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->is_legacy) return CheckImplicit(call.machine, *stream, /*used=*/false);
    if (stream->capture == nullptr) return cudaSuccess;
    *status = stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                          : cudaStreamCaptureStatusActive;
    if (id != nullptr) *id = stream->capture->number;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return Api("cudaThreadExchangeStreamCaptureMode", Needs::kNothing, [&](Call&) {
    std::swap(*mode, ThisThread().mode);
    return cudaSuccess;
  });
}

}  // extern "C"
