// The results of every kernel's CPU loop, written down as one number a type. Other tests compare
// with the specification, which the same compiler translates for the same processor; these numbers
// bind all compilers, processors and SIMD targets to each other.
//
// A number changes only when a contract does. The message of the failing test has the new one.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "brigade/kernels/adafactor/adafactor_cpu.h"
#include "brigade/kernels/adafactor/adafactor_parameters.h"
#include "brigade/kernels/adam/adam_cpu.h"
#include "brigade/kernels/adam/adam_parameters.h"
#include "brigade/kernels/adam8/adam8_cpu.h"
#include "brigade/kernels/amax/amax_cpu.h"
#include "brigade/kernels/block_quant/block_quant_cpu.h"
#include "brigade/kernels/cast/cast_cpu.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce_cpu.h"
#include "brigade/kernels/digest/digest_cpu.h"
#include "brigade/kernels/fill/fill_cpu.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/grad_check/grad_check_cpu.h"
#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/kernels/lamb/lamb_parameters.h"
#include "brigade/kernels/lion/lion_cpu.h"
#include "brigade/kernels/lion/lion_parameters.h"
#include "brigade/kernels/loco_quant/loco_quant_cpu.h"
#include "brigade/kernels/muon/muon_cpu.h"
#include "brigade/kernels/muon/muon_parameters.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cpu.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_parameters.h"
#include "brigade/kernels/orthogonalize/orthogonalize_cpu.h"
#include "brigade/kernels/reduce/reduce_cpu.h"
#include "brigade/kernels/sgd/sgd_cpu.h"
#include "brigade/kernels/sgd/sgd_parameters.h"
#include "brigade/kernels/sign_pack/sign_pack_cpu.h"
#include "brigade/kernels/step_control/step_control_math.h"
#include "brigade/kernels/step_control/step_control_parameters.h"
#include "brigade/kernels/top_k/top_k_cpu.h"
#include "brigade/kernels/update_types.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_cpu.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/kernels/testing.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::BFloat16;
using precision::Half;

// Three tiles of grad_check's and a rest.
constexpr int64_t kSize = 3 * 8192 + 1537;

// Inputs by integers and exact operations alone: distributions of the standard library differ
// between libraries, and so does what they call.
class Inputs {
 public:
  template <typename T>
  T Next() {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(random_());
    } else {
      return T(NextFloat());
    }
  }

  template <typename T>
  std::vector<T> Array() {
    std::vector<T> array;
    for (int64_t i = 0; i < kSize; ++i) array.push_back(Next<T>());
    return array;
  }

 private:
  // Mostly within [-1, 1]; one of 16 is a zero, one of any magnitude, subnormal ones included.
  float NextFloat() {
    const float fraction = (static_cast<int32_t>(random_() >> 7) - (1 << 24)) * 0x1p-24f;
    const uint32_t kind = random_() % 16;
    if (kind == 0) return std::copysign(0.0f, fraction);
    return kind == 1 ? std::ldexp(fraction, static_cast<int>(random_() % 190) - 145) : fraction;
  }

  std::mt19937 random_{17};
};

// FNV-1a, 64 bits, of the bytes in the order of memory.
class Digest {
 public:
  template <typename T>
  void Add(const T& value) {
    T plain = value;
    if constexpr (!std::is_integral_v<T>) {
      // Payloads of NaN are not promised.
      if (std::isnan(static_cast<double>(static_cast<float>(value)))) {
        plain = T(std::numeric_limits<float>::quiet_NaN());
      }
    }
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &plain, sizeof(T));
    for (const unsigned char byte : bytes) hash_ = (hash_ ^ byte) * 0x100000001b3u;
  }

  template <typename T>
  void Add(const std::vector<T>& array) {
    for (const T& value : array) Add(value);
  }

  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

template <typename T>
constexpr const char* kName = nullptr;
template <>
constexpr const char* kName<NoCopy> = "none";
template <>
constexpr const char* kName<float> = "fp32";
template <>
constexpr const char* kName<Half> = "fp16";
template <>
constexpr const char* kName<BFloat16> = "bf16";
template <>
constexpr const char* kName<double> = "fp64";
template <>
constexpr const char* kName<int32_t> = "int32";
template <>
constexpr const char* kName<int64_t> = "int64";
template <>
constexpr const char* kName<uint8_t> = "uint8";

std::string Pair(const std::string& from, const std::string& to) { return from + " to " + to; }

using Known = std::map<std::string, uint64_t>;

// Calls add(digest) on every SIMD target and compares.
template <typename Add>
void ExpectKnown(const Known& known, const std::string& name, const Add& add) {
  SimdTargets restore;
  for (const SimdTarget target : SimdTargets::All()) {
    SetSimdTarget(target);
    Digest digest;
    add(digest);
    const auto wanted = known.find(name);
    EXPECT_EQ(digest.value(), wanted == known.end() ? 0 : wanted->second)
        << "SIMD target " << static_cast<int>(target) << ": {\"" << name << "\", 0x" << std::hex
        << digest.value() << "},";
  }
}

// Where one infinity would make a sum of all elements infinite, and the result NaN everywhere.
template <typename T>
std::vector<T> WithoutInfinities(const T* from) {
  std::vector<T> array(from, from + kSize);
  for (T& x : array) {
    if (!std::isfinite(static_cast<float>(x))) x = T(0.5f);
  }
  return array;
}

constexpr float kLearningRate = 3e-4f;

// Calls range(param, first, second, grad, copy, step), an update of the whole arrays, for three
// steps in a row: the first, one within a training, and one whose corrections are nearly 1.
template <typename Grad, typename Copy, typename Range>
void AddUpdates(Digest& digest, const Range& range) {
  using Stored = std::conditional_t<std::is_same_v<Copy, NoCopy>, Half, Copy>;
  Inputs inputs;
  auto param = inputs.Array<float>();
  auto first = inputs.Array<float>();
  auto second = inputs.Array<float>();
  for (float& value : second) value = std::fabs(value);
  std::vector<Stored> copy(kSize);
  for (const int64_t step : {1, 137, 1000000}) {
    const auto grad = inputs.Array<Grad>();
    ASSERT_EQ(range(param.data(), first.data(), second.data(), grad.data(), copy.data(), step),
              StepError::kNone);
  }
  digest.Add(param);
  digest.Add(first);
  digest.Add(second);
  digest.Add(copy);
}

