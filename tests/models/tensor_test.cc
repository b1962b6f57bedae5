// A decoder whose matrices are cut in tensor shards: the gradients of the whole model, and the same
// bits for any number of ranks that share the shards.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/models/model_cut.h"
#include "brigade/parallel/shard.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kSamples = 3, kPositions = 8;

// Sizes that four shards divide; the vocabulary too, or not.
DecoderConfig Llama(int64_t vocabulary, bool biases) {
  DecoderConfig config = TinyLlama();
  config.vocabulary = vocabulary;
  config.heads = 8;
  config.key_value_heads = 4;
  config.inner = 20;
  config.tied = !biases;
  config.attention_bias = config.mlp_bias = biases;
  return config;
}
DecoderConfig Gpt2(int64_t vocabulary) {
  DecoderConfig config = TinyGpt2();
  config.vocabulary = vocabulary;
  config.heads = config.key_value_heads = 4;
  config.head_width = 3;
  return config;
}

struct Named {
  const char* name;
  DecoderConfig config;
  std::optional<LoraOptions> lora = std::nullopt;
};
std::vector<Named> Models() {
  // Of products of both cuts, of tables and of the head; of a higher rank than the model's width.
  const LoraOptions all = {.rank = 2, .alpha = 4, .pattern = ".*"},
                    wide = {.rank = 15, .targets = {"o_proj", "up_proj", "lm_head"}};
  LoraOptions codes = all;
  codes.base = BaseFormat::kInt8Blocks;
  return {{"Llama", Llama(24, false)},
          {"Llama with biases and a head of its own", Llama(24, true)},
          {"Llama with whole tables", Llama(23, false)},
          {"GPT-2", Gpt2(24)},
          {"GPT-2 with whole tables", Gpt2(23)},
          {"adapters of Llama", Llama(24, false), all},
          {"adapters of Llama with a head of its own", Llama(24, true), wide},
          {"adapters of GPT-2", Gpt2(24), all},
          {"adapters of GPT-2 with whole tables", Gpt2(23), all},
          {"adapters of Llama's codes", Llama(24, true), codes}};
}

// Of the whole model.
struct Pass {
  std::vector<double> losses;
  // By parameter.
  std::vector<std::vector<double>> gradients;
};

