// The functions of one range, which take no thread pool: any cut into ranges, in any order, gives
// the bits of the public call.

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "brigade/kernels/adafactor/adafactor.h"
#include "brigade/kernels/adafactor/adafactor_cpu.h"
#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/adam/adam_cpu.h"
#include "brigade/kernels/amax/amax.h"
#include "brigade/kernels/amax/amax_cpu.h"
#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/kernels/block_quant/block_quant_cpu.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/cast/cast_cpu.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce_cpu.h"
#include "brigade/kernels/digest/digest.h"
#include "brigade/kernels/digest/digest_cpu.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/kernels/fill/fill_cpu.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/grad_check/grad_check_cpu.h"
#include "brigade/kernels/lion/lion.h"
#include "brigade/kernels/lion/lion_cpu.h"
#include "brigade/kernels/loco_quant/loco_quant.h"
#include "brigade/kernels/loco_quant/loco_quant_cpu.h"
#include "brigade/kernels/muon/muon.h"
#include "brigade/kernels/muon/muon_cpu.h"
#include "brigade/kernels/nontemporal_store.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cpu.h"
#include "brigade/kernels/reduce/reduce.h"
#include "brigade/kernels/reduce/reduce_cpu.h"
#include "brigade/kernels/sgd/sgd.h"
#include "brigade/kernels/sgd/sgd_cpu.h"
#include "brigade/kernels/sign_pack/sign_pack.h"
#include "brigade/kernels/sign_pack/sign_pack_cpu.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_cpu.h"
#include "brigade/tests/kernels/testing.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::BFloat16;
using precision::Half;

constexpr int64_t kSize = 3 * 8192 + 1537;

// Ranges that cover [0, size), in a random order, all beginning at multiples of `unit`: empty ones,
// of single units, and long ones of elements.
std::vector<std::pair<int64_t, int64_t>> RandomRanges(int64_t size, int64_t unit,
                                                      std::mt19937& random) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t begin = 0; begin < size;) {
    const int64_t lengths[] = {0, 1, 33, 2048, 9001};
    const int64_t end = std::min(size, begin + lengths[random() % (unit == 1 ? 5 : 2)] * unit);
    ranges.emplace_back(begin, end);
    begin = end;
  }
  std::shuffle(ranges.begin(), ranges.end(), random);
  return ranges;
}

// Calls run(stream, random, how) on every SIMD target, with one thread behind the stream.
template <typename Run>
void OnEveryTarget(const Run& run) {
  SimdTargets restore;
  const CpuRun cpu = OnCpu(1);
  for (const SimdTarget target : SimdTargets::All()) {
    SetSimdTarget(target);
    std::mt19937 random(17);
    run(*cpu.stream, random, "SIMD target " + std::to_string(static_cast<int>(target)));
  }
}

struct Update {
  explicit Update(std::mt19937& random) {
    for (GuardedArray<float>* array : {&param, &first, &second}) FillTypical(*array, random);
    for (int64_t i = 0; i < kSize; ++i) second[i] = std::fabs(second[i]);
    FillTypical(grad, random, 100.0f);
  }
  GuardedArray<float> param{kSize, 3}, first{kSize, 0}, second{kSize, 1};
  GuardedArray<BFloat16> grad{kSize, 5};
  GuardedArray<Half> copy{kSize, 2};
};

void ExpectSame(const Update& whole, const Update& cut, const std::string& how) {
  EXPECT_TRUE(Matches(cut.param, Values(whole.param))) << how << ", param";
  EXPECT_TRUE(Matches(cut.first, Values(whole.first))) << how << ", first state";
  EXPECT_TRUE(Matches(cut.second, Values(whole.second))) << how << ", second state";
  EXPECT_TRUE(Matches(cut.copy, Values(whole.copy))) << how << ", copy";
}

const StepState kState = [] {
  StepState state = {};
  state.step = 1;
  state.grad_multiplier = 0.0123f;
  return state;
}();
const GroupStep kGroupStep = {1e-3f, 3.7e-3f, 18.3f};

