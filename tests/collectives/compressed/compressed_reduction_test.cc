// What a compressed all-reduce does beside the sums: errors, order, waits, memory.

#include "brigade/collectives/compressed/compressed_reduction.h"

#include <vector>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/compressed/wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

auto Invalid(const char* text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
}

TEST(CompressedReductionTest, BadArgumentsAreNamedAndNothingHappens) {
  OnThreads({.size = 2}, [](Rank& self) {
    auto made = CompressedReduction::Create(*self.communicator, *self.context, 128);
    ASSERT_OK(made);
    CompressedReduction& compressed = **made;
    std::vector<float> a(65, 1.0f), b(65);
    float* const in = a.data();
    float* const out = b.data();
    const auto run = [&](const float* input, float* output, int64_t count,
                         const WireOptions& options) {
      return compressed.AllReduce(input, output, count, options, *self.stream);
    };
    EXPECT_THAT(run(in, out, 8, {.wire = DType::kFloat32}),
                Invalid("compressed_reduction: wire is fp32, must be fp16 or bf16"));
    EXPECT_THAT(run(in, out, 8, {.scaling = static_cast<WireScaling>(3)}), Invalid("scaling 3"));
    EXPECT_THAT(run(in, out, 8, {.algorithm = static_cast<Algorithm>(19)}),
                Invalid("algorithm 19"));
    for (const float scale : {0.0f, -1.0f, 0x1p-127f, 0x1p127f, std::nanf("")}) {
      EXPECT_THAT(run(in, out, 8, {.scaling = WireScaling::kStatic, .scale = scale}),
                  Invalid("must be in [2^-126, 2^126]"));
    }
    EXPECT_THAT(run(in, out, 65, {}), Invalid("count is 65, must be 0 to the capacity, 64"));
    EXPECT_THAT(run(in, out, -1, {}), Invalid("count is -1"));
    EXPECT_THAT(run(nullptr, out, 8, {}), Invalid("input is null with 8 elements"));
    EXPECT_THAT(run(in, nullptr, 8, {}), Invalid("output is null with 8 elements"));
    EXPECT_THAT(run(in, in + 4, 8, {}), Invalid("input and output overlap in 16 bytes"));
    EXPECT_THAT(CompressedReduction::Create(*self.communicator, *self.context, -1),
                Invalid("wire_bytes is -1"));
    EXPECT_THAT(CompressedReduction::Create(*self.communicator, *self.context, int64_t{1} << 60),
                Invalid("wire_bytes is 1152921504606846976"));
    const auto scatter = [&](CollectiveKind kind, int64_t count, DType dtype,
                             const WireOptions& options) {
      return compressed.SumOnWire(kind, in, count, dtype, options, *self.stream).status();
    };
    constexpr auto kScatter = CollectiveKind::kReduceScatter;
    EXPECT_THAT(scatter(kScatter, 33, kFloat32, {}), Invalid("must be 0 to the capacity, 32"));
    EXPECT_THAT(scatter(kScatter, 8, DType::kInt32, {}), Invalid("int32"));
    EXPECT_THAT(scatter(CollectiveKind::kAllGather, 8, kFloat32, {}),
                Invalid("all_gather is no sum"));
    EXPECT_THAT(scatter(kScatter, 8, DType::kFloat16, {.wire = DType::kFloat32}),
                Invalid("a wire of fp32 has no dynamic scale"));
    EXPECT_THAT(scatter(kScatter, 8, kFloat32, {.algorithm = Algorithm::kRing}),
                Invalid("algorithm ring has no reduction rounded_once"));
    // None of them was a call: the ranks are still in step.
    ASSERT_OK(run(in, out, 64, {}));
    ASSERT_OK(run(nullptr, nullptr, 0, {}));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(out[63], 2.0f);
    EXPECT_EQ(out[64], 0.0f);
  });
}

