#include "brigade/parallel/tensor/linear.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/reduce/reduce.h"
#include "brigade/nn/pointwise.h"
#include "brigade/tests/parallel/tensor/sharded_mlp.h"
#include "brigade/tests/parallel/tensor/tensor_lab.h"
#include "brigade/tests/spec/parallel.h"
#include "gmock/gmock.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
class TensorLinearTest : public ::testing::Test {
 protected:
  // Unequal, and rows that eight ranks share.
  static constexpr Mlp kMlp = {.rows = 16, .inputs = 24, .hidden = 48, .outputs = 20};

  static bool IsSkipped() { return kOnGpu && sizeof(T) == 8; }

  static Values<T> Random(const Mlp& mlp) { return RandomValues<T>(mlp); }
};
using Types = ::testing::Types<float, Half, BFloat16, double>;
TYPED_TEST_SUITE(TensorLinearTest, Types);

// x = (1, 2), A = (1 0; 0 1; 1 1; 1 -1), B = (1 2 3 4): partial sums 5 + 5, gradients (1, 2) +
// (7, -1).
TYPED_TEST(TensorLinearTest, GivesTheKnownAnswerOnAnyRanks) {
  using T = TypeParam;
  if (this->IsSkipped()) GTEST_SKIP() << "products of doubles are for the CPU";
  const Mlp mlp = {.rows = 1, .inputs = 2, .hidden = 4, .outputs = 1, .gelu = false};
  const auto of = [](std::initializer_list<float> values) {
    std::vector<T> result;
    for (const float value : values) result.push_back(T(value));
    return result;
  };
  const Values<T> values = {of({1, 2}), of({1, 0, 0, 1, 1, 1, 1, -1}), of({0, 0, 0, 0}),
                            of({1, 2, 3, 4}), of({1})};
  // With biases 1, 0, 0, -2 the second layer gets 1 and -8 more.
  Values<T> biased = values;
  biased.bias = of({1, 0, 0, -2});
  for (const int count : {1, 2, 4}) {
    for (int ranks = 1; ranks <= count; ranks *= 2) {
      for (const SumWire wire : {SumWire::kFloat32, SumWire::kModel}) {
        SCOPED_TRACE(absl::StrCat(count, " shards, ", ranks, " ranks"));
        const Results<T> results = RunMlp(mlp, values, count, ranks, {.wire = wire});
        EXPECT_THAT(InDouble(results.y), ElementsAre(10));
        EXPECT_THAT(InDouble(RunMlp(mlp, biased, count, ranks, {.wire = wire}).y), ElementsAre(3));
        EXPECT_THAT(InDouble(results.dx), ElementsAre(8, 1));
        EXPECT_THAT(InDouble(results.dexpand), ElementsAre(1, 2, 2, 4, 3, 6, 4, 8));
        EXPECT_THAT(InDouble(results.dbias), ElementsAre(1, 2, 3, 4));
        EXPECT_THAT(InDouble(results.dcontract), ElementsAre(1, 2, 3, -1));
      }
    }
  }
}

TYPED_TEST(TensorLinearTest, TheNumberOfRanksChangesNoBit) {
  using T = TypeParam;
  if (this->IsSkipped()) GTEST_SKIP() << "products of doubles are for the CPU";
  const Values<T> values = this->Random(this->kMlp);
  for (const int count : Counts()) {
    const Results<T> one = RunMlp(this->kMlp, values, count, 1);
    for (int ranks = 1; ranks <= count; ranks *= 2) {
      for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
        SCOPED_TRACE(absl::StrCat(count, " shards, ", ranks, " ranks, part ", part));
        ExpectSameBits(RunMlp(this->kMlp, values, count, ranks, {.part = part}), one);
      }
    }
  }
}

