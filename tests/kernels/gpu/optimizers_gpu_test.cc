// Optimizers on a GPU against the same calls on the CPU, which other tests hold to the
// specification: every byte of memory must agree, so nothing is written beside its place either.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/adam8/adam8.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/lamb/lamb.h"
#include "brigade/kernels/lion/lion.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb.h"
#include "brigade/kernels/sgd/sgd.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::DType;

const std::vector<std::optional<DType>> kCopies = {std::nullopt, DType::kFloat16, DType::kBFloat16};

// What Adam's two forms have apart: their moments, and how they are called.
struct FloatMoments {
  using Segment = AdamSegment;
  static constexpr char kName[] = "adam";
  static constexpr float kGradients = 100.0f;

  static int64_t Offset(size_t segment) { return static_cast<int64_t>(segment % 9); }
  static void Take(Layout& layout, int64_t offset, int64_t spread, Segment& s) {
    s.m = layout.Take<float>(s.size, offset);
    s.v = layout.Take<float>(s.size, offset + spread);
  }
  static void Fill(const Segment& s) {
    FillFloats(s.m, DType::kFloat32, s.size, 2);
    FillFloats(s.v, DType::kFloat32, s.size, 3);
    for (int64_t i = 0; i < s.size; ++i) s.v[i] = std::fabs(s.v[i]);
  }
  static absl::Status Run(const std::vector<Segment>& segments, const AdamOptions& options,
                          device::Stream& stream) {
    return Adam(segments, options, stream);
  }
};

struct CodedMoments {
  using Segment = Adam8Segment;
  static constexpr char kName[] = "adam8";
  static constexpr float kGradients = 10.0f;

  // With 0 at times, where groups of elements can be moved at once.
  static int64_t Offset(size_t segment) {
    return segment % 2 == 0 ? 0 : static_cast<int64_t>(segment % 9);
  }
  static void Take(Layout& layout, int64_t offset, int64_t spread, Segment& s) {
    s.m = layout.Take<uint8_t>(s.size, offset);
    s.v = layout.Take<uint8_t>(s.size, offset + spread);
    s.m_scale = layout.Take<float>(MomentBlocks(s.size), offset);
    s.v_scale = layout.Take<float>(MomentBlocks(s.size), offset);
  }
  static void Fill(const Segment& s) {
    FillFloats(s.m_scale, DType::kFloat32, MomentBlocks(s.size), 2);
    FillFloats(s.v_scale, DType::kFloat32, MomentBlocks(s.size), 3);
    for (int64_t b = 0; b < MomentBlocks(s.size); ++b) {
      s.m_scale[b] = std::fabs(s.m_scale[b]);
      s.v_scale[b] = std::fabs(s.v_scale[b]);
    }
    for (int64_t i = 0; i < s.size; ++i) {
      s.m[i] = static_cast<uint8_t>(i * 37);
      s.v[i] = static_cast<uint8_t>(i * 101);
    }
  }
  static absl::Status Run(const std::vector<Segment>& segments, const AdamOptions& options,
                          device::Stream& stream) {
    return Adam8(segments, options, stream);
  }
};

