// Errors as CUDA keeps them: those of a thread, and those that a kernel leaves behind. A device
// that has one of these is lost for the process, so that each test has a device of its own.

#include "brigade/tests/emulator/runtime/kernels.h"
#include "brigade/tests/emulator/runtime/testing.h"

namespace brigade::emulator {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ErrorTest : public RuntimeTest {};

TEST_F(ErrorTest, TheLastErrorIsOfTheThreadUntilItIsTaken) {
  EXPECT_CUDA(cudaGetLastError());
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  void* data = nullptr;
  EXPECT_CUDA(cudaMalloc(&data, 4));  // a success changes nothing
  EXPECT_CUDA(InOtherThread([] { return cudaGetLastError(); }));
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaMalloc(nullptr, 4), cudaErrorInvalidValue);  // an error does
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaGetLastError());
  EXPECT_CUDA(cudaFree(data));
}

TEST_F(ErrorTest, ALaunchLeavesItsErrorBehind) {
  for (const auto& [blocks, threads] : {std::pair{0u, 1u}, {1u, 0u}, {1u, 1025u}}) {
    EXPECT_EQ(LaunchOf(blocks, threads, nullptr), cudaErrorInvalidConfiguration);
  }
  EXPECT_CUDA(LaunchOf(1, 1024, nullptr));
  EXPECT_CUDA(cudaDeviceSynchronize());
}

TEST_F(ErrorTest, DynamicSharedMemoryAbove48KiBIsAskedFor) {
  Ints out(1);
  EXPECT_CUDA(UseShared(out, 48 << 10, nullptr));
  EXPECT_EQ(UseShared(out, (48 << 10) + 16, nullptr), cudaErrorInvalidValue);
  constexpr auto kMost = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT_EQ(cudaFuncSetAttribute(use_shared_kernel, kMost, (227 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFuncSetAttribute(use_shared_kernel, kMost, 100 << 10));
  cudaFuncAttributes attributes = {};
  EXPECT_CUDA(cudaFuncGetAttributes(&attributes, use_shared_kernel));
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, 100 << 10);
  cudaGetLastError();
  EXPECT_CUDA(UseShared(out, 100 << 10, nullptr));
  EXPECT_THAT(out.Values(), ElementsAre(25 << 10));
  const char* name = nullptr;
  EXPECT_CUDA(cudaFuncGetName(&name, use_shared_kernel));
  EXPECT_THAT(name, HasSubstr("UseSharedKernel"));
}

TEST_F(ErrorTest, AKernelsErrorStaysWithItsDevice) {
  ASSERT_CUDA(cudaSetDevice(2));
  Stream stream;
  void* data = nullptr;
  ASSERT_CUDA(cudaMalloc(&data, 4));
  Event event;
  bool has_run = false;
  Gate gate(stream);
  ASSERT_CUDA(CopyOne(static_cast<int*>(data), static_cast<int*>(data) + 1, stream));
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void* flag) { *static_cast<bool*>(flag) = true; }, &has_run));
  gate.Open();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_FALSE(has_run);
  // Every later call says so again, in all threads, and the last error stays.
  EXPECT_EQ(cudaFree(data), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorIllegalAddress);
  EXPECT_EQ(LaunchOf(1, 1, stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(InOtherThread([&] { return cudaSetDevice(2); }), cudaErrorIllegalAddress);
  // Other devices work, also where their threads look at this one's streams.
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorIllegalAddress);
  const std::vector<Report> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1);
  EXPECT_EQ(reports[0].kind, Report::Kind::kKernel);
  EXPECT_EQ(reports[0].finding, FindingKind::kOutOfBounds);
  EXPECT_THAT(reports[0].text,
              AllOf(HasSubstr("byte 4 of 4 of \"cudaMalloc number"), HasSubstr("on device 2"),
                    HasSubstr("CopyOneKernel"), HasSubstr("kernels.cu:")));
}

TEST_F(ErrorTest, EachKindOfMistakeHasItsError) {
  ASSERT_CUDA(cudaSetDevice(3));
  void* data = nullptr;
  ASSERT_CUDA(cudaMalloc(&data, 16));
  Gate gate(nullptr);
  EXPECT_CUDA(StoreMisaligned(static_cast<int*>(data), nullptr));
  gate.Open();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorMisalignedAddress);
  EXPECT_THAT(TakeTexts(), ElementsAre(HasSubstr("StoreMisalignedKernel")));
}

TEST_F(ErrorTest, UninitializedMemoryIsReportedButNoError) {
  void *data = nullptr, *out = nullptr;
  ASSERT_CUDA(cudaMalloc(&data, 4));
  ASSERT_CUDA(cudaMalloc(&out, 4));
  int value = 0;
  EXPECT_CUDA(CopyOne(static_cast<int*>(out), static_cast<int*>(data), nullptr));
  EXPECT_CUDA(cudaMemcpy(&value, data, 4, cudaMemcpyDeviceToHost));
  EXPECT_THAT(TakeTexts(), ElementsAre(AllOf(HasSubstr("CopyOneKernel"), HasSubstr("cudaMalloc")),
                                       AllOf(HasSubstr("copy"), HasSubstr("never written"))));
  EXPECT_CUDA(cudaFree(data));
  EXPECT_CUDA(cudaFree(out));
}

TEST_F(ErrorTest, AGraphsKernelFailsOnItsOwnDevice) {
  ASSERT_CUDA(cudaSetDevice(4));
  // The device is lost: these are not destroyed.
  cudaStream_t failing = nullptr;
  cudaEvent_t end = nullptr;
  void* data = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&failing, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaEventCreate(&end));
  ASSERT_CUDA(cudaMalloc(&data, 4));
  ASSERT_CUDA(cudaSetDevice(0));
  Stream stream;
  Event begin;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_CUDA(cudaEventRecord(begin, stream));
  ASSERT_CUDA(cudaStreamWaitEvent(failing, begin, 0));
  ASSERT_CUDA(cudaSetDevice(4));
  ASSERT_CUDA(CopyOne(static_cast<int*>(data), static_cast<int*>(data) + 1, failing));
  ASSERT_CUDA(cudaEventRecord(end, failing));
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaStreamWaitEvent(stream, end, 0));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(executable, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(cudaStreamQuery(failing), cudaErrorIllegalAddress);
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  TakeReports();
}

TEST_F(ErrorTest, NamesItsErrors) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorStreamCaptureIsolation),
               "cudaErrorStreamCaptureIsolation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

}  // namespace
}  // namespace brigade::emulator
