// What collectives of codes do beside their results: errors, order, waits, memory.

#include <algorithm>
#include <functional>
#include <vector>

#include "brigade/collectives/compressed/restore_errors.h"
#include "brigade/tests/collectives/compressed/exchanges.h"
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

TEST(ExchangeCallsTest, BadArgumentsAreNamedAndNothingHappens) {
  OnThreads({.size = 2}, [](Rank& self) {
    Communicator& group = *self.communicator;
    device::Context& context = *self.context;
    device::Stream& stream = *self.stream;
    constexpr QuantFormat kInt4 = QuantFormat::kInt4;
    constexpr auto kNoFormat = static_cast<QuantFormat>(7);
    auto gather = QuantizedAllGather::Create(group, context, 64, kInt4).value();
    auto scatter = QuantizedReduceScatter::Create(group, {}, context, 64, kInt4).value();
    auto mean = OneBitAllReduce::Create(group, context, 64).value();
    std::vector<float> a(200, 1.0f), b(200), local(64), sum(64);
    float* const in = a.data();
    float* const out = b.data();

    EXPECT_THAT(QuantizedAllGather::Create(group, context, -1, kInt4),
                Invalid("quantized_all_gather: max_count is -1"));
    EXPECT_THAT(QuantizedReduceScatter::Create(group, {}, context, int64_t{1} << 60, kInt4),
                Invalid("quantized_reduce_scatter: max_count is 1152921504606846976"));
    EXPECT_THAT(OneBitAllReduce::Create(group, context, -5),
                Invalid("one_bit_all_reduce: max_count is -5"));
    EXPECT_THAT(QuantizedAllGather::Create(group, context, 1, kNoFormat),
                Invalid("quantized_all_gather: format is 7, must be int8 or int4"));
    EXPECT_THAT(QuantizedReduceScatter::Create(group, {}, context, 1, kNoFormat),
                Invalid("quantized_reduce_scatter: format is 7, must be int8 or int4"));
    EXPECT_THAT(QuantizedReduceScatter::Create(group, {&group, nullptr}, context, 1, kInt4),
                Invalid("a communicator inside nodes, but none between them"));
    EXPECT_THAT(QuantizedReduceScatter::Create(group, {&group, &group}, context, 1, kInt4),
                Invalid("of 2 in node"));
    EXPECT_THAT(OneBitAllReduce::Create(group, context, 1, {&group, &group}),
                Invalid("one_bit_all_reduce: rank"));

    const auto gathers = [&](const float* input, float* output, int64_t count, DType dtype,
                             Algorithm algorithm) {
      return gather->AllGather(input, output, count, dtype, {algorithm}, stream);
    };
    constexpr auto kAuto = Algorithm::kAuto;
    EXPECT_THAT(gathers(in, out, 65, kFloat32, kAuto),
                Invalid("quantized_all_gather: count is 65, must be 0 to the capacity, 64"));
    EXPECT_THAT(gathers(in, out, -1, kFloat32, kAuto), Invalid("count is -1"));
    EXPECT_THAT(gathers(in, out, 8, DType::kInt32, kAuto), Invalid("int32"));
    EXPECT_THAT(gathers(nullptr, out, 8, kFloat32, kAuto), Invalid("input is null"));
    EXPECT_THAT(gathers(in, nullptr, 8, kFloat32, kAuto), Invalid("output is null"));
    EXPECT_THAT(gathers(in + 4, in, 8, kFloat32, kAuto), Invalid("overlap in 32 bytes"));
    EXPECT_THAT(gathers(in, out, 8, kFloat32, Algorithm::kHierarchical),
                Invalid("hierarchical needs a topology"));

    const auto scatters = [&](const float* input, float* output, int64_t count, float factor) {
      return scatter->ReduceScatter(input, output, count, kFloat32, factor, stream);
    };
    EXPECT_THAT(scatters(in, out, 65, 1.0f), Invalid("must be 0 to the capacity, 64"));
    EXPECT_THAT(scatters(nullptr, out, 8, 1.0f), Invalid("input is null"));
    EXPECT_THAT(scatters(in, nullptr, 8, 1.0f), Invalid("output is null"));
    EXPECT_THAT(scatters(in, in + 3, 8, 1.0f), Invalid("input and output overlap"));
    EXPECT_THAT(scatters(in, out, 8, INFINITY), Invalid("factor"));

    alignas(64) static uint8_t error_memory[4][2048];
    uint8_t* const own_errors = error_memory[self.rank];
    const auto feeds = [&](const QuantizedFeedback& feedback, float* output) {
      return scatter->ReduceScatter(in, output, 8, kFloat32, 1.0f, &feedback, stream);
    };
    EXPECT_THAT(feeds({}, out), Invalid("quantized_reduce_scatter: local error is null"));
    EXPECT_THAT(feeds({own_errors + 1}, out), Invalid("local error is at address"));
    EXPECT_THAT(feeds({own_errors}, reinterpret_cast<float*>(own_errors)), Invalid("overlap"));
    EXPECT_THAT(feeds({own_errors, nullptr, {.beta = 1.5f}}, out), Invalid("beta is 1.5"));

    const auto means = [&](const float* input, float* output, int64_t count,
                           const OneBitErrors& errors) {
      return mean->AllReduce(input, output, count, kFloat32, errors, nullptr, {}, stream);
    };
    const OneBitErrors errors = {local.data(), sum.data()};
    EXPECT_THAT(means(in, out, 65, errors), Invalid("must be 0 to the capacity, 64"));
    EXPECT_THAT(means(nullptr, out, 8, errors), Invalid("input is null"));
    EXPECT_THAT(means(in, nullptr, 8, errors), Invalid("output is null"));
    EXPECT_THAT(means(in, in + 3, 8, errors), Invalid("input and output overlap"));
    EXPECT_THAT(means(in, out, 8, {nullptr, sum.data()}), Invalid("local error is null"));
    EXPECT_THAT(means(in, out, 8, {local.data(), nullptr}), Invalid("error of the sum is null"));
    EXPECT_THAT(means(in, out, 8, {out, sum.data()}), Invalid("overlap"));
    EXPECT_THAT(means(in, out, 8, {in, sum.data()}), Invalid("overlap"));

    // None of them was a call: the ranks are still in step.
    ASSERT_OK(gathers(in, out, 64, kFloat32, kAuto));
    ASSERT_OK(gathers(nullptr, nullptr, 0, kFloat32, kAuto));
    ASSERT_OK(stream.Synchronize());
    EXPECT_EQ(out[127], 1.0f);
    EXPECT_EQ(out[128], 0.0f);
    ASSERT_OK(scatters(in, out, 64, 1.0f));
    ASSERT_OK(scatters(nullptr, nullptr, 0, 1.0f));
    ASSERT_OK(stream.Synchronize());
    EXPECT_EQ(out[63], 2.0f);
    ASSERT_OK(means(in, out, 64, errors));
    ASSERT_OK(means(nullptr, nullptr, 0, {}));
    ASSERT_OK(stream.Synchronize());
    EXPECT_EQ(out[63], 1.0f);
    EXPECT_EQ(local[63], 0.0f);
  });
}