// A forward and a backward pass of `samples` samples, of a model that has memory for kSamples. Two
// of them, so that gradients are added, too.
Pass PassesOf(const DecoderConfig& config, DecoderOptions options, int shards, int ranks,
              int64_t samples = kSamples) {
  options.samples = kSamples;
  options.positions = kPositions;
  Pass whole;
  collectives::OnThreads({.size = ranks}, [&](collectives::Rank& self) {
    DecoderOptions mine = options;
    mine.tensor.shards = {shards, ranks, self.rank};
    mine.tensor.ranks = ranks == 1 ? nullptr : self.communicator.get();
    const int64_t before = self.context->memory_stats().current_bytes();
    const int64_t communication =
        self.context->memory_stats().current_bytes(device::Purpose::kCommunication);
    auto made = Decoder::Create(config, mine, *self.context);
    ASSERT_OK(made);
    Decoder& model = **made;
    // Memory by formula.
    const auto bytes = Decoder::MemoryOf(config, mine, *self.context);
    ASSERT_OK(bytes);
    const Batch largest = {.samples = kSamples, .positions = kPositions};
    collectives::Workspace workspace;
    for (const parallel::PassCollective& each : model.CollectivesOf(largest)) {
      EXPECT_EQ(each.group, parallel::GridGroup::kTensor);
      workspace =
          collectives::Max(workspace, self.communicator->WorkspaceFor(each.signature).value());
    }
    const device::MemoryStats& stats = self.context->memory_stats();
    EXPECT_EQ(stats.current_bytes(device::Purpose::kCommunication) - communication,
              workspace.bytes());
    EXPECT_EQ(stats.current_bytes() - before,
              bytes->activations + bytes->scratch + workspace.bytes());

    // Whole values, of which each rank takes its part.
    auto arrays = ParameterArrays::Create(model.spec(), {.dtype = mine.dtype, .gradients = true},
                                          *self.context)
                      .value();
    const auto copy = [&](int p, bool to_arrays, std::vector<double>& values) {
      nn::VisitReal(mine.dtype, [&](auto tag) {
        using T = decltype(tag);
        auto host = self.context
                        ->AllocateHost(static_cast<int64_t>(values.size() * sizeof(T)),
                                       device::Purpose::kScratch, "values")
                        .value();
        const absl::Span<T> at = host.as<T>();
        const auto size = static_cast<int64_t>(values.size() * sizeof(T));
        if (to_arrays) {
          for (size_t i = 0; i < values.size(); ++i) {
            at[i] = T(static_cast<nn::Wide<T>>(values[i]));
          }
          EXPECT_OK(self.stream->Copy(arrays.weights(p), at.data(), size));
          EXPECT_OK(self.stream->Synchronize());
        } else if (arrays.gradient(p) != nullptr) {
          EXPECT_OK(self.stream->Copy(at.data(), arrays.gradient(p), size));
          EXPECT_OK(self.stream->Synchronize());
          for (size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<double>(nn::Widen(at[i]));
          }
        }
      });
    };
    const ModelCut& cut = *model.cut();
    const auto parameters = static_cast<size_t>(arrays.size());
    ASSERT_EQ(cut.parameters.size(), parameters);
    for (size_t p = 0; p < parameters; ++p) {
      const parallel::Shard& shard = cut.parameters[p];
      std::vector<float> all(static_cast<size_t>(shard.size()));
      model.Initialize(static_cast<int>(p), 5, absl::MakeSpan(all));
      const bool are_codes = model.roles()[p].kind == ParameterRole::Kind::kInt8Base;
      // Biases and norms too are of some size.
      for (size_t i = 0; i < all.size() && !are_codes; ++i) {
        all[i] = 10 * all[i] + 0.01f * static_cast<float>(i % 7);
      }
      std::vector<float> part(static_cast<size_t>(arrays.size_of(static_cast<int>(p))));
      CutValues(shard, cut.shards, all, absl::MakeSpan(part));
      if (are_codes) {
        const auto size = static_cast<int64_t>(part.size() * sizeof(float));
        ASSERT_OK(self.stream->Copy(arrays.weights(static_cast<int>(p)), part.data(), size));
        ASSERT_OK(self.stream->Synchronize());
        continue;
      }
      std::vector<double> values(part.begin(), part.end());
      copy(static_cast<int>(p), true, values);
    }

    std::vector<int32_t> ids, labels;
    const int64_t rows = samples * kPositions;
    for (int64_t sample = 0; sample < samples; ++sample) {
      for (int64_t t = 0; t < kPositions; ++t) {
        const int64_t row = sample * kPositions + t;
        ids.push_back(static_cast<int32_t>((7 * row + row * row) % 23));
        labels.push_back(row % 5 == 0 ? kIgnored : static_cast<int32_t>(3 * row % 23));
      }
      if (!mine.segments) continue;
      // Two documents.
      for (const int32_t position : {0, 1, 2, 0, 1, 2, 3, 4}) ids.push_back(position);
      for (const int32_t end : {3, 3, 3, 8, 8, 8, 8, 8}) ids.push_back(end);
    }
    const auto on_device = [&](const std::vector<int32_t>& numbers) {
      const auto size = static_cast<int64_t>(numbers.size() * sizeof(int32_t));
      auto memory = self.context->Allocate(size, device::Purpose::kScratch, "ids").value();
      EXPECT_OK(self.stream->Copy(memory.data(), numbers.data(), size));
      EXPECT_OK(self.stream->Synchronize());
      return memory;
    };
    const device::Buffer inputs = on_device(ids), targets = on_device(labels);
    auto seed =
        self.context->AllocateHost(sizeof(float), device::Purpose::kScratch, "seed").value();
    seed.as<float>()[0] = 0.25f;
    auto step = self.context->Allocate(sizeof(int64_t), device::Purpose::kScratch, "step").value();
    const int64_t number = 3;
    ASSERT_OK(self.stream->Copy(step.data(), &number, sizeof(number)));
    ASSERT_OK(self.stream->Synchronize());
    const Batch batch = {.inputs = inputs.data(),
                         .targets = targets.data(),
                         .samples = samples,
                         .positions = kPositions,
                         .step = step.as<int64_t>().data(),
                         .first_sample = 5};
    const int64_t size_of_loss = mine.dtype == DType::kFloat64 ? 8 : 4;
    auto losses =
        self.context->AllocateHost(rows * size_of_loss, device::Purpose::kScratch, "losses")
            .value();
    const auto sent = [&] {
      int64_t all = 0;
      for (int to = 0; to < ranks; ++to) all += self.communicator->sent_bytes(to);
      return all;
    };
    const int64_t sent_before = sent();
    for (int pass = 0; pass < 2; ++pass) {
      ASSERT_OK(Forward(model, batch, losses.data(), arrays, *self.stream));
      ASSERT_OK(Backward(model, batch, seed.as<float>().data(), arrays, *self.stream));
    }
    ASSERT_OK(self.communicator->Synchronize(*self.stream));
    self.AwaitOthers();
    // Bytes by formula.
    int64_t by_formula = 0;
    for (const parallel::PassCollective& each : model.CollectivesOf(batch)) {
      const auto signature = self.communicator->Resolve(each.signature).value();
      by_formula += each.times * collectives::WireBytes(signature, self.rank, ranks);
    }
    EXPECT_EQ(sent() - sent_before, 2 * by_formula);
    EXPECT_EQ(by_formula > 0, ranks > 1);

    // What all ranks have whole is the same on all; what they share goes to its place.
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == self.rank) {
        std::vector<double> mine_of_rows;
        for (int64_t row = 0; row < rows; ++row) {
          mine_of_rows.push_back(size_of_loss == 8 ? losses.as<double>()[static_cast<size_t>(row)]
                                                   : losses.as<float>()[static_cast<size_t>(row)]);
        }
        if (rank == 0) {
          whole.losses = mine_of_rows;
          for (const parallel::Shard& shard : cut.parameters) {
            whole.gradients.emplace_back(static_cast<size_t>(shard.size()));
          }
        }
        EXPECT_EQ(mine_of_rows, whole.losses);
        for (size_t p = 0; p < parameters; ++p) {
          std::vector<double> part(static_cast<size_t>(arrays.size_of(static_cast<int>(p))));
          copy(static_cast<int>(p), false, part);
          std::vector<double>& all = whole.gradients[p];
          if (!cut.parameters[p].axis.has_value() && rank > 0) {
            EXPECT_EQ(part, all) << p;
          }
          parallel::ForEachRun(cut.parameters[p], cut.shards, [&](const parallel::ShardRun& run) {
            std::copy_n(part.begin() + run.local, run.size, all.begin() + run.global);
          });
        }
      }
      self.AwaitOthers();
    }
  });
  return whole;
}

