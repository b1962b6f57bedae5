// When codecs pay, by the model: where the rule of thumb says so, and never where they would make a
// call slower.

#include "brigade/collectives/tuning/codec_cost.h"

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/collectives/compressed/power_sgd_all_reduce.h"
#include "brigade/collectives/compressed/quantized_all_gather.h"
#include "brigade/collectives/compressed/quantized_reduce_scatter.h"
#include "brigade/collectives/compressed/top_k_all_reduce.h"
#include "brigade/collectives/tuning/select.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using precision::DType;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr auto kAllReduce = CollectiveKind::kAllReduce;
constexpr auto kReduceScatter = CollectiveKind::kReduceScatter;
constexpr auto kAllGather = CollectiveKind::kAllGather;

// Ranks with a link each, of L bytes/s without latency, and M bytes/s of memory.
Topology Links(std::vector<int> ranks_of_node, double link, double memory) {
  Topology topology;
  topology.ranks_of_node = std::move(ranks_of_node);
  topology.inside = topology.between = {0, link, topology.ranks_of_node.front()};
  topology.memory_bytes_per_s = memory;
  return topology;
}

double Sum(const std::vector<Phase>& phases, Load Phase::*level) {
  double bytes = 0;
  for (const Phase& phase : phases) bytes += (phase.*level).bytes;
  return bytes;
}

TEST(CodecCostTest, WireBytesAreThoseOfTheCollectives) {
  constexpr int64_t kElements = 1 << 20;
  const Topology one_each = Links({1, 1, 1, 1}, 1e9, 1e9);
  ASSERT_OK_AND_ASSIGN(const CodecCost bits, CodecCostOf(one_each, Codec::kOneBit, kAllReduce,
                                                         kElements, DType::kFloat32));
  const OneBitCalls calls = OneBitCallsOf(kElements, 4);
  EXPECT_EQ(Sum(bits.phases, &Phase::between),
            static_cast<double>(3 * (calls.exchange.count + calls.gather.count)));

  constexpr auto kInt4 = kernels::QuantFormat::kInt4;
  ASSERT_OK_AND_ASSIGN(const CodecCost hop, CodecCostOf(one_each, Codec::kInt4, kReduceScatter,
                                                        kElements, DType::kFloat32));
  EXPECT_EQ(Sum(hop.phases, &Phase::between),
            static_cast<double>(3 * QuantizedScatterCallsOf(kElements / 4, kInt4).inside.count));
  // Three nodes of four ranks, with a port for each: three messages to each of three ranks inside,
  // and one to each of two others.
  Topology nodes = Links({4, 4, 4}, 1e9, 1e9);
  nodes.inside.ports = 1;
  ASSERT_OK_AND_ASSIGN(const CodecCost hops, CodecCostOf(nodes, Codec::kInt4, kReduceScatter,
                                                         12 * 1000, DType::kFloat32));
  const QuantizedScatterCalls in_two = QuantizedScatterCallsOf(1000, kInt4, 3);
  EXPECT_EQ(Sum(hops.phases, &Phase::inside), static_cast<double>(3 * in_two.inside.count));
  EXPECT_EQ(Sum(hops.phases, &Phase::between), static_cast<double>(2 * in_two.between.count));

  ASSERT_OK_AND_ASSIGN(const CodecCost signs,
                       CodecCostOf(nodes, Codec::kOneBit, kAllReduce, kElements, DType::kFloat16));
  const OneBitCalls of_place = OneBitCallsOf(kElements, 12, Algorithm::kAuto, 3);
  EXPECT_EQ(Sum(signs.phases, &Phase::between),
            static_cast<double>(2 * (of_place.exchange.count + of_place.gather.count)));
  EXPECT_EQ(
      Sum(signs.phases, &Phase::inside),
      static_cast<double>(3 * 2 * (of_place.sum_inside.count + of_place.gather_inside.count)));

  ASSERT_OK_AND_ASSIGN(const CodecCost gather,
                       CodecCostOf(one_each, Codec::kInt8, kAllGather, kElements, DType::kFloat16));
  EXPECT_EQ(Sum(gather.phases, &Phase::between),
            static_cast<double>(
                3 * QuantizedGatherCall(kElements / 4, kernels::QuantFormat::kInt8).count));

  // A matrix of 1024 x 1024; a direct all-reduce sends each element to all, and its sum.
  ASSERT_OK_AND_ASSIGN(
      const CodecCost factors,
      CodecCostOf(one_each, Codec::kPowerSgd, kAllReduce, kElements, DType::kFloat16, {.rank = 8}));
  const PowerSgdCalls sums = PowerSgdCallsOf(PowerSgdSizesOf({{0, 1024, 1024}}, 8));
  EXPECT_EQ(Sum(factors.phases, &Phase::between),
            static_cast<double>(2 * 3 * (sums.first.count + sums.second.count) * 4 / 4));

  ASSERT_OK_AND_ASSIGN(const CodecCost greatest,
                       CodecCostOf(one_each, Codec::kTopK, kAllReduce, kElements, DType::kFloat32,
                                   {.density = 1.0 / 1024}));
  EXPECT_EQ(Sum(greatest.phases, &Phase::between), static_cast<double>(3 * TopKCallOf(1024).count));
}

