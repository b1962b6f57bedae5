// What means by low-rank factors and by greatest elements do beside their results: errors, order,
// waits, memory.

#include <functional>
#include <limits>
#include <vector>

#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/collectives/compressed/power_sgd_all_reduce.h"
#include "brigade/collectives/compressed/quantized_reduce_scatter.h"
#include "brigade/collectives/compressed/seed_columns.h"
#include "brigade/collectives/compressed/sparse_mean.h"
#include "brigade/collectives/compressed/top_k_all_reduce.h"
#include "brigade/tests/collectives/compressed/exchanges.h"
#include "brigade/tests/spec/power_sgd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

auto Invalid(const char* text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
}

// A matrix with factors and a vector.
const std::vector<PowerSgdTensor> kTensors = {{0, 12, 10}, {120, 1, 8}};

// Arrays of more elements than 32 bits count: sizes by hand, without the arrays. Greatest elements
// have indices of 32 bits, and are refused below.
TEST(GradientCallsTest, SizesOfMessagesPass32Bits) {
  constexpr int64_t kOne = 1, kElements = (kOne << 33) + 1;
  // 64 bytes before, and 64 for each 512 elements.
  EXPECT_EQ(kernels::SignBytes(kElements), (kOne << 30) + 128);
  EXPECT_EQ(OneBitErrorCountsOf(kElements, 4).local, kElements);
  EXPECT_EQ(OneBitErrorCountsOf(kElements, 4).sum, (kOne << 31) + 1);
  EXPECT_EQ(OneBitErrorCountsOf(kElements, 4, 2).local, (kOne << 32) + 1);
  EXPECT_EQ(OneBitErrorCountsOf(kElements, 4, 2).sum, (kOne << 31) + 1);
  const OneBitCalls calls = OneBitCallsOf(kElements, 4);
  EXPECT_EQ(calls.exchange.count, (kOne << 28) + 128);
  EXPECT_EQ(calls.gather.count, (kOne << 28) + 128);
  EXPECT_EQ(WireBytes(calls.exchange, 0, 4), 3 * ((kOne << 28) + 128));
  // A maximum for each 256 elements, of which 16 fill a line, and the codes of whole blocks.
  constexpr int64_t kMaxima = (kOne << 27) + 64;
  EXPECT_EQ(kernels::QuantBytes(kElements, kernels::QuantFormat::kInt8),
            kMaxima + (kOne << 33) + 256);
  EXPECT_EQ(kernels::QuantBytes(kElements, kernels::QuantFormat::kInt4),
            kMaxima + (kOne << 32) + 128);
  const auto scatter = QuantizedScatterCallsOf(kElements, kernels::QuantFormat::kInt4, 2);
  EXPECT_EQ(scatter.inside.count, 2 * (kMaxima + (kOne << 32) + 128));
  EXPECT_EQ(scatter.between.count, kMaxima + (kOne << 32) + 128);
  EXPECT_EQ(QuantizedErrorBytesOf(kElements, 4, 2).local, 4 * (kMaxima + (kOne << 33) + 256));
  const PowerSgdSizes sizes =
      PowerSgdSizesOf(std::vector<PowerSgdTensor>{{3, kOne << 17, (kOne << 16) + 1}}, 4);
  EXPECT_EQ(sizes.matrices, (kOne << 33) + (kOne << 17));
  EXPECT_EQ(sizes.count, sizes.matrices + 3);
  EXPECT_EQ(sizes.p, kOne << 19);
  EXPECT_EQ(sizes.q, (kOne << 18) + 4);
}

