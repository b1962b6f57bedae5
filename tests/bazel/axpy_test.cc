#include "brigade/tests/bazel/axpy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace brigade::tests {
namespace {

using ::testing::HasSubstr;

TEST(BuildTest, DoesNotContractAProductAndASumIntoAnFma) {
  // 1 + 2^-12 squared is 1 + 2^-11 + 2^-24: the product rounds the last term away, an fma would
  // leave it in the difference.
  const float one_plus = 1.0f + 0x1p-12f;
  const std::vector<float> x = {one_plus};
  std::vector<float> y = {-(1.0f + 0x1p-11f)};
  ASSERT_TRUE(Axpy(one_plus, x, absl::MakeSpan(y)).ok());
  EXPECT_EQ(y[0], 0.0f);
}

TEST(BuildTest, LinksAbseilAndReportsErrors) {
  std::vector<float> y(2);
  const absl::Status status = Axpy(1.0f, std::vector<float>(3), absl::MakeSpan(y));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("x has 3 elements, y has 2"));
}

TEST(BuildTest, CudaDepsAreLinkedExactlyWhenThereIsAToolkit) {
#if BRIGADE_CUDA
  EXPECT_EQ(CudaState(), absl::UnavailableError("cudaErrorInvalidValue"));
#else
  EXPECT_EQ(CudaState(), absl::UnimplementedError("no toolkit"));
#endif
}

TEST(BuildTest, TestsRunWithTheRunTimeChecks) {
  const char* checks = std::getenv("BRIGADE_CHECKS");
  ASSERT_NE(checks, nullptr) << "is .bazelrc in use?";
  EXPECT_STREQ(checks, "1");
}

}  // namespace
}  // namespace brigade::tests