TEST(CompressedReductionTest, RanksWhoseOptionsDifferAreTold) {
  const auto expect = [](const WireOptions& first, const WireOptions& second, const char* one,
                         const char* other) {
    OnThreads({.size = 2}, [&](Rank& self) {
      auto compressed = CompressedReduction::Create(*self.communicator, *self.context, 128).value();
      std::vector<float> x(64);
      absl::Status status = compressed->AllReduce(x.data(), x.data(), 64,
                                                  self.rank == 0 ? first : second, *self.stream);
      status.Update(self.stream->Synchronize());
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr(one), HasSubstr(other))));
      self.communicator.reset();
    });
  };
  expect({}, {.scaling = WireScaling::kNone}, "all_reduce(max of 1 fp32, direct, rounded_per_hop)",
         "all_reduce(sum of 64 fp16, direct)");
  expect({}, {.wire = DType::kBFloat16}, "sum of 64 fp16", "sum of 64 bf16");
}

TEST(CompressedReductionTest, AllocatesWhatBytesSaysAndNeverWaits) {
  OnThreads({.size = 2}, [](Rank& self) {
    const auto used = [&] {
      return self.context->memory_stats().current_bytes(device::Purpose::kCommunication);
    };
    const int64_t before = used();
    auto compressed = CompressedReduction::Create(*self.communicator, *self.context, 2 << 20);
    ASSERT_OK(compressed);
    EXPECT_EQ(used() - before, CompressedReduction::Bytes(2 << 20));
    EXPECT_LE(used() - before, (2 << 20) + 5000);
    std::vector<float> x(1000, 1.0f);
    const int64_t waits = self.context->host_waits();
    for (const WireScaling scaling : kScalings) {
      ASSERT_OK(
          (*compressed)->AllReduce(x.data(), x.data(), 1000, {.scaling = scaling}, *self.stream));
    }
    EXPECT_EQ(self.context->host_waits(), waits);
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(x[999], 8.0f);
  });
}

// Calls on two streams, with ranks held up at random: the bits stay, and nothing races for the
// wire.
TEST(CompressedReductionTest, OrdersItsCallsAcrossStreamsWhateverTheDelays) {
  device::RaceChecker checker;
  const auto trajectory = [&](uint64_t seed) {
    const RanksOptions options = {
        .size = 3,
        .random_delay = {.seed = seed, .max_delay_us = seed == 0 ? 0 : 150},
        .race_checker = &checker};
    std::vector<std::vector<float>> outputs(3);
    OnThreads(options, [&](Rank& self) {
      auto other = self.context->CreateStream("other").value();
      auto compressed =
          CompressedReduction::Create(*self.communicator, *self.context, 1000).value();
      const Inputs inputs = MakeInputs(3, 500, 1.0f);
      const std::vector<float>& input = inputs[static_cast<size_t>(self.rank)];
      std::vector<float>& output = outputs[static_cast<size_t>(self.rank)];
      output.resize(6 * 500);
      for (int i = 0; i < 6; ++i) {
        const Algorithm algorithm = i % 2 == 0 ? Algorithm::kRing : Algorithm::kDirect;
        const WireOptions wire = {kWires[i / 3], kScalings[i % 3], 8.0f, By(algorithm).reduction,
                                  algorithm};
        ASSERT_OK(compressed->AllReduce(input.data(), output.data() + i * 500, 500 - i, wire,
                                        i % 2 == 0 ? *self.stream : *other));
      }
      ASSERT_OK(self.stream->Synchronize());
      ASSERT_OK(other->Synchronize());
    });
    EXPECT_TRUE(SameBits(outputs[0], outputs[1]) && SameBits(outputs[0], outputs[2]));
    return outputs[0];
  };
  const std::vector<float> wanted = trajectory(0);
  for (uint64_t seed = 1; seed <= 32; ++seed) {
    ASSERT_TRUE(SameBits(trajectory(seed), wanted)) << "seed " << seed;
  }
  EXPECT_THAT(checker.reports(), IsEmpty());
}

}  // namespace
}  // namespace brigade::collectives
