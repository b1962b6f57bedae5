// Memory and traffic of codes, and of exchanges of signs, factors and greatest elements, are those
// of the models.

#include <algorithm>
#include <array>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/sign_pack/sign_pack_math.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/zero/accounting.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/memory_model.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using collectives::OnThreads;
using collectives::Rank;

// Weights and gradients as codes: memory and traffic of the model, and these by hand.
TEST(AccountingTest, CodesTakeWhatTheModelSays) {
  using kernels::QuantFormat;
  for (const ModelSpec& model : {PlainModel(), ToyModel()}) {
    for (int stage = 0; stage < kStages; ++stage) {
      for (const int micro_batches : {1, 2}) {
        for (const int node_ranks : {0, 2}) {
          Setting setting = {"codes", model, {}};
          ZeroOptions& options = setting.options;
          options.stage = stage;
          options.micro_batches = micro_batches;
          options.bucket_elements = 1000;
          options.quantized_gradients = QuantFormat::kInt4;
          options.node_ranks = node_ranks;
          if (micro_batches == 2) options.loco.emplace();
          if (stage > 0) options.quantized_weights = QuantFormat::kInt8;
          if (stage == 3) options.quantized_frozen_weights = QuantFormat::kInt4;
          SCOPED_TRACE(absl::StrCat("stage ", stage, ", nodes of ", node_ranks));
          OnThreads({.size = 4}, [&](Rank& self) {
            ExpectMemoryOfTheModel(setting, self);
            self.AwaitOthers();
            ExpectTrafficOfTheModel(setting, self);
            self.AwaitOthers();
          });
          if (model.size() != PlainModel().size()) continue;
          const Plan plan = Plan::Create(model, {4, options.dtype, 1000}).value();
          int64_t int4 = 0, int8 = 0, largest = 0;
          for (const Bucket& bucket : plan.buckets()) {
            const int64_t slice = bucket.size / 4, blocks = (slice + 255) / 256;
            const int64_t maxima = (blocks + 15) / 16 * 64;
            int4 += maxima + 128 * blocks, int8 += maxima + 256 * blocks;
            largest = std::max(largest, slice);
          }
          OnThreads({.size = 4}, [&](Rank& self) {
            auto zero = CreateZero(model, options, self).value();
            const ZeroGroups groups = GroupsOf(options, self);
            const Traffic traffic =
                TrafficOfStep(zero->plan(), options, groups.shards, groups.outer).value();
            if (stage > 0) {
              EXPECT_EQ(traffic.gradients, micro_batches * (node_ranks == 0 ? 3 : 2) * int4);
              EXPECT_EQ(traffic.parameters, (stage == 3 ? 2 * micro_batches : 1) * 3 * int8);
            }
            EXPECT_EQ(traffic.nodes, node_ranks == 0 ? 0 : micro_batches * int4);
            self.AwaitOthers();
          });
          int64_t messages = 0;
          for (const MemoryTerm& term : MemoryOf(plan, options)) {
            messages += term.name == "messages of gradients" || term.name == "messages of weights"
                            ? term.bytes
                            : 0;
          }
          const int64_t blocks = (largest + 255) / 256, maxima = (blocks + 15) / 16 * 64;
          // What is added in two hops, before it is codes with errors.
          const int64_t sums = options.loco.has_value() && node_ranks == 2 ? 2 * 4 * largest : 0;
          EXPECT_EQ(messages, 8 * (maxima + 128 * blocks) + sums +
                                  (stage == 0 ? 0 : 4 * (maxima + 256 * blocks)));
          int64_t errors = 0;
          for (const MemoryTerm& term : MemoryOf(plan, options)) {
            errors += term.name == "errors of gradients" ? term.bytes : 0;
          }
          const int parts = node_ranks == 2 ? 4 + 2 : 4;
          EXPECT_EQ(errors, options.loco.has_value() ? parts * int8 : 0);
        }
      }
    }
  }
}

