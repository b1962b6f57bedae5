// The kernels on a GPU against the same calls on the CPU, which other tests hold to the specification: every
// byte of memory must agree, so nothing is written beside its place either.

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/flatten/flatten.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/sgd/sgd.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/tests/kernels/testing.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::DType;

// Hands out pieces of one block of memory, so that a list has the same layout on every device.
class Layout {
 public:
  explicit Layout(char* base) : base_(base) {}

  // `elements` of `element_bytes`, `offset` elements past a 64-byte boundary.
  template <typename T>
  T* Take(int64_t elements, int64_t offset = 0, int64_t element_bytes = sizeof(T)) {
    used_ = (used_ + 63) / 64 * 64 + offset * element_bytes;
    T* const piece = reinterpret_cast<T*>(base_ + used_);
    used_ += elements * element_bytes;
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

constexpr int64_t kBytes = int64_t{160} << 20;

using Run = std::function<absl::Status(char* base, device::Stream& stream)>;

// The whole block after `prepare` on the host and `run` on a device.
std::vector<char> RunOn(device::Device on, const std::function<void(char*)>& prepare,
                        const Run& run) {
  std::vector<char> memory(kBytes, 0x3c);
  prepare(memory.data());
  device::ContextOptions options;
  options.device = on;
  auto context = device::Context::Create(options).value();
  auto stream = context->NewStream("compute").value();
  auto buffer = context->Allocate(kBytes, device::Purpose::kScratch).value();
  EXPECT_OK(stream->Copy(buffer.data(), memory.data(), kBytes));
  EXPECT_OK(run(static_cast<char*>(buffer.data()), *stream));
  EXPECT_OK(stream->Copy(memory.data(), buffer.data(), kBytes));
  EXPECT_OK(stream->Synchronize());
  return memory;
}

void ExpectSameOnBoth(const std::string& what, const std::function<void(char*)>& prepare,
                      const Run& run) {
  const std::vector<char> cpu = RunOn(device::Cpu(), prepare, run);
  const std::vector<char> gpu = RunOn(device::Cuda(), prepare, run);
  int64_t different = 0;
  int64_t first = -1;
  for (int64_t i = 0; i < kBytes; ++i) {
    if (cpu[i] == gpu[i]) continue;
    if (different++ == 0) first = i;
  }
  EXPECT_EQ(different, 0) << what << ": first at byte " << first;
}

// More segments than one launch holds, empty ones, odd sizes and a large one.
std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes = InterestingSizes();
  for (int i = 0; i < 1500; ++i) sizes.push_back(i % 37);
  sizes.push_back(1'000'003);
  return sizes;
}

const std::vector<DType> kFloats = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

void FillFloats(void* data, DType dtype, int64_t size, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  precision::VisitFloat(dtype, [&](auto tag) {
    using T = decltype(tag);
    for (int64_t i = 0; i < size; ++i) {
      static_cast<T*>(data)[i] = T(scale * TypicalValue(random));
      // NaN's payload is not promised, and infinities soon make NaN.
      if (!std::isfinite(static_cast<float>(static_cast<T*>(data)[i]))) {
        static_cast<T*>(data)[i] = T(1.0f);
      }
    }
  });
}

struct StepMemory {
  explicit StepMemory(Layout& layout)
      : state(layout.Take<StepState>(1)), group_steps(layout.Take<GroupStep>(2)) {}
  void Prepare(int32_t skip) const {
    *state = {};
    state->grad_multiplier = 0.125f;
    state->step = 1;
    state->skip = skip;
    group_steps[0] = {1e-2f, 3e-2f, 5.0f};
    group_steps[1] = {2e-2f, 4e-2f, 7.0f};
  }
  StepState* state;
  GroupStep* group_steps;
};

TEST(KernelsGpuTest, AdamGivesTheCpusBits) {
  for (const DType grad_dtype : kFloats) {
    for (const std::optional<DType> copy_dtype :
         {std::optional<DType>(), std::optional(DType::kFloat16),
          std::optional(DType::kBFloat16)}) {
      for (int variant = 0; variant < 8; ++variant) {
        const bool decoupled = variant % 2 == 1;
        const bool skip = variant / 2 % 2 == 1;
        const int64_t spread = variant / 4;  // 1: arrays disagree, single elements
        const auto lay = [&](Layout& layout) {
          std::vector<AdamSegment> segments;
          for (const int64_t n : Sizes()) {
            const int64_t o = segments.size() % 9;
            AdamSegment s = {layout.Take<float>(n, o),
                             layout.Take<float>(n, o),
                             layout.Take<float>(n, o + spread),
                             nullptr,
                             nullptr,
                             n,
                             static_cast<int32_t>(segments.size() % 2)};
            s.grad = layout.Take<char>(n, o, precision::SizeOf(grad_dtype));
            if (copy_dtype.has_value()) s.param_copy = layout.Take<char>(n, o, 2);
            segments.push_back(s);
          }
          return segments;
        };
        const std::vector<AdamGroup> groups = {{.weight_decay = 0.1}, {.beta1 = 0.5}};
        ExpectSameOnBoth(
            absl::StrCat("adam ", precision::Name(grad_dtype), " variant ", variant),
            [&](char* base) {
              Layout layout(base);
              StepMemory(layout).Prepare(skip);
              for (const AdamSegment& s : lay(layout)) {
                FillFloats(s.param, DType::kFloat32, s.size, 1);
                FillFloats(s.m, DType::kFloat32, s.size, 2);
                FillFloats(s.v, DType::kFloat32, s.size, 3);
                for (int64_t i = 0; i < s.size; ++i) s.v[i] = std::fabs(s.v[i]);
                FillFloats(const_cast<void*>(s.grad), grad_dtype, s.size, 4, 100.0f);
              }
            },
            [&](char* base, device::Stream& stream) {
              Layout layout(base);
              const StepMemory step(layout);
              AdamOptions options;
              options.grad_dtype = grad_dtype;
              options.copy_dtype = copy_dtype;
              options.weight_decay_mode =
                  decoupled ? WeightDecayMode::kDecoupled : WeightDecayMode::kCoupled;
              options.groups = groups;
              options.state = step.state;
              options.group_steps = step.group_steps;
              return Adam(lay(layout), options, stream);
            });
      }
    }
  }
}

TEST(KernelsGpuTest, SgdGivesTheCpusBits) {
  for (const DType grad_dtype : kFloats) {
    for (const bool decoupled : {false, true}) {
      const auto lay = [&](Layout& layout) {
        std::vector<SgdSegment> segments;
        for (const int64_t n : Sizes()) {
          const int64_t o = segments.size() % 9;
          const int32_t group = segments.size() % 2;
          SgdSegment s = {layout.Take<float>(n, o), nullptr, nullptr, nullptr, n, group};
          if (group == 0) s.momentum = layout.Take<float>(n, o);
          s.grad = layout.Take<char>(n, o, precision::SizeOf(grad_dtype));
          s.param_copy = layout.Take<char>(n, o, 2);
          segments.push_back(s);
        }
        return segments;
      };
      const std::vector<SgdGroup> groups = {
          {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}, {}};
      ExpectSameOnBoth(
          absl::StrCat("sgd ", precision::Name(grad_dtype)),
          [&](char* base) {
            Layout layout(base);
            StepMemory(layout).Prepare(0);
            for (const SgdSegment& s : lay(layout)) {
              FillFloats(s.param, DType::kFloat32, s.size, 1);
              if (s.momentum != nullptr) FillFloats(s.momentum, DType::kFloat32, s.size, 2);
              FillFloats(const_cast<void*>(s.grad), grad_dtype, s.size, 4, 10.0f);
            }
          },
          [&](char* base, device::Stream& stream) {
            Layout layout(base);
            const StepMemory step(layout);
            SgdOptions options;
            options.grad_dtype = grad_dtype;
            options.copy_dtype = DType::kBFloat16;
            options.weight_decay_mode =
                decoupled ? WeightDecayMode::kDecoupled : WeightDecayMode::kCoupled;
            options.groups = groups;
            options.state = step.state;
            options.group_steps = step.group_steps;
            return Sgd(lay(layout), options, stream);
          });
    }
  }
}

TEST(KernelsGpuTest, GradCheckAndStepControlGiveTheCpusBits) {
  for (const DType dtype : kFloats) {
    for (const bool overflow : {false, true}) {
      const auto lay = [&](Layout& layout) {
        std::vector<GradSegment> segments;
        for (const int64_t n : Sizes()) {
          const int64_t o = segments.size() % 11;
          segments.push_back({layout.Take<char>(n, o, precision::SizeOf(dtype)), n});
        }
        return segments;
      };
      const std::vector<StepBetas> betas = {{0.9, 0.999}, {0.5, 0.95}};
      ExpectSameOnBoth(
          absl::StrCat("grad_check ", precision::Name(dtype), overflow ? " with overflow" : ""),
          [&](char* base) {
            Layout layout(base);
            const StepMemory step(layout);
            *step.state = InitialStepState({});
            float* const lr = layout.Take<float>(2);
            lr[0] = lr[1] = 1e-3f;
            layout.Take<GradStats>(1);
            layout.Take<double>(4000);
            const std::vector<GradSegment> segments = lay(layout);
            for (const GradSegment& s : segments) {
              FillFloats(const_cast<void*>(s.grad), dtype, s.size, 5);
            }
            if (overflow) {
              const GradSegment& s = segments.back();
              std::memset(static_cast<char*>(const_cast<void*>(s.grad)) +
                              (s.size - 1) * precision::SizeOf(dtype),
                          0x7f, precision::SizeOf(dtype));
            }
          },
          [&](char* base, device::Stream& stream) -> absl::Status {
            Layout layout(base);
            const StepMemory step(layout);
            StepControlOptions options;
            options.lr_table = layout.Take<float>(2);
            options.lr_table_size = 1;
            options.max_grad_norm = 1.0;
            options.betas = betas;
            GradStats* const stats = layout.Take<GradStats>(1);
            const auto workspace = absl::MakeSpan(layout.Take<double>(4000), 4000);
            absl::Status status = GradCheck(lay(layout), dtype, workspace, stats, stream);
            status.Update(StepControl(absl::MakeConstSpan(stats, 1), options, step.state,
                                      step.group_steps, stream));
            return status;
          });
    }
  }
}

TEST(KernelsGpuTest, CastFlattenAndFillGiveTheCpusBits) {
  for (const DType source_dtype : kFloats) {
    for (const DType target_dtype : kFloats) {
      for (const bool accumulate : {false, true}) {
        const auto lay = [&](Layout& layout) {
          std::vector<CastSegment> segments;
          for (const int64_t n : Sizes()) {
            const int64_t o = segments.size() % 9;
            const void* source = layout.Take<char>(n, o, precision::SizeOf(source_dtype));
            void* target =
                layout.Take<char>(n, o + segments.size() % 2, precision::SizeOf(target_dtype));
            segments.push_back({source, target, n});
          }
          return segments;
        };
        ExpectSameOnBoth(
            absl::StrCat("cast ", precision::Name(source_dtype), " to ",
                         precision::Name(target_dtype)),
            [&](char* base) {
              Layout layout(base);
              *layout.Take<float>(1) = 0.3f;
              for (const CastSegment& s : lay(layout)) {
                FillFloats(const_cast<void*>(s.source), source_dtype, s.size, 6, 100.0f);
                FillFloats(s.target, target_dtype, s.size, 7);
              }
            },
            [&](char* base, device::Stream& stream) {
              Layout layout(base);
              CastOptions options = {source_dtype, target_dtype, layout.Take<float>(1), accumulate};
              return Cast(lay(layout), options, stream);
            });
      }
    }
  }
  ExpectSameOnBoth(
      "flatten", [](char* base) { FillFloats(base, DType::kFloat32, 100000, 8); },
      [](char* base, device::Stream& stream) {
        Layout layout(base);
        float* const tensors = layout.Take<float>(100000);
        const std::vector<BucketSlot> slots = {
            {tensors + 1, 0, 0}, {tensors + 3, 70001, 5}, {tensors + 80000, 999, 70100}};
        return Flatten(slots, {}, {layout.Take<char>(200000), 100000, DType::kBFloat16}, stream);
      });
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUint8}) {
    ExpectSameOnBoth(
        absl::StrCat("fill ", precision::Name(dtype)), [](char*) {},
        [&](char* base, device::Stream& stream) {
          Layout layout(base);
          std::vector<FillSegment> segments;
          for (const int64_t n : Sizes()) {
            segments.push_back(
                {layout.Take<char>(n, segments.size() % 13, precision::SizeOf(dtype)), n});
          }
          return Fill(segments, dtype, 7.0, stream);
        });
  }
}

}  // namespace
}  // namespace brigade::kernels