TEST(RangesTest, AdamGivesTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    Update whole(random);
    Update cut = whole;
    const AdamGroup group = {.weight_decay = 0.1};
    AdamOptions options;
    options.grad_dtype = precision::DType::kBFloat16;
    options.copy_dtype = precision::DType::kFloat16;
    options.groups = {&group, 1};
    options.state = &kState;
    options.group_steps = &kGroupStep;
    const auto segment = [](Update& u) -> AdamSegment {
      return {
          u.param.data(), u.first.data(), u.second.data(), u.grad.data(), u.copy.data(), kSize, 0};
    };
    const AdamSegment all = segment(whole);
    ASSERT_OK(Adam({&all, 1}, options, stream));
    ASSERT_OK(stream.Synchronize());
    const AdamParameters parameters = MakeAdamParameters(options);
    for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
      EXPECT_EQ((AdamRange<BFloat16, Half>(segment(cut), parameters, begin, end)),
                StepError::kNone);
    }
    ExpectSame(whole, cut, how);
  });
}

TEST(RangesTest, SgdGivesTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    Update whole(random);
    Update cut = whole;
    const SgdGroup group = {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
    SgdOptions options;
    options.grad_dtype = precision::DType::kBFloat16;
    options.copy_dtype = precision::DType::kFloat16;
    options.groups = {&group, 1};
    options.state = &kState;
    options.group_steps = &kGroupStep;
    const auto segment = [](Update& u) -> SgdSegment {
      return {u.param.data(), u.first.data(), u.grad.data(), u.copy.data(), kSize, 0};
    };
    const SgdSegment all = segment(whole);
    ASSERT_OK(Sgd({&all, 1}, options, stream));
    ASSERT_OK(stream.Synchronize());
    const SgdParameters parameters = MakeSgdParameters(options);
    for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
      EXPECT_EQ((SgdRange<BFloat16, Half>(segment(cut), parameters, begin, end)), StepError::kNone);
    }
    ExpectSame(whole, cut, how);
  });
}

TEST(RangesTest, LionGivesTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    Update whole(random);
    Update cut = whole;
    const LionGroup group = {.weight_decay = 0.1};
    LionOptions options;
    options.grad_dtype = precision::DType::kBFloat16;
    options.copy_dtype = precision::DType::kFloat16;
    options.groups = {&group, 1};
    options.state = &kState;
    options.group_steps = &kGroupStep;
    const auto segment = [](Update& u) -> LionSegment {
      return {u.param.data(), u.first.data(), u.grad.data(), u.copy.data(), kSize, 0};
    };
    const LionSegment all = segment(whole);
    ASSERT_OK(Lion({&all, 1}, options, stream));
    ASSERT_OK(stream.Synchronize());
    const LionParameters parameters = MakeLionParameters(options);
    for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
      EXPECT_EQ((LionRange<BFloat16, Half>(segment(cut), parameters, begin, end)),
                StepError::kNone);
    }
    ExpectSame(whole, cut, how);
  });
}

TEST(RangesTest, MuonsMomentaAndParametersAreTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    Update whole(random);
    Update cut = whole;
    const MuonGroup group;
    MuonOptions options;
    options.grad_dtype = precision::DType::kBFloat16;
    options.copy_dtype = precision::DType::kFloat16;
    options.groups = {&group, 1};
    options.state = &kState;
    options.group_steps = &kGroupStep;
    const auto momentum = [](Update& u) -> MuonMomentumSegment {
      return {u.first.data(), u.second.data(), u.grad.data(), nullptr, kSize, 0};
    };
    const auto param = [](Update& u) -> MuonParamSegment {
      return {u.param.data(), u.second.data(), u.copy.data(), kSize, 0, 0.5f, 3.0f};
    };
    const MuonMomentumSegment all_momenta = momentum(whole);
    const MuonParamSegment all_params = param(whole);
    ASSERT_OK(MuonMomentum({&all_momenta, 1}, options, stream));
    ASSERT_OK(MuonParams({&all_params, 1}, options, stream));
    ASSERT_OK(stream.Synchronize());
    const MuonParameters parameters = MakeMuonParameters(options);
    for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
      EXPECT_EQ(MuonMomentumRange<BFloat16>(momentum(cut), parameters, begin, end),
                StepError::kNone);
    }
    for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
      EXPECT_EQ(MuonParamRange<Half>(param(cut), parameters, begin, end), StepError::kNone);
    }
    ExpectSame(whole, cut, how);
  });
}