// Exchanged gradients: memory and traffic of the model, and these by hand.
TEST(AccountingTest, ExchangesTakeWhatTheModelSays) {
  for (const int ranks : {1, 3, 4}) {
    for (int stage = 0; stage < 3; ++stage) {
      for (const int micro_batches : {1, 2}) {
        for (const ModelSpec& model : {PlainModel(), ToyMatrices()}) {
          Setting setting = {"exchanges", model, {}};
          ZeroOptions& options = setting.options;
          options.stage = stage;
          options.micro_batches = micro_batches;
          options.bucket_elements = 1000;
          SCOPED_TRACE(absl::StrCat("stage ", stage, ", ranks ", ranks));
          const auto expect = [&] {
            OnThreads({.size = ranks}, [&](Rank& self) {
              ExpectMemoryOfTheModel(setting, self);
              self.AwaitOthers();
              ExpectTrafficOfTheModel(setting, self);
              self.AwaitOthers();
            });
          };
          for (const GradientCompression method : kGradientCompressions) {
            options.gradient_compression = {.method = method, .rank = 2};
            expect();
          }
          options.gradient_compression.reset();
          options.optimizer.kind = optim::OptimizerKind::kOneBitAdam;
          options.optimizer.freeze_step = 0;
          expect();
          options.optimizer = {.kind = optim::OptimizerKind::kOneBitLamb, .freeze_step = 1};
          expect();
          // Meetings are in each step from the second one on.
          options.optimizer = {.kind = optim::OptimizerKind::kZeroOneAdam};
          options.optimizer.zero_one = {.var_freeze_step = 1, .local_step_clipper = 1};
          expect();
          if (stage == 0) {
            options.optimizer.zero_one.local_step_clipper = 2;
            expect();
          }
          options.optimizer = {.kind = optim::OptimizerKind::kOneBitAdam, .freeze_step = 0};
          if (ranks != 4) continue;
          options.node_ranks = 2;
          expect();
          options.optimizer.kind = optim::OptimizerKind::kAdamW;
          options.gradient_compression.emplace();
          expect();
        }
        if (ranks == 1) continue;
        // In this model each parameter has a bucket.
        OnThreads({.size = ranks}, [&](Rank& self) {
          ZeroOptions options;
          options.stage = stage;
          options.micro_batches = micro_batches;
          options.bucket_elements = 1000;
          const auto traffic = [&](int64_t tried) {
            const Plan plan = Plan::Create(PlainModel(), {ranks, options.dtype, 1000}).value();
            return TrafficOfStep(plan, options, *self.communicator, {}, tried).value();
          };
          options.accumulation = Accumulation::kAtBoundary;
          if (stage == 2) options.accumulation = Accumulation::kEveryMicroBatch;
          const int64_t plain = traffic(0).gradients;
          options.gradient_compression = {.start_step = 7};
          // In stage 2 too once for all micro-batches, in fp32.
          if (stage < 2 || micro_batches == 1) {
            EXPECT_EQ(traffic(6).gradients, plain);
          } else {
            EXPECT_EQ(traffic(6).gradients, plain / micro_batches * 2);
          }
          int64_t signs = 0;
          for (const int64_t count : {4096, 700}) {
            const int64_t part = (count + ranks - 1) / ranks;
            signs += 4 * 2 * (ranks - 1) * kernels::SignBytes(part);
          }
          EXPECT_EQ(traffic(7).gradients, signs);
          EXPECT_EQ(traffic(7).parameters, traffic(6).parameters);
          const Plan plan = Plan::Create(PlainModel(), {ranks, options.dtype, 1000}).value();
          int64_t errors = 0, mean = 0;
          for (const MemoryTerm& term : MemoryOf(plan, options)) {
            if (term.name == "errors of exchanges") errors += term.bytes;
            if (term.name == "exchanged gradients") mean += term.bytes;
          }
          int64_t padded = 0;
          for (const Bucket& bucket : plan.buckets()) padded += bucket.size;
          EXPECT_EQ(mean, 4 * padded);
          EXPECT_EQ(errors,
                    4 * 4 * (4796 + (4096 + ranks - 1) / ranks + (700 + ranks - 1) / ranks));
          self.AwaitOthers();
        });
      }
    }
  }
}