template <typename Grad, typename Copy>
void ExpectAdam(const Known& known, WeightDecayMode mode, const std::string& mode_name) {
  ExpectKnown(known, Pair(kName<Grad>, kName<Copy>) + mode_name, [&](Digest& digest) {
    const AdamGroup group = {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
    AddUpdates<Grad, Copy>(digest, [&](float* param, float* first, float* second, const void* grad,
                                       void* copy, int64_t step) {
      const OneStep one = {.step = step, .lr = &kLearningRate, .grad_multiplier = 0.37f};
      const AdamSegment segment = {param, first, second, grad, copy, kSize, 0};
      return AdamRange<Grad, Copy>(segment, MakeAdamParameters(&group, 1, mode, one), 0, kSize);
    });
  });
}

TEST(KnownBitsTest, Adam) {
  const Known known = {
      {"fp32 to none, decoupled", 0x043414bf37b87cca},
      {"fp32 to none, coupled", 0xe6d463005773244f},
      {"fp32 to fp16, decoupled", 0xfa51515558d009a3},
      {"fp32 to fp16, coupled", 0x84e9e2868aba6061},
      {"fp32 to bf16, decoupled", 0x09839d815cb47b44},
      {"fp32 to bf16, coupled", 0x476395c93af7e1a2},
      {"fp16 to none, decoupled", 0x9fa2a7bac24347b6},
      {"fp16 to none, coupled", 0xf43218a455b79e7d},
      {"fp16 to fp16, decoupled", 0xe04107920481f06f},
      {"fp16 to fp16, coupled", 0x0828d953892d0c51},
      {"fp16 to bf16, decoupled", 0xc3411f95b671c8c0},
      {"fp16 to bf16, coupled", 0xd5fb430610daeeaf},
      {"bf16 to none, decoupled", 0xe06b36c286303cc0},
      {"bf16 to none, coupled", 0x35bc668c47ab3bf0},
      {"bf16 to fp16, decoupled", 0xe8d2546213620b3b},
      {"bf16 to fp16, coupled", 0x863c24ebb69f68f6},
      {"bf16 to bf16, decoupled", 0x2027d9c08b5ff2d0},
      {"bf16 to bf16, coupled", 0x98caa413e47d03fd},
  };
#define BRIGADE_EXPECT(Grad, Copy)                                           \
  ExpectAdam<Grad, Copy>(known, WeightDecayMode::kDecoupled, ", decoupled"); \
  ExpectAdam<Grad, Copy>(known, WeightDecayMode::kCoupled, ", coupled");
  BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_EXPECT)
#undef BRIGADE_EXPECT
}

// The codes of both moments are the first array's bytes, their scales the second array.
template <typename Grad, typename Copy>
void ExpectAdam8(const Known& known) {
  ExpectKnown(known, Pair(kName<Grad>, kName<Copy>), [&](Digest& digest) {
    const AdamGroup group = {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
    AddUpdates<Grad, Copy>(digest, [&](float* param, float* first, float* second, const void* grad,
                                       void* copy, int64_t step) {
      const OneStep one = {.step = step, .lr = &kLearningRate, .grad_multiplier = 0.37f};
      auto* const codes = reinterpret_cast<uint8_t*>(first);
      const Adam8Segment segment = {
          param, codes, codes + kSize, second, second + MomentBlocks(kSize), grad, copy, kSize, 0};
      return Adam8Range<Grad, Copy>(
          segment, MakeAdamParameters(&group, 1, WeightDecayMode::kDecoupled, one), 0, kSize);
    });
  });
}

TEST(KnownBitsTest, Adam8) {
  const Known known = {
      {"fp32 to none", 0x6afd7c6ed1726c02}, {"fp32 to fp16", 0x8fbe11f3b925fc68},
      {"fp32 to bf16", 0xb1f855a2ced98ac4}, {"fp16 to none", 0x2009236df826a67e},
      {"fp16 to fp16", 0xb6e98f6ebdcb21cf}, {"fp16 to bf16", 0xab83062ff08c6d0a},
      {"bf16 to none", 0x580994d5ffa105d3}, {"bf16 to fp16", 0xd9d3973633d38c4a},
      {"bf16 to bf16", 0xbe42ca5ade0d5e2},
  };
#define BRIGADE_EXPECT(Grad, Copy) ExpectAdam8<Grad, Copy>(known);
  BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_EXPECT)
#undef BRIGADE_EXPECT
}

template <typename Grad, typename Copy>
void ExpectSgd(const Known& known, const SgdGroup& group, WeightDecayMode mode,
               const std::string& kind) {
  ExpectKnown(known, Pair(kName<Grad>, kName<Copy>) + kind, [&](Digest& digest) {
    AddUpdates<Grad, Copy>(digest, [&](float* param, float* first, float*, const void* grad,
                                       void* copy, int64_t step) {
      const OneStep one = {.step = step, .lr = &kLearningRate, .grad_multiplier = 0.37f};
      const SgdSegment segment = {param, first, grad, copy, kSize, 0};
      return SgdRange<Grad, Copy>(segment, MakeSgdParameters(&group, 1, mode, one), 0, kSize);
    });
  });
}