TEST(CodecCostTest, MemoryBytesAreThoseOfTheKernels) {
  constexpr int64_t kElements = 4 << 20;
  const Topology topology = Links({1, 1, 1, 1}, 1e9, 1e9);
  const auto bytes = [&](Codec codec, CollectiveKind operation, DType dtype) {
    return CodecCostOf(topology, codec, operation, kElements, dtype).value().memory_bytes /
           kElements;
  };
  // Saved 8; packed 20.125, of 16 bits 16.125; sums 0.125; written 0.125 and the result; and of a
  // quarter 8 + 4 + 20 bytes.
  EXPECT_NEAR(bytes(Codec::kOneBit, kAllReduce, DType::kFloat32), 8 + 20.375 + 4 + 8.03, 0.01);
  EXPECT_NEAR(bytes(Codec::kOneBit, kAllReduce, DType::kFloat16), 8 + 16.375 + 2 + 8.03, 0.01);
  const Topology nodes = Links({2, 2}, 1e9, 1e9);
  // Half of it, in two parts.
  EXPECT_NEAR(CodecCostOf(nodes, Codec::kOneBit, kAllReduce, kElements, DType::kFloat16)
                      .value()
                      .memory_bytes /
                  kElements,
              (8 + 12 + 4 + 2 + 0.125 / 2 * 7 + 32 / 2.0) / 2, 0.01);
  EXPECT_NEAR(bytes(Codec::kInt4, kReduceScatter, DType::kFloat32), 4 + 2 * 0.5156 + 1, 0.01);
  EXPECT_NEAR(bytes(Codec::kInt8, kReduceScatter, DType::kFloat16), 2 + 2 * 1.0156 + 0.5, 0.01);
  EXPECT_NEAR(bytes(Codec::kInt8, kAllGather, DType::kFloat16), 1.25 * (2 + 1.0156), 0.01);
  // Saved 8, added 8 and the array's, two products 8, restored 12; and 16 bits from a mean of fp32.
  EXPECT_NEAR(bytes(Codec::kPowerSgd, kAllReduce, DType::kFloat32), 8 + 12 + 8 + 12, 0.01);
  EXPECT_NEAR(bytes(Codec::kPowerSgd, kAllReduce, DType::kFloat16), 8 + 10 + 8 + 12 + 6, 0.01);
  // Saved, added, five looks, the mean, and a thousandth of 8 bytes, of four ranks and one.
  EXPECT_NEAR(bytes(Codec::kTopK, kAllReduce, DType::kFloat32), 8 + 12 + 20 + 4 + 0.04, 0.01);
  EXPECT_NEAR(bytes(Codec::kTopK, kAllReduce, DType::kFloat16), 8 + 10 + 20 + 2 + 0.04, 0.01);
  ASSERT_OK_AND_ASSIGN(const CodecCost none,
                       CodecCostOf(topology, Codec::kNone, kAllGather, 100, DType::kFloat16));
  EXPECT_EQ(none.memory_bytes, 0);
}

