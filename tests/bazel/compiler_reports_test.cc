// The by-products of a cuda_library reach tests as files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path << " is not among the test's files";
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(CompilerReportsTest, ResourcesNameTheKernelAndItsRegisters) {
  const std::string report = Read("tests/bazel/_nvcc/axpy_cuda/axpy_cuda.resources.txt");
  EXPECT_THAT(report, ContainsRegex("entry function '.*AxpyKernel.*' for 'sm_[0-9]+"));
  EXPECT_THAT(report, ContainsRegex("Used [0-9]+ registers"));
  EXPECT_THAT(report, HasSubstr("0 bytes spill stores"));
}

TEST(CompilerReportsTest, PtxHoldsTheKernelWithoutContraction) {
  const std::string ptx = Read("tests/bazel/_nvcc/axpy_cuda/axpy_cuda.ptx");
  EXPECT_THAT(ptx, ContainsRegex("entry .*AxpyKernel"));
  EXPECT_THAT(ptx, HasSubstr("mul.rn.f32"));
  EXPECT_THAT(ptx, Not(HasSubstr("fma.rn.f32")));
}

}  // namespace
