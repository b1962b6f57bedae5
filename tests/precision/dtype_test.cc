#include "brigade/precision/dtype.h"

#include "gtest/gtest.h"

namespace brigade::precision {
namespace {

template <typename T>
void ExpectDType(DType dtype, absl::string_view name) {
  EXPECT_EQ(kDType<T>, dtype);
  EXPECT_EQ(SizeOf(dtype), static_cast<int64_t>(sizeof(T)));
  EXPECT_EQ(Name(dtype), name);
  EXPECT_TRUE(IsValid(dtype));
}

TEST(DTypeTest, NamesAndMeasuresEveryType) {
  ExpectDType<float>(DType::kFloat32, "float32");
  ExpectDType<Half>(DType::kFloat16, "float16");
  ExpectDType<BFloat16>(DType::kBFloat16, "bfloat16");
  ExpectDType<double>(DType::kFloat64, "float64");
  ExpectDType<int32_t>(DType::kInt32, "int32");
  ExpectDType<int64_t>(DType::kInt64, "int64");
  ExpectDType<uint8_t>(DType::kUint8, "uint8");
}

TEST(DTypeTest, KnowsAValueThatIsNoType) {
  const DType none = static_cast<DType>(200);
  EXPECT_FALSE(IsValid(none));
  EXPECT_EQ(Name(none), "invalid");
  EXPECT_FALSE(VisitFloat(none, [](auto) { FAIL(); }));
}

TEST(DTypeTest, VisitsTheTrainingFormatsOnly) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    DType visited = DType::kUint8;
    EXPECT_TRUE(VisitFloat(dtype, [&](auto tag) { visited = kDType<decltype(tag)>; }));
    EXPECT_EQ(visited, dtype);
  }
  EXPECT_FALSE(VisitFloat(DType::kFloat64, [](auto) { FAIL(); }));
}

}  // namespace
}  // namespace brigade::precision