template <typename Moments>
void ExpectSameAdamOnBoth(DType grad_dtype, std::optional<DType> copy_dtype, int variant) {
  const bool decoupled = variant % 2 == 1;
  const bool skip = variant / 2 % 2 == 1;
  const int64_t spread = variant / 4;  // 1: arrays disagree, single elements
  const auto lay = [&](Layout& layout) {
    std::vector<typename Moments::Segment> segments;
    for (const int64_t n : Sizes()) {
      const int64_t o = Moments::Offset(segments.size());
      typename Moments::Segment s = {};
      s.param = layout.Take<float>(n, o);
      s.size = n;
      s.group = static_cast<int32_t>(segments.size() % 2);
      Moments::Take(layout, o, spread, s);
      s.grad = layout.Take<char>(n, o, precision::SizeOf(grad_dtype));
      if (copy_dtype.has_value()) s.param_copy = layout.Take<char>(n, o, 2);
      segments.push_back(s);
    }
    return segments;
  };
  const std::vector<AdamGroup> groups = {{.weight_decay = 0.1}, {.beta1 = 0.5}};
  const std::string what =
      absl::StrCat(Moments::kName, " ", precision::Name(grad_dtype), " variant ", variant);
  const BeforeAndAfter memory = ExpectSameOnBoth(
      what,
      [&](char* base) {
        Layout layout(base);
        StepMemory(layout).Prepare(skip);
        for (const auto& s : lay(layout)) {
          FillFloats(s.param, DType::kFloat32, s.size, 1);
          Moments::Fill(s);
          FillFloats(const_cast<void*>(s.grad), grad_dtype, s.size, 4, Moments::kGradients);
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
        return Moments::Run(lay(layout), options, stream);
      });
  EXPECT_EQ(memory.after == memory.before, skip) << what;
}

template <typename Moments>
void ExpectSameAdams() {
  for (const DType grad_dtype : kFloats) {
    for (const std::optional<DType> copy_dtype : kCopies) {
      for (int variant = 0; variant < 8; ++variant) {
        ExpectSameAdamOnBoth<Moments>(grad_dtype, copy_dtype, variant);
      }
    }
  }
}

TEST(OptimizersGpuTest, AdamGivesTheCpusBits) { ExpectSameAdams<FloatMoments>(); }

TEST(OptimizersGpuTest, Adam8GivesTheCpusBits) { ExpectSameAdams<CodedMoments>(); }

struct SgdCase {
  const char* name;
  bool decoupled;
  // Of the even segments' group; the odd ones' has none.
  SgdGroup momentum;
  int64_t step = 2;
  int32_t skip = 0;
  int64_t spread = 0;  // 1: arrays disagree, single elements
};

// The first gradient enters undampened, so the step matters.
const SgdCase kSgdCases[] = {
    {"nesterov, step 1", false, {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}, 1},
    {"nesterov, decoupled", true, {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}},
    {"dampened, step 1", false, {.momentum = 0.9, .dampening = 0.25, .weight_decay = 0.1}, 1},
    {"dampened, decoupled", true, {.momentum = 0.9, .dampening = 0.25, .weight_decay = 0.1}},
    {"arrays apart", false, {.momentum = 0.9, .dampening = 0.25}, 2, 0, 1},
    {"skipped", false, {.momentum = 0.9, .dampening = 0.25}, 2, 1},
};

void ExpectSameSgdOnBoth(DType grad_dtype, std::optional<DType> copy_dtype,
                         const SgdCase& variant) {
  const auto lay = [&](Layout& layout) {
    std::vector<SgdSegment> segments;
    for (const int64_t n : Sizes()) {
      const int64_t o = segments.size() % 9;
      const int32_t group = segments.size() % 2;
      SgdSegment s = {layout.Take<float>(n, o), nullptr, nullptr, nullptr, n, group};
      if (group == 0) s.momentum = layout.Take<float>(n, o);
      s.grad = layout.Take<char>(n, o + variant.spread, precision::SizeOf(grad_dtype));
      if (copy_dtype.has_value()) s.param_copy = layout.Take<char>(n, o, 2);
      segments.push_back(s);
    }
    return segments;
  };
  const auto prepare = [&](char* base) {
    Layout layout(base);
    StepMemory(layout).Prepare(variant.skip, variant.step);
    for (const SgdSegment& s : lay(layout)) {
      FillFloats(s.param, DType::kFloat32, s.size, 1);
      if (s.momentum != nullptr) FillFloats(s.momentum, DType::kFloat32, s.size, 2);
      FillFloats(const_cast<void*>(s.grad), grad_dtype, s.size, 4, 10.0f);
    }
  };
  const std::vector<SgdGroup> groups = {variant.momentum, {}};
  const auto run = [&](char* base, device::Stream& stream) {
    Layout layout(base);
    const StepMemory step(layout);
    SgdOptions options;
    options.grad_dtype = grad_dtype;
    options.copy_dtype = copy_dtype;
    options.weight_decay_mode =
        variant.decoupled ? WeightDecayMode::kDecoupled : WeightDecayMode::kCoupled;
    options.groups = groups;
    options.state = step.state;
    options.group_steps = step.group_steps;
    return Sgd(lay(layout), options, stream);
  };
  const std::string what = absl::StrCat(
      "sgd ", precision::Name(grad_dtype), ", copy ",
      copy_dtype.has_value() ? precision::Name(*copy_dtype) : "none", ", ", variant.name);
  const BeforeAndAfter memory = ExpectSameOnBoth(what, prepare, run);
  EXPECT_EQ(memory.after == memory.before, variant.skip != 0) << what;
}

TEST(OptimizersGpuTest, SgdGivesTheCpusBits) {
  for (const DType grad_dtype : kFloats) {
    for (const std::optional<DType> copy_dtype : kCopies) {
      for (const SgdCase& variant : kSgdCases) {
        ExpectSameSgdOnBoth(grad_dtype, copy_dtype, variant);
      }
    }
  }
}

TEST(OptimizersGpuTest, LambGivesTheCpusBits) {
  for (const DType grad_dtype : kFloats) {
    for (const std::optional<DType> copy_dtype : kCopies) {
      for (const bool skip : {false, true}) {
        if (skip && grad_dtype != DType::kFloat32) continue;
        struct List {
          std::vector<LambSegment> segments;
          double* workspace;
        };
        const auto lay = [&](Layout& layout) {
          List list;
          for (const int64_t n : Sizes()) {
            const int64_t o = list.segments.size() % 9;
            LambSegment s = {layout.Take<float>(n, o),
                             layout.Take<float>(n, o),
                             layout.Take<float>(n, o),
                             nullptr,
                             nullptr,
                             n,
                             static_cast<int32_t>(list.segments.size() % 2)};
            s.grad = layout.Take<char>(n, o, precision::SizeOf(grad_dtype));
            if (copy_dtype.has_value()) s.param_copy = layout.Take<char>(n, o, 2);
            list.segments.push_back(s);
          }
          list.workspace = layout.Take<double>(LambWorkspaceSize(list.segments));
          return list;
        };
        const std::vector<LambGroup> groups = {{.weight_decay = 0.1},
                                               {.beta1 = 0.5, .min_trust = 0, .max_trust = 3e38}};
        const std::string what = absl::StrCat("lamb ", precision::Name(grad_dtype));
        const BeforeAndAfter memory = ExpectSameOnBoth(
            what,
            [&](char* base) {
              Layout layout(base);
              StepMemory(layout).Prepare(skip);
              for (const LambSegment& s : lay(layout).segments) {
                FillFloats(s.param, DType::kFloat32, s.size, 1);
                FillFloats(s.m, DType::kFloat32, s.size, 2);
                FillFloats(s.v, DType::kFloat32, s.size, 3);
                for (int64_t i = 0; i < s.size; ++i) s.v[i] = std::fabs(s.v[i]);
                FillFloats(const_cast<void*>(s.grad), grad_dtype, s.size, 4, 10.0f);
              }
            },
            [&](char* base, device::Stream& stream) {
              Layout layout(base);
              const StepMemory step(layout);
              LambOptions options;
              options.grad_dtype = grad_dtype;
              options.copy_dtype = copy_dtype;
              options.groups = groups;
              options.state = step.state;
              options.group_steps = step.group_steps;
              const List list = lay(layout);
              const int64_t doubles = LambWorkspaceSize(list.segments);
              absl::Status status = Lamb(list.segments, options,
                                         {list.workspace, static_cast<size_t>(doubles)}, stream);
              // No result: it differs between devices.
              if (skip) return status;
              const std::vector<double> zeros(static_cast<size_t>(doubles));
              status.Update(stream.Copy(list.workspace, zeros.data(), doubles * 8));
              status.Update(stream.Synchronize());
              return status;
            });
        EXPECT_EQ(memory.after == memory.before, skip) << what;
      }
    }
  }
}

// All passes of 1-bit LAMB, of tensors that are a segment each.
struct OneBitLambList {
  OneBitLambList(Layout& layout, DType grad_dtype) {
    for (const int64_t n : Sizes()) {
      const int64_t o = segments.size() % 9;
      const auto index = static_cast<int32_t>(segments.size());
      const int32_t group = index % 2;
      float* const message = layout.Take<float>(n, o);
      float* const m = layout.Take<float>(n, o);
      segments.push_back({layout.Take<float>(n, o), m, layout.Take<float>(n, o),
                          layout.Take<float>(n, o), message, n, group, index, tiles});
      messages.push_back(
          {m, layout.Take<char>(n, o, precision::SizeOf(grad_dtype)), message, n, group, index});
      const int64_t count = CeilDiv(n, kLambTile);
      tensors.push_back({0, count, tiles, std::max<int64_t>(count, 1), 0, group});
      sizes.push_back(n);
      tiles += count;
    }
    const auto all = static_cast<int64_t>(tensors.size());
    warm_up_sums = {layout.Take<double>(2 * tiles), static_cast<size_t>(2 * tiles)};
    sums = {layout.Take<OneBitLambSums>(tiles), static_cast<size_t>(tiles)};
    numbers = {layout.Take<OneBitLambNumbers>(all), tensors.size()};
    trusts = {layout.Take<float>(all), tensors.size()};
    total = layout.Take<double>(1);
  }

  void Fill(DType grad_dtype) const {
    for (size_t i = 0; i < segments.size(); ++i) {
      const OneBitLambSegment& s = segments[i];
      FillFloats(const_cast<float*>(s.param), DType::kFloat32, s.size, 1);
      FillFloats(s.m, DType::kFloat32, s.size, 2);
      float* const v = const_cast<float*>(s.v);
      FillFloats(v, DType::kFloat32, s.size, 3);
      for (int64_t j = 0; j < s.size; ++j) v[j] = std::fabs(v[j]);
      FillFloats(const_cast<void*>(messages[i].grad), grad_dtype, s.size, 4, 10.0f);
    }
    for (size_t i = 0; i < warm_up_sums.size(); ++i) warm_up_sums[i] = 0.5 + i % 7;
    for (OneBitLambNumbers& each : numbers) each = {0.75f, 0.0f, 0.0f};
  }

  absl::Status Run(const LambOptions& options, device::Stream& stream) const {
    const OneBitLambConstants constants = MakeOneBitLambConstants({});
    absl::Status status =
        OneBitLambRatios(tensors, options, constants, warm_up_sums, numbers, stream);
    status.Update(OneBitLambFreeze(segments, numbers, sums, stream));
    status.Update(OneBitLambScales(tensors, sizes, sums, total, numbers, stream));
    status.Update(OneBitLambSend(messages, options, numbers, stream));
    status.Update(OneBitLambReceive(messages, numbers, stream));
    status.Update(OneBitLambMoments(segments, options, sums, stream));
    status.Update(OneBitLambTrusts(tensors, options, constants, sums, numbers, trusts, stream));
    // No result: only the GPU uses it.
    status.Update(stream.FillBytes(total, 0, sizeof(*total)));
    return status;
  }

  int64_t tiles = 0;
  std::vector<OneBitLambSegment> segments;
  std::vector<OneBitLambMessage> messages;
  std::vector<LambTensor> tensors;
  std::vector<int64_t> sizes;
  absl::Span<double> warm_up_sums;
  absl::Span<OneBitLambSums> sums;
  absl::Span<OneBitLambNumbers> numbers;
  absl::Span<float> trusts;
  double* total;
};

TEST(OptimizersGpuTest, OneBitLambGivesTheCpusBits) {
  const std::vector<LambGroup> groups = {{.weight_decay = 0.1}, {.beta1 = 0.5}};
  for (const DType grad_dtype : kFloats) {
    for (const bool skip : {false, true}) {
      if (skip && grad_dtype != DType::kFloat32) continue;
      ExpectSameOnBoth(
          absl::StrCat("1-bit lamb ", precision::Name(grad_dtype), skip ? ", skipped" : ""),
          [&](char* base) {
            Layout layout(base);
            StepMemory(layout).Prepare(skip);
            OneBitLambList(layout, grad_dtype).Fill(grad_dtype);
          },
          [&](char* base, device::Stream& stream) {
            Layout layout(base);
            const StepMemory step(layout);
            LambOptions options;
            options.grad_dtype = grad_dtype;
            options.groups = groups;
            options.state = step.state;
            options.group_steps = step.group_steps;
            return OneBitLambList(layout, grad_dtype).Run(options, stream);
          });
    }
  }
}

// What 0/1 Adam does beside Adam, in the order of a local step, a meeting and a save.
struct ZeroOneList {
  explicit ZeroOneList(Layout& layout) {
    for (const int64_t n : Sizes()) {
      const int64_t o = masks.size() % 9;
      float* const moment = layout.Take<float>(n, o);
      float* const message = layout.Take<float>(n, o);
      masks.push_back({moment, message, n});
      messages.push_back({message, n, static_cast<int32_t>(messages.size() % 2)});
      copies.push_back({moment, layout.Take<float>(n, o + 1), n});
      copies.push_back({nullptr, layout.Take<float>(n, o + 2), n});
    }
    numbers = {layout.Take<ZeroOneNumbers>(2), 2};
    meeting = layout.Take<GroupStep>(2);
    betas = layout.Take<float>(4);
  }

  void Fill() const {
    for (size_t i = 0; i < masks.size(); ++i) {
      float* const moment = const_cast<float*>(masks[i].second_moment);
      FillFloats(moment, DType::kFloat32, masks[i].size, 1);
      for (int64_t j = 0; j < masks[i].size; j += 3) moment[j] = 0.0f;
      FillFloats(masks[i].gradient, DType::kFloat32, masks[i].size, 2);
    }
    for (const ZeroOneCopy& copy : copies) FillFloats(copy.target, DType::kFloat32, copy.size, 3);
    for (ZeroOneNumbers& each : numbers) each = {0.125f, 0, 0, 0, 0};
    for (int i = 0; i < 2; ++i) meeting[i] = {0, 0, 0};
    for (int i = 0; i < 4; ++i) betas[i] = 0.9f - 0.2f * static_cast<float>(i);
  }

  absl::Status Run(const StepMemory& step, device::Stream& stream) const {
    absl::Status status = ZeroOneAdamMask(masks, stream);
    for (const ZeroOneCall call :
         {ZeroOneCall::kLocal, ZeroOneCall::kSend, ZeroOneCall::kMeet, ZeroOneCall::kSave}) {
      status.Update(ZeroOneAdamRates(
          {call, 2, step.state, step.group_steps, betas, numbers.data(), meeting}, stream));
      if (call != ZeroOneCall::kMeet) continue;
      status.Update(ZeroOneAdamReceive(messages, numbers, stream));
      status.Update(ZeroOneAdamTake(copies, step.state, stream));
    }
    return status;
  }

  std::vector<ZeroOneMask> masks;
  std::vector<ZeroOneMessage> messages;
  std::vector<ZeroOneCopy> copies;
  absl::Span<ZeroOneNumbers> numbers;
  GroupStep* meeting;
  float* betas;
};

TEST(OptimizersGpuTest, ZeroOneAdamGivesTheCpusBits) {
  for (const bool skip : {false, true}) {
    ExpectSameOnBoth(
        absl::StrCat("0/1 Adam", skip ? ", skipped" : ""),
        [&](char* base) {
          Layout layout(base);
          StepMemory(layout).Prepare(skip);
          ZeroOneList(layout).Fill();
        },
        [&](char* base, device::Stream& stream) {
          Layout layout(base);
          const StepMemory step(layout);
          return ZeroOneList(layout).Run(step, stream);
        });
  }
}

TEST(OptimizersGpuTest, LionGivesTheCpusBits) {
  for (const DType grad_dtype : kFloats) {
    for (const std::optional<DType> copy_dtype : kCopies) {
      for (int variant = 0; variant < 4; ++variant) {
        const bool skip = variant % 2 == 1;
        const int64_t spread = variant / 2;  // 1: arrays disagree, single elements
        const auto lay = [&](Layout& layout) {
          std::vector<LionSegment> segments;
          for (const int64_t n : Sizes()) {
            const int64_t o = segments.size() % 9;
            LionSegment s = {layout.Take<float>(n, o),
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
        const std::vector<LionGroup> groups = {{.weight_decay = 0.1}, {.beta1 = 0.5}};
        const std::string what =
            absl::StrCat("lion ", precision::Name(grad_dtype), " variant ", variant);
        const BeforeAndAfter memory = ExpectSameOnBoth(
            what,
            [&](char* base) {
              Layout layout(base);
              StepMemory(layout).Prepare(skip);
              for (const LionSegment& s : lay(layout)) {
                FillFloats(s.param, DType::kFloat32, s.size, 1);
                FillFloats(s.m, DType::kFloat32, s.size, 2);
                FillFloats(const_cast<void*>(s.grad), grad_dtype, s.size, 4, 10.0f);
              }
            },
            [&](char* base, device::Stream& stream) {
              Layout layout(base);
              const StepMemory step(layout);
              LionOptions options;
              options.grad_dtype = grad_dtype;
              options.copy_dtype = copy_dtype;
              options.groups = groups;
              options.state = step.state;
              options.group_steps = step.group_steps;
              return Lion(lay(layout), options, stream);
            });
        EXPECT_EQ(memory.after == memory.before, skip) << what;
      }
    }
  }
}

}  // namespace
}  // namespace brigade::kernels
