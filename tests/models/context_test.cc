// A decoder whose samples several ranks share: the losses and gradients of one that has whole ones.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using parallel::ContextExchange;
using precision::DType;
using ::testing::HasSubstr;

// Of a sample; and of micro-batches, of which the second one is short.
constexpr int64_t kPositions = 16;
constexpr int64_t kSamples[] = {3, 2};
constexpr float kSeed = 0.25f;

DecoderConfig ConfigOf(const std::string& name) {
  if (name == "llama") return TinyLlama();
  DecoderConfig config = TinyGpt2();
  config.heads = config.key_value_heads = 4;
  config.head_width = 3;
  return config;
}

DecoderOptions OptionsOf(const std::string& name, DType dtype, bool recompute, bool adapters) {
  DecoderOptions options = {
      .dtype = dtype, .samples = kSamples[0], .positions = kPositions, .recompute = recompute};
  if (adapters) {
    options.lora = LoraOptions{
        .rank = 2,
        .alpha = 4,
        .dropout = 0.3,
        .targets = name == "llama" ? std::vector<std::string>{"q_proj", "down_proj", "embed_tokens"}
                                   : std::vector<std::string>{"c_attn", "c_fc", "wte", "wpe"}};
  }
  return options;
}

struct Results {
  // Of each position of each sample of each micro-batch.
  std::vector<double> losses;
  // By the parameter's number; of frozen ones nothing.
  std::vector<std::vector<double>> gradients;
};

// Ids, or labels, of a micro-batch's positions that a rank has.
std::vector<int32_t> TokensOf(int64_t micro_batch, int64_t vocabulary, bool are_labels,
                              const parallel::ContextRanks& ranks) {
  std::vector<int32_t> tokens;
  for (int64_t sample = 0; sample < kSamples[micro_batch]; ++sample) {
    for (const parallel::PositionRun& run : ranks.RunsOf(kPositions)) {
      for (int64_t t = run.global; t < run.global + run.count; ++t) {
        const int64_t row = sample * kPositions + t;
        const int64_t id = are_labels ? 3 * row + micro_batch : 7 * row + 3 * micro_batch + t * t;
        tokens.push_back(are_labels && row % 5 == 0 ? kIgnored
                                                    : static_cast<int32_t>(id % vocabulary));
      }
    }
  }
  return tokens;
}