// Counted by hand, of 2^20 elements on four ranks with a link each: what of a table of facts any
// implementation must send, and what ours has beside it (lines of 64 bytes, a maximum for each 256
// elements).
TEST(CodecCostTest, KnownAnswers) {
  constexpr int64_t kElements = 1 << 20;
  const Topology one_each = Links({1, 1, 1, 1}, 1e9, 1e10);
  const auto cost = [&](Codec codec, CollectiveKind operation, DType dtype,
                        const CodecSettings& settings = {}) {
    return CodecCostOf(one_each, codec, operation, kElements, dtype, settings).value();
  };
  // (n/4) (p-1)/p = 196608 of signs, and six messages begin with 64 bytes.
  const CodecCost bits = cost(Codec::kOneBit, kAllReduce, DType::kBFloat16);
  EXPECT_EQ(Sum(bits.phases, &Phase::between), 196608 + 6 * 64);
  // (n/2) (p-1)/p = 393216 of int4, (p-1)/p n = 786432 of int8, and 1/64 of n (p-1)/p = 12288.
  EXPECT_EQ(Sum(cost(Codec::kInt4, kReduceScatter, DType::kBFloat16).phases, &Phase::between),
            393216 + 12288);
  EXPECT_EQ(Sum(cost(Codec::kInt8, kAllGather, DType::kBFloat16).phases, &Phase::between),
            786432 + 12288);
  // 8 r (a+b) (p-1)/p.
  EXPECT_EQ(
      Sum(cost(Codec::kPowerSgd, kAllReduce, DType::kFloat32, {.rank = 8}).phases, &Phase::between),
      98304);
  // 8 k (p-1), k a 1024th.
  EXPECT_EQ(Sum(cost(Codec::kTopK, kAllReduce, DType::kFloat32, {.density = 1.0 / 1024}).phases,
                &Phase::between),
            24576);
  // 2 (p-1)/p of 2 MiB, as they are.
  EXPECT_EQ(Sum(cost(Codec::kNone, kAllReduce, DType::kBFloat16).phases, &Phase::between), 3145728);
  // 0.405504 ms on the link; 2 MiB read, 540672 bytes of codes written and read, 0.5 MiB written:
  // 3702784 bytes, 0.3702784 ms.
  EXPECT_NEAR(SecondsOf(one_each, cost(Codec::kInt4, kReduceScatter, DType::kBFloat16)),
              0.405504e-3 + 0.3702784e-3, 1e-12);
  // Nodes of two: one message for each node to the rank beside, and one to the other node.
  const Topology nodes = Links({2, 2}, 1e9, 1e10);
  const CodecCost hops =
      CodecCostOf(nodes, Codec::kInt4, kReduceScatter, kElements, DType::kBFloat16).value();
  Topology of_one_port = nodes;
  of_one_port.inside.ports = 1;
  EXPECT_EQ(Sum(CodecCostOf(of_one_port, Codec::kInt4, kReduceScatter, kElements, DType::kBFloat16)
                    .value()
                    .phases,
                &Phase::inside),
            2 * 135168);
  EXPECT_EQ(Sum(hops.phases, &Phase::between), 135168);
}

