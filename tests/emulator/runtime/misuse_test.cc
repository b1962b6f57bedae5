// A catalogue of mistakes for which CUDA promises nothing: each is reported, with the call and what
// it was given.

#include <nvtx3/nvToolsExtMem.h>

#include <memory>

#include "brigade/tests/emulator/runtime/kernels.h"
#include "brigade/tests/emulator/runtime/testing.h"

namespace brigade::emulator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class MisuseTest : public RuntimeTest {
 protected:
  // Reports `text`, with the function's name, and returns `error`.
  template <typename F>
  static void ExpectReport(cudaError_t error, const std::string& text, const F& call) {
    EXPECT_EQ(call(), error);
    EXPECT_THAT(TakeTexts(), ElementsAre(HasSubstr(text)));
  }

  Stream stream_;
};

TEST_F(MisuseTest, AStreamAfterItsDestruction) {
  cudaStream_t gone = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&gone));
  ASSERT_CUDA(cudaStreamDestroy(gone));
  Event event;
  Ints data(1);
  const auto error = cudaErrorInvalidResourceHandle;
  ExpectReport(error, "cudaStreamSynchronize: stream ",
               [&] { return cudaStreamSynchronize(gone); });
  ExpectReport(error, "cudaStreamQuery: stream ", [&] { return cudaStreamQuery(gone); });
  ExpectReport(error, "cudaStreamDestroy: stream ", [&] { return cudaStreamDestroy(gone); });
  ExpectReport(error, "cudaEventRecord: stream ", [&] { return cudaEventRecord(event, gone); });
  ExpectReport(error, "cudaLaunchKernel: stream ", [&] { return Add(data, 1, 1, gone); });
  ExpectReport(error, "cudaMemsetAsync: stream ",
               [&] { return cudaMemsetAsync(data, 0, 4, gone); });
  EXPECT_EQ(cudaStreamQuery(gone), error);
  EXPECT_THAT(TakeTexts(),
              ElementsAre(MatchesRegex(".*stream [0-9]+ of device 0 has been destroyed")));
}

TEST_F(MisuseTest, AnEventAfterItsDestruction) {
  cudaEvent_t gone = nullptr;
  ASSERT_CUDA(cudaEventCreate(&gone));
  ASSERT_CUDA(cudaEventDestroy(gone));
  const auto error = cudaErrorInvalidResourceHandle;
  ExpectReport(error, "cudaEventQuery: event ", [&] { return cudaEventQuery(gone); });
  ExpectReport(error, "cudaEventRecord: event ", [&] { return cudaEventRecord(gone, stream_); });
  ExpectReport(error, "cudaStreamWaitEvent: event ",
               [&] { return cudaStreamWaitEvent(stream_, gone, 0); });
  ExpectReport(error, "cudaEventDestroy: event ", [&] { return cudaEventDestroy(gone); });
}

TEST_F(MisuseTest, AGraphAfterItsDestruction) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  ASSERT_CUDA(cudaStreamEndCapture(stream_, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaGraphExecDestroy(executable));
  ExpectReport(cudaErrorInvalidValue, "cudaGraphInstantiate: graph ",
               [&] { return cudaGraphInstantiate(&executable, graph, 0); });
  ExpectReport(cudaErrorInvalidValue, "cudaGraphDestroy: graph ",
               [&] { return cudaGraphDestroy(graph); });
  ExpectReport(cudaErrorInvalidResourceHandle, "cudaGraphLaunch: executable graph ",
               [&] { return cudaGraphLaunch(executable, stream_); });
}

TEST_F(MisuseTest, AHandleThatNeverWas) {
  ExpectReport(cudaErrorInvalidResourceHandle, "cudaStreamQuery: 0x40 is no stream",
               [] { return cudaStreamQuery(reinterpret_cast<cudaStream_t>(0x40)); });
  ExpectReport(cudaErrorInvalidResourceHandle, "cudaEventQuery: (nil) is no event",
               [] { return cudaEventQuery(nullptr); });
}

TEST_F(MisuseTest, NamesMemoryAsTheProgramDoesThroughNvtx) {
  void* weights = nullptr;
  ASSERT_CUDA(cudaMalloc(&weights, 64));
  const auto name = [](const void* data, const char* text) {
    nvtxMemRegionNameDesc_t region = {};
    region.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    region.region.pointer = data;
    region.nameType = NVTX_MESSAGE_TYPE_ASCII;
    region.name.ascii = text;
    nvtxMemRegionsNameBatch_t regions = {};
    regions.extCompatID = NVTX_EXT_COMPATID_MEM;
    regions.structSize = sizeof(regions);
    regions.regionCount = 1;
    regions.regionElementSize = sizeof(region);
    regions.regionElements = &region;
    nvtxMemRegionsName(nullptr, &regions);
  };
  char* const inside = static_cast<char*>(weights) + 4;
  name(weights, "weights");
  name(inside, "a name for no allocation");
  ExpectReport(cudaErrorInvalidValue, "byte 4 of 64 of \"weights (cudaMalloc number",
               [&] { return cudaFree(inside); });
  ASSERT_CUDA(cudaFree(weights));
}