// One rank's passes over the micro-batches, whose gradients are added up.
void Run(const DecoderConfig& config, DecoderOptions options, const parallel::ContextRanks& ranks,
         device::Context& context, device::Stream& stream, Results& results) {
  options.context_ranks = ranks;
  options.positions = kPositions / ranks.size();
  const auto allocated = [&](device::Purpose purpose) {
    return context.memory_stats().current_bytes(purpose);
  };
  const int64_t activations = allocated(device::Purpose::kActivations);
  const int64_t scratch = allocated(device::Purpose::kScratch);
  auto made = Decoder::Create(config, options, context);
  ASSERT_OK(made);
  Decoder& model = **made;
  EXPECT_EQ(model.bytes().activations, allocated(device::Purpose::kActivations) - activations);
  EXPECT_EQ(model.bytes().scratch, allocated(device::Purpose::kScratch) - scratch);
  EXPECT_EQ(model.cuts_positions(), ranks.size() > 1);
  auto created =
      ParameterArrays::Create(model.spec(), {.dtype = options.dtype, .gradients = true}, context);
  ASSERT_OK(created);
  ParameterArrays& arrays = *created;

  std::vector<device::Buffer> buffers;
  const auto array = [&](int64_t bytes) {
    buffers.push_back(
        context.AllocateHost(std::max<int64_t>(bytes, 1), device::Purpose::kScratch, "array")
            .value());
    return buffers.back().data();
  };
  const auto filled = [&](const auto& values) {
    const auto bytes = values.size() * sizeof(values[0]);
    void* const to = array(static_cast<int64_t>(bytes));
    std::memcpy(to, values.data(), bytes);
    return to;
  };
  nn::VisitReal(options.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (int p = 0; p < arrays.size(); ++p) {
      std::vector<float> values(static_cast<size_t>(arrays.size_of(p)));
      model.Initialize(p, 5, absl::MakeSpan(values));
      std::vector<T> weights;
      for (const float value : values) {
        // Large enough that positions matter; what adapters add is 0 at first.
        const double scaled = value == 1 ? 1.0 : value == 0 ? 0.1 : 10.0 * value;
        weights.push_back(T(static_cast<nn::Wide<T>>(scaled)));
      }
      EXPECT_OK(stream.Copy(arrays.weights(p), filled(weights), arrays.bytes_of(p)));
    }
  });

  const auto* const seed = static_cast<const float*>(filled(std::vector<float>{kSeed}));
  const auto* const step = static_cast<const int64_t*>(filled(std::vector<int64_t>{7}));
  const bool is_double = options.dtype == DType::kFloat64;
  arrays.BeginGradients();
  std::vector<void*> losses;
  int64_t sent = 0;
  const auto sent_so_far = [&] {
    int64_t bytes = 0;
    for (int to = 0; to < ranks.size() && ranks.share(); ++to) bytes += ranks.group->sent_bytes(to);
    return bytes;
  };
  const int64_t sent_before = sent_so_far();
  for (int64_t m = 0; m < std::ssize(kSamples); ++m) {
    const Batch batch = {.inputs = filled(TokensOf(m, config.vocabulary, false, ranks)),
                         .targets = filled(TokensOf(m, config.vocabulary, true, ranks)),
                         .samples = kSamples[m],
                         .positions = options.positions,
                         .step = step,
                         .first_sample = 5 + m * kSamples[0]};
    losses.push_back(array(batch.rows() * (is_double ? 8 : 4)));
    ASSERT_OK(Forward(model, batch, losses.back(), arrays, stream));
    ASSERT_OK(Backward(model, batch, seed, arrays, stream));
    for (const parallel::PassCollective& each : model.CollectivesOf(batch)) {
      const auto signature = ranks.group->Resolve(each.signature);
      ASSERT_OK(signature);
      sent += each.times * collectives::WireBytes(*signature, ranks.rank(), ranks.size());
    }
  }
  ASSERT_OK(stream.Synchronize());
  EXPECT_EQ(sent_so_far() - sent_before, sent);
  EXPECT_EQ(sent > 0, ranks.share());

  results.losses.assign(static_cast<size_t>((kSamples[0] + kSamples[1]) * kPositions), 0);
  int64_t sample_of_all = 0;
  for (int64_t m = 0; m < std::ssize(kSamples); ++m) {
    for (int64_t sample = 0; sample < kSamples[m]; ++sample, ++sample_of_all) {
      for (const parallel::PositionRun& run : ranks.RunsOf(kPositions)) {
        for (int64_t i = 0; i < run.count; ++i) {
          const auto at = static_cast<size_t>(sample * options.positions + run.local + i);
          const void* const all = losses[static_cast<size_t>(m)];
          results.losses[static_cast<size_t>(sample_of_all * kPositions + run.global + i)] =
              is_double ? static_cast<const double*>(all)[at]
                        : static_cast<double>(static_cast<const float*>(all)[at]);
        }
      }
    }
  }
  results.gradients.resize(static_cast<size_t>(arrays.size()));
  nn::VisitReal(options.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (int p = 0; p < arrays.size(); ++p) {
      if (arrays.gradient(p) == nullptr) continue;
      const auto* const host = static_cast<T*>(array(arrays.bytes_of(p)));
      EXPECT_OK(stream.Copy(const_cast<T*>(host), arrays.gradient(p), arrays.bytes_of(p)));
      EXPECT_OK(stream.Synchronize());
      std::vector<double>& gradient = results.gradients[static_cast<size_t>(p)];
      for (int64_t i = 0; i < arrays.size_of(p); ++i) {
        gradient.push_back(static_cast<double>(nn::Widen(host[i])));
      }
    }
  });
}

