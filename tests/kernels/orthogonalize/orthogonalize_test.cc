#include "brigade/kernels/orthogonalize/orthogonalize.h"

#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "brigade/kernels/orthogonalize/orthogonalize_cpu.h"
#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/low_rank.h"
#include "brigade/tests/testing/tolerance.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::RoundingError;
using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Shape {
  int64_t rows, columns;
  int32_t rank;
};

// Tiles of rows, blocks of lanes and columns, and each of these but for one; the last ones are
// larger than what the CPU takes to be in a cache.
const std::vector<Shape> kShapes = {
    {0, 5, 2},   {1, 1, 1},     {3, 127, 2},    {4, 128, 3},   {5, 129, 4},    {0, 0, 0},
    {7, 513, 5}, {8, 640, 8},   {255, 2, 1},    {256, 33, 4},  {257, 31, 6},   {511, 17, 3},
    {9, 0, 3},   {513, 200, 7}, {1030, 64, 4},  {64, 64, 0},   {20, 2100, 10}, {30, 1600, 17},
    {2, 3, 0},   {259, 64, 7},  {1001, 144, 5}, {263, 500, 4}, {67, 2100, 6},  {35, 4096, 3}};

spec::Columns ColumnsOf(const GuardedArray<float>& array, int64_t rows, int32_t rank) {
  spec::Columns columns;
  for (int32_t k = 0; k < rank; ++k) {
    columns.emplace_back(array.data() + k * rows, array.data() + (k + 1) * rows);
  }
  return columns;
}

std::vector<float> Flat(const spec::Columns& columns) {
  std::vector<float> flat;
  for (const auto& column : columns) flat.insert(flat.end(), column.begin(), column.end());
  return flat;
}

bool IsEmpty(const Shape& s) { return s.rows == 0 || s.columns == 0 || s.rank == 0; }

// Matrices with their factors, and what the specification makes of them.
struct Factors {
  Factors(const std::vector<Shape>& shapes, uint32_t seed, bool typical = false) : shapes(shapes) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (size_t n = 0; n < shapes.size(); ++n) {
      const auto [rows, columns, rank] = shapes[n];
      const auto offset = static_cast<int64_t>(n % 5);
      m.emplace_back(rows * columns, offset);
      p.emplace_back(rows * rank, offset / 2);
      q.emplace_back(columns * rank, offset % 3);
      product.emplace_back(rows * columns, offset % 2);
      workspace.emplace_back(LowRankWorkspaceSize(rows, columns, rank), 0);
      for (auto* array : {&m.back(), &p.back(), &q.back()}) {
        for (int64_t i = 0; i < array->size(); ++i) {
          (*array)[i] = typical ? TypicalValue(random) : normal(random);
        }
      }
      segments.push_back({m.back().data(), p.back().data(), q.back().data(), product.back().data(),
                          workspace.back().data(), rows, columns, rank});
      orthogonalized.push_back({p.back().data(), rows, rank});
      wanted_m.push_back(
          {static_cast<size_t>(rows), static_cast<size_t>(columns), Values(m.back())});
      wanted_p.push_back(ColumnsOf(p.back(), rows, rank));
      wanted_q.push_back(ColumnsOf(q.back(), columns, rank));
      wanted_product.push_back(Values(product.back()));
    }
  }

  template <typename Specify>
  void Specified(const Specify& specify) {
    for (size_t n = 0; n < shapes.size(); ++n) {
      if (!IsEmpty(shapes[n])) specify(n);
    }
  }

  void ExpectMatch(const std::string& how) const {
    for (size_t n = 0; n < shapes.size(); ++n) {
      const std::string what = how + ", matrix " + std::to_string(n);
      EXPECT_TRUE(Matches(m[n], wanted_m[n].values)) << what << ", M";
      EXPECT_TRUE(Matches(p[n], Flat(wanted_p[n]))) << what << ", P";
      EXPECT_TRUE(Matches(q[n], Flat(wanted_q[n]))) << what << ", Q";
      EXPECT_TRUE(Matches(product[n], wanted_product[n])) << what << ", product";
      EXPECT_TRUE(workspace[n].GuardsAreIntact()) << what;
    }
  }

  std::vector<Shape> shapes;
  std::deque<GuardedArray<float>> m, p, q, product, workspace;
  std::vector<LowRankSegment> segments;
  std::vector<OrthogonalizeSegment> orthogonalized;
  std::vector<spec::Matrix> wanted_m;
  std::vector<spec::Columns> wanted_p, wanted_q;
  std::vector<std::vector<float>> wanted_product;
};