// The parts of MuonOrthogonalize, each cut and in a random order.
TEST(RangesTest, MuonsMatricesAreTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{301, 267}, {131, 701}}) {
      const int64_t workspace_size = MuonWorkspaceSize(rows, columns);
      GuardedArray<float> whole(rows * columns, 3), of_whole(workspace_size, 2);
      FillTypical(whole, random);
      GuardedArray<float> cut = whole, of_cut(workspace_size, 2);
      const MuonMatrix all = {whole.data(), of_whole.data(), rows, columns};
      const MuonMatrix m = {cut.data(), of_cut.data(), rows, columns};
      const MuonOrthogonalizeOptions options;
      ASSERT_OK(MuonOrthogonalize({&all, 1}, options, stream));
      ASSERT_OK(stream.Synchronize());

      const MuonWorkspace w = MuonWorkspaceOf(rows, columns);
      ASSERT_GE(MuonTiles(rows * columns), 2);
      for (const auto& [begin, end] : RandomRanges(MuonTiles(rows * columns), 1, random)) {
        MuonSumTiles(m, begin, end);
      }
      for (const auto& [begin, end] : RandomRanges(w.tall, 1, random)) {
        MuonNormalizeRows(m, options.eps, begin, end);
      }
      for (int step = 0; step < options.steps; ++step) {
        for (int i = 0; i < kMuonProducts; ++i) {
          const MuonProduct product =
              MuonProductOf(i, w, m.workspace, step % 2 != 0, options.coefficients);
          for (const auto& [begin, end] : RandomRanges(MuonBlocks(product), 1, random)) {
            MuonProductBlocks(product, begin, end);
          }
        }
      }
      for (const auto& [begin, end] : RandomRanges(rows, 1, random)) {
        MuonRestoreRows(m, options.steps % 2 != 0, begin, end);
      }
      EXPECT_TRUE(Matches(cut, Values(whole))) << how << ", " << rows << " x " << columns;
    }
  });
}

// The parts of AdafactorFactors, each cut and in a random order, and the parameters; of a matrix,
// and of what is none.
TEST(RangesTest, AdafactorGivesTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{341, 76}, {1, 25'913}}) {
      const int64_t size = rows * columns, factors = AdafactorFactorCount(rows, columns);
      ASSERT_LE(size, kSize);
      const int64_t workspace_size = AdafactorWorkspaceSize(rows, columns);
      struct State {
        Update u;
        GuardedArray<float> factors, scales;
        GuardedArray<double> workspace;
      };
      State whole = {Update(random), GuardedArray<float>(factors, 1),
                     GuardedArray<float>(kAdafactorNumbers + factors, 1),
                     GuardedArray<double>(workspace_size, 0)};
      for (int64_t i = 0; i < factors; ++i) {
        whole.factors[i] = 0.01f * static_cast<float>(i % 7 + 1);
      }
      for (int64_t i = 0; i < kAdafactorNumbers + factors; ++i) whole.scales[i] = 0.0f;
      for (int64_t i = 0; i < workspace_size; ++i) whole.workspace[i] = 0.0;
      State cut = whole;
      const AdafactorGroup group = {.beta1 = 0.9, .weight_decay = 0.1};
      AdafactorOptions options;
      options.grad_dtype = precision::DType::kBFloat16;
      options.copy_dtype = precision::DType::kFloat16;
      options.groups = {&group, 1};
      options.state = &kState;
      options.group_steps = &kGroupStep;
      const auto tensor = [&, rows = rows, columns = columns](State& x) -> AdafactorTensor {
        return {x.u.param.data(),
                x.u.grad.data(),
                x.factors.data(),
                x.scales.data(),
                x.workspace.data(),
                rows,
                columns,
                0};
      };
      const auto segment = [&, rows = rows, columns = columns](State& x) -> AdafactorSegment {
        return {x.u.param.data(),
                x.u.first.data(),
                x.u.grad.data(),
                x.u.copy.data(),
                size,
                x.scales.data(),
                rows,
                columns,
                0,
                0};
      };
      const AdafactorTensor all = tensor(whole), t = tensor(cut);
      const AdafactorSegment all_params = segment(whole);
      ASSERT_OK(AdafactorFactors({&all, 1}, options, stream));
      ASSERT_OK(AdafactorParams({&all_params, 1}, options, stream));
      ASSERT_OK(stream.Synchronize());

      const AdafactorParameters parameters = MakeAdafactorParameters(options);
      const AdafactorGrid g = AdafactorGridOf(rows, columns);
      ASSERT_GE(g.down, 2);
      for (const auto& [begin, end] : RandomRanges(g.down, 1, random)) {
        AdafactorSumTiles<BFloat16>(t, parameters, begin, end);
      }
      if (g.is_matrix) {
        for (const auto& [begin, end] : RandomRanges(rows, 1, random)) {
          AdafactorRows(t, parameters, begin, end);
        }
        for (const auto& [begin, end] : RandomRanges(columns, 1, random)) {
          AdafactorColumns(t, parameters, begin, end);
        }
        AdafactorMeans(t);
        for (const auto& [begin, end] : RandomRanges(g.down, 1, random)) {
          AdafactorUpdateTiles<BFloat16>(t, parameters, begin, end);
        }
      }
      AdafactorNumbers(t, parameters);
      for (const auto& [begin, end] : RandomRanges(size, 1, random)) {
        EXPECT_EQ((AdafactorParamRange<BFloat16, Half>(segment(cut), parameters, begin, end)),
                  StepError::kNone);
      }
      EXPECT_TRUE(Matches(cut.factors, Values(whole.factors))) << how << ", factors";
      EXPECT_TRUE(Matches(cut.scales, Values(whole.scales))) << how << ", scales";
      ExpectSame(whole.u, cut.u, how);
    }
  });
}

