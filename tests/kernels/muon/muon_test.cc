#include "brigade/kernels/muon/muon.h"

#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/kernels/update_testing.h"
#include "brigade/tests/spec/muon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

struct Setting {
  Setting() {
    for (const spec::MuonRule& rule : rules) {
      groups.push_back({rule.momentum, rule.nesterov, rule.weight_decay});
    }
    options.groups = groups;
    options.state = &state;
    options.group_steps = steps.data();
    state.grad_multiplier = 0.37f;
    state.step = 1;
  }
  Setting(const Setting&) = delete;

  std::vector<spec::MuonRule> rules = {{}, {.momentum = 0.5, .nesterov = false, .weight_decay = 0}};
  std::vector<MuonGroup> groups;
  std::vector<GroupStep> steps = {{0.05f, 0, 0}, {0.3f, 0, 0}};
  StepState state = {};
  MuonOptions options;
};

template <typename Grad>
class MomentumList : public MomentList<MuonMomentumSegment, Grad, NoCopy> {
 public:
  using MomentList<MuonMomentumSegment, Grad, NoCopy>::MomentList;

  void Specify(const Setting& setting) {
    this->SpecifyEach([&](int32_t group, float grad, float& momentum, float& update) {
      update =
          spec::MuonMoment(momentum, grad, setting.state.grad_multiplier, setting.rules[group]);
    });
  }
};

template <typename Grad>
class MuonMomentumTest : public ::testing::Test {};
using Gradients = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(MuonMomentumTest, Gradients);

TYPED_TEST(MuonMomentumTest, GivesTheSpecificationsBitsOnEveryCpuAndInTheGpuThreads) {
  Setting setting;
  setting.options.grad_dtype = precision::kDType<TypeParam>;
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    MomentumList<TypeParam> list(InterestingSizes(), 21, 1);
    for (setting.state.step = 1; setting.state.step <= 2; ++setting.state.step) {
      ASSERT_OK(MuonMomentum(list.segments, setting.options, stream));
      ASSERT_OK(stream.Synchronize());
      list.Specify(setting);
    }
    list.ExpectMatch(how);
  });
  MomentumList<TypeParam> list(InterestingSizes(), 22, 1);
  RunUpdateThreads<MuonMomentumPolicy, TypeParam, NoCopy>(MakeMuonParameters(setting.options),
                                                          list.segments);
  list.Specify(setting);
  list.ExpectMatch("GPU threads");
  setting.state.skip = 1;
  const CpuRun cpu = OnCpu(2);
  ASSERT_OK(MuonMomentum(list.segments, setting.options, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  list.ExpectMatch("skipped");
}

struct Shape {
  int64_t rows, columns;
};

// Parameters with updates of matrices of these shapes, in groups 0 and 1 by turns.
template <typename Copy>
class ParamList {
 public:
  static constexpr bool kHasCopy = !std::is_same_v<Copy, NoCopy>;
  using CopyArray = std::conditional_t<kHasCopy, Copy, float>;
  struct Arrays {
    GuardedArray<float> param, update;
    GuardedArray<CopyArray> copy;
    std::vector<float> wanted, wanted_copy;
    Shape shape;
  };

  ParamList(const std::vector<Shape>& shapes, MuonScale scale, float rate, uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const int64_t n = shapes[i].rows * shapes[i].columns;
      const auto offset = static_cast<int64_t>(i % 9);
      arrays.push_back({GuardedArray<float>(n, offset),
                        GuardedArray<float>(n, offset + 1),
                        GuardedArray<CopyArray>(kHasCopy ? n : 0, offset),
                        {},
                        {},
                        shapes[i]});
      Arrays& a = arrays.back();
      FillTypical(a.param, random);
      FillTypical(a.update, random);
      a.wanted = Values(a.param);
      a.wanted_copy = Values(a.copy);
      segments.push_back({a.param.data(), a.update.data(),
                          kHasCopy ? static_cast<void*>(a.copy.data()) : nullptr, n,
                          static_cast<int32_t>(i % 2), rate,
                          MuonScaleOf(scale, shapes[i].rows, shapes[i].columns)});
    }
  }

  void Specify(const Setting& setting, bool matches_adam_w) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      Arrays& a = arrays[i];
      spec::MuonRule rule = setting.rules[i % 2];
      rule.matches_adam_w = matches_adam_w;
      rule.rate = segments[i].rate;
      for (size_t j = 0; j < a.wanted.size(); ++j) {
        a.wanted[j] = spec::MuonParam(
            a.wanted[j], a.update[static_cast<int64_t>(j)], static_cast<size_t>(a.shape.rows),
            static_cast<size_t>(a.shape.columns), rule, setting.steps[i % 2].lr);
        if (kHasCopy) a.wanted_copy[j] = spec::Round(kFormat<CopyArray>, a.wanted[j]);
      }
    }
  }

  void ExpectMatch(const std::string& how) const {
    for (size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_TRUE(Matches(arrays[i].param, arrays[i].wanted)) << how << ", param " << i;
      EXPECT_TRUE(Matches(arrays[i].copy, arrays[i].wanted_copy)) << how << ", copy " << i;
    }
  }

  std::deque<Arrays> arrays;
  std::vector<MuonParamSegment> segments;
};