// Errors are int8 codes, 266240 bytes for each of four ranks' parts: copied, read and written; in
// two hops those of a node's sums too, half as many.
TEST(CodecCostTest, ErrorFeedbackOfCodesCostsMemoryAlone) {
  constexpr int64_t kElements = 1 << 20;
  const auto cost = [&](const Topology& topology, CollectiveKind operation, bool feedback) {
    return CodecCostOf(topology, Codec::kInt4, operation, kElements, DType::kFloat32,
                       {.error_feedback = feedback})
        .value();
  };
  const Topology one_each = Links({1, 1, 1, 1}, 1e9, 1e10);
  EXPECT_EQ(cost(one_each, kReduceScatter, false).memory_bytes, 6324224);
  EXPECT_EQ(cost(one_each, kReduceScatter, true).memory_bytes, 6324224 + 4 * 1064960);
  EXPECT_EQ(Sum(cost(one_each, kReduceScatter, true).phases, &Phase::between),
            Sum(cost(one_each, kReduceScatter, false).phases, &Phase::between));
  const Topology nodes = Links({2, 2}, 1e9, 1e10);
  EXPECT_EQ(cost(nodes, kReduceScatter, false).memory_bytes, 6864896);
  EXPECT_EQ(cost(nodes, kReduceScatter, true).memory_bytes, 6864896 + 4 * (1064960 + 532480));
  EXPECT_EQ(cost(one_each, kAllGather, true).memory_bytes,
            cost(one_each, kAllGather, false).memory_bytes);
}

// Where M / L is 5 int4 pays without errors, from 3.172 on, and not with them, from 6.821 on.
TEST(CodecCostTest, ErrorFeedbackCanBeWhatDoesNotPay) {
  const Topology topology = Links({1, 1, 1, 1}, 1e9, 5e9);
  const auto choose = [&](bool feedback) {
    return SelectCodec(topology, kReduceScatter, 1 << 24, DType::kBFloat16, kElementCodecs,
                       {.error_feedback = feedback})
        .value()
        .codec;
  };
  EXPECT_EQ(choose(false), Codec::kInt4);
  EXPECT_EQ(choose(true), Codec::kNone);
}

// c / M < 2 (p - 1) / p (b0 - b1) / L, by numbers: on 8 ranks signs of 16 bits move c = 8 bytes an
// element saved, 2 * (2 + 4) packed, 4 + 2 written, 32/8 of the sums and 0.390625 of signs, and
// send 2 * 7/8 * (2 - 1/8) = 3.28125 fewer: from M / L = 9.262 on. NVLink beside 4.8 TB/s has 10.7,
// a NIC of 50 GB/s 96, threads 1.
TEST(CodecCostTest, OneBitPaysFromAKnownRatioOn) {
  for (const double ratio : {1.0, 5.0, 9.1, 9.4, 10.7, 96.0}) {
    const Topology topology = Links(std::vector<int>(8, 1), 1e9, 1e9 * ratio);
    ASSERT_OK_AND_ASSIGN(const CodecChoice choice,
                         SelectCodec(topology, kAllReduce, 1 << 28, DType::kBFloat16));
    EXPECT_EQ(choice.codec, ratio > 9.262 ? Codec::kOneBit : Codec::kNone) << ratio;
  }
}

// c / M < 2 (p - 1) / p (b0 - b1) / L.
TEST(CodecCostTest, OneBitPaysWhereTheRuleSaysSo) {
  constexpr int64_t kElements = 1 << 28;
  for (const int ranks : {2, 8, 64}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const double b0 = precision::SizeOf(dtype);
      const double c = 20.375 + 3 * b0 + 32.125 / ranks;
      const double threshold = c / (2 * (b0 - 0.125) * (ranks - 1) / ranks);
      for (const double ratio : {0.97 * threshold, 1.03 * threshold}) {
        const Topology topology =
            Links(std::vector<int>(static_cast<size_t>(ranks), 1), 1e9, 1e9 * ratio);
        ASSERT_OK_AND_ASSIGN(const CodecChoice choice,
                             SelectCodec(topology, kAllReduce, kElements, dtype));
        EXPECT_EQ(choice.codec, ratio > threshold ? Codec::kOneBit : Codec::kNone)
            << ranks << " ranks, M / L " << ratio << ": " << choice.reason;
      }
    }
  }
}