// Freeze and Moments are cut between tiles, as their sums are; what goes to the wire anywhere.
TEST(RangesTest, OneBitLambGivesTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    struct State {
      Update u;
      GuardedArray<float> fresh{kSize, 1}, message{kSize, 2};
      std::vector<OneBitLambSums> frozen, sums;
    };
    constexpr int64_t kTiles = (kSize + kLambTile - 1) / kLambTile;
    State whole = {.u = Update(random),
                   .frozen = std::vector<OneBitLambSums>(kTiles),
                   .sums = std::vector<OneBitLambSums>(kTiles)};
    State cut = whole;
    const LambGroup group = {.weight_decay = 0.1};
    LambOptions options;
    options.grad_dtype = precision::DType::kBFloat16;
    options.groups = {&group, 1};
    options.state = &kState;
    options.group_steps = &kGroupStep;
    const auto segment = [](State& x) -> OneBitLambSegment {
      return {x.u.param.data(),
              x.u.first.data(),
              x.u.second.data(),
              x.fresh.data(),
              x.message.data(),
              kSize,
              0,
              0,
              0};
    };
    const auto message = [](State& x) -> OneBitLambMessage {
      return {x.u.first.data(), x.u.grad.data(), x.message.data(), kSize, 0, 0};
    };
    const OneBitLambSegment all = segment(whole), part = segment(cut);
    const OneBitLambMessage all_sent = message(whole), sent = message(cut);
    const OneBitLambNumbers unfrozen = {}, numbers = {.ratio = 0.5f, .scale = 3.0f, .factor = 1.0f};
    ASSERT_OK(OneBitLambFreeze({&all, 1}, {&unfrozen, 1}, absl::MakeSpan(whole.frozen), stream));
    ASSERT_OK(OneBitLambSend({&all_sent, 1}, options, {&numbers, 1}, stream));
    ASSERT_OK(OneBitLambReceive({&all_sent, 1}, {&numbers, 1}, stream));
    ASSERT_OK(OneBitLambMoments({&all, 1}, options, absl::MakeSpan(whole.sums), stream));
    ASSERT_OK(stream.Synchronize());

    const LambParameters parameters = MakeLambParameters(options);
    for (const auto& [begin, end] : RandomRanges(kSize, kLambTile, random)) {
      OneBitLambFreezeRange(part, begin, end, cut.frozen.data());
    }
    for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
      EXPECT_EQ(OneBitLambSendRange<BFloat16>(sent, parameters, numbers.scale, begin, end),
                StepError::kNone);
    }
    for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
      OneBitLambReceiveRange(sent, numbers.scale, begin, end);
    }
    for (const auto& [begin, end] : RandomRanges(kSize, kLambTile, random)) {
      EXPECT_EQ(OneBitLambMomentsRange(part, parameters, begin, end, cut.sums.data()),
                StepError::kNone);
    }
    EXPECT_TRUE(Matches(cut.message, Values(whole.message))) << how << ", message";
    EXPECT_TRUE(Matches(cut.fresh, Values(whole.fresh))) << how << ", fresh";
    ExpectSame(whole.u, cut.u, how);
    for (size_t tile = 0; tile < kTiles; ++tile) {
      EXPECT_EQ(cut.frozen[tile].update, whole.frozen[tile].update) << how << tile;
      EXPECT_EQ(cut.sums[tile].direction, whole.sums[tile].direction) << how << tile;
      EXPECT_EQ(cut.sums[tile].update, whole.sums[tile].update) << how << tile;
      EXPECT_EQ(cut.sums[tile].quotient, whole.sums[tile].quotient) << how << tile;
    }
  });
}

