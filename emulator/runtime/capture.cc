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

// Whether each node comes before another one or is what the origin ends with.
bool AllJoined(const Capture& capture) {
  std::vector<bool> is_joined(capture.nodes.size(), false);
  for (size_t node : capture.origin->tail) is_joined[node] = true;
  for (const CUgraphNode_st& node : capture.nodes) {
    for (size_t earlier : node.after) is_joined[earlier] = true;
  }
  return std::find(is_joined.begin(), is_joined.end(), false) == is_joined.end();
}

// Returns `error`, and makes the capture invalid: its end says why.
cudaError_t Invalidate(const Call& call, Capture& capture, cudaError_t error,
                       absl::string_view what) {
  if (capture.invalid_by.empty()) capture.invalid_by = absl::StrCat(call.function, ": ", what);
  return call.Refuse(error, what);
}

bool IsMode(cudaStreamCaptureMode mode) {
  return mode >= cudaStreamCaptureModeGlobal && mode <= cudaStreamCaptureModeRelaxed;
}

cudaError_t FindCapture(const Call& call, cudaStream_t handle, cudaStreamCaptureStatus* status,
                        unsigned long long* id) {
  if (status == nullptr) return cudaErrorInvalidValue;
  *status = cudaStreamCaptureStatusNone;
  const auto stream = call.Find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->is_legacy) return CheckImplicit(call, *stream, /*used=*/false);
  if (stream->capture == nullptr) return cudaSuccess;
  *status = stream->capture->invalid_by.empty() ? cudaStreamCaptureStatusActive
                                                : cudaStreamCaptureStatusInvalidated;
  if (id != nullptr) *id = stream->capture->number;
  return cudaSuccess;
}

void EndCapture(Machine& machine, const std::shared_ptr<Capture>& capture) {
  capture->has_ended = true;
  // Events that were recorded in it hold the capture, and would hold its kernels.
  capture->nodes.clear();
  for (CUstream_st* member : capture->streams) {
    member->capture = nullptr;
    member->tail.clear();
  }
  std::erase(machine.captures, capture);
}

}  // namespace

cudaError_t Call::CheckUnsafe() const {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : machine.captures) {
    if (MayDisturb(*capture)) continue;
    error = Invalidate(*this, *capture, cudaErrorStreamCaptureUnsupported,
                       absl::StrCat("not while ", NameOf(*capture->origin), " captures"));
  }
  return error;
}

cudaError_t AddNode(CUstream_st& stream, Work work) {
  Capture& capture = *stream.capture;
  if (!capture.invalid_by.empty()) return cudaErrorStreamCaptureInvalidated;
  capture.nodes.push_back({std::move(work), stream.device, stream.tail});
  stream.tail = {capture.nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t CheckImplicit(const Call& call, const CUstream_st& legacy, bool used) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : call.machine.captures) {
    for (const CUstream_st* stream : capture->streams) {
      if (!stream->is_blocking || stream->device != legacy.device) continue;
      error = cudaErrorStreamCaptureImplicit;
      if (!used) continue;
      Invalidate(
          call, *capture, error,
          absl::StrCat(NameOf(legacy), " would wait for ", NameOf(*stream), ", which captures"));
    }
  }
  return error;
}

cudaError_t CheckNotCapturing(const Call& call, CUstream_st& stream) {
  if (stream.capture == nullptr) return cudaSuccess;
  return Invalidate(call, *stream.capture, cudaErrorStreamCaptureUnsupported,
                    absl::StrCat(NameOf(stream), " captures"));
}

cudaError_t CheckNoneCaptures(const Call& call) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : call.machine.captures) {
    for (CUstream_st* stream : capture->streams) {
      if (stream->device == call.device.ordinal) error = CheckNotCapturing(call, *stream);
    }
  }
  return error;
}

void LeaveCapture(const Call& call, CUstream_st& stream) {
  const auto capture = stream.capture;
  CheckNotCapturing(call, stream);
  if (capture->origin == &stream) return EndCapture(call.machine, capture);
  capture->streams.erase(&stream);
  stream.capture = nullptr;
}

cudaError_t CheckNotCaptured(const Call& call, const CUevent_st& event) {
  if (event.capture == nullptr) return cudaSuccess;
  return Invalidate(call, *event.capture, cudaErrorCapturedEvent,
                    absl::StrCat("the latest record of ", NameOf(event), " was captured"));
}