// Signs in two hops by hand: of 4 ranks in nodes of 2. In this model each parameter has a bucket.
TEST(AccountingTest, SignsInTwoHopsLeaveANodeOnce) {
  for (int stage = 0; stage < 3; ++stage) {
    OnThreads({.size = 4}, [&](Rank& self) {
      ZeroOptions options;
      options.stage = stage;
      options.bucket_elements = 1000;
      options.gradient_compression.emplace();
      options.node_ranks = 2;
      auto zero = CreateZero(PlainModel(), options, self).value();
      const ZeroGroups groups = GroupsOf(options, self);
      const Traffic traffic =
          TrafficOfStep(zero->plan(), options, groups.shards, groups.outer).value();
      // Four parameters of each size. Inside a node half of the fp32 elements, there and back; to
      // the other node the signs of a quarter, and of the sum of another quarter.
      int64_t inside = 0, between = 0, errors = 0;
      for (const int64_t count : {4096, 700}) {
        inside += 4 * 2 * (count / 2) * 4;
        between += 4 * 2 * kernels::SignBytes(count / 4);
        errors += 4 * 4 * (count / 2 + count / 4);
      }
      EXPECT_EQ(traffic.gradients, inside);
      EXPECT_EQ(traffic.nodes, between);
      int64_t modelled = 0;
      for (const MemoryTerm& term : MemoryOf(zero->plan(), options)) {
        modelled += term.name == "errors of exchanges" ? term.bytes : 0;
      }
      EXPECT_EQ(modelled, errors);
      self.AwaitOthers();
    });
  }
}

// Groups that exchange, in all stages, beside the model; a place in groups has its own elements.
TEST(AccountingTest, ExchangesOfGroupsTakeWhatTheModelSays) {
  for (const auto& [ranks, shard_ranks] : {std::pair(4, 2), std::pair(3, 1)}) {
    for (int stage = 0; stage < kStages; ++stage) {
      Setting setting = {"", ToyMatrices(), {}};
      ZeroOptions& options = setting.options;
      options.stage = stage;
      options.micro_batches = 1 + stage % 2;
      options.bucket_elements = 1000;
      options.shard_ranks = shard_ranks;
      const auto expect = [&](const char* name) {
        SCOPED_TRACE(absl::StrCat(name, ", stage ", stage, ", ranks ", ranks));
        OnThreads({.size = ranks}, [&](Rank& self) {
          ExpectMemoryOfTheModel(setting, self);
          self.AwaitOthers();
          ExpectTrafficOfTheModel(setting, self);
          self.AwaitOthers();
        });
      };
      for (const GradientCompression method : kGradientCompressions) {
        options.gradient_compression = {.method = method, .rank = 2};
        expect(Name(method));
      }
      options.quantized_gradients = kernels::QuantFormat::kInt4;
      expect("codes inside groups");
      options.quantized_gradients.reset();
      options.gradient_compression.reset();
      options.optimizer = {.kind = optim::OptimizerKind::kOneBitAdam, .freeze_step = 0};
      expect("OneBitAdam");
      options.optimizer = {.kind = optim::OptimizerKind::kOneBitLamb, .freeze_step = 1};
      expect("OneBitLamb");
      options.optimizer = {.kind = optim::OptimizerKind::kZeroOneAdam};
      options.optimizer.zero_one = {.var_freeze_step = 1, .local_step_clipper = 1};
      expect("ZeroOneAdam");
    }
  }
}

