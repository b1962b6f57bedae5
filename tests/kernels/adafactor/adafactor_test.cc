#include "brigade/kernels/adafactor/adafactor.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "brigade/kernels/adafactor/adafactor_cpu.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/adafactor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

struct Shape {
  int64_t rows, columns;
};

// Around lanes, eight rows, a tile's rows and columns; and what is no matrix.
const std::vector<Shape> kShapes = {
    {1, 1},  {2, 2},  {1, 300}, {300, 1}, {2, 3},    {7, 33},    {8, 32},   {9, 31},     {0, 5},
    {63, 5}, {64, 8}, {65, 9},  {3, 255}, {40, 256}, {130, 257}, {72, 600}, {1, 16'385}, {5, 0}};

struct Setting {
  explicit Setting(const AdafactorSettings& settings = {}) {
    options.settings = settings;
    for (const auto& [beta1, weight_decay] : {std::pair(0.0, 0.0), std::pair(0.9, 0.1)}) {
      groups.push_back({beta1, weight_decay});
      rules.push_back({settings.eps1, settings.eps2, settings.clip_threshold, settings.decay_rate,
                       settings.scale_parameter, settings.relative_step, settings.warmup_init,
                       beta1, weight_decay});
    }
    options.groups = groups;
    options.state = &state;
    options.group_steps = steps.data();
    state.grad_multiplier = 0.37f;
    state.step = 1;
  }
  Setting(const Setting&) = delete;

  std::vector<AdafactorGroup> groups;
  std::vector<spec::AdafactorRule> rules;
  std::vector<GroupStep> steps = {{0.05f, 0, 0}, {0.3f, 0, 0}};
  StepState state = {};
  AdafactorOptions options;
};

// Tensors in groups 0 and 1 by turns, and what the specification says becomes of them.
template <typename Grad, typename Copy>
class TensorList {
 public:
  static constexpr bool kHasCopy = !std::is_same_v<Copy, NoCopy>;
  using CopyArray = std::conditional_t<kHasCopy, Copy, float>;
  struct Arrays {
    GuardedArray<float> param, m, factors, scales;
    GuardedArray<Grad> grad;
    GuardedArray<CopyArray> copy;
    GuardedArray<double> workspace;
    std::vector<float> wanted_param, wanted_m, wanted_factors, wanted_copy;
    Shape shape;
  };

  TensorList(const std::vector<Shape>& shapes, const Setting& setting, uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto& [rows, columns] = shapes[i];
      const int64_t n = rows * columns, o = static_cast<int64_t>(i % 9);
      const int64_t factors = AdafactorFactorCount(rows, columns);
      const auto group = static_cast<int32_t>(i % 2);
      arrays.push_back({GuardedArray<float>(n, o),
                        GuardedArray<float>(group == 1 ? n : 0, o + 1),
                        GuardedArray<float>(factors, o + 3),
                        GuardedArray<float>(n == 0 ? 0 : kAdafactorNumbers + factors, o),
                        GuardedArray<Grad>(n, o + 2),
                        GuardedArray<CopyArray>(kHasCopy ? n : 0, o + 5),
                        GuardedArray<double>(AdafactorWorkspaceSize(rows, columns), o % 3),
                        {},
                        {},
                        {},
                        {},
                        shapes[i]});
      Arrays& a = arrays.back();
      FillTypical(a.param, random);
      FillTypical(a.m, random);
      FillTypical(a.factors, random);
      for (int64_t f = 0; f < factors; ++f) a.factors[f] = std::fabs(a.factors[f]);
      FillTypical(a.grad, random, 10.0f);
      a.wanted_param = Values(a.param);
      a.wanted_m = Values(a.m);
      a.wanted_factors = Values(a.factors);
      a.wanted_copy = Values(a.copy);
      tensors.push_back({setting.options.settings.scale_parameter ? a.param.data() : nullptr,
                         a.grad.data(), a.factors.data(), a.scales.data(), a.workspace.data(), rows,
                         columns, group});
      // In pieces that begin anywhere.
      const int64_t cut = n / 3, more = n / 3 + n / 2;
      for (const auto& [begin, end] :
           {std::pair(int64_t{0}, cut), std::pair(cut, more), std::pair(more, n)}) {
        segments.push_back({a.param.data() + begin, group == 1 ? a.m.data() + begin : nullptr,
                            a.grad.data() + begin,
                            kHasCopy ? static_cast<void*>(a.copy.data() + begin) : nullptr,
                            end - begin, a.scales.data(), rows, columns, begin, group});
      }
    }
  }

  absl::Status Step(const Setting& setting, device::Stream& stream) const {
    const absl::Status status = AdafactorFactors(tensors, setting.options, stream);
    return status.ok() ? AdafactorParams(segments, setting.options, stream) : status;
  }

  void Specify(const Setting& setting) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      Arrays& a = arrays[i];
      std::vector<float> gradients;
      for (int64_t j = 0; j < a.grad.size(); ++j)
        gradients.push_back(static_cast<float>(a.grad[j]));
      std::vector<float> m = a.wanted_m;
      spec::AdafactorStep(a.wanted_param, a.wanted_factors, m, gradients,
                          static_cast<size_t>(a.shape.rows), static_cast<size_t>(a.shape.columns),
                          setting.state.grad_multiplier, setting.rules[i % 2],
                          setting.steps[i % 2].lr, setting.state.step);
      if (!a.wanted_m.empty()) a.wanted_m = m;
      for (size_t j = 0; kHasCopy && j < a.wanted_param.size(); ++j) {
        a.wanted_copy[j] = spec::Round(kFormat<CopyArray>, a.wanted_param[j]);
      }
    }
  }

  void ExpectMatch(const std::string& how) const {
    for (const Arrays& a : arrays) {
      const std::string which =
          how + ", " + std::to_string(a.shape.rows) + " x " + std::to_string(a.shape.columns);
      EXPECT_TRUE(Matches(a.param, a.wanted_param)) << which << ", param";
      EXPECT_TRUE(Matches(a.m, a.wanted_m)) << which << ", m";
      EXPECT_TRUE(Matches(a.factors, a.wanted_factors)) << which << ", factors";
      EXPECT_TRUE(Matches(a.copy, a.wanted_copy)) << which << ", copy";
      EXPECT_TRUE(a.scales.GuardsAreIntact() && a.workspace.GuardsAreIntact()) << which;
    }
  }

  std::deque<Arrays> arrays;
  std::vector<AdafactorTensor> tensors;
  std::vector<AdafactorSegment> segments;
};