cudaError_t RecordCaptured(const CUstream_st& stream, CUevent_st& event) {
  if (!stream.capture->invalid_by.empty()) return cudaErrorStreamCaptureInvalidated;
  event.record = nullptr;
  event.capture = stream.capture;
  event.nodes = stream.tail;
  return cudaSuccess;
}

cudaError_t WaitCaptured(const Call& call, CUstream_st& stream, const CUevent_st& event) {
  if (stream.capture != nullptr && !stream.capture->invalid_by.empty()) {
    return cudaErrorStreamCaptureInvalidated;
  }
  if (event.capture == nullptr || event.capture->has_ended) {
    if (stream.capture == nullptr) return CheckNotCaptured(call, event);
    return Invalidate(call, *stream.capture, cudaErrorStreamCaptureIsolation,
                      absl::StrCat(NameOf(stream), " captures, and ", NameOf(event),
                                   " was recorded outside of the capture"));
  }
  Capture& capture = *event.capture;
  if (!capture.invalid_by.empty()) return cudaErrorStreamCaptureInvalidated;
  if (stream.is_legacy) {
    return Invalidate(call, capture, cudaErrorStreamCaptureImplicit,
                      absl::StrCat(NameOf(stream), " cannot join the capture of ", NameOf(event)));
  }
  if (stream.capture == nullptr) {
    stream.capture = event.capture;
    capture.streams.insert(&stream);
  } else if (stream.capture != event.capture) {
    const std::string what =
        absl::StrCat(NameOf(stream), " and ", NameOf(event), " are in different captures");
    Invalidate(call, *stream.capture, cudaErrorStreamCaptureMerge, what);
    return Invalidate(call, capture, cudaErrorStreamCaptureMerge, what);
  }
  AddUnique(event.nodes, stream.tail);
  return cudaSuccess;
}

}  // namespace brigade::emulator

using namespace brigade::emulator;  // NOLINT: the functions are C's, outside of namespaces

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return Api("cudaStreamBeginCapture", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (!IsMode(mode)) return cudaErrorInvalidValue;
    if (stream->is_legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture != nullptr) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream.get();
    capture->streams.insert(stream.get());
    capture->number = ++call.machine.captures_made;
    stream->capture = capture;
    call.machine.captures.push_back(std::move(capture));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return Api("cudaStreamEndCapture", Needs::kContext, [&](Call& call) {
    if (graph == nullptr) return cudaErrorInvalidValue;
    *graph = nullptr;
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const auto capture = stream->capture;
    if (capture == nullptr) return cudaErrorIllegalState;
    if (capture->origin != stream.get()) {
      return Invalidate(call, *capture, cudaErrorStreamCaptureUnmatched,
                        absl::StrCat("the capture began in ", NameOf(*capture->origin), ", not in ",
                                     NameOf(*stream)));
    }
    if (capture->thread != std::this_thread::get_id() &&
        capture->mode != cudaStreamCaptureModeRelaxed) {
      return cudaErrorStreamCaptureWrongThread;
    }
    const bool all_joined = AllJoined(*capture);
    std::vector<CUgraphNode_st> nodes = std::move(capture->nodes);
    EndCapture(call.machine, capture);
    if (!capture->invalid_by.empty()) {
      return call.Refuse(cudaErrorStreamCaptureInvalidated,
                         absl::StrCat("by ", capture->invalid_by));
    }
    if (!all_joined) {
      return call.Refuse(cudaErrorStreamCaptureUnjoined,
                         absl::StrCat("a stream has not joined ", NameOf(*stream), " again"));
    }
    auto made = std::make_shared<CUgraph_st>();
    made->device = stream->device;
    made->nodes = std::move(nodes);
    *graph = call.machine.graphs.Add(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return Api("cudaStreamIsCapturing", Needs::kContext,
             [&](Call& call) { return FindCapture(call, handle, status, nullptr); });
}

// The graph and its nodes are not to be had while it is captured.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* node_count) {
  return Api("cudaStreamGetCaptureInfo", Needs::kContext, [&](Call& call) {
    if (graph != nullptr || nodes != nullptr || edges != nullptr || node_count != nullptr) {
      return call.Refuse(cudaErrorNotSupported, "the graph of a capture that goes on");
    }
    return FindCapture(call, handle, status, id);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return Api("cudaThreadExchangeStreamCaptureMode", Needs::kNothing, [&](Call&) {
    if (mode == nullptr || !IsMode(*mode)) return cudaErrorInvalidValue;
    std::swap(*mode, ThisThread().mode);
    return cudaSuccess;
  });
}

}  // extern "C"