TEST(KnownBitsTest, Sgd) {
  const Known known = {
      {"fp32 to none", 0x45e7b189c2ecd5c7},
      {"fp32 to none, momentum", 0x8e69002588118fe2},
      {"fp32 to none, Nesterov", 0xee29817ff54c4174},
      {"fp32 to fp16", 0xf156336b7babc407},
      {"fp32 to fp16, momentum", 0x5f2e71f2b003e542},
      {"fp32 to fp16, Nesterov", 0x1fbab62cd16bcb39},
      {"fp32 to bf16", 0x92497d89c37d085c},
      {"fp32 to bf16, momentum", 0xe599e87c32ac9b38},
      {"fp32 to bf16, Nesterov", 0x5a6de1b3dca19ba7},
      {"fp16 to none", 0xfeba8ec399f474b4},
      {"fp16 to none, momentum", 0xfa52e6d0af3620f8},
      {"fp16 to none, Nesterov", 0xb93c65951660bee8},
      {"fp16 to fp16", 0x29190114868e453a},
      {"fp16 to fp16, momentum", 0x2e4c554565b5fd59},
      {"fp16 to fp16, Nesterov", 0x67777d87d95080e9},
      {"fp16 to bf16", 0x967aaacbae451408},
      {"fp16 to bf16, momentum", 0x6f15489db18c1df2},
      {"fp16 to bf16, Nesterov", 0x107bf0d036227a96},
      {"bf16 to none", 0xa10ba228813e2ca6},
      {"bf16 to none, momentum", 0x7c11859f63fbe1d7},
      {"bf16 to none, Nesterov", 0xe9d4123daa53a1ef},
      {"bf16 to fp16", 0x9453cdf957c153fc},
      {"bf16 to fp16, momentum", 0x58f5f5e9e75ea56b},
      {"bf16 to fp16, Nesterov", 0x43556d513673a652},
      {"bf16 to bf16", 0x915cb88bf5386bd9},
      {"bf16 to bf16, momentum", 0x2499448bc36fd0ac},
      {"bf16 to bf16, Nesterov", 0xc48eeb9d67a54227},
  };
  const SgdGroup plain = {.weight_decay = 0.1};
  const SgdGroup damped = {.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1};
  const SgdGroup nesterov = {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
#define BRIGADE_EXPECT(Grad, Copy)                                               \
  ExpectSgd<Grad, Copy>(known, plain, WeightDecayMode::kDecoupled, "");          \
  ExpectSgd<Grad, Copy>(known, damped, WeightDecayMode::kCoupled, ", momentum"); \
  ExpectSgd<Grad, Copy>(known, nesterov, WeightDecayMode::kDecoupled, ", Nesterov");
  BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_EXPECT)
#undef BRIGADE_EXPECT
}

template <typename Grad, typename Copy>
void ExpectLion(const Known& known) {
  ExpectKnown(known, Pair(kName<Grad>, kName<Copy>), [&](Digest& digest) {
    const LionGroup group = {.beta1 = 0.9, .beta2 = 0.98, .weight_decay = 0.1};
    AddUpdates<Grad, Copy>(digest, [&](float* param, float* first, float*, const void* grad,
                                       void* copy, int64_t step) {
      const OneStep one = {.step = step, .lr = &kLearningRate, .grad_multiplier = 0.37f};
      const LionSegment segment = {param, first, grad, copy, kSize, 0};
      return LionRange<Grad, Copy>(segment, MakeLionParameters(&group, 1, one), 0, kSize);
    });
  });
}

TEST(KnownBitsTest, Lion) {
  const Known known = {
      {"fp32 to none", 0x5edf67fe22709fb3}, {"fp32 to fp16", 0xeea55bc6d745444e},
      {"fp32 to bf16", 0x0e61cdb753819c9f}, {"fp16 to none", 0xd70eb4cf213846a1},
      {"fp16 to fp16", 0xa83a6f316b013d1a}, {"fp16 to bf16", 0x1549fd4060af1e2a},
      {"bf16 to none", 0x84bbc0613077a91e}, {"bf16 to fp16", 0x67c9a444dec678c7},
      {"bf16 to bf16", 0x526eda752b78409c},
  };
#define BRIGADE_EXPECT(Grad, Copy) ExpectLion<Grad, Copy>(known);
  BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_EXPECT)
#undef BRIGADE_EXPECT
}

// Of a matrix, whose factors are the first of the second array. One infinity makes NaN of all.
template <typename Grad, typename Copy>
void ExpectAdafactor(const Known& known) {
  constexpr int64_t kRows = 97, kColumns = 269, kElements = kRows * kColumns;
  static_assert(kElements < kSize);
  ExpectKnown(known, Pair(kName<Grad>, kName<Copy>), [&](Digest& digest) {
    const AdafactorGroup group = {.beta1 = 0.9, .weight_decay = 0.1};
    std::vector<float> scales(kAdafactorNumbers + AdafactorFactorCount(kRows, kColumns));
    std::vector<double> workspace(AdafactorWorkspaceSize(kRows, kColumns));
    AddUpdates<Grad, Copy>(digest, [&](float* param, float* first, float* second, const void* raw,
                                       void* copy, int64_t step) {
      std::vector<Grad> grad(static_cast<const Grad*>(raw), static_cast<const Grad*>(raw) + kSize);
      for (Grad& g : grad) {
        if (!(std::fabs(static_cast<float>(g)) < 1e4f)) g = Grad(1.0f);
      }
      const OneStep one = {.step = step, .lr = &kLearningRate, .grad_multiplier = 0.37f};
      const AdafactorParameters parameters =
          MakeAdafactorParameters(&group, 1, AdafactorSettings(), one);
      const AdafactorTensor tensor = {param, grad.data(), second, scales.data(), workspace.data(),
                                      kRows, kColumns,    0};
      const StepError error = AdafactorFactorsOf<Grad>(tensor, parameters);
      if (error != StepError::kNone) return error;
      const AdafactorSegment segment = {param,         first, grad.data(), copy, kElements,
                                        scales.data(), kRows, kColumns,    0,    0};
      return AdafactorParamRange<Grad, Copy>(segment, parameters, 0, kElements);
    });
    digest.Add(scales);
  });
}

