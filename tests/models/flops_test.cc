// Operations of a decoder's units beside the formulas of profile/flops.h for a whole transformer,
// and beside sums by hand.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "brigade/models/decoder.h"
#include "brigade/profile/flops.h"
#include "brigade/tests/models/lab.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using precision::DType;
using profile::AttentionFlops;
using profile::Flops;
using profile::Pass;

constexpr int64_t kSamples = 3, kPositions = 8;
constexpr double kRows = kSamples * kPositions;

Flops Of(const UnitFlops& flops, Pass pass) { return flops[static_cast<size_t>(pass)]; }

// Of all units together.
UnitFlops Sum(const DecoderConfig& config, DecoderOptions options) {
  options.dtype = DType::kFloat32;
  options.samples = kSamples;
  options.positions = kPositions;
  auto context = device::Context::Create({}).value();
  const auto decoder = Decoder::Create(config, options, *context).value();
  UnitFlops sum;
  for (int unit = 0; unit < static_cast<int>(decoder->spec().size()); ++unit) {
    const auto flops = decoder->FlopsOf(unit, {.samples = kSamples, .positions = kPositions});
    EXPECT_TRUE(flops.has_value());
    for (size_t pass = 0; pass < sum.size(); ++pass) sum[pass] += (*flops)[pass];
  }
  return sum;
}

TEST(DecoderFlopsTest, AreThoseOfATransformerForEachToken) {
  for (const bool tied : {true, false}) {
    DecoderConfig config = TinyGpt2();
    config.tied = tied;
    const UnitFlops flops = Sum(config, {});
    // Queries, keys, values and what follows; the MLP; the head.
    const double weights = 2 * (4 * 12 * 12 + 2 * 12 * 20) + 23 * 12;
    const double per_token = profile::FlopsPerToken(
        {.weights = weights, .layers = 2, .width = 12, .context = kPositions},
        AttentionFlops::kCausal);
    const Flops forward = Of(flops, Pass::kForward), backward = Of(flops, Pass::kBackward);
    EXPECT_DOUBLE_EQ(forward.products + forward.attention + backward.products + backward.attention,
                     kRows * per_token);
    EXPECT_DOUBLE_EQ(backward.scores, 2 * profile::AttentionScoresFlops(kSamples, kPositions, 12,
                                                                        AttentionFlops::kCausal));
    EXPECT_DOUBLE_EQ(forward.norms, profile::LayerNormFlops(5 * kRows * 12));
    EXPECT_DOUBLE_EQ(forward.pointwise, 2 * (kSamples * 2 * 36.0 + kRows * 20) + kRows * 23);
    EXPECT_EQ(Of(flops, Pass::kRecompute).all(), 0);
  }
}

// Four heads of queries that are 6 wide, two of keys and values.
constexpr double kLlamaBlock = 12 * (24 + 12 + 12) + 24 * 12 + 3 * 12 * 10;
constexpr double kLlamaHead = 23 * 12;

TEST(DecoderFlopsTest, LlamasHaveItsMatrices) {
  const UnitFlops flops = Sum(TinyLlama(), {});
  EXPECT_DOUBLE_EQ(Of(flops, Pass::kForward).products, 2 * kRows * (2 * kLlamaBlock + kLlamaHead));
  EXPECT_DOUBLE_EQ(Of(flops, Pass::kBackward).products, 4 * kRows * (2 * kLlamaBlock + kLlamaHead));
  // Of all heads of queries.
  EXPECT_DOUBLE_EQ(Of(flops, Pass::kForward).attention, 2 * kSamples * 4 * 36.0 * 24);
}

TEST(DecoderFlopsTest, WhatIsMadeAgainIsAllButTheLastProductOfABlock) {
  for (const DecoderConfig& config : {TinyLlama(), TinyGpt2()}) {
    const UnitFlops flops = Sum(config, {.recompute = true}), without = Sum(config, {});
    const Flops again = Of(flops, Pass::kRecompute), forward = Of(without, Pass::kForward);
    const double last = 2 * kRows * 2 * 12 * static_cast<double>(config.inner);
    EXPECT_DOUBLE_EQ(again.products, forward.products - 2 * kRows * kLlamaHead - last);
    EXPECT_DOUBLE_EQ(again.attention, forward.attention);
    EXPECT_DOUBLE_EQ(Of(flops, Pass::kBackward).all(), Of(without, Pass::kBackward).all());
  }
}

TEST(DecoderFlopsTest, AFrozenMatrixHasNoGradientAndAnAdapterIsTwo) {
  const double all = 2 * kLlamaBlock + kLlamaHead;
  const UnitFlops frozen = Sum(TinyLlama(), {.trainable = [](const std::string& name) {
                                 return name == "model.layers.1.mlp.up_proj.weight";
                               }});
  EXPECT_DOUBLE_EQ(Of(frozen, Pass::kForward).products, 2 * kRows * all);
  EXPECT_DOUBLE_EQ(Of(frozen, Pass::kBackward).products, 2 * kRows * (all + 12 * 10));
  for (const BaseFormat base : {BaseFormat::kAsModel, BaseFormat::kInt8Blocks}) {
    // Beside v_proj, 12 inputs and outputs; of the embedding the table of rank 3 is looked up.
    DecoderOptions options;
    options.lora = LoraOptions{.rank = 3, .targets = {"v_proj", "embed_tokens"}, .base = base};
    const double adapters = 2 * 3 * (12 + 12) + 3 * 12;
    const UnitFlops lora = Sum(TinyLlama(), options);
    EXPECT_DOUBLE_EQ(Of(lora, Pass::kForward).products, 2 * kRows * (all + adapters));
    EXPECT_DOUBLE_EQ(Of(lora, Pass::kBackward).products, 2 * kRows * (all + 2 * adapters));
  }
}

}  // namespace
}  // namespace brigade::models