TEST(GradientCallsTest, BadArgumentsAreNamedAndNothingHappens) {
  OnThreads({.size = 2}, [](Rank& self) {
    Communicator& group = *self.communicator;
    device::Context& context = *self.context;
    device::Stream& stream = *self.stream;
    const auto create = [&](const std::vector<PowerSgdTensor>& tensors,
                            const PowerSgdOptions& options) {
      return PowerSgdAllReduce::Create(group, context, tensors, options).status();
    };
    EXPECT_THAT(create(kTensors, {.rank = 0}),
                Invalid("power_sgd_all_reduce: rank is 0, must be 1 to 128"));
    EXPECT_THAT(create(kTensors, {.rank = 129}), Invalid("rank is 129"));
    EXPECT_THAT(create(kTensors, {.dtype = DType::kInt32}), Invalid("int32"));
    EXPECT_THAT(create(kTensors, {.epsilon = 0}), Invalid("epsilon is 0, must be positive"));
    EXPECT_THAT(create(kTensors, {.iterations = 0}), Invalid("iterations is 0, must be 1 to 8"));
    EXPECT_THAT(create(kTensors, {.iterations = 9}), Invalid("iterations is 9"));
    EXPECT_THAT(create({{0, 4, 4}, {15, 2, 2}}, {}),
                Invalid("tensor 1 begins at element 15, the one before it ends at 16"));
    EXPECT_THAT(create({{-1, 4, 4}}, {}), Invalid("tensor 0 begins at element -1"));
    EXPECT_THAT(create({{0, -4, 4}}, {}), Invalid("tensor 0 has -4 rows and 4 columns"));
    EXPECT_THAT(create({{0, int64_t{1} << 40, int64_t{1} << 40}}, {}), Invalid("tensor 0 has"));
    EXPECT_THAT(TopKAllReduce::Create(group, context, -1, 0),
                Invalid("top_k_all_reduce: max_count is -1"));
    EXPECT_THAT(TopKAllReduce::Create(group, context, int64_t{1} << 31, 1),
                Invalid("max_count is 2147483648, must be 0 to what indices of 32 bits can name"));
    EXPECT_THAT(TopKAllReduce::Create(group, context, 10, 11),
                Invalid("top_k_all_reduce: max_k is 11, must be 0 to max_count, 10"));

    auto factors = PowerSgdAllReduce::Create(group, context, kTensors, {}).value();
    auto greatest = TopKAllReduce::Create(group, context, 64, 8).value();
    std::vector<float> a(200, 1.0f), b(200), error(200), q(200);
    float* const in = a.data();
    float* const out = b.data();
    const auto means = [&](const float* input, float* output, const PowerSgdState& state) {
      return factors->AllReduce(input, output, state, nullptr, stream);
    };
    const PowerSgdState state = {error.data(), q.data()};
    EXPECT_THAT(means(nullptr, out, state), Invalid("power_sgd_all_reduce: input is null"));
    EXPECT_THAT(means(in, nullptr, state), Invalid("output is null"));
    EXPECT_THAT(means(in, in + 3, state), Invalid("input and output overlap"));
    EXPECT_THAT(means(in, out, {nullptr, q.data()}), Invalid("error is null"));
    EXPECT_THAT(means(in, out, {error.data(), nullptr}), Invalid("q is null"));
    EXPECT_THAT(means(in, out, {out, q.data()}), Invalid("overlap"));
    EXPECT_THAT(means(in, out, {error.data(), in}), Invalid("overlap"));
    const auto selects = [&](const float* input, float* output, int64_t count, int64_t k,
                             float* left, Algorithm algorithm) {
      return greatest->AllReduce(input, output, count, k, kFloat32, left, nullptr, {algorithm},
                                 stream);
    };
    constexpr auto kAuto = Algorithm::kAuto;
    float* const left = error.data();
    EXPECT_THAT(selects(in, out, 65, 1, left, kAuto), Invalid("must be 0 to the capacity, 64"));
    EXPECT_THAT(selects(in, out, 64, 9, left, kAuto),
                Invalid("k is 9, must be 0 to count and capacity, 8"));
    EXPECT_THAT(selects(in, out, 3, 4, left, kAuto), Invalid("k is 4"));
    EXPECT_THAT(selects(in, out, 3, -1, left, kAuto), Invalid("k is -1"));
    EXPECT_THAT(selects(nullptr, out, 8, 1, left, kAuto), Invalid("input is null"));
    EXPECT_THAT(selects(in, out, 8, 1, nullptr, kAuto), Invalid("error is null"));
    EXPECT_THAT(selects(in, out, 8, 1, in, kAuto), Invalid("overlap"));
    EXPECT_THAT(selects(in, out, 8, 1, left, Algorithm::kHierarchical),
                Invalid("hierarchical needs a topology"));

    // None of them was a call: the ranks are still in step.
    ASSERT_OK(means(in, out, state));
    ASSERT_OK(stream.Synchronize());
    EXPECT_EQ(out[127], 1.0f);
    EXPECT_EQ(out[128], 0.0f);
    std::fill(error.begin(), error.end(), 0.0f);
    ASSERT_OK(selects(in, out, 64, 8, left, kAuto));
    ASSERT_OK(selects(nullptr, nullptr, 0, 0, nullptr, kAuto));
    ASSERT_OK(stream.Synchronize());
    EXPECT_EQ(out[7], 1.0f);
    EXPECT_EQ(out[8], 0.0f);
    EXPECT_EQ(left[8], 1.0f);
  });
}