TEST(RangesTest, ZeroOneAdamGivesTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    Update whole(random);
    for (int64_t i = 0; i < kSize; i += 3) whole.second[i] = 0.0f;
    Update cut = whole;
    ZeroOneNumbers numbers = {};
    numbers.inverse = 0.37f;
    // What is masked in place is divided, and taken.
    const ZeroOneMask mask = {whole.second.data(), whole.first.data(), kSize};
    const ZeroOneMessage message = {whole.first.data(), kSize, 0};
    const ZeroOneCopy copy = {whole.first.data(), whole.param.data(), kSize};
    ASSERT_OK(ZeroOneAdamMask({&mask, 1}, stream));
    ASSERT_OK(ZeroOneAdamReceive({&message, 1}, {&numbers, 1}, stream));
    ASSERT_OK(ZeroOneAdamTake({&copy, 1}, &kState, stream));
    ASSERT_OK(stream.Synchronize());
    const auto run = [&](const auto& operation, const auto& segment) {
      for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
        ZeroOneElementsRange(operation, segment, begin, end);
      }
    };
    run(ZeroOneMaskOperation(), ZeroOneMask{cut.second.data(), cut.first.data(), kSize});
    run(ZeroOneReceiveOperation{&numbers}, ZeroOneMessage{cut.first.data(), kSize, 0});
    run(ZeroOneTakeOperation{&kState}, ZeroOneCopy{cut.first.data(), cut.param.data(), kSize});
    ExpectSame(whole, cut, how);
  });
}

TEST(RangesTest, CastGivesTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    GuardedArray<float> source(kSize, 1);
    GuardedArray<BFloat16> before(kSize, 3);
    FillTypical(source, random);
    FillTypical(before, random);
    const float scale = 0.37f;
    for (const bool accumulate : {false, true}) {
      for (const bool past_caches : {false, true}) {
        GuardedArray<BFloat16> whole = before, cut = before;
        const CastSegment all = {source.data(), whole.data(), kSize};
        ASSERT_OK(Cast(
            {&all, 1},
            {precision::DType::kFloat32, precision::DType::kBFloat16, &scale, accumulate}, stream));
        ASSERT_OK(stream.Synchronize());
        const CastSegment segment = {source.data(), cut.data(), kSize};
        for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
          CastRange<float, BFloat16>(segment, &scale, accumulate, past_caches, begin, end);
        }
        NontemporalStoreFence();
        EXPECT_TRUE(Matches(cut, Values(whole))) << how << accumulate << past_caches;
      }
    }
  });
}

TEST(RangesTest, FillGivesTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    for (const bool past_caches : {false, true}) {
      GuardedArray<Half> whole(kSize, 3), cut(kSize, 3);
      const FillSegment all = {whole.data(), kSize};
      ASSERT_OK(Fill({&all, 1}, precision::DType::kFloat16, 1.25, stream));
      ASSERT_OK(stream.Synchronize());
      for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
        FillRange({cut.data(), kSize}, MakeFillPattern(Half(1.25f)), sizeof(Half), past_caches,
                  begin, end);
      }
      NontemporalStoreFence();
      EXPECT_TRUE(Matches(cut, Values(whole))) << how << past_caches;
    }
  });
}