void ExpectSame(const Pass& pass, const Pass& other) {
  EXPECT_EQ(pass.losses, other.losses);
  EXPECT_EQ(pass.gradients, other.gradients);
}

// Largest difference over the largest element.
double Difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0, difference = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    EXPECT_FALSE(std::isnan(a[i])) << i;
    most = std::max(most, std::abs(b[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return most == 0 ? difference : difference / most;
}

TEST(TensorTest, GradientsAreThoseOfTheWholeModel) {
  for (const auto& [name, config, lora] : Models()) {
    // Which are not of float64.
    if (lora.has_value() && lora->base == BaseFormat::kInt8Blocks) continue;
    for (const bool segments : {false, true}) {
      const DecoderOptions options = {.dtype = DType::kFloat64, .segments = segments, .lora = lora};
      const Pass whole = PassesOf(config, options, 1, 1);
      ASSERT_FALSE(whole.losses.empty());
      for (const auto& [shards, ranks] : {std::pair(4, 2), std::pair(2, 2), std::pair(4, 1)}) {
        SCOPED_TRACE(absl::StrCat(name, segments ? ", documents" : "", ", ", shards, " shards on ",
                                  ranks, " ranks"));
        const Pass cut = PassesOf(config, options, shards, ranks);
        EXPECT_LT(Difference(cut.losses, whole.losses), 1e-13);
        ASSERT_EQ(cut.gradients.size(), whole.gradients.size());
        size_t trained = 0;
        for (size_t p = 0; p < whole.gradients.size(); ++p) {
          EXPECT_LT(Difference(cut.gradients[p], whole.gradients[p]), 1e-11) << p;
          // Those of a frozen base are none.
          const std::vector<double> zeros(whole.gradients[p].size());
          trained += Difference(whole.gradients[p], zeros) > 0 ? 1 : 0;
        }
        const auto context = device::Context::Create({}).value();
        DecoderOptions none = options;
        none.stage = StageUnits();
        const auto model = Decoder::Create(config, none, *context).value();
        const std::vector<bool>& trainable = model->trainable();
        EXPECT_EQ(trained,
                  static_cast<size_t>(std::count(trainable.begin(), trainable.end(), true)));
      }
    }
  }
}

TEST(TensorTest, AnyNumberOfRanksHasTheSameBits) {
  int turn = 0;
  for (const auto& [name, config, lora] : Models()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const int64_t samples : {kSamples, int64_t{1}}) {
        DecoderOptions options = {.dtype = dtype, .recompute = ++turn % 2 == 0, .lora = lora};
        // What is dropped is a function of the step.
        if (options.lora.has_value()) options.lora->dropout = turn % 3 == 0 ? 0 : 0.2;
        const Pass one = PassesOf(config, options, 4, 1, samples);
        for (const int ranks : {2, 4}) {
          SCOPED_TRACE(absl::StrCat(name, ", type ", static_cast<int>(dtype), ", ", samples,
                                    " samples, ", ranks, " ranks"));
          options.recompute = !options.recompute;
          ExpectSame(PassesOf(config, options, 4, ranks, samples), one);
        }
      }
    }
  }
}