TEST(KnownBitsTest, Adafactor) {
  const Known known = {
      {"fp32 to none", 0x63817cbc5cbc2bcf}, {"fp32 to fp16", 0x5e84048b298ad273},
      {"fp32 to bf16", 0xb922e84f99f22966}, {"fp16 to none", 0x0b173d73eaa3ceb0},
      {"fp16 to fp16", 0x5b386f768c402684}, {"fp16 to bf16", 0xa311d777c4857eac},
      {"bf16 to none", 0x6aea1e638fdb15a9}, {"bf16 to fp16", 0xf399223b204e7925},
      {"bf16 to bf16", 0x8eb0a80cea5dfc93},
  };
#define BRIGADE_EXPECT(Grad, Copy) ExpectAdafactor<Grad, Copy>(known);
  BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_EXPECT)
#undef BRIGADE_EXPECT
}

template <typename Grad, typename Copy>
void ExpectLamb(const Known& known) {
  ExpectKnown(known, "lamb " + Pair(kName<Grad>, kName<Copy>), [&](Digest& digest) {
    const LambGroup group = {.weight_decay = 0.1, .max_trust = 0.5};
    std::vector<LambSums> tiles((kSize + kLambTile - 1) / kLambTile);
    AddUpdates<Grad, Copy>(digest, [&](float* param, float* first, float* second, const void* grad,
                                       void* copy, int64_t step) {
      const OneStep one = {.step = step, .lr = &kLearningRate, .grad_multiplier = 0.37f};
      const auto finite = WithoutInfinities(static_cast<const Grad*>(grad));
      const LambSegment segment = {param, first, second, finite.data(), copy, kSize, 0};
      const LambParameters parameters = MakeLambParameters(&group, 1, one);
      const StepError error = LambMomentsRange<Grad>(segment, parameters, 0, kSize, tiles.data());
      if (error != StepError::kNone) return error;
      const float trust = LambTrustOf(segment, parameters, tiles.data());
      digest.Add(trust);
      return LambParamRange<Copy>(segment, parameters, trust, 0, kSize);
    });
  });
}

// No element that is all of a matrix's norm.
template <typename T>
std::vector<T> Limited(const T* from) {
  std::vector<T> array(from, from + kSize);
  for (T& x : array) {
    if (!(std::fabs(static_cast<float>(x)) <= 1.0f)) x = T(0.5f);
  }
  return array;
}

// Momentum, a matrix of it made orthogonal in the workspace, and the parameter. The matrix is tall
// or wide, and its extents end within a tile of a product.
template <typename Grad, typename Copy>
void ExpectMuon(const Known& known, bool tall) {
  const std::string shape = tall ? ", tall" : ", wide";
  ExpectKnown(known, Pair(kName<Grad>, kName<Copy>) + shape, [&](Digest& digest) {
    const MuonGroup group = {.nesterov = tall};
    const int64_t rows = tall ? 301 : 67, columns = tall ? 67 : 301;
    std::vector<float> update(kSize), workspace(MuonWorkspaceSize(rows, columns));
    const MuonMatrix matrix = {update.data(), workspace.data(), rows, columns};
    AddUpdates<Grad, Copy>(digest, [&](float* param, float* first, float*, const void* grad,
                                       void* copy, int64_t step) {
      const OneStep one = {.step = step, .lr = &kLearningRate, .grad_multiplier = 0.37f};
      const MuonParameters parameters = MakeMuonParameters(&group, 1, one);
      const auto limited = Limited(static_cast<const Grad*>(grad));
      if (step == 1) std::ranges::copy(Limited(first), first);
      const MuonMomentumSegment momentum = {first,   update.data(), limited.data(),
                                            nullptr, kSize,         0};
      const StepError error = MuonMomentumRange<Grad>(momentum, parameters, 0, kSize);
      if (error != StepError::kNone) return error;
      MuonOrthogonalizeMatrix(matrix, 5, MuonCoefficients(), 1e-7);
      digest.Add(update);
      const float scale = MuonScaleOf(MuonScale::kMatchRmsAdamW, rows, columns);
      const MuonParamSegment segment = {param, update.data(), copy, kSize, 0, 0.5f, scale};
      return MuonParamRange<Copy>(segment, parameters, 0, kSize);
    });
  });
}

TEST(KnownBitsTest, Muon) {
  const Known known = {
      {"fp32 to none, wide", 0xe58388838fe6d53b}, {"fp32 to none, tall", 0x9b0070019720b4ce},
      {"fp32 to fp16, wide", 0x45538e5548eed74b}, {"fp32 to fp16, tall", 0x796b320dde2584a9},
      {"fp32 to bf16, wide", 0x2981f4166c0cd23d}, {"fp32 to bf16, tall", 0x404565c23b8060ab},
      {"fp16 to none, wide", 0x6b5f1a110edc7530}, {"fp16 to none, tall", 0xd07a021fde0136cb},
      {"fp16 to fp16, wide", 0x0b6f31494968b165}, {"fp16 to fp16, tall", 0xcbcbafa9497bf787},
      {"fp16 to bf16, wide", 0xb49a5a25ec644f6a}, {"fp16 to bf16, tall", 0x5a3d2d891c815dd0},
      {"bf16 to none, wide", 0xd943aab639a17f63}, {"bf16 to none, tall", 0xe3692cede3fb44fe},
      {"bf16 to fp16, wide", 0xe0398458f448a4be}, {"bf16 to fp16, tall", 0x9e2de40e51cead4b},
      {"bf16 to bf16, wide", 0x3bc1b344ada251dd}, {"bf16 to bf16, tall", 0x536d92e53a04ab10},
  };
#define BRIGADE_EXPECT(Grad, Copy)      \
  ExpectMuon<Grad, Copy>(known, false); \
  ExpectMuon<Grad, Copy>(known, true);
  BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_EXPECT)
#undef BRIGADE_EXPECT
}