TEST(RangesTest, AmaxGivesTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    GuardedArray<Half> array(kSize, 1);
    FillTypical(array, random);
    array[kSize - 1] = Half(-60000.0f);  // the last range decides
    const float scale = 3.0f;
    AmaxWorkspace workspace;
    AmaxResult whole;
    ASSERT_OK(Amax(array.data(), kSize, {precision::DType::kFloat16, &scale}, &workspace, &whole,
                   stream));
    ASSERT_OK(stream.Synchronize());
    int32_t bits = AmaxRange(array.data(), scale, 0, 0);
    EXPECT_EQ(bits, 0);
    for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
      bits = LargerBits(bits, AmaxRange(array.data(), scale, begin, end));
    }
    EXPECT_TRUE(SameBits(AmaxOf(bits).value, whole.value)) << how;
    EXPECT_EQ(AmaxOf(bits).non_finite, whole.non_finite);
  });
}

TEST(RangesTest, DigestGivesTheSameSumsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    GuardedArray<Half> array(kSize, 1);
    FillTypical(array, random);
    const DigestSegment segment = {array.data(), 2 * kSize, 66, 34, 340, 0};
    TensorDigest whole = {};
    ASSERT_OK(Digest({segment}, {&whole, 1}, stream));
    ASSERT_OK(stream.Synchronize());
    TensorDigest sum = DigestRange(segment, 0, 0);
    for (const auto& [begin, end] : RandomRanges(2 * kSize, 1, random)) {
      const TensorDigest part = DigestRange(segment, begin, end);
      for (int w = 0; w < 2; ++w) sum.words[w] += part.words[w];
    }
    for (int w = 0; w < 2; ++w) EXPECT_EQ(sum.words[w], whole.words[w]) << how;
  });
}

TEST(RangesTest, BlockQuantGivesTheSameBytesForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    GuardedArray<BFloat16> array(kSize, 3);
    for (int64_t i = 0; i < kSize; ++i) array[i] = BFloat16(static_cast<float>(i * 77 % 509));
    for (const QuantFormat format : {QuantFormat::kInt8, QuantFormat::kInt4}) {
      for (const auto& [past_caches, offset] : {std::pair(false, 0), {true, 0}, {true, 3}}) {
        // No copies, whose addresses are others.
        GuardedArray<uint8_t> whole(QuantBytes(kSize, format), 0), cut(whole.size(), 0);
        const QuantizeSegment all = {array.data(), whole.data(), kSize};
        ASSERT_OK(BlockQuantize({&all, 1}, {precision::DType::kBFloat16, format}, stream));
        ASSERT_OK(stream.Synchronize());
        GuardedArray<BFloat16> back(kSize, offset), back_cut(kSize, offset);
        const DequantizeSegment again = {whole.data(), back.data(), kSize};
        ASSERT_OK(BlockDequantize({&again, 1}, {precision::DType::kBFloat16, format}, stream));
        ASSERT_OK(stream.Synchronize());
        for (const auto& [begin, end] : RandomRanges(kSize, kQuantBlock, random)) {
          BlockQuantizeRange<BFloat16>({array.data(), cut.data(), kSize}, format, past_caches,
                                       begin, end);
          BlockDequantizeRange<BFloat16>({whole.data(), back_cut.data(), kSize}, format,
                                         past_caches, begin, end);
        }
        NontemporalStoreFence();
        EXPECT_TRUE(std::equal(cut.data(), cut.data() + cut.size(), whole.data()))
            << how << past_caches;
        EXPECT_TRUE(cut.GuardsAreIntact());
        EXPECT_TRUE(Matches(back_cut, Values(back))) << how << past_caches << offset;
      }
    }
  });
}