Results OfOne(const DecoderConfig& config, const DecoderOptions& options) {
  const auto context =
      device::Context::Create({.device = BRIGADE_LAB_DEVICE, .compute_threads = 2}).value();
  const auto stream = context->CreateStream("compute").value();
  Results results;
  Run(config, options, {}, *context, *stream, results);
  return results;
}

// Sums over the ranks: each has its positions, and 0 for those of others.
Results OfRanks(const DecoderConfig& config, const DecoderOptions& options, int ranks,
                ContextExchange exchange) {
  device::Mutex mutex;
  std::map<int, Results> by_rank;
  collectives::OnThreads({.size = ranks, .device = BRIGADE_LAB_DEVICE}, [&](collectives::Rank&
                                                                                self) {
    Results results;
    Run(config, options, {self.communicator.get(), exchange}, *self.context, *self.stream, results);
    self.AwaitOthers();
    device::MutexLock lock(mutex);
    by_rank[self.rank] = std::move(results);
  });
  Results sum;
  for (const auto& [rank, results] : by_rank) {
    if (rank == 0) {
      sum = results;
      continue;
    }
    const auto add = [](const std::vector<double>& from, std::vector<double>& to) {
      EXPECT_EQ(from.size(), to.size());
      for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) to[i] += from[i];
    };
    add(results.losses, sum.losses);
    EXPECT_EQ(results.gradients.size(), sum.gradients.size());
    for (size_t p = 0; p < std::min(results.gradients.size(), sum.gradients.size()); ++p) {
      add(results.gradients[p], sum.gradients[p]);
    }
  }
  return sum;
}

void ExpectNear(const std::vector<double>& values, const std::vector<double>& expected,
                double bound, const std::string& what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  double largest = 0, off = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    // Not for NaN.
    ASSERT_TRUE(std::isfinite(values[i])) << what << " " << i;
    off = std::max(off, std::abs(values[i] - expected[i]));
  }
  EXPECT_LE(off, bound * largest) << what;
}

using Parameter = std::tuple<const char*, DType, bool, bool, int>;
class ContextTest : public ::testing::TestWithParam<Parameter> {};
INSTANTIATE_TEST_SUITE_P(
    Models, ContextTest,
    ::testing::Combine(::testing::Values("llama", "gpt2"),
                       ::testing::Values(DType::kFloat64, DType::kFloat32, DType::kBFloat16),
                       ::testing::Bool(), ::testing::Bool(), ::testing::Values(2, 4)),
    [](const auto& info) {
      return absl::StrCat(std::get<0>(info.param), "_", 8 * SizeOf(std::get<1>(info.param)),
                          std::get<2>(info.param) ? "_recompute" : "",
                          std::get<3>(info.param) ? "_adapters" : "", "_on",
                          std::get<4>(info.param));
    });

// Sums are in another order than those of one rank: in double nothing else is seen.
TEST_P(ContextTest, LossesAndGradientsAreThoseOfWholeSamples) {
  const auto& [name, dtype, recompute, adapters, ranks] = GetParam();
  const DecoderConfig config = ConfigOf(name);
  const DecoderOptions options = OptionsOf(name, dtype, recompute, adapters);
  const Results whole = OfOne(config, options);
  // Dropout, positions and attention are in it.
  EXPECT_GT(*std::max_element(whole.losses.begin(), whole.losses.end()), 0.5);
  const double bound = dtype == DType::kFloat64 ? 1e-13 : dtype == DType::kFloat32 ? 1e-5 : 0.06;
  for (const ContextExchange exchange : {ContextExchange::kUlysses, ContextExchange::kRing}) {
    SCOPED_TRACE(exchange == ContextExchange::kRing ? "ring" : "ulysses");
    const Results shared = OfRanks(config, options, ranks, exchange);
    ExpectNear(shared.losses, whole.losses, bound, "losses");
    ASSERT_EQ(shared.gradients.size(), whole.gradients.size());
    for (size_t p = 0; p < whole.gradients.size(); ++p) {
      ExpectNear(shared.gradients[p], whole.gradients[p], 10 * bound, absl::StrCat("gradient ", p));
    }
    const Results again = OfRanks(config, options, ranks, exchange);
    EXPECT_EQ(again.losses, shared.losses);
    EXPECT_EQ(again.gradients, shared.gradients);
  }
}