// A step of one rank whose message loses nothing but what its type rounds.
template <typename Grad>
void ExpectOneBitLamb(const Known& known) {
  ExpectKnown(known, std::string("1-bit lamb ") + kName<Grad>, [&](Digest& digest) {
    Inputs inputs;
    const std::vector<float> param = inputs.Array<float>();
    std::vector<float> m = inputs.Array<float>(), v = inputs.Array<float>();
    for (float& moment : v) moment = std::abs(moment);
    const std::vector<Grad> grad = WithoutInfinities(inputs.Array<Grad>().data());
    std::vector<float> fresh(kSize), message(kSize);
    const int64_t count = (kSize + kLambTile - 1) / kLambTile;
    std::vector<OneBitLambSums> sums(count);
    const LambGroup group = {.weight_decay = 0.1};
    const OneStep one = {.step = 3, .lr = &kLearningRate, .grad_multiplier = 0.37f};
    const LambParameters parameters = MakeLambParameters(&group, 1, one);
    const OneBitLambSegment segment = {
        param.data(), m.data(), v.data(), fresh.data(), message.data(), kSize, 0, 0, 0};
    const OneBitLambMessage own = {m.data(), grad.data(), message.data(), kSize, 0, 0};
    const LambTensor tensor = {
        .first = 0, .count = count, .offset = 0, .part = count, .stride = count, .group = 0};

    OneBitLambFreezeRange(segment, 0, kSize, sums.data());
    const double rms = OneBitLambRootMeanSquare(tensor, kSize, sums.data());
    const float scale = OneBitLambScale(3.0, 2, rms);
    ASSERT_EQ(OneBitLambSendRange<Grad>(own, parameters, scale, 0, kSize), StepError::kNone);
    digest.Add(message);
    OneBitLambReceiveRange(own, scale, 0, kSize);
    ASSERT_EQ(OneBitLambMomentsRange(segment, parameters, 0, kSize, sums.data()), StepError::kNone);
    const OneBitLambSums of_tensor = OneBitLambSumsOf(tensor, sums.data());
    digest.Add(scale);
    digest.Add(OneBitLambFactor(MakeOneBitLambConstants({}), 0.1f, of_tensor, 1.0f));
    for (const double sum : {of_tensor.direction, of_tensor.update, of_tensor.quotient}) {
      digest.Add(sum);
    }
    for (const auto* array : {&m, &fresh}) digest.Add(*array);
  });
}

void ExpectZeroOneAdam(const Known& known) {
  ExpectKnown(known, "0/1 adam", [&](Digest& digest) {
    Inputs inputs;
    const std::vector<float> second_moment = inputs.Array<float>();
    std::vector<float> gradient = inputs.Array<float>(), taken = inputs.Array<float>();
    StepState state = {};
    state.step = 3;
    state.grad_multiplier = 0.37f;
    const GroupStep step = {kLearningRate, 0.0f, 1.0f};
    const float betas[] = {0.9f, 0.1f};
    ZeroOneNumbers numbers = {};
    GroupStep meeting = {};
    for (const auto call : {ZeroOneCall::kLocal, ZeroOneCall::kSend, ZeroOneCall::kMeet}) {
      ASSERT_EQ(CountRates({call, 1, &state, &step, betas, &numbers, &meeting}), StepError::kNone);
      for (const float number : {numbers.rates, numbers.of_moment, numbers.of_gradient,
                                 numbers.inverse, numbers.moved, meeting.lr}) {
        digest.Add(number);
      }
    }
    ZeroOneElementsRange(ZeroOneMaskOperation(), {second_moment.data(), gradient.data(), kSize}, 0,
                         kSize);
    digest.Add(gradient);
    ZeroOneElementsRange(ZeroOneReceiveOperation{&numbers}, {gradient.data(), kSize, 0}, 0, kSize);
    digest.Add(gradient);
    ZeroOneElementsRange(ZeroOneTakeOperation{&state}, {gradient.data(), taken.data(), kSize / 2},
                         0, kSize / 2);
    digest.Add(taken);
  });
}

// The steps of PowerSGD on a matrix, after each other.
void ExpectLowRank(const Known& known, int32_t rank) {
  ExpectKnown(known, "low rank " + std::to_string(rank), [&](Digest& digest) {
    constexpr int64_t kRows = 301, kColumns = 67;
    Inputs inputs;
    const std::vector<float> source = inputs.Array<float>();
    std::vector<float> matrix(source.begin(), source.begin() + kRows * kColumns);
    std::vector<float> q(source.end() - kColumns * rank, source.end());
    std::vector<float> p(kRows * rank), product(kRows * kColumns);
    std::vector<float> workspace(LowRankWorkspaceSize(kRows, kColumns, rank));
    const LowRankSegment segment = {matrix.data(),    p.data(), q.data(), product.data(),
                                    workspace.data(), kRows,    kColumns, rank};
    LowRankRowsRange(segment, /*past_caches=*/false, 0, kRows);
    OrthogonalizeMatrix({p.data(), kRows, rank}, 1e-8);
    LowRankTilesRange(segment, /*past_caches=*/false, 0, kRows);
    LowRankColumnsFinish(segment);
    LowRankRestoreRange(segment, false, 0, kRows);
    for (const auto* array : {&p, &q, &product, &matrix}) digest.Add(*array);
  });
}

template <typename T>
void ExpectTopK(const Known& known) {
  ExpectKnown(known, std::string("top ") + kName<T>, [&](Digest& digest) {
    Inputs inputs;
    auto array = inputs.Array<T>();
    std::vector<T> values(1000);
    std::vector<int32_t> indices(1000);
    std::vector<uint32_t> workspace(TopKWorkspaceSize(kSize));
    TopKArray<T>({array.data(), values.data(), indices.data(), workspace.data(), kSize, 1000},
                 true);
    digest.Add(array);
    digest.Add(values);
    digest.Add(indices);
  });
}

TEST(KnownBitsTest, LambLowRankAndTopK) {
  const Known known = {
      {"lamb fp32 to none", 0xe6b7250fd2ca7572}, {"lamb fp32 to fp16", 0x1d5f0f5815efc4fb},
      {"lamb fp32 to bf16", 0xe28f043db68a24b3}, {"lamb fp16 to none", 0x23408849f482be0a},
      {"lamb fp16 to fp16", 0x9c744405dee3c98a}, {"lamb fp16 to bf16", 0xb87309e665f7ac4e},
      {"lamb bf16 to none", 0xcbf87bdf30664c22}, {"lamb bf16 to fp16", 0x195caab4dbc5e349},
      {"lamb bf16 to bf16", 0xfa2bf83890ce2c3b}, {"low rank 3", 0x2ec5a127b812fdf7},
      {"low rank 8", 0xd0cc451026d183e5},        {"top fp32", 0x9b89e7d546edd0b3},
      {"top fp16", 0xd06b621bb09bf3b0},          {"top bf16", 0xbe3fc4804bbd330e},
  };
#define BRIGADE_EXPECT(Grad, Copy) ExpectLamb<Grad, Copy>(known);
  BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_EXPECT)
