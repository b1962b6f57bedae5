// Streams that wait for a word of memory, by the driver's function.

#include <cuda.h>

#include <atomic>
#include <string>

#include "brigade/tests/emulator/runtime/kernels.h"
#include "brigade/tests/emulator/runtime/testing.h"

namespace brigade::emulator {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WaitValueTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    ASSERT_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&word_), 8, cudaHostAllocDefault));
    Set(0);
    void* found = nullptr;
    ASSERT_CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, 12000,
                                                 cudaEnableDefault, nullptr));
    wait_ = reinterpret_cast<decltype(wait_)>(found);
  }
  void TearDown() override {
    EXPECT_CUDA(cudaFreeHost(word_));
    RuntimeTest::TearDown();
  }

  void Set(uint32_t value) { std::atomic_ref<uint32_t>(*word_).store(value); }
  CUresult Wait(uint32_t value, unsigned flags = CU_STREAM_WAIT_VALUE_GEQ) {
    return WaitAt(word_, value, flags);
  }
  CUresult WaitAt(const void* address, uint32_t value, unsigned flags = CU_STREAM_WAIT_VALUE_GEQ) {
    return wait_(stream_, reinterpret_cast<CUdeviceptr>(address), value, flags);
  }

  // Whether a wait for `value` goes on while the word is one, and ends when it is the other.
  void ExpectEnds(unsigned flags, uint32_t value, uint32_t goes_on, uint32_t ends) {
    Set(goes_on);
    ASSERT_EQ(Wait(value, flags), CUDA_SUCCESS);
    PauseForOthers();
    EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady) << flags;
    Set(ends);
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
  }

  uint32_t* word_ = nullptr;
  CUresult (*wait_)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
  Stream stream_, other_;
  Log log_;
};

TEST_F(WaitValueTest, HoldsBackItsOwnStreamAlone) {
  ASSERT_EQ(Wait(1), CUDA_SUCCESS);
  ASSERT_CUDA(log_.Append(stream_, "behind the wait"));
  ASSERT_CUDA(log_.Append(other_, "elsewhere"));
  ASSERT_CUDA(cudaStreamSynchronize(other_));
  PauseForOthers();
  EXPECT_THAT(log_.Take(), ElementsAre("elsewhere"));
  Set(1);
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_THAT(log_.Take(), ElementsAre("behind the wait"));
}

TEST_F(WaitValueTest, KnowsFourConditions) {
  ExpectEnds(CU_STREAM_WAIT_VALUE_GEQ, 7, 6, 8);
  // The comparison is cyclic.
  ExpectEnds(CU_STREAM_WAIT_VALUE_GEQ, 2, 0xffffffffu, 2);
  ExpectEnds(CU_STREAM_WAIT_VALUE_GEQ, 0xffffffffu, 0xfffffffeu, 3);
  ExpectEnds(CU_STREAM_WAIT_VALUE_EQ, 7, 8, 7);
  ExpectEnds(CU_STREAM_WAIT_VALUE_AND, 6, 1, 2);
  ExpectEnds(CU_STREAM_WAIT_VALUE_NOR, 1, 0xfffffffeu, 0);
}

TEST_F(WaitValueTest, RefusesWhatIsNoWordOfTheDevice) {
  uint32_t pageable = 0;
  void* elsewhere = nullptr;
  ASSERT_CUDA(cudaSetDevice(1));
  ASSERT_CUDA(cudaMalloc(&elsewhere, 4));
  ASSERT_CUDA(cudaSetDevice(0));
  const char* const bytes = reinterpret_cast<const char*>(word_);
  for (const void* address :
       {static_cast<const void*>(&pageable), static_cast<const void*>(elsewhere),
        static_cast<const void*>(bytes + 1), static_cast<const void*>(bytes + 8),
        static_cast<const void*>(nullptr)}) {
    EXPECT_THAT(PrintedBy([&] { EXPECT_EQ(WaitAt(address, 1), CUDA_ERROR_INVALID_VALUE); }),
                AllOf(HasSubstr("cuStreamWaitValue32: cudaErrorInvalidValue: no word that stream"),
                      HasSubstr("reaches")));
  }
  // The runtime's last error is not the driver's business.
  EXPECT_CUDA(cudaGetLastError());
  ASSERT_CUDA(cudaFree(elsewhere));
  EXPECT_CUDA(cudaStreamSynchronize(stream_));
}

TEST_F(WaitValueTest, RefusesFlagsAndCaptures) {
  EXPECT_EQ(Wait(0, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Wait(0, CU_STREAM_WAIT_VALUE_FLUSH), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  EXPECT_THAT(PrintedBy([&] { EXPECT_EQ(Wait(0), CUDA_ERROR_NOT_SUPPORTED); }),
              HasSubstr("a graph's node for an operation on memory"));
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream_, &graph));
  ASSERT_CUDA(cudaGraphDestroy(graph));
}

TEST_F(WaitValueTest, ReportsAWordThatNobodyWrote) {
  // A device of its own: the error stays.
  ASSERT_CUDA(cudaSetDevice(2));
  void* data = nullptr;
  ASSERT_CUDA(cudaMalloc(&data, 4));
  Stream stream;
  ASSERT_EQ(wait_(stream, reinterpret_cast<CUdeviceptr>(data), 0, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_THAT(TakeTexts(), ElementsAre(HasSubstr("cuStreamWaitValue32: ")));
  ASSERT_CUDA(cudaSetDevice(0));
}

TEST_F(WaitValueTest, EndsWhenItsDeviceFails) {
  ASSERT_CUDA(cudaSetDevice(3));
  Stream waits, fails;
  ASSERT_EQ(wait_(waits, reinterpret_cast<CUdeviceptr>(word_), 1, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_SUCCESS);
  // A callback learns of the error, a host function does not run.
  std::atomic<cudaError_t> seen = cudaSuccess;
  ASSERT_CUDA(log_.Append(waits, "host function"));
  ASSERT_CUDA(cudaStreamAddCallback(
      waits,
      [](cudaStream_t, cudaError_t error, void* data) {
        *static_cast<std::atomic<cudaError_t>*>(data) = error;
      },
      &seen, 0));
  int* none = nullptr;
  ASSERT_CUDA(cudaMalloc(reinterpret_cast<void**>(&none), 4));
  {
    // Add looks for errors after its launch.
    Gate gate(fails);
    ASSERT_CUDA(Add(none + 4096, 1, 1, fails));
  }
  EXPECT_EQ(cudaStreamSynchronize(waits), cudaErrorIllegalAddress);
  while (seen == cudaSuccess) PauseForOthers();
  EXPECT_EQ(seen, cudaErrorIllegalAddress);
  EXPECT_THAT(log_.Take(), IsEmpty());
  EXPECT_THAT(TakeTexts(), Each(HasSubstr("AddKernel")));
  ASSERT_CUDA(cudaSetDevice(0));
}

}  // namespace
}  // namespace brigade::emulator