template <typename Pair>
class AdafactorTest : public ::testing::Test {};
using Pairs =
    ::testing::Types<std::pair<float, NoCopy>, std::pair<float, BFloat16>, std::pair<float, Half>,
                     std::pair<Half, NoCopy>, std::pair<Half, Half>, std::pair<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(AdafactorTest, Pairs);

TYPED_TEST(AdafactorTest, GivesTheSpecificationsBitsOnEveryCpu) {
  using Grad = typename TypeParam::first_type;
  using Copy = typename TypeParam::second_type;
  Setting setting;
  setting.options.grad_dtype = precision::kDType<Grad>;
  if constexpr (!std::is_same_v<Copy, NoCopy>) {
    setting.options.copy_dtype = precision::kDType<Copy>;
  }
  TensorList<Grad, Copy> specified(kShapes, setting, 11);
  for (setting.state.step = 1; setting.state.step <= 3; ++setting.state.step) {
    specified.Specify(setting);
  }
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    TensorList<Grad, Copy> list(kShapes, setting, 11);
    for (setting.state.step = 1; setting.state.step <= 3; ++setting.state.step) {
      ASSERT_OK(list.Step(setting, stream));
      ASSERT_OK(stream.Synchronize());
    }
    for (size_t i = 0; i < list.arrays.size(); ++i) {
      auto& a = list.arrays[i];
      const auto& wanted = specified.arrays[i];
      a.wanted_param = wanted.wanted_param;
      a.wanted_m = wanted.wanted_m;
      a.wanted_factors = wanted.wanted_factors;
      a.wanted_copy = wanted.wanted_copy;
    }
    list.ExpectMatch(how);
  });
}