#undef BRIGADE_EXPECT
  ExpectLowRank(known, 3);
  ExpectLowRank(known, 8);
  ExpectTopK<float>(known);
  ExpectTopK<Half>(known);
  ExpectTopK<BFloat16>(known);
}

TEST(KnownBitsTest, OneBitLambAndZeroOneAdam) {
  const Known known = {
      {"1-bit lamb fp32", 0x0ef9b7a752e040f9},
      {"1-bit lamb fp16", 0xf33947413e70cc46},
      {"1-bit lamb bf16", 0x067684dc26f9d4bc},
      {"0/1 adam", 0x034c98583af5a936},
  };
  ExpectOneBitLamb<float>(known);
  ExpectOneBitLamb<Half>(known);
  ExpectOneBitLamb<BFloat16>(known);
  ExpectZeroOneAdam(known);
}

template <typename Source, typename Target>
void ExpectCast(const Known& known) {
  ExpectKnown(known, Pair(kName<Source>, kName<Target>), [&](Digest& digest) {
    const float scale = 0.37f;
    for (const bool accumulate : {false, true}) {
      Inputs inputs;
      auto source = inputs.Array<Source>();
      auto target = inputs.Array<Target>();
      CastRange<Source, Target>({source.data(), target.data(), kSize}, &scale, accumulate, false, 0,
                                kSize);
      digest.Add(target);
    }
  });
}

TEST(KnownBitsTest, Cast) {
  const Known known = {
      {"fp32 to fp32", 0x669ba11ac2f610ff}, {"fp32 to fp16", 0x3d4d88959f917f01},
      {"fp32 to bf16", 0x16018e37aec033de}, {"fp16 to fp32", 0xac72f252f0198615},
      {"fp16 to fp16", 0x241599e5ab8bc024}, {"fp16 to bf16", 0x8846a02cb17cb8cf},
      {"bf16 to fp32", 0x8fefcc1939438920}, {"bf16 to fp16", 0x3f45a74306a48fbc},
      {"bf16 to bf16", 0x3d79578d6e0a5e3e},
  };
#define BRIGADE_EXPECT(Source, Target) ExpectCast<Source, Target>(known);
  BRIGADE_FOR_EACH_CAST_TYPE(BRIGADE_EXPECT)
#undef BRIGADE_EXPECT
}

template <typename T>
void ExpectFill(const Known& known, T value) {
  ExpectKnown(known, kName<T>, [&](Digest& digest) {
    for (const bool past_caches : {false, true}) {
      std::vector<T> array(kSize);
      FillRange({array.data(), kSize}, MakeFillPattern(value), sizeof(T), past_caches, 0, kSize);
      digest.Add(array);
    }
  });
}

// Not from a run: of as many equal elements.
TEST(KnownBitsTest, Fill) {
  const Known known = {
      {"fp32", 0xf626ac3121aa7299},  {"fp16", 0x51eb39e494c810b5},  {"bf16", 0x836219fa512d70a9},
      {"int64", 0xf74394d42867e305}, {"uint8", 0x6b93557a0c5a70df},
  };
  ExpectFill<float>(known, 0.37f);
  ExpectFill<Half>(known, Half(0.37f));
  ExpectFill<BFloat16>(known, BFloat16(0.37f));
  ExpectFill<int64_t>(known, 0x0123456789abcdef);
  ExpectFill<uint8_t>(known, 0xa5);
}

// A message in both formats, and what comes back.
template <typename T>
void ExpectBlockQuant(const Known& known) {
  for (const QuantFormat format : {QuantFormat::kInt8, QuantFormat::kInt4}) {
    const std::string name = Pair(kName<T>, Name(format)) + " and back";
    ExpectKnown(known, name, [&](Digest& digest) {
      Inputs inputs;
      auto array = inputs.Array<T>();
      // All magnitudes, but not in every block.
      for (int64_t i = 0; i < kSize; ++i) {
        if (i % 512 < 256 && !(std::fabs(static_cast<float>(array[i])) <= 1.0f)) array[i] = T(0.5f);
      }
      std::vector<uint8_t> memory(QuantBytes(kSize, format) + kQuantAlignment);
      const auto begin = reinterpret_cast<uintptr_t>(memory.data());
      uint8_t* const message = memory.data() + (kQuantAlignment - begin % kQuantAlignment);
      BlockQuantizeRange<T>({array.data(), message, kSize}, format, false, 0, kSize);
      for (int64_t i = 0; i < QuantBytes(kSize, format); ++i) digest.Add(message[i]);
      BlockDequantizeRange<T>({message, array.data(), kSize}, format, false, 0, kSize);
      digest.Add(array);
    });
  }
}

TEST(KnownBitsTest, BlockQuant) {
  const Known known = {
      {"fp32 to int8 and back", 0x86d4619d1da2b9b0}, {"fp32 to int4 and back", 0xdc47a3faa03c8b23},
      {"fp16 to int8 and back", 0xa1930904e2e16c11}, {"fp16 to int4 and back", 0xbca1fb5e30ed8626},
      {"bf16 to int8 and back", 0xf6ad035d2597bfd2}, {"bf16 to int4 and back", 0x1dd6be4943738fff},
  };
  ExpectBlockQuant<float>(known);
  ExpectBlockQuant<Half>(known);
  ExpectBlockQuant<BFloat16>(known);
}