TEST_F(MisuseTest, AFreeOfWhatIsNoAllocation) {
  void *device = nullptr, *host = nullptr;
  ASSERT_CUDA(cudaMalloc(&device, 64));
  ASSERT_CUDA(cudaMallocHost(&host, 64));
  int value = 0;
  const auto error = cudaErrorInvalidValue;
  ExpectReport(error, "byte 4 of 64 of \"cudaMalloc number",
               [&] { return cudaFree(static_cast<char*>(device) + 4); });
  ExpectReport(error, "of \"cudaMallocHost number", [&] { return cudaFree(host); });
  ExpectReport(error, "of \"cudaMalloc number", [&] { return cudaFreeHost(device); });
  ExpectReport(error, "not on the device", [&] { return cudaFree(&value); });
  ASSERT_CUDA(cudaFree(device));
  ASSERT_CUDA(cudaFreeHost(host));
  ExpectReport(error, "which has been freed", [&] { return cudaFree(device); });
  ExpectReport(error, "which has been freed", [&] { return cudaFreeHost(host); });
}

TEST_F(MisuseTest, CopiesAndFillsThatLeaveTheirMemory) {
  void *device = nullptr, *pinned = nullptr;
  ASSERT_CUDA(cudaMalloc(&device, 64));
  ASSERT_CUDA(cudaMallocHost(&pinned, 64));
  std::vector<char> host(128);
  const auto error = cudaErrorInvalidValue;
  ExpectReport(error, "cudaMemcpy: 65 bytes at byte 0 of 64 of",
               [&] { return cudaMemcpy(device, host.data(), 65, cudaMemcpyHostToDevice); });
  ExpectReport(error, "cudaMemcpyAsync: 65 bytes at byte 0 of 64 of", [&] {
    return cudaMemcpyAsync(pinned, host.data(), 65, cudaMemcpyDefault, stream_);
  });
  ExpectReport(error, "cudaMemset: 64 bytes at byte 1 of 64 of",
               [&] { return cudaMemset(static_cast<char*>(device) + 1, 0, 64); });
  ExpectReport(error, "cudaMemset: ", [&] { return cudaMemset(host.data(), 0, 64); });
  ASSERT_CUDA(cudaFree(device));
  ASSERT_CUDA(cudaFreeHost(pinned));
  ExpectReport(error, "which has been freed",
               [&] { return cudaMemcpy(host.data(), device, 64, cudaMemcpyDeviceToHost); });
  ExpectReport(error, "which has been freed",
               [&] { return cudaMemcpy(host.data(), pinned, 64, cudaMemcpyHostToHost); });
}

TEST_F(MisuseTest, AGraphThatCopiesFreedMemory) {
  ASSERT_CUDA(cudaSetDevice(1));  // which is lost then
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  void* data = nullptr;
  ASSERT_CUDA(cudaMalloc(&data, 64));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_CUDA(cudaMemsetAsync(data, 0, 64, stream));
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  ASSERT_CUDA(cudaFree(data));
  ASSERT_CUDA(cudaGraphLaunch(executable, stream));
  ExpectReport(cudaErrorIllegalAddress, "which has been freed",
               [&] { return cudaStreamSynchronize(stream); });
  ASSERT_CUDA(cudaSetDevice(0));
}

TEST_F(MisuseTest, AHostFunctionThatCallsCuda) {
  static cudaError_t result;
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream_, [](void*) { result = cudaDeviceSynchronize(); }, nullptr));
  ExpectReport(cudaErrorNotPermitted, "cudaDeviceSynchronize: a host function", [&] {
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
    return result;
  });
}

TEST_F(MisuseTest, AFunctionThatIsNoKernel) {
  EXPECT_THAT(
      PrintedBy([] {
        void* none[1] = {};
        EXPECT_EQ(cudaLaunchKernel(reinterpret_cast<const void*>(0x40), {1}, {1}, none, 0, nullptr),
                  cudaErrorInvalidDeviceFunction);
      }),
      HasSubstr("0x40 stands for no kernel"));
}

}  // namespace
}  // namespace brigade::emulator