TEST(RangesTest, DequantReduceGivesTheSameBytesForAnyCut) {
  constexpr auto kInt8 = QuantFormat::kInt8;
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    const int64_t bytes = QuantBytes(kSize, kInt8);
    GuardedArray<uint8_t> messages(3 * bytes, 0);
    for (int64_t i = 0; i < 3 * kSize; ++i) {
      messages[i / kSize * bytes + QuantCodesBegin(kSize) + i % kSize] =
          static_cast<uint8_t>(random() % 255 + 129);
    }
    for (int64_t rank = 0; rank < 3; ++rank) {
      float* const maxima = reinterpret_cast<float*>(messages.data() + rank * bytes);
      for (int64_t i = 0; i < QuantBlocks(kSize); ++i) maxima[i] = static_cast<float>(rank + i % 7);
    }
    DequantReduceOptions options = {kInt8, {3, bytes, 0.3f}};
    options.target_format = QuantFormat::kInt4;
    for (const bool past_caches : {false, true}) {
      GuardedArray<uint8_t> whole(QuantBytes(kSize, QuantFormat::kInt4), 0), cut(whole.size(), 0);
      const DequantReduceSegment all = {messages.data(), whole.data(), kSize};
      ASSERT_OK(DequantReduce({&all, 1}, options, stream));
      GuardedArray<float> array(kSize, 3), array_cut(kSize, 3);
      const DequantReduceSegment to_array = {messages.data(), array.data(), kSize};
      ASSERT_OK(DequantReduce({&to_array, 1}, {kInt8, options.parameters}, stream));
      ASSERT_OK(stream.Synchronize());
      for (const auto& [begin, end] : RandomRanges(kSize, kQuantBlock, random)) {
        DequantReduceRange<Int4Message>({messages.data(), cut.data(), kSize}, kInt8,
                                        options.parameters, past_caches, begin, end);
        DequantReduceRange<float>({messages.data(), array_cut.data(), kSize}, kInt8,
                                  options.parameters, past_caches, begin, end);
      }
      NontemporalStoreFence();
      EXPECT_TRUE(std::equal(cut.data(), cut.data() + cut.size(), whole.data())) << how;
      EXPECT_TRUE(Matches(array_cut, Values(array))) << how << past_caches;
    }
  });
}

TEST(RangesTest, LocoQuantGivesTheSameBytesForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    GuardedArray<Half> array(kSize, 3);
    for (int64_t i = 0; i < kSize; ++i) array[i] = Half(static_cast<float>(i * 77 % 509));
    for (const QuantFormat format : {QuantFormat::kInt8, QuantFormat::kInt4}) {
      GuardedArray<uint8_t> whole(QuantBytes(kSize, format), 0), cut(whole.size(), 0);
      GuardedArray<uint8_t> error(QuantBytes(kSize, kLocoErrors), 0), error_cut(error.size(), 0);
      const LocoSegment all = {array.data(), error.data(), whole.data(), kSize};
      const LocoSegment part = {array.data(), error_cut.data(), cut.data(), kSize};
      for (int step = 0; step < 3; ++step) {
        const LocoQuantOptions options = {precision::DType::kFloat16, format, {}};
        ASSERT_OK(LocoQuantize({&all, 1}, options, stream));
        ASSERT_OK(stream.Synchronize());
        for (const auto& [begin, end] : RandomRanges(kSize, kQuantBlock, random)) {
          LocoQuantizeRange<Half>(part, format, options.parameters, begin, end);
        }
        EXPECT_TRUE(std::equal(cut.data(), cut.data() + cut.size(), whole.data())) << how;
        EXPECT_TRUE(std::equal(error_cut.data(), error_cut.data() + error_cut.size(), error.data()))
            << how;
        EXPECT_TRUE(cut.GuardsAreIntact() && error_cut.GuardsAreIntact()) << how;
      }
    }
  });
}

