// What cuBLAS leaves undefined is reported by its stand-in.

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "brigade/emulator/runtime/control.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Products of 2 by 2 matrices of fp32 that follow each other in arrays of 16 elements.
struct Gemm {
  int batch = 2;
  int c_leading = 2;
  long long c_stride = 4;
  // Elements behind the beginnings of the arrays.
  int64_t c_offset = 0;
  int64_t a_byte = 0;
  bool c_is_a = false;
};

// A device of its own for each test: a kernel that failed leaves an error there.
class MistakesTest : public ::testing::Test {
 protected:
  static constexpr int kElements = 16;

  void SetUp() override {
    static int devices = 0;
    device_ = devices++;
    ASSERT_EQ(cudaSetDevice(device_), cudaSuccess);
    ASSERT_EQ(cublasCreate_v2(&handle_), CUBLAS_STATUS_SUCCESS);
    for (float*& array : arrays_) {
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&array), kElements * sizeof(float)),
                cudaSuccess);
      const std::vector<float> ones(kElements, 1);
      ASSERT_EQ(cudaMemcpy(array, ones.data(), sizeof(float) * kElements, cudaMemcpyHostToDevice),
                cudaSuccess);
    }
  }
  void TearDown() override { EXPECT_EQ(cublasDestroy_v2(handle_), CUBLAS_STATUS_SUCCESS); }

  cublasStatus_t Run(const Gemm& gemm) {
    const float one = 1, zero = 0;
    const char* const a = reinterpret_cast<const char*>(arrays_[0]) + gemm.a_byte;
    float* const c = (gemm.c_is_a ? arrays_[0] : arrays_[2]) + gemm.c_offset;
    return cublasGemmStridedBatchedEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a,
                                      CUDA_R_32F, 2, 4, arrays_[1], CUDA_R_32F, 2, 4, &zero, c,
                                      CUDA_R_32F, gemm.c_leading, gemm.c_stride, gemm.batch,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  }

  static std::vector<std::string> Texts() {
    std::vector<std::string> texts;
    for (const Report& report : TakeReports()) texts.push_back(report.text);
    return texts;
  }

  void ExpectReport(const Gemm& gemm, const std::string& text) {
    EXPECT_EQ(Run(gemm), CUBLAS_STATUS_SUCCESS);
    EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_THAT(Texts(), ElementsAre(HasSubstr(text)));
  }

  void ExpectNone(const Gemm& gemm) {
    EXPECT_EQ(Run(gemm), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_THAT(Texts(), IsEmpty());
  }

  int device_ = -1;
  cublasHandle_t handle_ = nullptr;
  float* arrays_[3] = {};
};

TEST_F(MistakesTest, ProductsThatShareAnOutput) {
  ExpectReport({.c_stride = 0}, "products of the batch overlap in c");
}

TEST_F(MistakesTest, ProductsThatShareAnElementOfTheOutput) {
  ExpectReport({.c_stride = 3}, "products of the batch overlap in c");
}

// Side by side, as heads of attention are.
TEST_F(MistakesTest, NoneInProductsWhoseColumnsAlternate) {
  ExpectNone({.c_leading = 4, .c_stride = 2});
  ExpectNone({.batch = 1, .c_stride = 0});
}

TEST_F(MistakesTest, AnOutputOverAnInput) {
  ExpectReport({.c_offset = 7, .c_is_a = true}, "c overlaps an input");
}

TEST_F(MistakesTest, NoneInAnOutputBehindAnInput) { ExpectNone({.c_offset = 8, .c_is_a = true}); }

TEST_F(MistakesTest, AMisalignedArray) { ExpectReport({.a_byte = 2}, "has elements of 4 bytes"); }

TEST_F(MistakesTest, AWorkspaceThatEndsBehindItsArray) {
  ASSERT_EQ(cublasSetWorkspace_v2(handle_, arrays_[1], 8192), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSetStream_v2(handle_, nullptr), CUBLAS_STATUS_SUCCESS);
  // Setting the stream has brought the library's own one back.
  ExpectNone({});
  ASSERT_EQ(cublasSetWorkspace_v2(handle_, arrays_[1], 8192), CUBLAS_STATUS_SUCCESS);
  ExpectReport({}, "no 8192 bytes of device");
}

TEST_F(MistakesTest, AWorkspaceHoldsNothing) {
  void* workspace = nullptr;
  ASSERT_EQ(cudaMalloc(&workspace, 1024), cudaSuccess);
  ASSERT_EQ(cudaMemset(workspace, 1, 1024), cudaSuccess);
  ASSERT_EQ(cublasSetWorkspace_v2(handle_, workspace, 1024), CUBLAS_STATUS_SUCCESS);
  ExpectNone({});
  std::vector<unsigned char> bytes(1024);
  ASSERT_EQ(cudaMemcpy(bytes.data(), workspace, 1024, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_NE(bytes.front(), 1);
  EXPECT_NE(bytes.back(), 1);
}

TEST_F(MistakesTest, AHandleOfAnotherDevice) {
  ASSERT_EQ(cudaSetDevice(device_ + 1), cudaSuccess);
  EXPECT_EQ(Run({}), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("is current")));
}

}  // namespace
}  // namespace brigade::emulator