// Signs between two groups of two by hand. In this model each parameter has a bucket, the smaller
// ones of 1,024 elements with padding.
TEST(AccountingTest, GroupsSendTheSignsOfASlice) {
  for (int stage = 0; stage < kStages; ++stage) {
    OnThreads({.size = 4}, [&](Rank& self) {
      ZeroOptions options;
      options.stage = stage;
      options.bucket_elements = 1000;
      options.gradient_compression.emplace();
      options.shard_ranks = 2;
      auto zero = CreateZero(PlainModel(), options, self).value();
      const ZeroGroups groups = GroupsOf(options, self);
      const Traffic traffic =
          TrafficOfStep(zero->plan(), options, groups.shards, groups.outer).value();
      // Four parameters of each size; of the second one the first half of the bucket is full.
      const std::array<int64_t, 2> counts = {2048, zero->rank() == 0 ? 512 : 700 - 512};
      int64_t between = 0, errors = 0;
      for (const int64_t count : counts) {
        between += 4 * 2 * kernels::SignBytes(count / 2);
        errors += 4 * 4 * (count + count / 2);
      }
      EXPECT_EQ(traffic.between, between);
      int64_t modelled = 0;
      for (const MemoryTerm& term : MemoryOf(zero->plan(), options, zero->rank())) {
        modelled += term.name == "errors of exchanges" ? term.bytes : 0;
      }
      EXPECT_EQ(modelled, errors);
      self.AwaitOthers();
    });
  }
}

// Factors and greatest elements by hand. In this model each parameter has a bucket.
TEST(AccountingTest, FactorsAndGreatestElementsSendWhatTheirNumbersSay) {
  ModelSpec model = PlainModel();
  int64_t matrices = 0, vectors = 0;
  for (UnitSpec& unit : model) {
    for (ParameterSpec& parameter : unit.parameters) {
      ++(parameter.size == 4096 ? matrices : vectors);
      if (parameter.size == 4096) parameter.shape = {16, 4, 64};
    }
  }
  for (const int ranks : {2, 3}) {
    ZeroOptions options;
    options.bucket_elements = 1000;
    const Plan plan = Plan::Create(model, {ranks, options.dtype, 1000}).value();
    const auto bytes = [&](const char* name) {
      int64_t sum = 0;
      for (const MemoryTerm& term : MemoryOf(plan, options))
        sum += term.name == name ? term.bytes : 0;
      return sum;
    };
    const auto sent = [&] {
      std::atomic<int64_t> by_all = 0;
      OnThreads({.size = ranks}, [&](Rank& self) {
        by_all += TrafficOfStep(plan, options, *self.communicator).value().gradients;
        self.AwaitOthers();
      });
      return by_all.load();
    };
    const int64_t all = matrices * 4096 + vectors * 700;
    // 16 rows and 256 columns. Of a sum each rank but the owner sends an element, and gets it.
    options.gradient_compression = {.method = GradientCompression::kPowerSgd, .rank = 3};
    EXPECT_EQ(sent(), 4 * 2 * (ranks - 1) * (matrices * 3 * (16 + 256) + vectors * 700));
    EXPECT_EQ(bytes("errors of exchanges"), 4 * matrices * (4096 + 3 * 256));
    // The buckets of one shape share the memory of an exchange.
    const int64_t once = bytes("messages of exchanges");
    options.gradient_compression->iterations = 3;
    EXPECT_EQ(sent(), 4 * 2 * (ranks - 1) * (3 * matrices * 3 * (16 + 256) + vectors * 700));
    EXPECT_EQ(bytes("messages of exchanges"), once);
    options.gradient_compression->iterations = 1;
    options.gradient_compression->rank = 128;
    EXPECT_EQ(sent(), 4 * 2 * (ranks - 1) * all);
    EXPECT_EQ(bytes("errors of exchanges"), 0);
    EXPECT_LT(once, 4 * (4096 + 3 * (16 + 2 * 256) + 700) + 16 * 1024);
    options.gradient_compression = {.method = GradientCompression::kTopK, .density = 1.0 / 64};
    EXPECT_EQ(sent(), ranks * (ranks - 1) * 8 * (matrices * 64 + vectors * 11));
    EXPECT_EQ(bytes("errors of exchanges"), 4 * all);
  }
}

}  // namespace
}  // namespace brigade::zero