// The mean of the messages of seven ranks, in both formats: to an array, or to a message.
template <typename Target>
void ExpectDequantReduce(const Known& known, const std::string& to) {
  for (const QuantFormat format : {QuantFormat::kInt8, QuantFormat::kInt4}) {
    ExpectKnown(known, Pair(Name(format), to), [&](Digest& digest) {
      constexpr int64_t kRanks = 7;
      const int64_t stride = QuantBytes(kSize, format);
      std::vector<uint8_t> memory((kRanks + 1) * QuantBytes(kSize, QuantFormat::kInt8) +
                                  kQuantAlignment);
      const auto address = reinterpret_cast<uintptr_t>(memory.data());
      uint8_t* const messages = memory.data() + (kQuantAlignment - address % kQuantAlignment);
      Inputs inputs;
      for (int64_t rank = 0; rank < kRanks; ++rank) {
        auto array = inputs.Array<float>();
        // All magnitudes, but not in every block.
        for (int64_t i = 0; i < kSize; ++i) {
          if (i % 512 < 256 && !(std::fabs(array[i]) <= 1.0f)) array[i] = 0.5f;
        }
        BlockQuantizeRange<float>({array.data(), messages + rank * stride, kSize}, format, false, 0,
                                  kSize);
      }
      DequantReduceParameters parameters = {kRanks, stride, 1.0f / kRanks};
      if constexpr (kIsMessage<Target>) {
        uint8_t* const sum = messages + kRanks * stride;
        DequantReduceRange<Target>({messages, sum, kSize}, format, parameters, false, 0, kSize);
        for (int64_t i = 0; i < QuantBytes(kSize, Target::kTargetFormat); ++i) digest.Add(sum[i]);
      } else {
        // One rank, as many as are added without a loop, and more.
        for (const int64_t ranks : {1, 3, 4, 7}) {
          parameters.ranks = ranks;
          std::vector<Target> sum(kSize);
          DequantReduceRange<Target>({messages, sum.data(), kSize}, format, parameters, false, 0,
                                     kSize);
          digest.Add(sum);
        }
      }
    });
  }
}

TEST(KnownBitsTest, DequantReduce) {
  const Known known = {
      {"int8 to fp32", 0xa2cb545ff780c6bf},
      {"int4 to fp32", 0x92b220f0c4fd2696},
      {"int8 to fp16", 0x9bf6a64d708b38ab},
      {"int4 to fp16", 0x95830e0e19656a14},
      {"int8 to bf16", 0xaba76c7a28868306},
      {"int4 to bf16", 0x9170f73f704046ed},
      {"int8 to a message of int8", 0x8b070b919e44b062},
      {"int4 to a message of int8", 0x60338f58040a3c63},
      {"int8 to a message of int4", 0x3983eca5016bb3ab},
      {"int4 to a message of int4", 0xc78d307e6e5ac69e},
  };
  ExpectDequantReduce<float>(known, "fp32");
  ExpectDequantReduce<Half>(known, "fp16");
  ExpectDequantReduce<BFloat16>(known, "bf16");
  ExpectDequantReduce<Int8Message>(known, "a message of int8");
  ExpectDequantReduce<Int4Message>(known, "a message of int4");
}

// Four steps of error feedback, of which the third forgets errors.
template <typename T>
void ExpectLocoQuant(const Known& known) {
  for (const QuantFormat format : {QuantFormat::kInt8, QuantFormat::kInt4}) {
    ExpectKnown(known, Pair(kName<T>, Name(format)), [&](Digest& digest) {
      Inputs inputs;
      const auto aligned = [](std::vector<uint8_t>& memory, int64_t bytes) {
        memory.resize(bytes + kQuantAlignment);
        const auto begin = reinterpret_cast<uintptr_t>(memory.data());
        return memory.data() + (kQuantAlignment - begin % kQuantAlignment);
      };
      std::vector<uint8_t> of_errors, of_message;
      uint8_t* const error = aligned(of_errors, QuantBytes(kSize, kLocoErrors));
      uint8_t* const message = aligned(of_message, QuantBytes(kSize, format));
      LocoParameters parameters;
      for (int step = 0; step < 4; ++step) {
        auto array = inputs.Array<T>();
        // All magnitudes, but not in every block.
        for (int64_t i = 0; i < kSize; ++i) {
          if (i % 512 < 256 && !(std::fabs(static_cast<float>(array[i])) <= 1.0f)) {
            array[i] = T(0.5f);
          }
        }
        parameters.forget = step == 2;
        LocoQuantizeRange<T>({array.data(), error, message, kSize}, format, parameters, 0, kSize);
        for (int64_t i = 0; i < QuantBytes(kSize, format); ++i) digest.Add(message[i]);
      }
      for (int64_t i = 0; i < QuantBytes(kSize, kLocoErrors); ++i) digest.Add(error[i]);
    });
  }
}

TEST(KnownBitsTest, LocoQuant) {
  const Known known = {
      {"fp32 to int8", 0x853af6bc223c37c7}, {"fp32 to int4", 0x47b9b4ceea9f5930},
      {"fp16 to int8", 0x62589f6819bdeec6}, {"fp16 to int4", 0x41cbf6101a4f9745},
      {"bf16 to int8", 0x6596ed1c26b3816d}, {"bf16 to int4", 0x0ee9dbbaee4d5c71},
  };
  ExpectLocoQuant<float>(known);
  ExpectLocoQuant<Half>(known);
  ExpectLocoQuant<BFloat16>(known);
}

// Three steps of error feedback, and what comes back.
template <typename T>
void ExpectSignPack(const Known& known) {
  ExpectKnown(known, kName<T>, [&](Digest& digest) {
    Inputs inputs;
    std::vector<float> error(kSize);
    std::vector<uint8_t> memory(SignBytes(kSize) + kSignAlignment);
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    uint8_t* const message = memory.data() + (kSignAlignment - begin % kSignAlignment);
    for (int step = 0; step < 3; ++step) {
      auto array = inputs.Array<T>();
      // No magnitude that is all of the norm.
      for (T& x : array) {
        if (!(std::fabs(static_cast<float>(x)) <= 1.0f)) x = T(0.5f);
      }
      const SignPackSegment segment = {array.data(), error.data(), message, kSize};
      std::vector<double> sums((kSize + kGradTile - 1) / kGradTile);
      SignTileSumsRange<T>(segment, 0, kSize, sums.data());
      const auto stats = GradCheckFinishCpu(sums.data(), static_cast<int64_t>(sums.size()));
      SignPackRange<T>(segment, SignScale(stats, kSize), 0, kSize);
      for (int64_t i = 0; i < SignBytes(kSize); ++i) digest.Add(message[i]);
      SignUnpackRange<T>({message, array.data(), kSize}, {1, 0, 0.37f}, false, 0, kSize);
      digest.Add(array);
    }
    digest.Add(error);
  });
}