template <typename Copy>
class MuonParamsTest : public ::testing::Test {};
using Copies = ::testing::Types<NoCopy, Half, BFloat16>;
TYPED_TEST_SUITE(MuonParamsTest, Copies);

TYPED_TEST(MuonParamsTest, GivesTheSpecificationsBitsOnEveryCpuAndInTheGpuThreads) {
  const std::vector<Shape> shapes = {{3, 7}, {100, 4}, {0, 5}, {1, 4097}, {33, 32}};
  for (const bool matches_adam_w : {false, true}) {
    const MuonScale scale = matches_adam_w ? MuonScale::kMatchRmsAdamW : MuonScale::kOriginal;
    Setting setting;
    if constexpr (!std::is_same_v<TypeParam, NoCopy>) {
      setting.options.copy_dtype = precision::kDType<TypeParam>;
    }
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      ParamList<TypeParam> list(shapes, scale, 0.7f, 31);
      ASSERT_OK(MuonParams(list.segments, setting.options, stream));
      ASSERT_OK(stream.Synchronize());
      list.Specify(setting, matches_adam_w);
      list.ExpectMatch(how);
    });
    ParamList<TypeParam> list(shapes, scale, 2.0f, 32);
    RunUpdateThreads<MuonParamPolicy, float, TypeParam>(MakeMuonParameters(setting.options),
                                                        list.segments);
    list.Specify(setting, matches_adam_w);
    list.ExpectMatch("GPU threads");
  }
}

// Around the tiles of registers, of blocks, and of a strip of terms.
const std::vector<Shape> kShapes = {{1, 1},    {1, 300},  {300, 1},   {2, 3},    {8, 32},
                                    {7, 33},   {33, 7},   {0, 5},     {127, 40}, {40, 129},
                                    {257, 17}, {16, 256}, {128, 128}, {130, 131}};

class Matrices {
 public:
  Matrices(const std::vector<Shape>& all, uint32_t seed) : shapes(all) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t n = all[i].rows * all[i].columns;
      updates.emplace_back(n, static_cast<int64_t>(i % 5));
      FillTypical(updates.back(), random);
      // A workspace begins at 8 bytes.
      workspaces.emplace_back(MuonWorkspaceSize(all[i].rows, all[i].columns), 2);
      matrices.push_back(
          {updates.back().data(), workspaces.back().data(), all[i].rows, all[i].columns});
      wanted.push_back(Values(updates.back()));
    }
  }
  void Specify(const spec::MuonRule& rule) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (wanted[i].empty()) continue;
      wanted[i] = spec::MuonOrthogonal(wanted[i], static_cast<size_t>(shapes[i].rows), rule);
    }
  }
  void ExpectMatch(const std::string& how) const {
    for (size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_TRUE(Matches(updates[i], wanted[i]))
          << how << ", " << shapes[i].rows << " x " << shapes[i].columns;
      EXPECT_TRUE(workspaces[i].GuardsAreIntact()) << how;
    }
  }

  std::vector<Shape> shapes;
  std::deque<GuardedArray<float>> updates, workspaces;
  std::vector<MuonMatrix> matrices;
  std::vector<std::vector<float>> wanted;
};

TEST(MuonOrthogonalizeTest, GivesTheSpecificationsBitsOnEveryCpu) {
  Matrices specified(kShapes, 41);
  specified.Specify({});
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    Matrices some(kShapes, 41);
    ASSERT_OK(MuonOrthogonalize(some.matrices, {}, stream));
    ASSERT_OK(stream.Synchronize());
    some.wanted = specified.wanted;
    some.ExpectMatch(how);
  });
}

