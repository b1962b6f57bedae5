// Sums over rows around the parts in which they are made: a double's oracle, and on a GPU the bits
// of the CPU.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <type_traits>
#include <vector>

#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/functions.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/pointwise.h"
#include "brigade/tests/nn/lab.h"

namespace brigade::nn {
namespace {

constexpr int64_t kRowNumbers[] = {0, 1, 63, 64, 65, 1000};
constexpr int64_t kColumnNumbers[] = {1, 31, 768, 1025};

// A sum in double, and of the terms' magnitudes, which bounds the error of float's.
struct Exact {
  double sum = 0, magnitude = 0;

  void Add(double term) {
    sum += term;
    magnitude += std::abs(term);
  }
};

template <typename T>
class SumsTest : public ::testing::Test {
 public:
  // Of what sums are in, and of T.
  static constexpr double kOfSums = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
  static constexpr double kOfType = std::is_same_v<T, precision::Half>       ? 0x1p-11
                                    : std::is_same_v<T, precision::BFloat16> ? 0x1p-8
                                                                             : kOfSums;

  // Of parts of 64 rows, and of so many parts; each term takes 3 operations. Halves below the
  // smallest normal one are coarser.
  static void ExpectNear(absl::Span<const T> sums, const std::vector<Exact>& exact,
                         int64_t parts = 16) {
    ASSERT_EQ(sums.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      const double of_oracle = std::is_same_v<T, double> ? 16 : 1;
      const double bound =
          of_oracle * static_cast<double>(64 + parts + 3) * kOfSums * exact[i].magnitude +
          kOfType * std::abs(exact[i].sum) + (sizeof(T) == 2 ? 0x1p-25 : 0);
      ASSERT_NEAR(static_cast<double>(Widen(sums[i])), exact[i].sum, bound) << "column " << i;
    }
  }
};

using Types = ::testing::Types<float, precision::Half, precision::BFloat16, double>;
TYPED_TEST_SUITE(SumsTest, Types);

TYPED_TEST(SumsTest, Biases) {
  using T = TypeParam;
  for (const int64_t rows : kRowNumbers) {
    for (const int64_t columns : kColumnNumbers) {
      SCOPED_TRACE(::testing::Message() << rows << " rows, " << columns << " columns");
      absl::Span<T> dy;
      std::vector<Exact> exact(static_cast<size_t>(columns));
      const std::vector<T> sums = SameBits<T>([&](Lab& lab) {
        dy = lab.Noise<T>(rows * columns);
        exact.assign(static_cast<size_t>(columns), {});
        for (int64_t i = 0; i < rows * columns; ++i) {
          exact[static_cast<size_t>(i % columns)].Add(static_cast<double>(Widen(dy[i])));
        }
        // Every other matrix's are added to what is there.
        const bool accumulate = columns % 2 == 1;
        const auto dbias = accumulate ? lab.Noise<T>(columns) : lab.Raw<T>(columns);
        for (int64_t c = 0; accumulate && c < columns; ++c) {
          exact[static_cast<size_t>(c)].Add(static_cast<double>(Widen(dbias[c])));
        }
        EXPECT_OK(BiasBackward({precision::kDType<T>, rows, columns}, dy.data(),
                               {dbias.data(), accumulate}, lab.workspace(), lab.stream()));
        return dbias;
      });
      this->ExpectNear(sums, exact);
    }
  }
}

TYPED_TEST(SumsTest, LayerNorms) {
  using T = TypeParam;
  for (const int64_t rows : kRowNumbers) {
    for (const int64_t columns : {31, 1025}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows, " << columns << " columns");
      std::vector<Exact> exact(static_cast<size_t>(2 * columns));
      const std::vector<T> sums = SameBits<T>([&](Lab& lab) {
        const auto x = lab.Noise<T>(rows * columns), dy = lab.Noise<T>(rows * columns);
        const auto weight = lab.Noise<T>(columns), dx = lab.Raw<T>(rows * columns);
        const auto mean = lab.Noise<Wide<T>>(rows), inverse = lab.Noise<Wide<T>>(rows);
        exact.assign(static_cast<size_t>(2 * columns), {});
        for (int64_t i = 0; i < rows * columns; ++i) {
          const int64_t r = i / columns, c = i % columns;
          const double up = static_cast<double>(Widen(dy[i]));
          const double normalised =
              (static_cast<double>(Widen(x[i])) - static_cast<double>(mean[r])) *
              static_cast<double>(inverse[r]);
          exact[static_cast<size_t>(c)].Add(up * normalised);
          exact[static_cast<size_t>(columns + c)].Add(up);
        }
        const auto gradients = lab.Raw<T>(2 * columns);
        EXPECT_OK(LayerNormBackward({precision::kDType<T>, x.data(), weight.data(), mean.data(),
                                     inverse.data(), rows, columns},
                                    dy.data(), {dx.data()}, {gradients.data()},
                                    {gradients.data() + columns}, lab.workspace(), lab.stream()));
        return gradients;
      });
      // (x - mean) may cancel: its error is of the order of its terms.
      for (Exact& sum : exact) sum.magnitude += static_cast<double>(rows);
      this->ExpectNear(sums, exact);
    }
  }
}

// The token at a place of the texts.
using TokenAt = std::function<uint8_t(int64_t)>;

// As in texts, some tokens have most of the rows; one has none.
TokenAt SkewedTokens() {
  return [random = std::mt19937(3)](int64_t) mutable {
    constexpr uint8_t kAbsent = 13;
    const auto token = static_cast<uint8_t>(random() % (random() % 2 == 0 ? 4 : 256));
    return token == kAbsent ? uint8_t{255} : token;
  };
}

// The gradients of tokens, and behind them those of positions.
template <typename T>
void ExpectEmbeddingSums(int64_t batch, int64_t rows, int64_t width, const TokenAt& token_at) {
  SCOPED_TRACE(::testing::Message() << rows << " rows, batch of " << batch);
  const int64_t context = rows / batch;
  const int64_t tokens = kVocabulary * width, positions = context * width;
  std::vector<Exact> exact;
  std::vector<uint8_t> bytes(static_cast<size_t>(rows + batch));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = token_at(static_cast<int64_t>(i));
  const std::vector<T> sums = SameBits<T>([&](Lab& lab) {
    const Workspace workspace =
        Workspace::Create(lab.context(), precision::kDType<T>, {.rows = rows, .width = width})
            .value();
    const auto copy = lab.Raw<uint8_t>(rows + batch);
    std::copy(bytes.begin(), bytes.end(), copy.begin());
    const Texts texts = {copy.data(), batch, context};
    const auto dx = lab.Noise<T>(rows * width);
    exact.assign(static_cast<size_t>(tokens + positions), {});
    for (int64_t i = 0; i < rows * width; ++i) {
      const int64_t row = i / width, column = i % width;
      const auto term = static_cast<double>(Widen(dx[i]));
      exact[static_cast<size_t>(texts.token(row) * width + column)].Add(term);
      exact[static_cast<size_t>(tokens + row % context * width + column)].Add(term);
    }
    const auto gradients = lab.Raw<T>(tokens + positions);
    EXPECT_OK(EmbeddingBackward(texts, precision::kDType<T>, width, dx.data(), {gradients.data()},
                                {gradients.data() + tokens}, workspace, lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    return gradients;
  });
  SumsTest<T>::ExpectNear(sums, exact, rows / 64 + 1);
}

TYPED_TEST(SumsTest, Embeddings) {
  const TokenAt kinds[] = {
      [](int64_t) { return uint8_t{97}; },
      [](int64_t i) { return static_cast<uint8_t>(i); },
      SkewedTokens(),
  };
  for (const int64_t batch : {1, 10}) {
    for (const int64_t rows : kRowNumbers) {
      for (const TokenAt& kind : kinds) {
        if (rows % batch == 0) ExpectEmbeddingSums<TypeParam>(batch, rows, 33, kind);
      }
    }
  }
  // The rows of a position have parts as well.
  for (const int64_t batch : {64, 65, 130}) {
    ExpectEmbeddingSums<TypeParam>(batch, 2 * batch, 33, kinds[2]);
  }
}

// CUB sorts so many rows in several tiles, with temporary memory; a token has more than 64 parts.
TYPED_TEST(SumsTest, EmbeddingsOfManyRows) {
  ExpectEmbeddingSums<TypeParam>(2, 10'000, 3, SkewedTokens());
}

TEST(MeanOfLossesTest, IsTheOneOfTheSumInDoubleOnEveryDevice) {
  for (const device::Device& device : {BRIGADE_LAB_DEVICE, device::Cpu()}) {
    Lab lab(device);
    for (const int64_t rows : {1, 255, 256, 257, 1000, 10'000}) {
      SCOPED_TRACE(rows);
      const auto losses = lab.Noise<float>(rows), mean = lab.Raw<float>(1);
      const auto parts = lab.Raw<double>(PartsOfLosses(rows));
      double sum = 0;
      for (const float loss : losses) sum += static_cast<double>(loss);
      ASSERT_OK(MeanOfLosses(precision::DType::kFloat32, losses.data(), rows, parts.data(),
                             mean.data(), lab.stream()));
      ASSERT_OK(lab.stream().Synchronize());
      EXPECT_EQ(mean[0], static_cast<float>(sum / static_cast<double>(rows)));
    }
  }
}

TEST(WorkspaceTest, OneThatIsTooSmallIsRefused) {
  Lab lab;
  const auto bytes = lab.Bytes(1002), dx = lab.Raw<uint8_t>(4 * 1001);
  EXPECT_EQ(EmbeddingBackward(Texts{bytes.data(), 1, 1001}, precision::DType::kFloat32, 1,
                              dx.data(), {}, {}, lab.workspace(), lab.stream()),
            absl::InvalidArgumentError(
                "embedding_backward: the workspace is for 1000 rows; the texts have 1001"));
  EXPECT_EQ(
      Workspace::Create(lab.context(), precision::DType::kFloat32, {.rows = int64_t{1} << 32})
          .status(),
      absl::InvalidArgumentError("workspace: rows is 4294967296; it must be from 0 to 2^32 - 1"));
  // On the CPU too, which needs no room: what runs there runs on a GPU.
  EXPECT_EQ(BiasBackward({precision::DType::kFloat64, 1000, 40'000}, nullptr, {}, lab.workspace(),
                         lab.stream()),
            absl::InvalidArgumentError(
                "bias_backward: the workspace has room for 1665024 bytes of sums; it must be for "
                "5120000"));
  EXPECT_EQ(EmbeddingBackward(Texts{bytes.data(), 1, 1000}, precision::DType::kFloat64, 769,
                              dx.data(), {}, {}, lab.workspace(), lab.stream()),
            absl::InvalidArgumentError(
                "embedding_backward: the workspace has room for 1665024 bytes of sums; it must be "
                "for 1667192"));
}

}  // namespace
}  // namespace brigade::nn