// Top-k's messages do not merge: from a share of 1 / (2 p) on it sends more than a sum in 16 bits,
// and with memory for nothing that decides.
TEST(CodecCostTest, TopKLosesFromTheShareOnThatTheRuleNames) {
  const Topology topology = Links(std::vector<int>(16, 1), 1e9, 1e15);
  const auto choose = [&](double density) {
    return SelectCodec(topology, kAllReduce, 1 << 28, DType::kBFloat16,
                       {Codec::kNone, Codec::kTopK}, {.density = density})
        .value()
        .codec;
  };
  EXPECT_EQ(choose(0.97 / 32), Codec::kTopK);
  EXPECT_EQ(choose(1.03 / 32), Codec::kNone);
}

// A matrix of 1024 x 1024 in rank 4 sends 1/64 of it in 16 bits.
TEST(CodecCostTest, FactorsPayWhereTheyAreAskedFor) {
  const Topology topology = Links(std::vector<int>(8, 1), 1e9, 1e13);
  ASSERT_OK_AND_ASSIGN(const CodecChoice choice,
                       SelectCodec(topology, kAllReduce, 1 << 26, DType::kBFloat16, kCodecs));
  EXPECT_NE(choice.codec, Codec::kOneBit) << choice.reason;
  ASSERT_OK_AND_ASSIGN(const CodecChoice of_all,
                       SelectCodec(topology, kAllReduce, 1 << 26, DType::kBFloat16));
  EXPECT_EQ(of_all.codec, Codec::kOneBit) << of_all.reason;
  const auto refused = [&](int64_t elements, const CodecSettings& settings) {
    return CodecCostOf(topology, Codec::kPowerSgd, kAllReduce, elements, DType::kFloat32, settings)
        .status();
  };
  EXPECT_THAT(refused(1 << 20, {.rank = 16, .matrix_side = 64}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "power_sgd saves nothing by rank 16 of matrices with sides of 64 elements"));
  EXPECT_THAT(refused(100, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("sides of 10 elements")));
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refused(1, {.rank = 0}), StatusIs(kInvalid, "rank is 0, must be 1 to 128"));
  EXPECT_THAT(refused(1, {.matrix_side = 0}), StatusIs(kInvalid, HasSubstr("matrix_side is 0")));
  EXPECT_THAT(refused(1, {.density = 2}), StatusIs(kInvalid, "density is 2, must be 0 to 1"));
}

// A NIC of 50 GB/s beside 4.8 TB/s; NVLink at 450 GB/s; threads that read each other's memory.
TEST(CodecCostTest, PaysBetweenNodesAndNotInAMemory) {
  const auto choose = [](double link, double memory) {
    return SelectCodec(Links(std::vector<int>(8, 1), link, memory), kAllReduce, 1 << 28,
                       DType::kBFloat16)
        .value();
  };
  const CodecChoice nic = choose(50e9, 4.8e12);
  EXPECT_EQ(nic.codec, Codec::kOneBit);
  const Topology of_nic = Links(std::vector<int>(8, 1), 50e9, 4.8e12);
  const double plain = SecondsOf(
      of_nic, CodecCostOf(of_nic, Codec::kNone, kAllReduce, 1 << 28, DType::kBFloat16).value());
  EXPECT_GT(plain, 6 * nic.seconds);
  const CodecChoice nvlink = choose(450e9, 4.8e12);
  const Topology of_nvlink = Links(std::vector<int>(8, 1), 450e9, 4.8e12);
  const double without = SecondsOf(
      of_nvlink,
      CodecCostOf(of_nvlink, Codec::kNone, kAllReduce, 1 << 28, DType::kBFloat16).value());
  EXPECT_LT(without, 1.5 * nvlink.seconds);
  EXPECT_EQ(choose(10e9, 10e9).codec, Codec::kNone);
}

