#include "brigade/collectives/compressed/amax_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using kernels::BadArrays;
using kernels::CpuRun;
using precision::DType;
using ::testing::HasSubstr;

class AmaxScaleTest : public ::testing::Test {
 protected:
  AmaxScale Choose(float amax, int64_t terms, DType wire) {
    AmaxScale result = {-1.0f, -1.0f};
    EXPECT_OK(ChooseAmaxScale(&amax, terms, wire, &result, *cpu_.stream));
    EXPECT_OK(cpu_.stream->Synchronize());
    return result;
  }

  const CpuRun cpu_ = kernels::OnCpu(1);
};

// The definition in double: halves and doubles 1 until it fits.
double Wanted(double amax, int64_t terms, DType wire) {
  double power = 0x1p-126;  // of two, above all values
  while (power <= amax) power *= 2;
  double most = 1;  // terms, rounded up to a power of two
  while (most < static_cast<double>(terms)) most *= 2;
  const double limit = wire == DType::kFloat16 ? 0x1p15 : 0x1p127;
  double scale = 1;
  while (scale * most * power > limit && scale > 0x1p-126) scale /= 2;
  while (2 * scale * most * power <= limit && scale < 0x1p126) scale *= 2;
  return scale;
}

TEST_F(AmaxScaleTest, IsTheLargestPowerOfTwoThatKeepsSumsInHalfTheRange) {
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    for (int exponent = -149; exponent <= 127; ++exponent) {
      for (const float mantissa : {1.0f, 1.5f, 0x1.fffffep0f}) {
        const float amax = std::ldexp(mantissa, exponent);
        for (const int64_t terms : {1, 2, 3, 4, 5, 8, 1000, 16384}) {
          const AmaxScale actual = Choose(amax, terms, wire);
          const double wanted = Wanted(amax, terms, wire);
          ASSERT_EQ(actual.scale, wanted) << amax << ", " << terms << " terms";
          ASSERT_EQ(actual.unscale, 1 / wanted) << amax << ", " << terms << " terms";
        }
      }
    }
  }
}

// As a collective would add them, rounded once and rounded at each addition.
TEST_F(AmaxScaleTest, KeepsSumsOfTheLargestValuesFinite) {
  for (const float amax : {0x1p-149f, 1e-30f, 0.1f, 1.0f, 65504.0f, 1e30f, 0x1.fffffep127f}) {
    for (const int terms : {1, 2, 3, 7, 8, 100, 1024}) {
      const AmaxScale half = Choose(amax, terms, DType::kFloat16);
      const AmaxScale bfloat16 = Choose(amax, terms, DType::kBFloat16);
      const auto add = [terms](spec::Format format, float x) {
        const float term = spec::Round(format, x);
        float once = term, per_hop = term;
        for (int i = 1; i < terms; ++i) {
          once += term;
          per_hop = spec::Round(format, per_hop + term);
        }
        EXPECT_TRUE(std::isfinite(spec::Round(format, once))) << x << ", " << terms << " terms";
        EXPECT_TRUE(std::isfinite(per_hop)) << x << ", " << terms << " terms";
        EXPECT_GT(per_hop, 0.0f) << x;
      };
      add(spec::Format::kFloat16, amax * half.scale);
      add(spec::Format::kBFloat16, amax * bfloat16.scale);
    }
  }
}

TEST_F(AmaxScaleTest, IsOneWhereNoScaleHelps) {
  for (const float amax :
       {0.0f, std::numeric_limits<float>::infinity(), std::nanf(""), -std::nanf("")}) {
    for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
      const AmaxScale scale = Choose(std::fabs(amax), 4, wire);
      EXPECT_EQ(scale.scale, 1.0f) << amax;
      EXPECT_EQ(scale.unscale, 1.0f) << amax;
    }
  }
}

TEST_F(AmaxScaleTest, RejectsEveryBadArray) {
  BadArrays arrays("amax_scale");
  const float* amax;
  AmaxScale* result;
  arrays.Add("amax", amax, 1, BadArrays::kRead);
  arrays.Add("result", result, 1, BadArrays::kWritten);
  arrays.ExpectRefused(*cpu_.stream, [&] {
    return ChooseAmaxScale(amax, 4, DType::kFloat16, result, *cpu_.stream);
  });
}

TEST_F(AmaxScaleTest, RejectsOtherTypesAndNoTerms) {
  const float amax = 1.0f;
  AmaxScale result;
  const auto expect = [&](int64_t terms, DType wire, const char* message) {
    EXPECT_THAT(ChooseAmaxScale(&amax, terms, wire, &result, *cpu_.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  expect(2, DType::kFloat32, "amax_scale: wire is fp32, must be fp16 or bf16");
  expect(0, DType::kFloat16, "amax_scale: there are 0 terms, must be 1 or more");
}

}  // namespace
}  // namespace brigade::collectives
