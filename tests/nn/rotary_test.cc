#include "brigade/nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "brigade/tests/nn/types_lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

RotaryTable TableOf(Lab& lab, DType dtype, int64_t positions, int64_t head_width,
                    double base = 10000) {
  return RotaryTable::Create(lab.context(), {dtype, positions, head_width, base}).value();
}

TEST(RotaryTest, TurnsTheHalvesOfQueriesAndKeysByThePositionsAngle) {
  Lab lab;
  constexpr int64_t kBatch = 2, kContext = 5, kWidth = 12, kHeadWidth = 6, kFirst = 3;
  constexpr double kBase = 500;
  // Two heads of queries and two of keys; the values behind them stay.
  const RotaryShape shape = {DType::kFloat64, kBatch, kContext, 4, 3 * kWidth, kFirst};
  const RotaryTable table = TableOf(lab, DType::kFloat64, kFirst + kContext, kHeadWidth, kBase);
  const auto x = lab.Noise<double>(kBatch * kContext * 3 * kWidth);
  const std::vector<double> before(x.begin(), x.end());
  ASSERT_OK(Rotary(shape, table, x.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (int64_t r = 0; r < kBatch * kContext; ++r) {
    for (int64_t c = 0; c < 3 * kWidth; ++c) {
      const int64_t at = r * 3 * kWidth + c, in_head = c % kHeadWidth, i = in_head % 3;
      double wanted = before[at];
      if (c < 2 * kWidth) {
        const double angle = static_cast<double>(kFirst + r % kContext) *
                             std::pow(kBase, -2 * static_cast<double>(i) / kHeadWidth);
        const bool low = in_head < 3;
        const double other = before[low ? at + 3 : at - 3];
        wanted = before[at] * std::cos(angle) + (low ? -other : other) * std::sin(angle);
      }
      ASSERT_NEAR(x[at], wanted, c < 2 * kWidth ? 1e-14 : 0) << r << " " << c;
    }
  }
}

// Llama 3's: waves of 16 positions that fit twice stay, those that do not fit once are four times
// as long, and between them the frequency is between.
TEST(RotaryTest, ScalingStretchesLongWaves) {
  Lab lab;
  constexpr int64_t kHeadWidth = 16;
  constexpr double kBase = 500, kOriginal = 16, kFactor = 4;
  for (const bool all : {false, true}) {
    RotaryTable::Options options = {DType::kFloat64, 2, kHeadWidth, kBase};
    options.scaling = all ? RotaryScaling{kFactor} : RotaryScaling{kFactor, 1, 2, kOriginal};
    const auto table = RotaryTable::Create(lab.context(), options);
    ASSERT_OK(table);
    EXPECT_EQ(table->memory().bytes(), RotaryTable::Bytes(options));
    const auto x = lab.Raw<double>(kHeadWidth);
    std::fill(x.begin(), x.end(), 0.0);
    for (int64_t i = 0; i < kHeadWidth / 2; ++i) x[i] = 1;
    const RotaryShape shape = {DType::kFloat64, 1, 1, 1, kHeadWidth, 1};
    ASSERT_OK(Rotary(shape, *table, x.data(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    int stay = 0, stretched = 0, between = 0;
    for (int64_t i = 0; i < kHeadWidth / 2; ++i) {
      const double frequency = std::pow(kBase, -2.0 * static_cast<double>(i) / kHeadWidth);
      const double wave = 2 * M_PI / frequency;
      double wanted = frequency / kFactor;
      if (!all && wave < kOriginal / 2) {
        wanted = frequency;
        ++stay;
      } else if (all || wave > kOriginal) {
        ++stretched;
      } else {
        // As modeling_rope_utils.py has it.
        const double smooth = (kOriginal / wave - 1) / (2 - 1);
        wanted = (1 - smooth) * frequency / kFactor + smooth * frequency;
        ++between;
      }
      EXPECT_NEAR(std::atan2(x[i + kHeadWidth / 2], x[i]), wanted, 1e-14) << i;
    }
    EXPECT_GT(stretched, 0);
    if (!all) {
      EXPECT_GT(stay, 0);
      EXPECT_GT(between, 0);
    }
  }
}

// Some positions of a text, with a table of these.
TEST(RotaryTest, RowsOfATableMayBeAnyPositions) {
  Lab lab;
  constexpr int64_t kHeadWidth = 6, kBatch = 2;
  const std::vector<int64_t> rows = {1, 2, 6, 7};
  const auto count = static_cast<int64_t>(rows.size());
  RotaryTable::Options options = {DType::kFloat64, 8, kHeadWidth, 100};
  const auto whole = RotaryTable::Create(lab.context(), options);
  options.positions = count;
  options.rows = rows;
  const auto some = RotaryTable::Create(lab.context(), options);
  ASSERT_OK(whole);
  ASSERT_OK(some);
  EXPECT_EQ(some->memory().bytes(), RotaryTable::Bytes(options));
  EXPECT_EQ(2 * some->memory().bytes(), whole->memory().bytes());
  const auto all = lab.Noise<double>(kBatch * 8 * kHeadWidth);
  const auto own = lab.Raw<double>(kBatch * count * kHeadWidth);
  // Of all positions those of the rows.
  const auto at = [&](int64_t sample, int64_t row) {
    return all.subspan(
        static_cast<size_t>((sample * 8 + rows[static_cast<size_t>(row)]) * kHeadWidth),
        kHeadWidth);
  };
  const auto own_at = [&](int64_t sample, int64_t row) {
    return own.subspan(static_cast<size_t>((sample * count + row) * kHeadWidth), kHeadWidth);
  };
  for (int64_t sample = 0; sample < kBatch; ++sample) {
    for (int64_t row = 0; row < count; ++row) {
      std::copy_n(at(sample, row).begin(), kHeadWidth, own_at(sample, row).begin());
    }
  }
  ASSERT_OK(Rotary({DType::kFloat64, kBatch, 8, 1, kHeadWidth}, *whole, all.data(), lab.stream()));
  ASSERT_OK(
      Rotary({DType::kFloat64, kBatch, count, 1, kHeadWidth}, *some, own.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (int64_t sample = 0; sample < kBatch; ++sample) {
    for (int64_t row = 0; row < count; ++row) {
      for (size_t i = 0; i < kHeadWidth; ++i) {
        EXPECT_EQ(own_at(sample, row)[i], at(sample, row)[i]) << sample << " " << row << " " << i;
      }
    }
  }
  options.positions = 5;
  EXPECT_EQ(RotaryTable::Create(lab.context(), options).status(),
            absl::InvalidArgumentError("rotary: the positions of 4 rows for a table of 5"));
}

TEST(RotaryTest, AScalingThatCannotBeIsRefused) {
  Lab lab;
  const double nan = std::nan("");
  for (const RotaryScaling& scaling : {RotaryScaling{0},
                                       {-1},
                                       {nan},
                                       {4, 2, 1, 16},
                                       {4, 1, 1, 16},
                                       {4, 0, 1, 16},
                                       {4, nan, 2, 16},
                                       {4, 1, 2, 0},
                                       {4, 1, 2, nan}}) {
    const auto table = RotaryTable::Create(lab.context(), {DType::kFloat32, 2, 4, 100, scaling});
    EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(table.status().message().find("rotary: the scaling's"), std::string::npos);
  }
}

// What it is for.
TEST(RotaryTest, TheProductOfAQueryAndAKeyDependsOnTheirDistanceAlone) {
  Lab lab;
  constexpr int64_t kHeadWidth = 8, kContext = 20;
  const RotaryTable table = TableOf(lab, DType::kFloat64, kContext, kHeadWidth);
  const auto queries = lab.Noise<double>(kContext * kHeadWidth);
  const auto keys = lab.Noise<double>(kContext * kHeadWidth);
  for (int64_t i = kHeadWidth; i < kContext * kHeadWidth; ++i) {
    queries[i] = queries[i % kHeadWidth];
    keys[i] = keys[i % kHeadWidth];
  }
  const RotaryShape shape = {DType::kFloat64, 1, kContext, 1, kHeadWidth};
  ASSERT_OK(Rotary(shape, table, queries.data(), lab.stream()));
  ASSERT_OK(Rotary(shape, table, keys.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  const auto product = [&](int64_t query, int64_t key) {
    return Dot(queries.subspan(query * kHeadWidth, kHeadWidth),
               keys.subspan(key * kHeadWidth, kHeadWidth));
  };
  for (int64_t t = 3; t < kContext; ++t) EXPECT_NEAR(product(t, t - 3), product(3, 0), 1e-13) << t;
  EXPECT_GT(std::abs(product(3, 0) - product(4, 0)), 1e-3);
}

TEST(RotaryTest, TheGradientIsThatOfTheRotation) {
  Lab lab;
  const RotaryShape shape = {DType::kFloat64, 2, 3, 2, 14, 1};
  const RotaryTable table = TableOf(lab, DType::kFloat64, 4, 6);
  const auto x = lab.Noise<double>(6 * 14), y = lab.Raw<double>(6 * 14);
  const auto dx = lab.Noise<double>(6 * 14);
  const std::vector<double> dy(dx.begin(), dx.end());
  const auto f = [&] {
    EXPECT_OK(lab.stream().Copy(y.data(), x.data(), 6 * 14 * 8));
    EXPECT_OK(Rotary(shape, table, y.data(), lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    return Dot(y, dy);
  };
  ASSERT_OK(RotaryBackward(shape, table, dx.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  ExpectGradient(x, dx, f);
}

TEST(RotaryTest, BadOptionsAreRefusedByName) {
  Lab lab;
  const auto error = [&](int64_t positions, int64_t head_width, double base) {
    return RotaryTable::Create(lab.context(), {DType::kFloat32, positions, head_width, base})
        .status();
  };
  EXPECT_EQ(error(0, 4, 1e4),
            absl::InvalidArgumentError("rotary: positions is 0; it must be at least 1"));
  EXPECT_EQ(error(1, 5, 1e4),
            absl::InvalidArgumentError("rotary: head_width is 5; it must be even and at least 2"));
  EXPECT_EQ(error(1, 4, -1),
            absl::InvalidArgumentError("rotary: base is -1; it must be positive and finite"));
  EXPECT_EQ(error(1, 4, std::numeric_limits<double>::infinity()),
            absl::InvalidArgumentError("rotary: base is inf; it must be positive and finite"));
}

TEST(RotaryTest, AShapeThatDoesNotFitTheTableIsRefused) {
  Lab lab;
  const RotaryTable table = TableOf(lab, DType::kFloat32, 10, 4);
  const auto error = [&](const RotaryShape& shape) {
    return Rotary(shape, table, nullptr, lab.stream());
  };
  EXPECT_EQ(error({DType::kBFloat16, 1, 8, 2, 12, 3}),
            absl::InvalidArgumentError(
                "rotary: the table has 10 positions; the layer's are 3 and the 7 behind it"));
  EXPECT_EQ(error({DType::kBFloat16, 1, 8, 2, 12, -1}),
            absl::InvalidArgumentError(
                "rotary: the table has 10 positions; the layer's are -1 and the 7 behind it"));
  EXPECT_EQ(error({DType::kBFloat16, 1, 8, 4, 12}),
            absl::InvalidArgumentError("rotary: 4 heads of 4 do not fit a row of 12"));
  EXPECT_EQ(error({DType::kFloat64, 1, 8, 2, 12}),
            absl::InvalidArgumentError("rotary: the table is for fp32, the layer's dtype is fp64"));
}

TYPED_TEST(TypesTest, RotaryAndItsGradient) {
  using T = TypeParam;
  auto& lab = this->lab_;
  auto& reference = this->reference_;
  constexpr int64_t kRows = 2 * 40, kColumns = 3 * 32;
  const auto x = this->Noise(kRows * kColumns), dx = this->Noise(kRows * kColumns);
  const auto run = [&](DType dtype, Lab& of, auto part) {
    const RotaryTable table = TableOf(of, dtype, 40, 16);
    const RotaryShape shape = {dtype, 2, 40, 4, kColumns};
    EXPECT_OK(Rotary(shape, table, part(x), of.stream()));
    EXPECT_OK(RotaryBackward(shape, table, part(dx), of.stream()));
    EXPECT_OK(of.stream().Synchronize());
  };
  run(precision::kDType<T>, lab, [](const auto& both) { return both.narrow.data(); });
  run(DType::kFloat64, reference, [](const auto& both) { return both.wide.data(); });
  this->ExpectNear(x, std::is_same_v<T, float> ? 4 : 1.01);
  this->ExpectNear(dx, std::is_same_v<T, float> ? 4 : 1.01);
}

TYPED_TEST(TypesTest, RotaryHasTheSameBitsOnEveryDevice) {
  using T = TypeParam;
  for (const int64_t head_width : {2, 30, 32, 34, 128}) {
    SCOPED_TRACE(head_width);
    SameBits<T>([&](Lab& lab) {
      const RotaryTable table = TableOf(lab, precision::kDType<T>, 1000, head_width);
      const auto x = lab.Noise<T>(2 * 9 * 3 * head_width);
      EXPECT_OK(Rotary({precision::kDType<T>, 2, 9, 2, 3 * head_width, 991}, table, x.data(),
                       lab.stream()));
      EXPECT_OK(lab.stream().Synchronize());
      return x;
    });
  }
}

}  // namespace
}  // namespace brigade::nn