TEST(GradientCallsTest, RanksWhoseSizesDifferAreTold) {
  OnThreads({.size = 2}, [](Rank& self) {
    auto greatest = TopKAllReduce::Create(*self.communicator, *self.context, 600, 20).value();
    std::vector<float> x(600), error(600);
    absl::Status status = greatest->AllReduce(x.data(), x.data(), 600, self.rank == 0 ? 10 : 20,
                                              kFloat32, error.data(), nullptr, {}, *self.stream);
    status.Update(self.stream->Synchronize());
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("all_gather(80 uint8"),
                                       HasSubstr("all_gather(160 uint8"))));
    self.communicator.reset();
  });
  OnThreads({.size = 2}, [](Rank& self) {
    const int32_t rank = self.rank == 0 ? 1 : 2;
    auto factors =
        PowerSgdAllReduce::Create(*self.communicator, *self.context, kTensors, {.rank = rank})
            .value();
    std::vector<float> x(200), error(200), q(200);
    absl::Status status =
        factors->AllReduce(x.data(), x.data(), {error.data(), q.data()}, nullptr, *self.stream);
    status.Update(self.stream->Synchronize());
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("all_reduce(sum of 20 fp32"),
                                       HasSubstr("all_reduce(sum of 32 fp32"))));
    self.communicator.reset();
  });
}

TEST(GradientCallsTest, AllocateWhatBytesSaysAndNeverWait) {
  OnThreads({.size = 3}, [](Rank& self) {
    const auto used = [&] {
      return self.context->memory_stats().current_bytes(device::Purpose::kCommunication);
    };
    int64_t before = used();
    const auto expect = [&](const char* what, int64_t bytes) {
      EXPECT_EQ(used() - before, bytes) << what;
      before = used();
    };
    constexpr int64_t kCount = 30000;
    const std::vector<PowerSgdTensor> tensors = {{0, 300, 100}};
    auto wide = PowerSgdAllReduce::Create(*self.communicator, *self.context, tensors, {.rank = 4});
    ASSERT_OK(wide);
    expect("factors", PowerSgdAllReduce::Bytes(tensors, {.rank = 4}));
    // The error before the call, factors, sums of two tiles.
    EXPECT_LE(PowerSgdAllReduce::Bytes(tensors, {.rank = 4}),
              4 * (kCount + 4 * (300 + 2 * 100) + 2 * 4 * 100) + 5000);
    const PowerSgdOptions half = {.rank = 4, .dtype = DType::kBFloat16};
    auto narrow = PowerSgdAllReduce::Create(*self.communicator, *self.context, tensors, half);
    ASSERT_OK(narrow);
    expect("factors of 16 bits", PowerSgdAllReduce::Bytes(tensors, half));
    auto greatest = TopKAllReduce::Create(*self.communicator, *self.context, kCount, 50);
    ASSERT_OK(greatest);
    expect("greatest", TopKAllReduce::Bytes(3, kCount, 50));
    EXPECT_LE(TopKAllReduce::Bytes(3, kCount, 50), 3 * 8 * 50 + kCount * 4 + kCount / 3 + 9000);

    std::vector<float> whole(kCount, 1.0f), error(kCount), q(400);
    const int64_t waits = self.context->host_waits();
    for (int round = 0; round < 3; ++round) {
      ASSERT_OK((*wide)->AllReduce(whole.data(), whole.data(), {error.data(), q.data()}, nullptr,
                                   *self.stream));
      ASSERT_OK((*greatest)->AllReduce(whole.data(), whole.data(), kCount, 50, kFloat32,
                                       error.data(), nullptr, {}, *self.stream));
    }
    EXPECT_EQ(self.context->host_waits(), waits);
    ASSERT_OK(self.stream->Synchronize());
  });
}

// Calls on two streams, with ranks held up at random: the bits stay, and nothing races for the
// messages, the errors or the factors.
TEST(GradientCallsTest, OrderThemselvesAcrossStreamsWhateverTheDelays) {
  constexpr int64_t kCount = 128;
  ExpectSameWhateverTheDelays({.size = 3}, [](Rank& self, device::Stream& other, Values& result) {
    auto factors =
        PowerSgdAllReduce::Create(*self.communicator, *self.context, kTensors, {}).value();
    auto greatest = TopKAllReduce::Create(*self.communicator, *self.context, kCount, 20).value();
    const auto rank = static_cast<size_t>(self.rank);
    const Values input = MakeValues(3, kCount, kFloat32)[rank];
    // Each round has outputs of its own, so that only what calls share orders them.
    result.resize(4 * 2 * kCount);
    Values error(kCount), q(10), left(kCount);
    for (int64_t round = 0; round < 4; ++round) {
      device::Stream& stream = round % 2 == 0 ? *self.stream : other;
      float* const output = result.data() + round * 2 * kCount;
      ASSERT_OK(
          factors->AllReduce(input.data(), output, {error.data(), q.data()}, nullptr, stream));
      ASSERT_OK(greatest->AllReduce(input.data(), output + kCount, kCount, 20, kFloat32,
                                    left.data(), nullptr, {}, stream));
    }
    ASSERT_OK(self.stream->Synchronize());
    ASSERT_OK(other.Synchronize());
  });
}