TEST(RangesTest, SignPackGivesTheSameBytesForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    GuardedArray<BFloat16> array(kSize, 3);
    GuardedArray<float> error(kSize, 1);
    for (int64_t i = 0; i < kSize; ++i) array[i] = BFloat16(static_cast<float>(i * 77 % 509) - 250);
    for (int64_t i = 0; i < kSize; ++i) error[i] = static_cast<float>(i % 11) - 5;
    GuardedArray<float> error_cut = error;
    GuardedArray<uint8_t> whole(SignBytes(kSize), 0), cut(whole.size(), 0);
    const SignPackSegment all = {array.data(), error.data(), whole.data(), kSize};
    std::vector<double> workspace(SignPackWorkspaceSize({&all, 1}));
    float scale;
    ASSERT_OK(SignPack({&all, 1}, {precision::DType::kBFloat16}, absl::MakeSpan(workspace), &scale,
                       stream));
    ASSERT_OK(stream.Synchronize());
    const SignPackSegment part = {array.data(), error_cut.data(), cut.data(), kSize};
    std::vector<double> sums(workspace.size());
    for (const auto& [begin, end] : RandomRanges(kSize, kGradTile, random)) {
      SignTileSumsRange<BFloat16>(part, begin, end, sums.data());
    }
    EXPECT_EQ(SignScale(GradCheckFinishCpu(sums.data(), 4), kSize), scale) << how;
    for (const auto& [begin, end] : RandomRanges(kSize, kSignLine, random)) {
      SignPackRange<BFloat16>(part, scale, begin, end);
    }
    EXPECT_TRUE(std::equal(cut.data(), cut.data() + cut.size(), whole.data())) << how;
    EXPECT_TRUE(Matches(error_cut, Values(error))) << how;
    for (const auto& [past_caches, offset] : {std::pair(false, 0), {true, 0}, {true, 3}}) {
      GuardedArray<Half> back(kSize, offset), back_cut(kSize, offset);
      const SignUnpackSegment again = {whole.data(), back.data(), kSize};
      ASSERT_OK(SignUnpack({&again, 1}, {precision::DType::kFloat16, {}}, stream));
      ASSERT_OK(stream.Synchronize());
      for (const auto& [begin, end] : RandomRanges(kSize, kSignLine, random)) {
        SignUnpackRange<Half>({whole.data(), back_cut.data(), kSize}, {}, past_caches, begin, end);
      }
      NontemporalStoreFence();
      EXPECT_TRUE(Matches(back_cut, Values(back))) << how << past_caches << offset;
    }
  });
}

TEST(RangesTest, ReduceGivesTheSameBitsForAnyCut) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    std::vector<GuardedArray<BFloat16>> arrays(6, GuardedArray<BFloat16>(kSize, 1));
    std::vector<const void*> sources;
    for (auto& array : arrays) {
      FillTypical(array, random);
      sources.push_back(array.data());
    }
    // The second target's lines lie like the first one's, or differently.
    for (const auto& [past_caches, offset] : {std::pair(false, 4), {true, 4}, {true, 3}}) {
      GuardedArray<BFloat16> whole(kSize, 3), cut(kSize, 3), second(kSize, offset);
      void* all = whole.data();
      ASSERT_OK(Reduce(sources, {&all, 1}, kSize,
                       {precision::DType::kBFloat16, ReduceOp::kSum, nullptr}, stream));
      ASSERT_OK(stream.Synchronize());
      void* const targets[] = {cut.data(), second.data()};
      const ReduceLists lists = {sources.data(), 6, targets, 2, {}};
      for (const auto& [begin, end] : RandomRanges(kSize, 1, random)) {
        ReduceRange<BFloat16>(lists, ReduceOp::kSum, past_caches, begin, end);
      }
      NontemporalStoreFence();
      EXPECT_TRUE(Matches(cut, Values(whole))) << how << past_caches;
      EXPECT_TRUE(Matches(second, Values(whole))) << how << past_caches;
    }
  });
}

TEST(RangesTest, GradCheckGivesTheSameBitsForAnyCutAtTiles) {
  OnEveryTarget([&](device::Stream& stream, std::mt19937& random, const std::string& how) {
    GuardedArray<Half> grad(kSize, 1);
    FillTypical(grad, random);
    const GradSegment segment = {grad.data(), kSize};
    const int64_t tiles = GradCheckWorkspaceSize({&segment, 1});
    ASSERT_EQ(tiles, 4);
    std::vector<double> workspace(4), sums(4, -1.0);
    GradStats whole;
    ASSERT_OK(GradCheck({&segment, 1}, precision::DType::kFloat16, absl::MakeSpan(workspace),
                        &whole, stream));
    ASSERT_OK(stream.Synchronize());
    for (const auto& [begin, end] : RandomRanges(kSize, kGradTile, random)) {
      GradTileSumsRange<Half>(segment, begin, end, sums.data());
    }
    const GradStats cut = GradCheckFinishCpu(sums.data(), tiles);
    EXPECT_EQ(cut.sum_of_squares, whole.sum_of_squares) << how;
    EXPECT_EQ(cut.all_finite, whole.all_finite);
  });
}

}  // namespace
}  // namespace brigade::kernels