// The layers of nn/.
template <typename T>
Results<T> ByNn(const Mlp& mlp, const Values<T>& values) {
  Results<T> whole;
  OnTensorRanks(1, 1, [&](TensorLab& lab) {
    constexpr DType kType = precision::kDType<T>;
    device::Stream& stream = lab.stream();
    const auto in = [&](const std::vector<T>& array) {
      return lab.Cut({.shape = {static_cast<int64_t>(array.size())}}, array);
    };
    const auto x = in(values.x), expand = in(values.expand), bias = in(values.bias);
    const auto contract = in(values.contract), dy = in(values.dy);
    const auto h = lab.Raw<T>(mlp.rows * mlp.hidden), act = lab.Raw<T>(mlp.rows * mlp.hidden);
    const auto dh = lab.Raw<T>(mlp.rows * mlp.hidden), y = lab.Raw<T>(mlp.rows * mlp.outputs);
    const auto dx = lab.Raw<T>(mlp.rows * mlp.inputs);
    const auto dexpand = lab.Raw<T>(mlp.hidden * mlp.inputs), dbias = lab.Raw<T>(mlp.hidden);
    const auto dcontract = lab.Raw<T>(mlp.outputs * mlp.hidden);
    const nn::LinearInput first = {kType,    x.data(),   expand.data(),
                                   mlp.rows, mlp.inputs, mlp.hidden};
    const nn::LinearInput second = {kType,    act.data(), contract.data(),
                                    mlp.rows, mlp.hidden, mlp.outputs};
    const nn::MatrixShape shape = {kType, mlp.rows, mlp.hidden};
    ASSERT_OK(nn::Linear(first, bias.data(), h.data(), lab.blas(), stream));
    ASSERT_OK(nn::Gelu(shape, h.data(), act.data(), stream));
    ASSERT_OK(nn::Linear(second, nullptr, y.data(), lab.blas(), stream));
    ASSERT_OK(nn::LinearBackward(second, dy.data(), {dh.data()}, {dcontract.data()}, {}, lab.blas(),
                                 lab.workspace(), stream));
    ASSERT_OK(nn::GeluBackward(shape, h.data(), dh.data(), stream));
    ASSERT_OK(nn::LinearBackward(first, dh.data(), {dx.data()}, {dexpand.data()}, {dbias.data()},
                                 lab.blas(), lab.workspace(), stream));
    ASSERT_OK(stream.Synchronize());
    whole = {lab.Read(y), lab.Read(dx), lab.Read(dexpand), lab.Read(dbias), lab.Read(dcontract)};
  });
  return whole;
}

TYPED_TEST(TensorLinearTest, OneShardHasTheBitsOfNnsLayers) {
  using T = TypeParam;
  if (this->IsSkipped()) GTEST_SKIP() << "products of doubles are for the CPU";
  const Values<T> values = this->Random(this->kMlp);
  ExpectSameBits(RunMlp(this->kMlp, values, 1, 1), ByNn(this->kMlp, values));
}

template <typename T>
void ExpectNear(const std::vector<T>& values, const std::vector<double>& wanted, double bound,
                const char* what) {
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(nn::Widen(values[i])), wanted[i], bound) << what << " " << i;
  }
}

// nn::Linear's own tests are against finite differences; shards, ranks, and a 16-bit wire differ
// from it in double by roundings alone.
TYPED_TEST(TensorLinearTest, DiffersFromDoubleByRoundings) {
  using T = TypeParam;
  if (kOnGpu) GTEST_SKIP() << "the reference is in doubles, for the CPU";
  const Values<T> values = this->Random(this->kMlp);
  const Results<double> wanted =
      ByNn<double>(this->kMlp, {InDouble(values.x), InDouble(values.expand), InDouble(values.bias),
                                InDouble(values.contract), InDouble(values.dy)});
  // Sums of 48 products of an inner number below 4 and one below 1: each inner one is off by three
  // roundings, and the sum by one for each of up to 8 ranks and two at its end.
  const double bound = (48 * 3 + 8 + 2) * UnitRoundoff<T>() * 4;
  ForEachSharing([&](int count, int ranks) {
    // Any number, where each rank has one.
    for (const SumWire wire : {SumWire::kFloat32, SumWire::kModel}) {
      SCOPED_TRACE(absl::StrCat(count, " shards, ", ranks, " ranks, wire ", wire));
      const Results<T> results = RunMlp(this->kMlp, values, count, ranks, {.wire = wire});
      ExpectNear(results.y, wanted.y, bound, "y");
      ExpectNear(results.dx, wanted.dx, bound, "dx");
      ExpectNear(results.dexpand, wanted.dexpand, bound, "dexpand");
      ExpectNear(results.dbias, wanted.dbias, bound, "dbias");
      ExpectNear(results.dcontract, wanted.dcontract, bound, "dcontract");
    }
  });
}