TEST(AdafactorSettingsTest, EachGivesTheSpecificationsBits) {
  const CpuRun cpu = OnCpu(2);
  const std::vector<AdafactorSettings> all = {
      {.scale_parameter = false, .relative_step = false},
      {.scale_parameter = true, .relative_step = false},
      {.scale_parameter = false},
      {.warmup_init = true},
      {.eps1 = 1e-8, .eps2 = 0.5, .clip_threshold = 0.25, .decay_rate = -0.5},
      {.clip_threshold = 50, .decay_rate = 0}};
  for (size_t i = 0; i < all.size(); ++i) {
    Setting setting(all[i]);
    TensorList<float, BFloat16> list({{70, 300}, {1, 1000}, {9, 9}}, setting, 12);
    setting.options.copy_dtype = DType::kBFloat16;
    // Far from the beginning, too.
    for (const int64_t step : {int64_t{1}, int64_t{2}, int64_t{1000}, int64_t{1} << 40}) {
      setting.state.step = step;
      ASSERT_OK(list.Step(setting, *cpu.stream));
      ASSERT_OK(cpu.stream->Synchronize());
      list.Specify(setting);
    }
    list.ExpectMatch("settings " + std::to_string(i));
  }
}

TEST(AdafactorSettingsTest, ASkippedStepKeepsEveryBit) {
  const CpuRun cpu = OnCpu(2);
  Setting setting;
  TensorList<float, NoCopy> list(kShapes, setting, 13);
  setting.state.skip = 1;
  ASSERT_OK(list.Step(setting, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  list.ExpectMatch("skipped");
}

TEST(AdafactorSettingsTest, AStepOfTheHostsGivesTheSameBits) {
  const CpuRun cpu = OnCpu(1);
  Setting setting({.scale_parameter = false, .relative_step = false});
  TensorList<float, NoCopy> list({{10, 20}, {1, 77}}, setting, 14);
  setting.state.step = 5;
  list.Specify(setting);
  const float rates[] = {setting.steps[0].lr, setting.steps[1].lr};
  setting.options.state = nullptr;
  setting.options.group_steps = nullptr;
  setting.options.one_step = OneStep{5, rates, setting.state.grad_multiplier};
  const AdafactorParameters parameters = MakeAdafactorParameters(setting.options);
  // In the calling thread, without a stream.
  for (const AdafactorTensor& t : list.tensors) {
    ASSERT_EQ(AdafactorFactorsOf<float>(t, parameters), StepError::kNone);
  }
  ASSERT_OK(AdafactorParams(list.segments, setting.options, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  list.ExpectMatch("one step");
}

// The paper's formulas in double, with all that it names, written from there.
TEST(AdafactorPaperTest, TenStepsAreNearTheFormulasInDouble) {
  const CpuRun cpu = OnCpu(1);
  const int64_t rows = 20, columns = 50, n = rows * columns;
  AdafactorGroup group = {.beta1 = 0.9, .weight_decay = 0.01};
  AdafactorOptions options;
  options.groups = {&group, 1};
  const float lr = 1;
  std::mt19937 random(15);
  std::normal_distribution<float> normal;
  std::vector<float> param(n), m(n), grad(n), factors(rows + columns), scales(n);
  std::vector<double> workspace(AdafactorWorkspaceSize(rows, columns));
  std::vector<double> x(n), momentum(n), r(rows), c(columns);
  for (int64_t i = 0; i < n; ++i) x[i] = param[i] = normal(random);
  for (int step = 1; step <= 10; ++step) {
    for (float& g : grad) g = normal(random) * 0.1f;
    options.one_step = OneStep{step, &lr, 1.0f};
    const AdafactorTensor tensor = {param.data(),     grad.data(), factors.data(), scales.data(),
                                    workspace.data(), rows,        columns,        0};
    const AdafactorSegment segment = {param.data(),  m.data(), grad.data(), nullptr, n,
                                      scales.data(), rows,     columns,     0,       0};
    ASSERT_OK(AdafactorFactors({&tensor, 1}, options, *cpu.stream));
    ASSERT_OK(AdafactorParams({&segment, 1}, options, *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());

    const double beta2 = 1 - std::pow(step, -0.8);
    std::vector<double> row_sum(rows), column_sum(columns), u(n);
    for (int64_t i = 0; i < n; ++i) {
      const double square = static_cast<double>(grad[i]) * grad[i] + 1e-30;
      row_sum[i / columns] += square;
      column_sum[i % columns] += square;
    }
    double all = 0;
    for (int64_t i = 0; i < rows; ++i) {
      r[i] = beta2 * r[i] + (1 - beta2) * row_sum[i] / columns;
      all += r[i] / rows;
    }
    for (int64_t j = 0; j < columns; ++j) c[j] = beta2 * c[j] + (1 - beta2) * column_sum[j] / rows;
    double squares = 0, params = 0;
    for (int64_t i = 0; i < n; ++i) {
      u[i] = grad[i] / std::sqrt(r[i / columns] * c[i % columns] / all);
      squares += u[i] * u[i];
      params += x[i] * x[i];
    }
    const double alpha =
        std::max(1e-3, std::sqrt(params / n)) * std::min(0.01, 1 / std::sqrt(step));
    const double clip = std::max(1.0, std::sqrt(squares / n));
    for (int64_t i = 0; i < n; ++i) {
      momentum[i] = 0.9 * momentum[i] + 0.1 * alpha * u[i] / clip;
      x[i] = x[i] - 0.01 * alpha * x[i] - momentum[i];
      EXPECT_NEAR(param[i], x[i], 4e-7 * std::max(1.0, std::fabs(x[i])))
          << "step " << step << ", element " << i;
    }
  }
}

TEST(AdafactorPaperTest, ASharesPowerIsRight) {
  for (const double rate : {-0.8, -0.5, -1.0, -0.999, -3.0, -10.0, 0.0}) {
    for (int64_t step = 1; step < int64_t{1} << 61; step = step * 3 / 2 + 1) {
      const double want = std::pow(static_cast<double>(step), rate);
      EXPECT_NEAR(AdafactorNewShare(step, rate), want, 2e-13 * want) << step << "^" << rate;
    }
  }
}

TEST(AdafactorPaperTest, ARateOfTheStepAloneFallsFromTheTenThousandthOn) {
  for (const int64_t step : {int64_t{1}, int64_t{9'999}, int64_t{10'000}}) {
    EXPECT_EQ(AdafactorRelativeRate(step, false), 0.01) << step;
  }
  EXPECT_EQ(AdafactorRelativeRate(40'000, false), 0.005);
  EXPECT_EQ(AdafactorRelativeRate(3, true), 3e-6);
  EXPECT_EQ(AdafactorRelativeRate(10'000, true), 0.01);
  EXPECT_EQ(AdafactorRelativeRate(1'000'000, true), 0.001);
}

// A tensor with one row or column is not factored. transformers does it: with one column the means
// of rows are the squares, and the column's is their mean, and likewise with one row.
TEST(AdafactorPaperTest, WithOneRowOrColumnFactorsWouldGiveTheSame) {
  const CpuRun cpu = OnCpu(1);
  std::mt19937 random(19);
  std::normal_distribution<float> normal;
  constexpr int64_t kSize = 37;
  AdafactorGroup group;
  AdafactorOptions options;
  options.groups = {&group, 1};
  options.settings = {.scale_parameter = false, .relative_step = false};
  const float lr = 0.1f;
  std::vector<float> param(kSize), grad(kSize), factors(kSize), scales(kAdafactorNumbers + kSize);
  std::vector<double> workspace(AdafactorWorkspaceSize(kSize, 1)), x(kSize), rows(kSize);
  for (size_t i = 0; i < kSize; ++i) x[i] = param[i] = normal(random);
  double column = 0;
  for (int step = 1; step <= 6; ++step) {
    for (float& g : grad) g = normal(random);
    options.one_step = OneStep{step, &lr, 1.0f};
    const AdafactorTensor tensor = {
        nullptr, grad.data(), factors.data(), scales.data(), workspace.data(), kSize, 1, 0};
    const AdafactorSegment segment = {param.data(),  nullptr, grad.data(), nullptr, kSize,
                                      scales.data(), kSize,   1,           0,       0};
    ASSERT_OK(AdafactorFactors({&tensor, 1}, options, *cpu.stream));
    ASSERT_OK(AdafactorParams({&segment, 1}, options, *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());
    const double share = std::pow(step, -0.8);
    double mean_of_rows = 0, mean_of_column = 0, squares = 0;
    std::vector<double> u(kSize);
    for (size_t i = 0; i < kSize; ++i) {
      const double square = static_cast<double>(grad[i]) * grad[i] + 1e-30;
      rows[i] = (1 - share) * rows[i] + share * square;
      mean_of_rows += rows[i] / kSize;
      mean_of_column += square / kSize;
    }
    column = (1 - share) * column + share * mean_of_column;
    for (size_t i = 0; i < kSize; ++i) {
      u[i] = grad[i] / std::sqrt(rows[i] / mean_of_rows) / std::sqrt(column);
      squares += u[i] * u[i];
    }
    const double clip = std::max(1.0, std::sqrt(squares / kSize));
    for (size_t i = 0; i < kSize; ++i) {
      x[i] -= 0.1 * u[i] / clip;
      EXPECT_NEAR(param[i], x[i], 4e-7 * std::max(1.0, std::fabs(x[i]))) << step << ", " << i;
    }
  }
}

TEST(AdafactorPaperTest, InfinityMakesNaNOfItsTensorAlone) {
  const CpuRun cpu = OnCpu(1);
  Setting setting;
  TensorList<float, NoCopy> list({{10, 20}, {10, 20}, {1, 40}, {1, 40}}, setting, 20);
  const float infinity = std::numeric_limits<float>::infinity();
  list.arrays[1].grad[17] = infinity;
  list.arrays[3].grad[39] = -infinity;
  ASSERT_OK(list.Step(setting, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  for (const size_t i : {0u, 1u, 2u, 3u}) {
    for (const float x : Values(list.arrays[i].param)) {
      EXPECT_EQ(std::isnan(x), i % 2 == 1) << i;
      EXPECT_EQ(std::isfinite(x), i % 2 == 0) << i;
    }
  }
}

TEST(AdafactorPaperTest, ZerosStayAndNaNStaysInItsTensor) {
  const CpuRun cpu = OnCpu(1);
  Setting setting;
  TensorList<float, NoCopy> list({{10, 20}, {10, 20}, {1, 40}, {10, 20}}, setting, 16);
  for (int64_t i = 0; i < 200; ++i) list.arrays[0].grad[i] = 0.0f;
  for (float* value = list.tensors[0].factors; value < list.tensors[0].factors + 30; ++value) {
    *value = 0.0f;
  }
  list.arrays[3].grad[17] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> before = Values(list.arrays[0].param);
  ASSERT_OK(list.Step(setting, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_EQ(Values(list.arrays[0].param), before);
  for (int64_t i = 0; i < 200; ++i) {
    EXPECT_TRUE(std::isfinite(list.arrays[1].param[i])) << i;
    EXPECT_TRUE(std::isnan(list.arrays[3].param[i])) << i;
  }
}

// A gradient whose squares are no floats: sums are double.
TEST(AdafactorPaperTest, SquaresBeyondFloatsAreSummed) {
  const CpuRun cpu = OnCpu(1);
  Setting setting({.scale_parameter = false, .relative_step = false});
  TensorList<float, NoCopy> list({{4, 4}}, setting, 17);
  setting.state.grad_multiplier = 1;
  for (int64_t i = 0; i < 16; ++i) list.arrays[0].grad[i] = 1e-22f;
  for (int64_t i = 0; i < 8; ++i) list.arrays[0].factors[i] = 0;
  const std::vector<float> before = Values(list.arrays[0].param);
  ASSERT_OK(list.Step(setting, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  // eps1 rules: 1e-22 / sqrt(1e-30) = 1e-7.
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_NEAR(list.arrays[0].scales[4 + i % 4], 1.0, 1e-6);
    EXPECT_NEAR(list.arrays[0].param[i], before[static_cast<size_t>(i)], 1e-7);
  }
}

TEST(AdafactorErrorsTest, RefuseWhatTheyName) {
  const CpuRun cpu = OnCpu(1);
  Setting setting;
  TensorList<float, NoCopy> list({{4, 6}, {5, 3}}, setting, 18);
  const auto refuses = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  const auto factors = [&] { return AdafactorFactors(list.tensors, setting.options, *cpu.stream); };
  const auto params = [&] { return AdafactorParams(list.segments, setting.options, *cpu.stream); };
  for (const auto& [settings, text] :
       {std::pair(AdafactorSettings{.eps1 = 0}, "adafactor_factors: eps1 is 0"),
        std::pair(AdafactorSettings{.eps1 = 1e-40}, "eps1 is"),
        std::pair(AdafactorSettings{.eps2 = -1}, "eps2 is -1"),
        std::pair(AdafactorSettings{.clip_threshold = 0}, "clip_threshold is 0"),
        std::pair(AdafactorSettings{.decay_rate = 0.1}, "decay_rate is 0.1"),
        std::pair(AdafactorSettings{.decay_rate = std::nan("")}, "decay_rate is nan"),
        std::pair(AdafactorSettings{.relative_step = false, .warmup_init = true},
                  "warmup_init is true, which needs relative_step")}) {
    setting.options.settings = settings;
    EXPECT_THAT(factors(), refuses(text));
  }
  setting.options.settings = {};
  setting.groups[1].beta1 = 1;
  EXPECT_THAT(params(), refuses("adafactor_params: beta1 of group 1 is 1"));
  setting.groups[1] = {.beta1 = 0.9, .weight_decay = -1};
  EXPECT_THAT(params(), refuses("weight_decay of group 1 is -1"));
  setting.groups[1] = {};
  EXPECT_THAT(params(), refuses("m of segment 3 is not null, but beta1 of its group is 0"));
  setting.groups[1].beta1 = 0.9;
  list.segments[0].first = 20;
  EXPECT_THAT(params(), refuses("segment 0 has 8 elements from 20 on, of 24"));
  list.segments[0].first = 0;
  list.segments[0].group = 2;
  EXPECT_THAT(params(), refuses("group"));
  list.segments[0].group = 0;
  list.tensors[1].rows = -1;
  EXPECT_THAT(factors(), refuses("rows of segment 1 is -1"));
  list.tensors[1].rows = int64_t{1} << 39;
  EXPECT_THAT(factors(), refuses("segment 1 is a matrix of 549755813888 x 3, larger than"));
  list.tensors[1].rows = 5;
  const float* const param = std::exchange(list.tensors[1].param, nullptr);
  EXPECT_THAT(factors(), refuses("param"));
  list.tensors[1].param = param;
  float* const scales = std::exchange(list.tensors[1].scales, list.tensors[0].scales);
  EXPECT_THAT(factors(), refuses("overlap"));
  list.tensors[1].scales = scales;
  ASSERT_OK(cpu.stream->Synchronize());
  list.ExpectMatch("after errors");
  setting.state.step = 0;
  ASSERT_OK(factors());
  EXPECT_THAT(cpu.stream->Synchronize(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("adafactor_factors: state was not filled")));
}

}  // namespace
}  // namespace brigade::kernels
