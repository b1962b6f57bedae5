#include "brigade/precision/dtype_names.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace brigade::precision {
namespace {

TEST(DTypeNamesTest, TakesShortAndLongNamesAndPrintsTheShortOnes) {
  for (const char* const name : {"fp32", "float32", "float"}) {
    EXPECT_EQ(ParseTrainingFormat(name), DType::kFloat32) << name;
  }
  for (const char* const name : {"fp16", "float16", "half"}) {
    EXPECT_EQ(ParseTrainingFormat(name), DType::kFloat16) << name;
  }
  for (const char* const name : {"bf16", "bfloat16"}) {
    EXPECT_EQ(ParseTrainingFormat(name), DType::kBFloat16) << name;
  }
  EXPECT_EQ(ShortName(DType::kFloat32), "fp32");
  EXPECT_EQ(ShortName(DType::kFloat16), "fp16");
  EXPECT_EQ(ShortName(DType::kBFloat16), "bf16");
  EXPECT_EQ(ShortName(DType::kFloat64), "fp64");
  EXPECT_EQ(ShortName(DType::kInt32), "int32");
}

TEST(DTypeNamesTest, ParsesEachNameOfATrainingFormat) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    EXPECT_EQ(ParseTrainingFormat(Name(dtype)), dtype);
    EXPECT_EQ(ParseTrainingFormat(ShortName(dtype)), dtype);
  }
}

TEST(DTypeNamesTest, AFlagListsTheChoicesWhenItRefuses) {
  DType dtype = DType::kFloat16;
  std::string error;
  for (const char* const name : {"", "fp8", "fp64", "FP32", "int32", "fp32 "}) {
    EXPECT_EQ(ParseTrainingFormat(name), std::nullopt) << name;
  }
  EXPECT_FALSE(AbslParseFlag("fp8", &dtype, &error));
  EXPECT_EQ(error, "it must be fp32, fp16 or bf16");
  EXPECT_EQ(dtype, DType::kFloat16);
  EXPECT_TRUE(AbslParseFlag("bfloat16", &dtype, &error));
  EXPECT_EQ(dtype, DType::kBFloat16);
  EXPECT_EQ(AbslUnparseFlag(dtype), "bf16");
}

}  // namespace
}  // namespace brigade::precision