// |Y_t - Y_1| <= u sum |P_j| + 2 u |Y| + 2 (K + t) 2^-24 sum |x w|, with P_j the ranks' partial
// sums.
TYPED_TEST(TensorLinearTest, AWireOfTheModelsTypeKeepsItsBound) {
  using T = TypeParam;
  if (this->IsSkipped()) GTEST_SKIP() << "products of doubles are for the CPU";
  Mlp mlp = this->kMlp;
  mlp.gelu = false;
  const Values<T> values = this->Random(mlp);
  const Results<T> one = RunMlp(mlp, values, 1, 1);
  const double u = UnitRoundoff<T>();
  const auto at = [](const std::vector<T>& array, int64_t i) {
    return static_cast<double>(nn::Widen(array[static_cast<size_t>(i)]));
  };
  for (const int ranks : Counts()) {
    if (ranks == 1) continue;
    const Results<T> results = RunMlp(mlp, values, ranks, ranks, {.wire = SumWire::kModel});
    bool differs = false;
    for (int64_t r = 0; r < mlp.rows; ++r) {
      for (int64_t o = 0; o < mlp.outputs; ++o) {
        double partial_sums = 0, products = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          double partial = 0;
          const int64_t each = mlp.hidden / ranks;
          for (int64_t h = rank * each; h < (rank + 1) * each; ++h) {
            double hidden = at(values.bias, h);
            for (int64_t i = 0; i < mlp.inputs; ++i) {
              hidden += at(values.x, r * mlp.inputs + i) * at(values.expand, h * mlp.inputs + i);
            }
            partial += hidden * at(values.contract, o * mlp.hidden + h);
            products += std::abs(hidden * at(values.contract, o * mlp.hidden + h));
          }
          partial_sums += std::abs(partial);
        }
        const double y = at(one.y, r * mlp.outputs + o), its = at(results.y, r * mlp.outputs + o);
        const double bound =
            u * partial_sums + 2 * u * std::abs(y) +
            2 * static_cast<double>(mlp.hidden + ranks) * UnitRoundoff<nn::Wide<T>>() * products;
        // The inner values are rounded alike; their own error does not count.
        EXPECT_LE(std::abs(its - y), 1.01 * bound) << ranks << " ranks, row " << r << ", " << o;
        differs |= its != y;
      }
    }
    EXPECT_TRUE(differs || sizeof(T) > 2) << "a test of nothing";
  }
}

// Products of shards are added as the specification's tree, in float, and rounded once.
TYPED_TEST(TensorLinearTest, SumsOfShardsAreTheSpecificationsTree) {
  using T = TypeParam;
  if (this->IsSkipped()) GTEST_SKIP() << "products of doubles are for the CPU";
  using W = nn::Wide<T>;
  constexpr int kCount = 8;
  // Several blocks, unequal ones, on each of eight ranks.
  constexpr int64_t kElements = 203;
  for (const int ranks : {1, 2, 4, 8}) {
    if (testing::IsEmulated() && ranks > 2) continue;
    OnTensorRanks(kCount, ranks, [&](TensorLab& lab) {
      auto sums =
          ShardSums::Create(
              {.shards = lab.shards(), .dtype = precision::kDType<T>, .elements = kElements},
              lab.self().communicator.get(), *lab.self().context)
              .value();
      std::vector<std::vector<W>> products;
      for (int s = 0; s < kCount; ++s) products.push_back(Noise<W>(kElements, 100 + s));
      // Cancels: the order shows.
      for (W& value : products[3]) value += 1000;
      for (W& value : products[6]) value -= 1000;
      std::vector<absl::Span<W>> mine;
      for (int s = 0; s < lab.shards().local(); ++s) {
        mine.push_back(lab.Array(products[static_cast<size_t>(lab.shards().first() + s)]));
      }
      const auto out = lab.Raw<T>(kElements);
      const auto product = [&](int s, const RowRange&, void* partial, DType dtype) {
        EXPECT_EQ(dtype, precision::kDType<W>);
        const void* const source[] = {mine[static_cast<size_t>(s)].data()};
        void* const target[] = {partial};
        return kernels::Reduce(source, target, kElements, {.dtype = dtype}, lab.stream());
      };
      ASSERT_OK(sums->Sum(1, kElements, product, out.data(), lab.stream()));
      ASSERT_OK(lab.self().communicator->Synchronize(lab.stream()));
      const std::vector<T> sum = lab.Read(out);
      for (size_t i = 0; i < size_t{kElements}; ++i) {
        std::vector<W> parts;
        for (const auto& each : products) parts.push_back(each[i]);
        EXPECT_EQ(nn::Widen(sum[i]), nn::Widen(T(spec::TreeSum(parts))));
      }
    });
  }
}