TEST(ExchangeCallsTest, RanksWhoseCountsDifferAreTold) {
  OnThreads({.size = 2}, [](Rank& self) {
    auto scatter = QuantizedReduceScatter::Create(*self.communicator, {}, *self.context, 600,
                                                  QuantFormat::kInt8)
                       .value();
    std::vector<float> x(1200), y(600);
    absl::Status status = scatter->ReduceScatter(x.data(), y.data(), self.rank == 0 ? 100 : 600,
                                                 kFloat32, 1.0f, *self.stream);
    status.Update(self.stream->Synchronize());
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("all_to_all(320 uint8)"),
                                       HasSubstr("all_to_all(832 uint8)"))));
    self.communicator.reset();
  });
}

TEST(ExchangeCallsTest, AllocateWhatBytesSaysAndNeverWait) {
  OnThreads({.size = 4, .ranks_of_node = {2, 2}}, [](Rank& self) {
    auto nodes = NodeGroups::Create(*self.communicator).value();
    const auto used = [&] {
      return self.context->memory_stats().current_bytes(device::Purpose::kCommunication);
    };
    constexpr int64_t kCount = 3000;
    int64_t before = used();
    const auto expect = [&](const char* what, int64_t bytes) {
      EXPECT_EQ(used() - before, bytes) << what;
      before = used();
    };
    auto gather =
        QuantizedAllGather::Create(*self.communicator, *self.context, kCount, QuantFormat::kInt8);
    ASSERT_OK(gather);
    expect("gather", QuantizedAllGather::Bytes(4, kCount, QuantFormat::kInt8));
    auto scatter = QuantizedReduceScatter::Create(*self.communicator, nodes.communicators(),
                                                  *self.context, kCount, QuantFormat::kInt4);
    ASSERT_OK(scatter);
    expect("scatter", QuantizedReduceScatter::Bytes(4, kCount, QuantFormat::kInt4));
    auto feeding =
        QuantizedReduceScatter::Create(*self.communicator, nodes.communicators(), *self.context,
                                       kCount, QuantFormat::kInt4, /*has_feedback=*/true);
    ASSERT_OK(feeding);
    expect("scatter with feedback",
           QuantizedReduceScatter::Bytes(4, kCount, QuantFormat::kInt4, /*feedback_nodes=*/2));
    ScatterErrors errors(self, kCount, 2);
    const QuantizedFeedback feedback = errors.feedback({});
    EXPECT_EQ(QuantizedErrorBytesOf(kCount, 4, 2).local, 4 * (64 + 12 * 256));
    EXPECT_EQ(QuantizedErrorBytesOf(kCount, 4, 2).sum, 2 * (64 + 12 * 256));
    EXPECT_EQ(QuantizedErrorBytesOf(kCount, 4).sum, 0);
    auto mean = OneBitAllReduce::Create(*self.communicator, *self.context, kCount);
    ASSERT_OK(mean);
    expect("mean", OneBitAllReduce::Bytes(4, kCount));
    // Four bytes an element for its errors, and for a quarter of them twice as many.
    EXPECT_LE(OneBitAllReduce::Bytes(4, kCount), kCount * 6 + kCount / 4 + 2000);
    auto in_two =
        OneBitAllReduce::Create(*self.communicator, *self.context, kCount, nodes.communicators());
    ASSERT_OK(in_two);
    expect("mean in two hops", OneBitAllReduce::Bytes(4, kCount, 2));

    std::vector<float> whole(4 * kCount, 1.0f), part(kCount, 1.0f), local(kCount), sum(kCount);
    EXPECT_THAT((*scatter)->ReduceScatter(whole.data(), part.data(), kCount, kFloat32, 0.25f,
                                          &feedback, *self.stream),
                Invalid("in two hops has feedback, which Create did not ask for"));
    const int64_t waits = self.context->host_waits();
    for (int round = 0; round < 3; ++round) {
      ASSERT_OK(
          (*gather)->AllGather(part.data(), whole.data(), kCount, kFloat32, {}, *self.stream));
      ASSERT_OK((*scatter)->ReduceScatter(whole.data(), part.data(), kCount, kFloat32, 0.25f,
                                          *self.stream));
      ASSERT_OK((*feeding)->ReduceScatter(whole.data(), part.data(), kCount, kFloat32, 0.25f,
                                          &feedback, *self.stream));
      for (auto& each : {mean->get(), in_two->get()}) {
        ASSERT_OK(each->AllReduce(part.data(), part.data(), kCount, kFloat32,
                                  {local.data(), sum.data()}, nullptr, {}, *self.stream));
      }
    }
    EXPECT_EQ(self.context->host_waits(), waits);
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(part[kCount - 1], 1.0f);
  });
}