// Pieces, like shards, are a part of the model.
TEST(TensorTest, OverlapChangesNoBit) {
  for (const auto& [name, config, lora] : {Models()[0], Models()[3], Models()[7]}) {
    DecoderOptions options = {.dtype = DType::kBFloat16, .lora = lora};
    if (options.lora.has_value()) options.lora->dropout = 0.2;
    options.tensor.pieces = 3;
    const Pass one = PassesOf(config, options, 4, 1);
    for (const bool overlap : {false, true}) {
      SCOPED_TRACE(absl::StrCat(name, overlap ? ", overlapped" : ""));
      options.tensor.overlap = overlap;
      ExpectSame(PassesOf(config, options, 4, 2), one);
      ExpectSame(PassesOf(config, options, 4, 4), one);
    }
  }
}

TEST(TensorTest, SumsInTheModelsTypeChangeGradientsByRoundingAlone) {
  DecoderOptions options = {.dtype = DType::kBFloat16};
  const DecoderConfig config = Llama(24, false);
  const Pass exact = PassesOf(config, options, 4, 4);
  options.tensor.wire = parallel::SumWire::kModel;
  const Pass rounded = PassesOf(config, options, 4, 4);
  EXPECT_NE(rounded.gradients, exact.gradients);
  EXPECT_LT(Difference(rounded.losses, exact.losses), 0.05);
}

TEST(TensorTest, ARankHasItsPartOfWhatIsCut) {
  const auto context = device::Context::Create({}).value();
  DecoderOptions options = {.samples = 1, .positions = 4, .stage = StageUnits()};
  options.tensor.shards = {4, 2, 1};
  const auto model = Decoder::Create(Gpt2(24), options, *context).value();
  const auto parameter = [&](const std::string& name) -> zero::ParameterSpec {
    for (const zero::UnitSpec& unit : model->spec()) {
      for (const zero::ParameterSpec& each : unit.parameters) {
        if (each.name == name) return each;
      }
    }
    ADD_FAILURE() << name;
    return {};
  };
  EXPECT_EQ(parameter("transformer.wte.weight").size, 12 * 12);
  EXPECT_EQ(parameter("transformer.wpe.weight").size, 32 * 12);
  EXPECT_EQ(parameter("transformer.h.0.attn.c_attn.weight").size, 12 * 18);
  EXPECT_EQ(parameter("transformer.h.0.attn.c_attn.bias").size, 18);
  EXPECT_EQ(parameter("transformer.h.1.attn.c_proj.weight").size, 6 * 12);
  EXPECT_EQ(parameter("transformer.h.1.attn.c_proj.bias").size, 12);
  EXPECT_EQ(parameter("transformer.h.1.mlp.c_fc.weight").size, 12 * 10);
  EXPECT_EQ(parameter("transformer.h.1.mlp.c_proj.weight").size, 10 * 12);
  // Whole ones have their shape, and count on the first rank.
  EXPECT_TRUE(parameter("transformer.h.0.mlp.c_fc.weight").shape.empty());
  EXPECT_TRUE(parameter("transformer.h.0.mlp.c_fc.weight").counted);
  EXPECT_EQ(parameter("transformer.wpe.weight").shape, (std::vector<int64_t>{32, 12}));
  EXPECT_FALSE(parameter("transformer.wpe.weight").counted);
  EXPECT_FALSE(parameter("transformer.ln_f.weight").counted);

  // The whole one again.
  options.tensor = {};
  const auto whole = Decoder::Create(Gpt2(24), options, *context).value();
  const zero::ModelSpec again = WholeOf(model->spec(), *model->cut());
  ASSERT_EQ(again.size(), whole->spec().size());
  for (size_t unit = 0; unit < again.size(); ++unit) {
    ASSERT_EQ(again[unit].parameters.size(), whole->spec()[unit].parameters.size());
    for (size_t p = 0; p < again[unit].parameters.size(); ++p) {
      const zero::ParameterSpec &one = again[unit].parameters[p],
                                &other = whole->spec()[unit].parameters[p];
      EXPECT_EQ(one.name, other.name);
      EXPECT_EQ(one.size, other.size);
      EXPECT_EQ(one.shape, other.shape);
      EXPECT_EQ(one.counted, other.counted);
    }
  }
}