TEST(ShardSumsTest, SendsWhatItSays) {
  for (const int ranks : {2, 4}) {
    for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
      for (const SumWire wire : {SumWire::kFloat32, SumWire::kModel}) {
        OnTensorRanks(ranks, ranks, [&](TensorLab& lab) {
          constexpr int64_t kElements = 256;
          collectives::Communicator& group = *lab.self().communicator;
          auto sums = ShardSums::Create({.shards = lab.shards(),
                                         .dtype = DType::kBFloat16,
                                         .wire = wire,
                                         .part = part,
                                         .elements = kElements},
                                        &group, *lab.self().context)
                          .value();
          const auto out = lab.Raw<BFloat16>(kElements);
          const auto nothing = [](int, const RowRange&, void*, DType) { return absl::OkStatus(); };
          const int64_t before = lab.sent_bytes();
          ASSERT_OK(sums->Sum(4, kElements / 4, nothing, out.data(), lab.stream()));
          ASSERT_OK(group.Synchronize(lab.stream()));
          const int64_t times = part == SumPart::kAll ? 2 : 1;
          const int64_t element = wire == SumWire::kFloat32 ? 4 : 2;
          EXPECT_EQ(lab.sent_bytes() - before, times * (ranks - 1) * kElements / ranks * element);
          EXPECT_EQ(ShardSums::Bytes(sums->options()), kElements * element);
        });
      }
    }
  }
}

TEST(ShardSumsTest, WrongUsesAreNamed) {
  OnTensorRanks(2, 2, [](TensorLab& lab) {
    const auto create = [&](ShardSumOptions options) {
      return ShardSums::Create(options, lab.self().communicator.get(), *lab.self().context)
          .status();
    };
    const auto invalid = [](const std::string& text) {
      return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
    };
    EXPECT_THAT(
        create({.shards = {4, 4, lab.shards().rank}}),
        invalid(absl::StrCat("they are of rank ", lab.shards().rank,
                             " of 4, the communicator is of rank ", lab.shards().rank, " of 2")));
    EXPECT_THAT(create({.shards = {6, 2, lab.shards().rank}}), invalid("cannot share 6 shards"));
    EXPECT_THAT(create({.shards = lab.shards(), .dtype = DType::kInt32}),
                invalid("dtype is int32"));
    EXPECT_THAT(create({.shards = lab.shards(), .elements = -1}), invalid("elements is -1"));
    auto sums = ShardSums::Create({.shards = lab.shards(), .part = SumPart::kOwn, .elements = 8},
                                  lab.self().communicator.get(), *lab.self().context)
                    .value();
    const auto nothing = [](int, const RowRange&, void*, DType) { return absl::OkStatus(); };
    const auto out = lab.Raw<float>(8);
    for (const auto& [rows, columns] : {std::pair(10, 1), std::pair(3, 2), std::pair(-2, 1)}) {
      EXPECT_THAT(sums->Sum(rows, columns, nothing, out.data(), lab.stream()),
                  invalid(absl::StrCat("[", rows, ", ", columns,
                                       "] on 2 ranks; at most 8 elements, of rows that the ranks "
                                       "divide")));
      EXPECT_THAT(sums->SumOfOne(rows, columns, nothing, out.data(), lab.stream()),
                  invalid("on 2 ranks"));
    }
    EXPECT_THAT(RowLinear({DType::kBFloat16, out.data(), out.data(), 2, 1, 1}, out.data(), *sums,
                          lab.blas(), lab.stream()),
                invalid("linear: dtype is bf16, that of the sums fp32"));
    lab.self().AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::parallel