// On any machine: what is chosen is predicted to take no longer than any other way, also than none.
TEST(CodecCostTest, NeverChoosesWhatIsSlowerByItsOwnModel) {
  std::mt19937 random(7);
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
  };
  int chosen[6] = {};
  for (int i = 0; i < 2000; ++i) {
    Topology topology;
    topology.ranks_of_node.assign(static_cast<size_t>(1 + random() % 4),
                                  static_cast<int>(1 + random() % 8));
    if (topology.ranks() == 1) continue;
    topology.inside = {between(1e-7, 1e-4), between(1e8, 1e12), static_cast<int>(1 + random() % 4)};
    topology.between = {between(1e-6, 1e-3), between(1e6, 1e11),
                        static_cast<int>(1 + random() % 4)};
    topology.reduced_bytes_per_s = between(1e9, 1e12);
    topology.memory_bytes_per_s = between(1e9, 1e13);
    topology.call_s = between(1e-7, 1e-4);
    const auto elements = static_cast<int64_t>(between(1, 1e9));
    const DType dtype = random() % 2 == 0 ? DType::kFloat32 : DType::kBFloat16;
    for (const CollectiveKind operation : {kAllReduce, kReduceScatter, kAllGather}) {
      // All of them, and by turns those alone that send something of each element.
      const absl::Span<const Codec> codecs =
          i % 2 == 0 ? absl::MakeConstSpan(kCodecs) : absl::MakeConstSpan(kElementCodecs);
      ASSERT_OK_AND_ASSIGN(const CodecChoice choice,
                           SelectCodec(topology, operation, elements, dtype, codecs));
      ++chosen[static_cast<int>(choice.codec)];
      for (const Codec codec : codecs) {
        const auto cost = CodecCostOf(topology, codec, operation, elements, dtype);
        if (!cost.ok()) continue;
        EXPECT_GE(SecondsOf(topology, *cost), choice.seconds) << choice.reason;
      }
      ASSERT_OK_AND_ASSIGN(const Choice plain,
                           Select(topology, operation, elements * precision::SizeOf(dtype)));
      EXPECT_LE(choice.seconds, plain.seconds);
    }
  }
  for (const int times : {chosen[0], chosen[2], chosen[3], chosen[4] + chosen[5]}) {
    EXPECT_GT(times, 100);
  }
}

TEST(CodecCostTest, SaysWhichCodecAndWhyNot) {
  const Topology topology = Links({4, 4}, 1e9, 1e12);
  ASSERT_OK_AND_ASSIGN(const CodecChoice choice,
                       SelectCodec(topology, kAllReduce, 1 << 20, DType::kFloat32));
  EXPECT_THAT(choice.reason,
              ::testing::MatchesRegex(
                  "one_bit in all_reduce of 4 MiB in fp32: .* ms, before none with .* ms"));
  const auto refused = [&](const Topology& on, Codec codec, CollectiveKind operation) {
    return CodecCostOf(on, codec, operation, 8, DType::kFloat32).status();
  };
  constexpr auto kNoSuch = absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(refused(topology, Codec::kOneBit, kAllGather),
              StatusIs(kNoSuch, "one_bit has no all_gather"));
  EXPECT_THAT(refused(topology, Codec::kInt4, kAllReduce),
              StatusIs(kNoSuch, "int4 has no all_reduce"));
  const Topology unknown = Links({4, 4}, 1e9, 0);
  EXPECT_THAT(refused(unknown, Codec::kInt8, kAllGather),
              StatusIs(kNoSuch, HasSubstr("whose bandwidth the topology does not know")));
  ASSERT_OK_AND_ASSIGN(const CodecChoice none,
                       SelectCodec(unknown, kAllReduce, 1 << 20, DType::kFloat32));
  EXPECT_EQ(none.codec, Codec::kNone);
  EXPECT_THAT(SelectCodec(topology, kAllGather, 8, DType::kFloat32, {Codec::kOneBit}),
              StatusIs(kNoSuch, HasSubstr("no codec in all_gather of 32 B in fp32: one_bit has")));
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(SelectCodec(topology, kAllReduce, -1, DType::kFloat32),
              StatusIs(kInvalid, "there are -1 elements"));
  EXPECT_THAT(SelectCodec(topology, kAllReduce, 1, DType::kInt32),
              StatusIs(kInvalid, HasSubstr("must be fp32, fp16 or bf16")));
}

}  // namespace
}  // namespace brigade::collectives
