// When codecs pay, by the model: where the rule of thumb says so, and never where they would make a
// call slower.

#include "brigade/collectives/tuning/codec_cost.h"

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/collectives/compressed/quantized_all_gather.h"
#include "brigade/collectives/compressed/quantized_reduce_scatter.h"
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
  ASSERT_OK_AND_ASSIGN(const CodecCost none,
                       CodecCostOf(topology, Codec::kNone, kAllGather, 100, DType::kFloat16));
  EXPECT_EQ(none.memory_bytes, 0);
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
  int chosen[4] = {};
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
      ASSERT_OK_AND_ASSIGN(const CodecChoice choice,
                           SelectCodec(topology, operation, elements, dtype));
      ++chosen[static_cast<int>(choice.codec)];
      for (const Codec codec : kCodecs) {
        const auto cost = CodecCostOf(topology, codec, operation, elements, dtype);
        if (!cost.ok()) continue;
        EXPECT_GE(SecondsOf(topology, *cost), choice.seconds) << choice.reason;
      }
      ASSERT_OK_AND_ASSIGN(const Choice plain,
                           Select(topology, operation, elements * precision::SizeOf(dtype)));
      EXPECT_LE(choice.seconds, plain.seconds);
    }
  }
  for (const int times : {chosen[0], chosen[2], chosen[3]}) EXPECT_GT(times, 100);
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