// Calls on two streams, with ranks held up at random: the bits stay, and nothing races for the
// messages or the errors.
TEST(ExchangeCallsTest, OrderThemselvesAcrossStreamsWhateverTheDelays) {
  constexpr int64_t kCount = 300;
  ExpectSameWhateverTheDelays(
      {.size = 4, .ranks_of_node = {2, 2}}, [](Rank& self, device::Stream& other, Values& result) {
        auto nodes = NodeGroups::Create(*self.communicator).value();
        auto gather = QuantizedAllGather::Create(*self.communicator, *self.context, kCount,
                                                 QuantFormat::kInt8)
                          .value();
        auto scatter = QuantizedReduceScatter::Create(*self.communicator, nodes.communicators(),
                                                      *self.context, kCount, QuantFormat::kInt4)
                           .value();
        auto feeding = QuantizedReduceScatter::Create(*self.communicator, nodes.communicators(),
                                                      *self.context, kCount, QuantFormat::kInt4,
                                                      /*has_feedback=*/true)
                           .value();
        ScatterErrors errors(self, kCount, 2);
        ASSERT_OK(self.stream->Synchronize());
        const QuantizedFeedback feedback = errors.feedback({});
        auto mean = OneBitAllReduce::Create(*self.communicator, *self.context, kCount).value();
        const auto rank = static_cast<size_t>(self.rank);
        const Values input = MakeValues(4, 4 * kCount, kFloat32)[rank];
        // Each round has outputs of its own, so that only what calls share orders them.
        constexpr int64_t kOutputs = 7 * kCount;
        result.resize(4 * kOutputs);
        Values local(kCount), sum(kCount);
        for (int64_t round = 0; round < 4; ++round) {
          device::Stream& stream = round % 2 == 0 ? *self.stream : other;
          const int64_t count = kCount - round;
          float* const output = result.data() + round * kOutputs;
          ASSERT_OK(gather->AllGather(input.data(), output, count, kFloat32, {}, stream));
          ASSERT_OK(scatter->ReduceScatter(input.data(), output + 4 * kCount, count, kFloat32, 1.0f,
                                           stream));
          ASSERT_OK(feeding->ReduceScatter(input.data(), output + 6 * kCount, kCount, kFloat32,
                                           1.0f, &feedback, stream));
          ASSERT_OK(mean->AllReduce(input.data(), output + 5 * kCount, kCount, kFloat32,
                                    {local.data(), sum.data()}, nullptr, {}, stream));
        }
        ASSERT_OK(self.stream->Synchronize());
        ASSERT_OK(other.Synchronize());
      });
}