TEST(MuonOrthogonalizeTest, TakesOtherNumbersOfStepsAndCoefficients) {
  const CpuRun cpu = OnCpu(2);
  for (const int steps : {1, 2, 6}) {
    Matrices some({{20, 30}, {50, 40}}, 42);
    ASSERT_OK(MuonOrthogonalize(
        some.matrices, {.steps = steps, .coefficients = {1.5f, -0.5f, 0.0f}}, *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());
    some.Specify({.steps = steps, .a = 1.5, .b = -0.5, .c = 0});
    some.ExpectMatch("steps");
  }
}

// Of a norm over several tiles; sums of squares are those of all elements.
TEST(MuonOrthogonalizeTest, NormsOfManyTilesAreTheSpecifications) {
  const CpuRun cpu = OnCpu(2);
  Matrices some({{70'000, 2}}, 43);
  ASSERT_OK(MuonOrthogonalize(some.matrices, {.steps = 1}, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  some.Specify({.steps = 1});
  some.ExpectMatch("tiles");
}

// X X^T of what has rows of length 1 at right angles, in double; the default coefficients leave
// singular values from 0.7 to 1.2.
TEST(MuonOrthogonalizeTest, SingularValuesBecomeNearlyOne) {
  const CpuRun cpu = OnCpu(1);
  const int64_t rows = 6, columns = 40;
  Matrices some({{rows, columns}}, 44);
  // Those of diag(1, ..., 6) beside each other, whatever the order.
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows * columns; ++i) some.updates[0][i] = normal(random);
  ASSERT_OK(MuonOrthogonalize(some.matrices, {}, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  double squares = 0, largest_off = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k <= i; ++k) {
      double dot = 0;
      for (int64_t j = 0; j < columns; ++j) {
        dot += static_cast<double>(some.updates[0][i * columns + j]) *
               static_cast<double>(some.updates[0][k * columns + j]);
      }
      if (i == k) {
        EXPECT_GT(dot, 0.4);
        EXPECT_LT(dot, 1.5);
        squares += dot;
      } else {
        largest_off = std::max(largest_off, std::fabs(dot));
      }
    }
  }
  EXPECT_NEAR(squares, rows, 2.5);
  EXPECT_LT(largest_off, 0.5);
}

TEST(MuonOrthogonalizeTest, ZerosStayAndNaNSpreads) {
  const CpuRun cpu = OnCpu(1);
  Matrices some({{4, 6}, {5, 3}}, 45);
  for (int64_t i = 0; i < 24; ++i) some.updates[0][i] = 0.0f;
  some.updates[1][7] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_OK(MuonOrthogonalize(some.matrices, {}, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(some.updates[0][i], 0.0f);
  for (int64_t i = 0; i < 15; ++i) EXPECT_TRUE(std::isnan(some.updates[1][i])) << i;
}

TEST(MuonOrthogonalizeTest, RefusesWhatItNames) {
  const CpuRun cpu = OnCpu(1);
  Matrices some({{4, 6}, {5, 3}}, 46);
  const auto run = [&](const MuonOrthogonalizeOptions& options) {
    return MuonOrthogonalize(some.matrices, options, *cpu.stream);
  };
  const auto refuses = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(run({.steps = 0}), refuses("muon_orthogonalize: steps is 0, must be 1 to 99"));
  EXPECT_THAT(run({.steps = 100}), refuses("steps is 100"));
  EXPECT_THAT(run({.eps = 0}), refuses("eps is 0"));
  some.matrices[1].rows = -1;
  EXPECT_THAT(run({}), refuses("rows of segment 1 is -1"));
  some.matrices[1].rows = int64_t{1} << 39;
  EXPECT_THAT(run({}), refuses("segment 1 is a matrix of 549755813888 x 3, larger than"));
  some.matrices[1] = some.matrices[0];
  EXPECT_THAT(run({}), refuses("overlap"));
  some.matrices.resize(1);
  some.matrices[0].workspace += 1;
  EXPECT_THAT(run({}), refuses("workspace"));
  some.matrices[0].workspace = nullptr;
  EXPECT_THAT(run({}), refuses("null"));
  ASSERT_OK(cpu.stream->Synchronize());
  some.ExpectMatch("after errors");
}

TEST(MuonOptionsTest, RefuseWhatIsOutOfRange) {
  const CpuRun cpu = OnCpu(1);
  Setting setting;
  MomentumList<float> list({10}, 51, 0);
  ParamList<NoCopy> params({{2, 5}}, MuonScale::kOriginal, 1.0f, 52);
  const auto refuses = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  params.segments[0].rate = -1;
  EXPECT_THAT(MuonParams(params.segments, setting.options, *cpu.stream), refuses("rate"));
  params.segments[0].rate = 1;
  params.segments[0].group = 2;
  EXPECT_THAT(MuonParams(params.segments, setting.options, *cpu.stream), refuses("group"));
  setting.groups[1].momentum = 1;
  EXPECT_THAT(MuonMomentum(list.segments, setting.options, *cpu.stream),
              refuses("muon_momentum: momentum of group 1 is 1"));
  setting.groups[1] = {.weight_decay = -1};
  EXPECT_THAT(MuonMomentum(list.segments, setting.options, *cpu.stream), refuses("weight_decay"));
  setting.groups[1] = {};
  setting.steps[0] = {};
  params.segments[0].group = 0;
  ASSERT_OK(MuonParams(params.segments, setting.options, *cpu.stream));
  EXPECT_THAT(cpu.stream->Synchronize(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("muon_params")));
}

}  // namespace
}  // namespace brigade::kernels
