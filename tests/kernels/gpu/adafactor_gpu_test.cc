// Adafactor on a GPU against the same calls on the CPU, which other tests hold to the
// specification: every byte of memory must agree, workspaces too, so nothing is written beside its
// place either.

#include <optional>
#include <utility>
#include <vector>

#include "brigade/kernels/adafactor/adafactor.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::DType;

constexpr AdafactorGroup kGroups[] = {{}, {.beta1 = 0.9, .weight_decay = 0.1}};

struct Lists {
  std::vector<AdafactorTensor> tensors;
  std::vector<AdafactorSegment> segments;
};

Lists Lay(Layout& layout, const std::vector<std::pair<int64_t, int64_t>>& shapes, DType grad_dtype,
          std::optional<DType> copy_dtype, bool has_params) {
  Lists lists;
  for (const auto& [rows, columns] : shapes) {
    const int64_t n = rows * columns, factors = AdafactorFactorCount(rows, columns);
    const auto index = lists.tensors.size();
    const auto o = static_cast<int64_t>(index % 3);
    const auto group = static_cast<int32_t>(index % 2);
    float* const param = layout.Take<float>(n, o);
    float* const m = group == 1 ? layout.Take<float>(n, 2 * o) : nullptr;
    const int64_t width = precision::SizeOf(grad_dtype);
    char* const grad = layout.Take<char>(n, o, width);
    char* const copy = copy_dtype.has_value() ? layout.Take<char>(n, o, 2) : nullptr;
    float* const of = layout.Take<float>(factors, o);
    float* const scales = layout.Take<float>(kAdafactorNumbers + factors, 1);
    double* const workspace = layout.Take<double>(AdafactorWorkspaceSize(rows, columns));
    lists.tensors.push_back(
        {has_params ? param : nullptr, grad, of, scales, workspace, rows, columns, group});
    const int64_t cut = n / 3;
    for (const auto& [begin, end] : {std::pair(int64_t{0}, cut), std::pair(cut, n)}) {
      lists.segments.push_back({param + begin, m == nullptr ? nullptr : m + begin,
                                grad + begin * width, copy == nullptr ? nullptr : copy + begin * 2,
                                end - begin, scales, rows, columns, begin, group});
    }
  }
  return lists;
}

void ExpectSame(const std::vector<std::pair<int64_t, int64_t>>& shapes, DType grad,
                std::optional<DType> copy, const AdafactorSettings& settings, bool skip) {
  const BeforeAndAfter memory = ExpectSameOnBoth(
      "adafactor",
      [&](char* base) {
        Layout layout(base);
        StepMemory(layout).Prepare(skip);
        uint32_t seed = 60;
        for (const AdafactorTensor& t : Lay(layout, shapes, grad, copy, true).tensors) {
          const int64_t n = t.rows * t.columns;
          FillFloats(const_cast<float*>(t.param), DType::kFloat32, n, ++seed);
          FillFloats(const_cast<void*>(t.grad), grad, n, ++seed, 10.0f);
          for (int64_t i = 0; i < AdafactorFactorCount(t.rows, t.columns); ++i) {
            t.factors[i] = static_cast<float>(i % 7 + 1) * 0.3f;
          }
        }
        // Moments, which only segments have.
        Layout again(base);
        StepMemory skipped(again);
        for (const AdafactorSegment& s : Lay(again, shapes, grad, copy, true).segments) {
          if (s.m != nullptr) FillFloats(s.m, DType::kFloat32, s.size, ++seed, 0.1f);
        }
      },
      [&](char* base, device::Stream& stream) {
        Layout layout(base);
        const StepMemory step(layout);
        AdafactorOptions options;
        options.grad_dtype = grad;
        options.copy_dtype = copy;
        options.groups = kGroups;
        options.settings = settings;
        options.state = step.state;
        options.group_steps = step.group_steps;
        const Lists lists = Lay(layout, shapes, grad, copy, settings.scale_parameter);
        const absl::Status status = AdafactorFactors(lists.tensors, options, stream);
        return status.ok() ? AdafactorParams(lists.segments, options, stream) : status;
      });
  EXPECT_EQ(memory.after == memory.before, skip);
}

// Around lanes, eight rows and a tile, and what is no matrix.
const std::vector<std::pair<int64_t, int64_t>> kShapes = {
    {64, 256}, {65, 257}, {1, 1}, {0, 7},   {2, 3},   {9, 31},    {7, 33},
    {70, 520}, {1, 300},  {4, 4}, {300, 1}, {130, 5}, {1, 17'000}};

TEST(AdafactorGpuTest, GivesTheCpusBits) {
  for (const auto& [grad, copy] : {std::pair(DType::kFloat32, std::optional<DType>()),
                                   std::pair(DType::kFloat16, std::optional(DType::kFloat16)),
                                   std::pair(DType::kBFloat16, std::optional(DType::kBFloat16))}) {
    ExpectSame(kShapes, grad, copy, {}, false);
  }
}

TEST(AdafactorGpuTest, SettingsGiveTheCpusBits) {
  ExpectSame({{20, 300}, {1, 50}}, DType::kFloat32, DType::kFloat16,
             {.scale_parameter = false, .relative_step = false}, false);
  ExpectSame({{20, 300}, {1, 50}}, DType::kFloat16, {},
             {.eps1 = 1e-8, .clip_threshold = 0.1, .decay_rate = -0.5, .warmup_init = true}, false);
  ExpectSame({{20, 30}, {1, 50}}, DType::kBFloat16, {}, {}, true);
}

TEST(AdafactorGpuTest, TakesMoreTensorsThanOneLaunchHolds) {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (int64_t i = 0; i < 400; ++i) shapes.emplace_back(1 + i % 5, 1 + i % 3);
  ExpectSame(shapes, DType::kFloat32, {}, {}, false);
}

}  // namespace
}  // namespace brigade::kernels
