// Muon on a GPU against the same calls on the CPU, which other tests hold to the specification:
// every byte of memory must agree, workspaces too, so nothing is written beside its place either.

#include <optional>
#include <vector>

#include "brigade/kernels/muon/muon.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::DType;

std::vector<MuonMatrix> LayMatrices(char* base, bool many) {
  Layout layout(base);
  std::vector<MuonMatrix> matrices;
  const auto add = [&](int64_t rows, int64_t columns, int64_t offset) {
    float* const update = layout.Take<float>(rows * columns, offset);
    matrices.push_back(
        {update, layout.Take<float>(MuonWorkspaceSize(rows, columns)), rows, columns});
  };
  // Around a block's sums and a strip's terms, both ways round; and two tiles of squares.
  if (many) {
    // More than one launch holds.
    for (int i = 0; i < 520; ++i) add(1 + i % 3, 1 + i % 2, i % 4);
    return matrices;
  }
  add(64, 64, 0);
  add(65, 17, 1);
  add(15, 80, 0);
  add(0, 7, 0);
  add(1, 1, 3);
  add(1, 200, 2);
  add(130, 3, 0);
  add(33, 100, 1);
  add(2, 33'000, 0);
  return matrices;
}

void ExpectOrthogonal(bool many, int steps) {
  const BeforeAndAfter memory = ExpectSameOnBoth(
      many ? "many matrices" : "matrices",
      [&](char* base) {
        uint32_t seed = 40;
        for (const MuonMatrix& m : LayMatrices(base, many)) {
          FillFloats(m.update, DType::kFloat32, m.rows * m.columns, ++seed);
        }
      },
      [&](char* base, device::Stream& stream) {
        return MuonOrthogonalize(LayMatrices(base, many), {.steps = steps}, stream);
      });
  EXPECT_FALSE(memory.after == memory.before);
}

TEST(MuonGpuTest, OrthogonalizeGivesTheCpusBits) { ExpectOrthogonal(false, 3); }
TEST(MuonGpuTest, OrthogonalizeTakesMoreMatricesThanOneLaunchHolds) { ExpectOrthogonal(true, 2); }

constexpr MuonGroup kGroups[] = {{}, {.momentum = 0.5, .nesterov = false, .weight_decay = 0}};

TEST(MuonGpuTest, MomentumGivesTheCpusBits) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const bool skip : {false, true}) {
      const auto lay = [&](Layout& layout) {
        std::vector<MuonMomentumSegment> segments;
        for (const int64_t n : {0, 1, 31, 33, 4097, 9000}) {
          const auto o = static_cast<int64_t>(segments.size() % 3);
          float* const momentum = layout.Take<float>(n, o);
          float* const update = layout.Take<float>(n, 2 * o);
          const void* const grad = layout.Take<char>(n, o, precision::SizeOf(dtype));
          segments.push_back(
              {momentum, update, grad, nullptr, n, static_cast<int32_t>(segments.size() % 2)});
        }
        return segments;
      };
      const BeforeAndAfter memory = ExpectSameOnBoth(
          "momentum",
          [&](char* base) {
            Layout layout(base);
            StepMemory(layout).Prepare(skip);
            for (const MuonMomentumSegment& s : lay(layout)) {
              FillFloats(s.param, DType::kFloat32, s.size, 1);
              FillFloats(s.update, DType::kFloat32, s.size, 2);
              FillFloats(const_cast<void*>(s.grad), dtype, s.size, 3, 10.0f);
            }
          },
          [&](char* base, device::Stream& stream) {
            Layout layout(base);
            const StepMemory step(layout);
            MuonOptions options;
            options.grad_dtype = dtype;
            options.groups = kGroups;
            options.state = step.state;
            options.group_steps = step.group_steps;
            return MuonMomentum(lay(layout), options, stream);
          });
      EXPECT_EQ(memory.after == memory.before, skip);
    }
  }
}

TEST(MuonGpuTest, ParamsGiveTheCpusBits) {
  for (const std::optional<DType> copy :
       {std::optional<DType>(), std::optional(DType::kFloat16), std::optional(DType::kBFloat16)}) {
    for (const bool skip : {false, true}) {
      const auto lay = [&](Layout& layout) {
        std::vector<MuonParamSegment> segments;
        for (const int64_t n : {0, 1, 31, 33, 4097, 9000}) {
          const auto o = static_cast<int64_t>(segments.size() % 3);
          float* const param = layout.Take<float>(n, o);
          const float* const update = layout.Take<float>(n, 2 * o);
          void* const rounded = copy.has_value() ? layout.Take<char>(n, o, 2) : nullptr;
          segments.push_back({param, update, rounded, n, static_cast<int32_t>(segments.size() % 2),
                              2.0f, MuonScaleOf(MuonScale::kOriginal, 3, 2)});
        }
        return segments;
      };
      const BeforeAndAfter memory = ExpectSameOnBoth(
          "params",
          [&](char* base) {
            Layout layout(base);
            StepMemory(layout).Prepare(skip);
            for (const MuonParamSegment& s : lay(layout)) {
              FillFloats(s.param, DType::kFloat32, s.size, 1);
              FillFloats(const_cast<void*>(s.grad), DType::kFloat32, s.size, 2);
            }
          },
          [&](char* base, device::Stream& stream) {
            Layout layout(base);
            const StepMemory step(layout);
            MuonOptions options;
            options.copy_dtype = copy;
            options.groups = kGroups;
            options.state = step.state;
            options.group_steps = step.group_steps;
            return MuonParams(lay(layout), options, stream);
          });
      EXPECT_EQ(memory.after == memory.before, skip);
    }
  }
}

}  // namespace
}  // namespace brigade::kernels