TEST(RestoreErrorsTest, RestoresIfAScaleIsNotANumberOrTheStepIsSkipped) {
  OnThreads({.size = 1}, [](Rank& self) {
    // Not of the stack, which AddressSanitizer aligns less.
    alignas(64) static float messages[48];
    std::fill_n(messages, 48, 0.0f);
    const auto run = [&](const ErrorExchange& exchange) {
      Values saved = {1, 2, 3}, error = {4, 5, 6};
      EXPECT_OK(RestoreErrors(exchange, saved.data(), error.data(), 3, *self.stream));
      EXPECT_OK(self.stream->Synchronize());
      return error;
    };
    const Values kept = {4, 5, 6}, restored = {1, 2, 3};
    const int32_t no = 0, yes = 1;
    EXPECT_EQ(run({messages, 3, 64, nullptr}), kept);
    EXPECT_EQ(run({messages, 3, 64, &no}), kept);
    EXPECT_EQ(run({messages, 3, 64, &yes}), restored);
    EXPECT_EQ(run({}), kept);
    EXPECT_EQ(run({.skip = &no, .non_finite = &no}), kept);
    EXPECT_EQ(run({.skip = &no, .non_finite = &yes}), restored);
    messages[32] = std::nanf("");  // the scale of the third
    EXPECT_EQ(run({messages, 3, 64, &no}), restored);
    EXPECT_EQ(run({messages, 2, 64, nullptr}), kept);
    Values x(3);
    EXPECT_THAT(RestoreErrors({messages, 3, 60, nullptr}, x.data(), x.data(), 3, *self.stream),
                Invalid("restore_errors: 3 messages at distances of 60 bytes"));
    EXPECT_THAT(RestoreErrors({messages, 3, 64, nullptr}, x.data(), x.data(), 3, *self.stream),
                Invalid("saved and error overlap"));
    EXPECT_THAT(RestoreErrors({nullptr, 3, 64, nullptr}, x.data(), x.data(), 0, *self.stream),
                Invalid("messages is null"));
  });
}

}  // namespace
}  // namespace brigade::collectives