TEST(TensorTest, WhatShardsDoNotDivideOrDoIsNamed) {
  const auto context = device::Context::Create({}).value();
  const auto refused = [&](const DecoderConfig& config, const DecoderOptions& options,
                           const std::string& text) {
    EXPECT_THAT(Decoder::Create(config, options, *context), StatusIs(kInvalid, HasSubstr(text)));
    EXPECT_THAT(Decoder::MemoryOf(config, options, *context), StatusIs(kInvalid, HasSubstr(text)));
  };
  DecoderOptions options = {.samples = 1, .positions = 4};
  options.tensor.shards = {4, 1, 0};
  DecoderConfig config = Llama(24, false);
  config.key_value_heads = 2;
  refused(config, options, "4 tensor shards: they do not divide its 2 heads of keys and values");
  config = Gpt2(24);
  config.inner = 18;
  refused(config, options, "they do not divide its 18 columns inside of the MLP");
  config = Gpt2(24);
  config.heads = config.key_value_heads = 2;
  config.head_width = 6;
  refused(config, options, "they do not divide its 2 heads");
  options.cached_positions = 4;
  refused(Gpt2(24), options, "keeps no positions");
  options.cached_positions = 0;
  // Ranks without a group.
  options.tensor.shards = {4, 2, 0};
  refused(Gpt2(24), options, "of rank 0 of 2");
  // Also of what has no passes, and calls nobody.
  options.stage = StageUnits();
  options.tensor.shards = {3, 2, 0};
  refused(Gpt2(24), options, "2 ranks cannot share 3 shards");
  options.stage.reset();
  options.tensor = {.pieces = 2};
  refused(Gpt2(24), options, "of which nothing is exchanged");
  options.tensor = {.shards = {2, 1, 0}, .pieces = 0};
  refused(Gpt2(24), options, "products in 0 pieces");
}

TEST(TensorTest, ACutThatIsNotTheModelsIsNamed) {
  const ModelCut cut = {.shards = {2, 2, 1}, .parameters = {{.shape = {4, 3}, .axis = 0}, {{3}}}};
  const zero::ModelSpec whole = {
      {"unit",
       {{.name = "a", .size = 12, .shape = {4, 3}}, {.name = "b", .size = 3, .shape = {3}}},
       {}}};
  const zero::ModelSpec part = PartOf(whole, cut);
  EXPECT_OK(CheckCut(part, cut, {2, 2, 1}));
  const auto named = [&](zero::ModelSpec spec, const ModelCut& of, const std::string& text) {
    EXPECT_THAT(CheckCut(spec, of, {2, 2, 1}), StatusIs(kInvalid, HasSubstr(text)));
  };
  named(whole, cut, "\"a\" has 12 elements, by Model::cut 6");
  ModelCut other = cut;
  other.shards.rank = 0;
  named(part, other,
        "2 tensor shards, as rank 0 of 2, where ModelPlace::tensor has 2 tensor shards, as rank 1");
  other = cut;
  other.parameters.pop_back();
  named(part, other, "Model::cut has 1 parameters, its spec 2");
  other = cut;
  other.parameters[0].axis = 1;
  named(part, other, "axis 1 of [4, 3]");
  zero::ModelSpec counted = part;
  counted[0].parameters[1].counted = true;
  named(counted, cut, "\"b\" counts on this rank");
}

}  // namespace
}  // namespace brigade::models