TEST(ContextOptionsTest, WhatCannotBeSharedIsNamed) {
  collectives::OnThreads({.size = 2, .device = BRIGADE_LAB_DEVICE}, [](collectives::Rank& self) {
    const auto made = [&](DecoderConfig config, ContextExchange exchange, const auto& change) {
      DecoderOptions options = {.dtype = DType::kFloat32, .samples = 2, .positions = 8};
      options.context_ranks = {self.communicator.get(), exchange};
      change(config, options);
      return Decoder::Create(config, options, *self.context).status();
    };
    const auto nothing = [](DecoderConfig&, DecoderOptions&) {};
    const auto refused = [](const char* text) {
      return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
    };
    constexpr auto kRing = ContextExchange::kRing, kUlysses = ContextExchange::kUlysses;
    const DecoderConfig llama = ConfigOf("llama");
    EXPECT_OK(made(llama, kRing, nothing));
    EXPECT_OK(made(llama, kUlysses, nothing));
    // Heads of keys and values need not be shared, nor those of a ring.
    EXPECT_OK(made(llama, kUlysses,
                   [](DecoderConfig& config, DecoderOptions&) { config.key_value_heads = 1; }));
    const auto odd = [](DecoderConfig& config, DecoderOptions&) {
      config.heads = config.key_value_heads = 3;
      config.head_width = 4;
    };
    EXPECT_OK(made(llama, kRing, odd));
    EXPECT_THAT(made(llama, kUlysses, odd), refused("3 heads 2 context ranks cannot share"));
    EXPECT_THAT(made(llama, kRing, [](DecoderConfig&, DecoderOptions& of) { of.positions = 5; }),
                refused("10 positions cannot be cut into two chunks for each of 2"));
    EXPECT_THAT(made(llama, kRing, [](DecoderConfig&, DecoderOptions& of) { of.positions = 17; }),
                refused("17 positions on each of 2 context ranks; all may be at most 32"));
    EXPECT_THAT(
        made(llama, kUlysses, [](DecoderConfig&, DecoderOptions& of) { of.segments = true; }),
        refused("several segments, whose positions are cut over context ranks"));
    EXPECT_THAT(made(llama, kRing,
                     [](DecoderConfig&, DecoderOptions& of) {
                       of.trains = false;
                       of.cached_positions = 8;
                     }),
                refused("keeps positions of texts that are cut over context ranks"));
  });
}

// Tables, ring and rotation are of the positions that the model was made for.
TEST(ContextOptionsTest, ABatchHasAllPositionsOfTheRank) {
  collectives::OnThreads({.size = 2, .device = BRIGADE_LAB_DEVICE}, [](collectives::Rank& self) {
    DecoderOptions options = {.dtype = DType::kFloat32, .samples = 2, .positions = 8};
    options.context_ranks = {self.communicator.get(), ContextExchange::kRing};
    const auto model = Decoder::Create(ConfigOf("llama"), options, *self.context).value();
    auto arrays =
        ParameterArrays::Create(model->spec(), {.dtype = DType::kFloat32}, *self.context).value();
    EXPECT_THAT(Forward(*model, {.inputs = &self, .samples = 1, .positions = 4}, nullptr, arrays,
                        *self.stream),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("4 positions, where each of 2 context ranks has 8")));
  });
}

}  // namespace
}  // namespace brigade::models