TEST(KnownBitsTest, SignPack) {
  const Known known = {
      {"fp32", 0x3cad696b4b8a1ded},
      {"fp16", 0x5f2c19965ff8dae9},
      {"bf16", 0x5fbfdfa6f636f40f},
  };
  ExpectSignPack<float>(known);
  ExpectSignPack<Half>(known);
  ExpectSignPack<BFloat16>(known);
}

template <typename T>
void ExpectReduce(const Known& known) {
  ExpectKnown(known, kName<T>, [&](Digest& digest) {
    Inputs inputs;
    std::vector<std::vector<T>> arrays;
    std::vector<const void*> sources;
    for (int i = 0; i < 5; ++i) {
      arrays.push_back(inputs.Array<T>());
      sources.push_back(arrays.back().data());
    }
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<T> target(kSize);
      void* const targets[] = {target.data()};
      ReduceRange<T>({sources.data(), 5, targets, 1, {}}, op, false, 0, kSize);
      digest.Add(target);
    }
  });
}

TEST(KnownBitsTest, Reduce) {
  const Known known = {
      {"fp32", 0x713807a5b42f8e3b},  {"fp16", 0x4c76d2cd1fe8f35a},  {"bf16", 0x1bd812046a8854c7},
      {"fp64", 0xac6c5551bc011338},  {"int32", 0xe0c0db286c41d635}, {"int64", 0xc3ed6091a1a3f735},
      {"uint8", 0xf70981192d60dd61},
  };
#define BRIGADE_EXPECT(T) ExpectReduce<T>(known);
  BRIGADE_FOR_EACH_REDUCE_TYPE(BRIGADE_EXPECT)
#undef BRIGADE_EXPECT
}

// The sums of tiles, the whole sum and the largest magnitude.
template <typename T>
void ExpectStatistics(const Known& known) {
  ExpectKnown(known, kName<T>, [&](Digest& digest) {
    Inputs inputs;
    const auto array = inputs.Array<T>();
    const GradSegment segment = {array.data(), kSize};
    std::vector<double> sums(GradCheckWorkspaceSize({&segment, 1}));
    GradTileSumsRange<T>(segment, 0, kSize, sums.data());
    digest.Add(sums);
    const GradStats stats = GradCheckFinishCpu(sums.data(), static_cast<int64_t>(sums.size()));
    digest.Add(stats.sum_of_squares);
    digest.Add(stats.all_finite);
    digest.Add(AmaxRange<T>(array.data(), 3.0f, 0, kSize));
  });
}

TEST(KnownBitsTest, GradCheckAndAmax) {
  const Known known = {
      {"fp32", 0x2ac553fdc03c7bde},
      {"fp16", 0xf773ca5ce893bf95},
      {"bf16", 0xd8b7c6cf0ce007dc},
  };
  ExpectStatistics<float>(known);
  ExpectStatistics<Half>(known);
  ExpectStatistics<BFloat16>(known);
}

// The whole array, columns of it, and a range at odd places.
TEST(KnownBitsTest, Digest) {
  const Known known = {
      {"digest", 0x6d6462621802a1c7},
  };
  ExpectKnown(known, "digest", [](Digest& digest) {
    Inputs inputs;
    const auto array = inputs.Array<Half>();
    const DigestSegment segments[] = {{array.data(), 2 * kSize, 0, 0, 0, 0},
                                      {array.data(), 2 * kSize, 24, 48, 192, 0},
                                      {array.data(), 2 * kSize, 6, 0, 0, 0}};
    for (const DigestSegment& segment : segments) {
      for (const uint64_t sum : DigestRange(segment, 6, 2 * kSize - 2).words) digest.Add(sum);
    }
  });
}

// 200 decisions, of which some overflow.
TEST(KnownBitsTest, StepControl) {
  const Known known = {
      {"decisions", 0x6d9e16beabb2ada0},
  };
  ExpectKnown(known, "decisions", [](Digest& digest) {
    Inputs inputs;
    const StepBetas betas = {.beta1 = 0.9, .beta2 = 0.999};
    LossScaleOptions options;
    options.window = 7;
    StepParameters parameters = MakeStepParameters(options, &betas, 1);
    GradStats stats = {};
    StepState state = InitialStepState(options);
    GroupStep group = {};
    std::vector<float> rates(64);
    for (float& rate : rates) rate = std::fabs(inputs.Next<float>());
    parameters.stats = &stats;
    parameters.ranks = 1;
    parameters.state = &state;
    parameters.group_steps = &group;
    parameters.lr_table = rates.data();
    parameters.lr_table_size = static_cast<int64_t>(rates.size());
    parameters.max_grad_norm = 1.0;
    for (int i = 0; i < 200; ++i) {
      stats.all_finite = i % 17 == 3 ? 0 : 1;
      stats.sum_of_squares =
          stats.all_finite == 0 ? HUGE_VAL : std::fabs(inputs.Next<float>()) * 0x1p40;
      DecideStep(parameters);
      DecideGroup(parameters, 0);
      digest.Add(state.loss_scale);
      digest.Add(state.grad_norm);
      digest.Add(state.grad_multiplier);
      digest.Add(state.step);
      digest.Add(state.skip);
      digest.Add(group.lr);
      digest.Add(group.step_size);
      digest.Add(group.inv_sqrt_correction);
    }
  });
}

}  // namespace
}  // namespace brigade::kernels