TEST(SeedColumnsTest, FillsColumnsOfZerosAlone) {
  OnThreads({.size = 1}, [](Rank& self) {
    Values data = {0, 0, 0, 0, 2, 0, -0.0f};
    const std::vector<int64_t> begins = {0, 3, 6, 7};
    ASSERT_OK(SeedColumns({data.data(), begins.data(), 3}, 7, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    Values wanted = {0, 0, 0, 0, 2, 0, spec::ColumnSeed(2, 0)};
    for (uint64_t i = 0; i < 3; ++i) wanted[i] = spec::ColumnSeed(0, i);
    EXPECT_TRUE(AreSame(data, wanted));
    // The first output of SplitMix64 from 0, its upper 24 bits.
    EXPECT_EQ(data[0], static_cast<float>(0xe220a8) * 0x1p-23f - 1.0f);
    EXPECT_THAT(SeedColumns({data.data(), nullptr, 3}, 7, *self.stream),
                Invalid("seed_columns: begins is null"));
    EXPECT_THAT(SeedColumns({nullptr, begins.data(), 3}, 7, *self.stream),
                Invalid("columns is null"));
  });
}

TEST(SparseMeanTest, AddsMessagesAndMarksWhatIsNotFinite) {
  OnThreads({.size = 1}, [](Rank& self) {
    // Two ranks' indices and values.
    std::vector<int32_t> words = {1, 4, 0, 0, 0, 1, 0, 0};
    const auto put = [&](size_t at, float x) { words[at] = std::bit_cast<int32_t>(x); };
    put(2, 3);
    put(3, -4);
    put(6, 10);
    put(7, 5);
    int32_t non_finite = 0;
    Values output(5, 9.0f);
    const auto call = [&](int64_t k) {
      const SparseMessages messages = {words.data(), 2, k};
      absl::Status status =
          SparseMean(messages, 0.5f, output.data(), static_cast<int64_t>(output.size()), kFloat32,
                     &non_finite, *self.stream);
      status.Update(self.stream->Synchronize());
      return status;
    };
    ASSERT_OK(call(2));
    EXPECT_EQ(output, (Values{5, 4, 0, 0, -2}));
    EXPECT_EQ(non_finite, 0);
    put(6, INFINITY);
    ASSERT_OK(call(2));
    EXPECT_EQ(output, (Values{INFINITY, 4, 0, 0, -2}));
    EXPECT_NE(non_finite, 0);
    EXPECT_THAT(call(6), Invalid("sparse_mean: 2 messages of 6 of 5 elements"));
    EXPECT_THAT(SparseMean({words.data(), 2, 2}, 1.0f, words.data(), 5, kFloat32, &non_finite,
                           *self.stream),
                Invalid("messages and output overlap"));
    EXPECT_THAT(SparseMean({words.data(), 2, 2}, 1.0f, output.data(), 5, DType::kInt32, &non_finite,
                           *self.stream),
                Invalid("int32"));
  });
}

// As behind an error of the communicator, when streams go on without messages.
TEST(SparseMeanTest, WritesNothingElseWhateverIndicesAre) {
  OnThreads({.size = 1}, [](Rank& self) {
    constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
    constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
    constexpr size_t kSize = 9000, kGuard = 64;
    for (const std::vector<int32_t>& indices : std::vector<std::vector<int32_t>>{
             {kLeast, -1, 9000, kMost}, {kMost, 8999, -5, kLeast}, {4096, -4096, 4095, 9001}}) {
      std::vector<int32_t> words = indices;
      words.resize(2 * indices.size(), std::bit_cast<int32_t>(1.0f));
      Values memory(kSize + 2 * kGuard, 9.0f);
      int32_t non_finite = 0;
      ASSERT_OK(SparseMean({words.data(), 1, static_cast<int64_t>(indices.size())}, 1.0f,
                           memory.data() + kGuard, kSize, kFloat32, &non_finite, *self.stream));
      ASSERT_OK(self.stream->Synchronize());
      for (size_t i = 0; i < memory.size(); ++i) {
        const bool is_output = i >= kGuard && i < kGuard + kSize;
        EXPECT_TRUE(is_output ? memory[i] == 0.0f || memory[i] == 1.0f : memory[i] == 9.0f) << i;
      }
    }
  });
}

}  // namespace
}  // namespace brigade::collectives
