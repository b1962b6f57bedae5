#ifndef BRIGADE_EMULATOR_RUNTIME_CAPTURE_H_
#define BRIGADE_EMULATOR_RUNTIME_CAPTURE_H_

// Capture of streams into graphs, by CUDA's rules. Under Machine::mutex.
//
// Source       CUDA Runtime API 13.0, "Stream Management" (cudaStreamBeginCapture, EndCapture,
//              cudaThreadExchangeStreamCaptureMode) and "Graphs: Creating a Graph Using Stream
//              Capture" of the Programming Guide.

#include <cuda_runtime_api.h>

#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {

// Adds a node to the graph of the stream's capture.
cudaError_t AddNode(CUstream_st& stream, Work work);

// The blocking streams that capture and that a use of the legacy stream would wait for: an error,
// and their captures are invalid if the stream is `used`.
cudaError_t CheckImplicit(const Call& call, const CUstream_st& legacy, bool used);

// A query of or a wait for a stream that captures: an error, and the capture is invalid.
cudaError_t CheckNotCapturing(const Call& call, CUstream_st& stream);

// The same for all streams of the call's device.
cudaError_t CheckNoneCaptures(const Call& call);

// Of a stream that ends while it captures.
void LeaveCapture(const Call& call, CUstream_st& stream);

// The same for an event whose latest record was captured, also if that capture has ended.
cudaError_t CheckNotCaptured(const Call& call, const CUevent_st& event);

// A record of, or a wait for, an event by a stream where one of the two is in a capture.
cudaError_t RecordCaptured(const CUstream_st& stream, CUevent_st& event);
cudaError_t WaitCaptured(const Call& call, CUstream_st& stream, const CUevent_st& event);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_RUNTIME_CAPTURE_H_