TEST(OrthogonalizeTest, GivesTheSpecificationsBitsOnEveryCpu) {
  OnEveryCpu([](device::Stream& stream, const std::string& how) {
    for (const bool typical : {false, true}) {
      Factors factors(kShapes, 51, typical);
      ASSERT_OK(Orthogonalize(factors.orthogonalized, {}, stream));
      ASSERT_OK(stream.Synchronize());
      for (auto& columns : factors.wanted_p) spec::Orthogonalize(columns, 1e-8);
      factors.ExpectMatch(how);
    }
  });
}

TEST(OrthogonalizeTest, ColumnsOfZerosStayAndNaNSpreadsToLaterColumns) {
  const CpuRun cpu = OnCpu(1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float matrix[] = {3, 4, 0, 0, nan, 1, 1, 1};
  const OrthogonalizeSegment segment = {matrix, 2, 4};
  ASSERT_OK(Orthogonalize({&segment, 1}, {}, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_THAT(std::vector<float>(matrix, matrix + 4), ElementsAre(0.6f, 0.8f, 0.0f, 0.0f));
  for (int i = 4; i < 8; ++i) EXPECT_TRUE(std::isnan(matrix[i])) << i;
}

TEST(OrthogonalizeTest, NormsThatOverflowFloatAreStillNorms) {
  const CpuRun cpu = OnCpu(1);
  float matrix[] = {3e38f, 3e38f, 3e38f, 3e38f};
  const OrthogonalizeSegment segment = {matrix, 4, 1};
  ASSERT_OK(Orthogonalize({&segment, 1}, {}, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_THAT(matrix, ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
}

TEST(LowRankTest, RowsGiveTheSpecificationsBitsOnEveryCpu) {
  OnEveryCpu([](device::Stream& stream, const std::string& how) {
    for (const bool typical : {false, true}) {
      Factors f(kShapes, 52, typical);
      ASSERT_OK(LowRankRows(f.segments, stream));
      ASSERT_OK(stream.Synchronize());
      f.Specified(
          [&](size_t n) { f.wanted_p[n] = spec::TimesColumns(f.wanted_m[n], f.wanted_q[n]); });
      f.ExpectMatch(how);
    }
  });
}

TEST(LowRankTest, ColumnsGiveTheSpecificationsBitsOnEveryCpu) {
  OnEveryCpu([](device::Stream& stream, const std::string& how) {
    for (const bool typical : {false, true}) {
      Factors f(kShapes, 53, typical);
      ASSERT_OK(LowRankColumns(f.segments, stream));
      ASSERT_OK(stream.Synchronize());
      f.Specified([&](size_t n) {
        f.wanted_q[n] = spec::TransposedTimesColumns(f.wanted_m[n], f.wanted_p[n]);
      });
      f.ExpectMatch(how);
    }
  });
}

TEST(LowRankTest, RestoreGivesTheSpecificationsBitsOnEveryCpu) {
  OnEveryCpu([](device::Stream& stream, const std::string& how) {
    for (const bool typical : {false, true}) {
      Factors f(kShapes, 54, typical);
      ASSERT_OK(LowRankRestore(f.segments, stream));
      ASSERT_OK(stream.Synchronize());
      f.Specified([&](size_t n) {
        f.wanted_product[n] = spec::Restore(f.wanted_m[n], f.wanted_p[n], f.wanted_q[n]).values;
      });
      f.ExpectMatch(how);
    }
  });
}

TEST(LowRankTest, AnyCutOfTheRowsGivesTheSameBits) {
  const Shape shape = {700, 300, 6};
  SimdTargets restore;
  for (const SimdTarget target : SimdTargets::All()) {
    SetSimdTarget(target);
    for (const bool past_caches : {false, true}) {
      Factors whole({shape}, 55), cut({shape}, 55);
      const LowRankSegment& a = whole.segments[0];
      const LowRankSegment& b = cut.segments[0];
      LowRankRowsRange(a, false, 0, 700);
      for (const int64_t begin : {0, 1, 5, 600}) {
        const int64_t end = begin == 0 ? 1 : begin == 1 ? 5 : begin == 5 ? 600 : 700;
        LowRankRowsRange(b, past_caches, begin, end);
      }
      LowRankTilesRange(a, false, 0, 700);
      LowRankTilesRange(b, past_caches, 512, 700);
      LowRankTilesRange(b, past_caches, 0, 256);
      LowRankTilesRange(b, past_caches, 256, 512);
      LowRankColumnsFinish(a);
      LowRankColumnsFinish(b);
      LowRankRestoreRange(a, false, 0, 700);
      LowRankRestoreRange(b, past_caches, 3, 700);
      LowRankRestoreRange(b, past_caches, 0, 3);
      EXPECT_TRUE(Matches(cut.m[0], Values(whole.m[0])));
      EXPECT_TRUE(Matches(cut.p[0], Values(whole.p[0])));
      EXPECT_TRUE(Matches(cut.q[0], Values(whole.q[0])));
      EXPECT_TRUE(Matches(cut.product[0], Values(whole.product[0])));
    }
  }
}

TEST(LowRankTest, SmallFactorsPastTheCachesHaveTheSameBits) {
  SimdTargets restore;
  for (const SimdTarget target : SimdTargets::All()) {
    SetSimdTarget(target);
    for (const Shape& shape :
         std::vector<Shape>{{104, 64, 4}, {7, 64, 3}, {33, 65, 5}, {1, 1, 1}}) {
      Factors ordinary({shape}, 56), past({shape}, 56);
      LowRankRowsRange(ordinary.segments[0], false, 0, shape.rows);
      LowRankRowsRange(past.segments[0], true, 0, shape.rows);
      EXPECT_TRUE(Matches(past.p[0], Values(ordinary.p[0])));
      LowRankTilesRange(ordinary.segments[0], false, 0, shape.rows);
      LowRankTilesRange(past.segments[0], true, 0, shape.rows);
      EXPECT_TRUE(Matches(past.q[0], Values(ordinary.q[0])));
    }
  }
}

// Two ranks with M and 3 M, of rank 1: the mean of their factors gives 2 M.
TEST(LowRankTest, TheMeanOfRanksIsExactWhereTheirMatricesHaveTheRank) {
  const CpuRun cpu = OnCpu(2);
  const Shape shape = {300, 40, 1};
  Factors first({shape}, 56), second({shape}, 56);
  for (int64_t i = 0; i < 300; ++i) {
    for (int64_t j = 0; j < 40; ++j) {
      first.m[0][i * 40 + j] = static_cast<float>((i % 7 - 3) * (j % 5 - 2));
      second.m[0][i * 40 + j] = 3 * first.m[0][i * 40 + j];
    }
  }
  const auto mean = [&](std::deque<GuardedArray<float>> Factors::*member, float factor) {
    GuardedArray<float>& a = (first.*member)[0];
    GuardedArray<float>& b = (second.*member)[0];
    for (int64_t i = 0; i < a.size(); ++i) a[i] = b[i] = factor * (a[i] + b[i]);
  };
  const std::vector<float> m = Values(first.m[0]);
  for (Factors* f : {&first, &second}) ASSERT_OK(LowRankRows(f->segments, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  mean(&Factors::p, 1.0f);
  for (Factors* f : {&first, &second}) {
    ASSERT_OK(Orthogonalize(f->orthogonalized, {}, *cpu.stream));
    ASSERT_OK(LowRankColumns(f->segments, *cpu.stream));
  }
  ASSERT_OK(cpu.stream->Synchronize());
  mean(&Factors::q, 0.5f);
  for (Factors* f : {&first, &second}) ASSERT_OK(LowRankRestore(f->segments, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  for (int64_t i = 0; i < first.m[0].size(); ++i) {
    EXPECT_NEAR(first.product[0][i], 2 * m[i], RoundingError<float>(64, 12));
    EXPECT_EQ(first.product[0][i], second.product[0][i]);
    // The mean of the errors is 0.
    EXPECT_NEAR(first.m[0][i] + second.m[0][i], 0, RoundingError<float>(128, 12));
  }
}

class LowRankErrorsTest : public ::testing::Test {
 protected:
  LowRankErrorsTest() : cpu_(OnCpu(1)) {}

  CpuRun cpu_;
};

TEST_F(LowRankErrorsTest, BadArraysAreRefused) {
  for (const int call : {0, 1, 2}) {
    const char* const names[] = {"low_rank_rows", "low_rank_columns", "low_rank_restore"};
    BadArrays arrays(names[call]);
    std::vector<LowRankSegment> segments(2);
    for (int i = 0; i < 2; ++i) {
      LowRankSegment& s = segments[i];
      s.rows = i == 0 ? 4 : 5;
      s.columns = i == 0 ? 3 : 1;
      s.rank = 1;
      const std::string of = " of segment " + std::to_string(i);
      const auto kind = [&](bool written) {
        return written ? BadArrays::kWritten : BadArrays::kRead;
      };
      arrays.Add("matrix" + of, s.matrix, s.rows * s.columns, kind(call == 2));
      arrays.Add("p" + of, s.p, s.rows, kind(call == 0));
      arrays.Add("q" + of, s.q, s.columns, kind(call == 1));
      if (call == 2) {
        arrays.Add("product" + of, s.product, s.rows * s.columns, BadArrays::kWritten);
      }
    }
    arrays.ExpectRefused(*cpu_.stream, [&] {
      return call == 0   ? LowRankRows(segments, *cpu_.stream)
             : call == 1 ? LowRankColumns(segments, *cpu_.stream)
                         : LowRankRestore(segments, *cpu_.stream);
    });
  }
  BadArrays arrays("orthogonalize");
  std::vector<OrthogonalizeSegment> segments(2);
  for (int i = 0; i < 2; ++i) {
    segments[i].rows = 5;
    segments[i].columns = 2 + i;
    arrays.Add("matrix of segment " + std::to_string(i), segments[i].matrix, 5 * (2 + i),
               BadArrays::kWritten);
  }
  arrays.ExpectRefused(*cpu_.stream, [&] { return Orthogonalize(segments, {}, *cpu_.stream); });
}

TEST_F(LowRankErrorsTest, AMissingOrSharedWorkspaceIsNamed) {
  Factors factors({{300, 2, 1}}, 57);
  factors.segments[0].workspace = nullptr;
  EXPECT_THAT(LowRankColumns(factors.segments, *cpu_.stream),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("workspace of segment 0 is null with 4 elements")));
  factors.segments[0].workspace = factors.segments[0].p;
  EXPECT_THAT(LowRankColumns(factors.segments, *cpu_.stream),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overlap")));
  EXPECT_OK(LowRankRows(factors.segments, *cpu_.stream));
  EXPECT_OK(cpu_.stream->Synchronize());
}

TEST_F(LowRankErrorsTest, BadShapesAndEpsilonsAreNamed) {
  const auto expect = [](const absl::Status& status, const char* text) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  float memory[64] = {};
  const OrthogonalizeSegment good = {memory, 4, 2};
  for (const double epsilon : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    expect(Orthogonalize({&good, 1}, {epsilon}, *cpu_.stream), "orthogonalize: epsilon is ");
  }
  const OrthogonalizeSegment wide = {memory, 1, 129};
  expect(Orthogonalize({&wide, 1}, {}, *cpu_.stream),
         "orthogonalize: columns of segment 0 is 129, must be 0 to 128");
  const OrthogonalizeSegment negative = {memory, -1, 1};
  expect(Orthogonalize({&negative, 1}, {}, *cpu_.stream), "rows of segment 0 is -1");
  LowRankSegment s = {memory, memory + 16, memory + 32, memory + 48, nullptr, 4, 4, -2};
  expect(LowRankRows({&s, 1}, *cpu_.stream), "low_rank_rows: rank of segment 0 is -2");
  s.rank = 129;
  expect(LowRankColumns({&s, 1}, *cpu_.stream),
         "low_rank_columns: rank of segment 0 is 129, must be 0 to 128");
  s.rank = 1;
  s.columns = -4;
  expect(LowRankRestore({&s, 1}, *cpu_.stream), "low_rank_restore: columns of segment 0 is -4");
  s.rows = s.columns = int64_t{1} << 30;
  expect(LowRankRestore({&s, 1}, *cpu_.stream),
         "segment 0 is a matrix of 1073741824 x 1073741824, larger than any memory");
}

}  // namespace
}  // namespace brigade::kernels
