// Memory and traffic are those of the models; a step neither waits on the host nor allocates.

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/device/file/file_store.h"
#include "brigade/kernels/sign_pack/sign_pack_math.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/memory_model.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using collectives::OnThreads;
using collectives::Rank;
using device::Purpose;
using precision::DType;

// No tied, frozen or odd parameters.
ModelSpec PlainModel() {
  ModelSpec model;
  for (const char* name : {"a", "b", "c", "d"}) {
    model.push_back({name, {{absl::StrCat(name, ".w"), 4096}, {absl::StrCat(name, ".v"), 700}}});
  }
  return model;
}

absl::Status EmptyUse(ZeroOptimizer& zero, int unit, Pass pass) {
  absl::Status status = zero.Acquire(unit, pass);
  status.Update(zero.Release(unit));
  return status;
}

absl::Status EmptyBackward(ZeroOptimizer& zero, int unit, device::Stream& compute) {
  absl::Status status = zero.Acquire(unit, Pass::kBackward);
  for (const int p : zero.plan().unit(unit).parameters) {
    const ParameterSpec& spec = zero.plan().parameter(p).spec;
    if (!spec.trainable) continue;
    const auto target = zero.Gradient(unit, p);
    status.Update(target.status());
    if (target.ok() && !target->accumulate) {
      status.Update(compute.FillBytes(target->data, 0, spec.size * precision::SizeOf(*spec.dtype)));
    }
  }
  status.Update(zero.Release(unit));
  status.Update(zero.GradientsReady(unit));
  return status;
}

// The runs of a step: forward uses, and in a chunk's last run all its backward passes.
absl::Status EmptyRuns(ZeroOptimizer& zero, device::Stream& compute) {
  const std::vector<int>& chunks = zero.options().chunks;
  const std::vector<int>& runs = zero.options().runs;
  absl::Status status;
  for (auto run = runs.begin(); run != runs.end(); ++run) {
    status.Update(zero.BeginRun(*run));
    const auto next = static_cast<size_t>(*run) + 1;
    const int end =
        next < chunks.size() ? chunks[next] : static_cast<int>(zero.plan().units().size());
    for (int unit = chunks[next - 1]; unit < end; ++unit) {
      status.Update(EmptyUse(zero, unit, Pass::kForward));
    }
    const bool is_last = std::find(run + 1, runs.end(), *run) == runs.end();
    for (int micro = 0; micro < zero.options().micro_batches && is_last; ++micro) {
      for (int unit = end; unit-- > chunks[next - 1];) {
        status.Update(EmptyBackward(zero, unit, compute));
      }
      status.Update(zero.FinishBackward(*run));
    }
    status.Update(zero.EndRun());
  }
  return status;
}

// Every pass and gradient of a step, without work: gradients are zero.
absl::Status EmptyStep(ZeroOptimizer& zero, device::Stream& compute, float* losses = nullptr) {
  const int units = static_cast<int>(zero.plan().units().size());
  const bool has_runs = !zero.options().runs.empty();
  absl::Status status;
  if (has_runs) status = EmptyRuns(zero, compute);
  for (int micro = 0; micro < zero.options().micro_batches && !has_runs; ++micro) {
    for (int unit = 0; unit < units; ++unit) {
      status.Update(EmptyUse(zero, unit, Pass::kForward));
    }
    if (losses != nullptr) {
      status.Update(zero.ScaleLoss(losses, losses + 1, 1, DType::kFloat32));
    }
    const std::vector<int>& order = zero.options().backward_units;
    const size_t uses = order.empty() ? static_cast<size_t>(units) : order.size();
    for (size_t use = 0; use < uses; ++use) {
      const int unit = order.empty() ? units - 1 - static_cast<int>(use) : order[use];
      const bool again =
          !order.empty() && std::find(order.begin() + static_cast<ptrdiff_t>(use) + 1, order.end(),
                                      unit) != order.end();
      status.Update(again ? EmptyUse(zero, unit, Pass::kBackward)
                          : EmptyBackward(zero, unit, compute));
    }
    status.Update(zero.FinishBackward());
  }
  status.Update(zero.Step());
  return status;
}

struct Setting {
  const char* name;
  ModelSpec model;
  ZeroOptions options;
};

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  ModelSpec mixed = ToyModel();
  mixed[1].parameters[1].dtype = DType::kFloat16;
  for (const ModelSpec& model : {PlainModel(), ToyModel(), mixed}) {
    for (int stage = 0; stage < kStages; ++stage) {
      ZeroOptions options;
      options.stage = stage;
      options.bucket_elements = 1000;
      settings.push_back({"bfloat16", model, options});
      options.dtype = DType::kFloat32;
      options.optimizer.kind = optim::OptimizerKind::kSgd;
      settings.push_back({"float32, SGD", model, options});
      ZeroOptions lion = options;
      lion.optimizer.kind = optim::OptimizerKind::kLion;
      settings.push_back({"float32, Lion", model, lion});
      ZeroOptions codes = options;
      codes.optimizer.kind = optim::OptimizerKind::kAdamW8;
      codes.optimizer.coded.min_elements = 500;
      settings.push_back({"float32, AdamW with codes", model, codes});
      if (model.size() != 4 && !model[1].parameters[1].dtype.has_value()) {
        // Its slices are long.
        ZeroOptions lamb;
        lamb.stage = stage;
        lamb.bucket_elements = 20'000;
        lamb.optimizer.kind = optim::OptimizerKind::kLamb;
        settings.push_back({"bfloat16, LAMB", model, lamb});
      }
      if (model.size() != 4) {
        // One that is a table, and matrices beside all else.
        ModelSpec matrices = model;
        matrices[0].parameters[0].shape = {35, 20};
        matrices[0].parameters[0].low_rank = false;
        matrices[1].parameters[0].shape = {30, 50};
        matrices[2].parameters[0].shape = {100, 15};
        ZeroOptions muon;
        muon.stage = stage;
        muon.bucket_elements = 1000;
        muon.optimizer.kind = optim::OptimizerKind::kMuon;
        settings.push_back({"bfloat16, Muon", matrices, muon});
      }
      ZeroOptions narrow = options;
      narrow.communication_dtype = DType::kFloat16;
      settings.push_back({"float32 over float16", model, narrow});
      narrow.micro_batches = 2;
      settings.push_back({"float32 over float16, two micro-batches", model, narrow});
      options.optimizer.groups[0].momentum = 0.9;
      options.dtype = DType::kFloat16;
      options.micro_batches = 2;
      options.live_units = 3;
      settings.push_back({"float16, two micro-batches", model, options});
      ZeroOptions wide = options;
      wide.communication_dtype = DType::kFloat32;
      settings.push_back({"over float32, two micro-batches", model, wide});
      wide.micro_batches = 1;
      settings.push_back({"over float32", model, wide});
      ZeroOptions again = options;
      again.backward_units = model.size() == 4 ? std::vector<int>{3, 0, 1, 2, 1, 0}
                                               : std::vector<int>{4, 2, 3, 2, 1, 0, 0};
      settings.push_back({"units used again", model, again});
      again.live_units = 2;
      again.micro_batches = 1;
      settings.push_back({"units used again, two live", model, again});
      if (model.size() != 4) {
        // The toy's tied units are in several chunks.
        ZeroOptions apart = options;
        apart.micro_batches = model[1].parameters[1].dtype.has_value() ? 1 : 2;
        apart.tied_apart = true;
        apart.chunks = {0, 2, 4};
        apart.runs = RunsOf(InterleavedPasses(3, apart.micro_batches));
        settings.push_back({"tied apart, in chunks and runs", model, apart});
      }
      if (stage == 3) {
        options.persistence_threshold = 100;
        settings.push_back({"persistent units", model, options});
        options.backward_units = again.backward_units;
        settings.push_back({"persistent units, used again", model, options});
        options.backward_units.clear();
      }
      if (stage > 1) continue;
      options.accumulation = Accumulation::kAtBoundary;
      settings.push_back({"at the boundary", model, options});
      for (const DType wire : {DType::kBFloat16, DType::kFloat16}) {
        options.communication_dtype = wire;
        settings.push_back({"at the boundary, over 16 bits", model, options});
      }
    }
  }
  // Those of the toy model with the state on the host, or in a file, as well.
  for (size_t i = 0, on_device = settings.size(); i < on_device; ++i) {
    Setting setting = settings[i];
    if (setting.model.size() != ToyModel().size()) continue;
    for (const OffloadOptions& offload : Offloads()) {
      // Disks are slow.
      if (offload.file_state() && i % 4 != 0) continue;
      setting.options.offload = offload;
      if (Validate(setting.options).ok()) settings.push_back(setting);
      setting.options.offload.delay_update = true;
      setting.options.offload.delay_warm_up = 1;
      if (Validate(setting.options).ok()) settings.push_back(setting);
    }
  }
  return settings;
}

// The bytes of each purpose beside the model, from Create on.
void ExpectMemoryOfTheModel(const Setting& setting, Rank& self) {
  const device::MemoryStats& stats = self.context->memory_stats();
  const device::MemoryStats& host_stats = self.context->host_memory_stats();
  using device::Tier;
  // Of the communicator itself.
  const int64_t before = stats.current_bytes(Purpose::kCommunication);
  const int64_t host_before = host_stats.current_bytes(Purpose::kCommunication);
  auto zero = CreateZero(setting.model, setting.options, self);
  ASSERT_OK(zero);
  const ZeroGroups groups = GroupsOf(setting.options, self);
  const std::vector<MemoryTerm> terms =
      MemoryOf((*zero)->plan(), setting.options, groups.shards, groups.outer).value();
  const auto expect = [&](const char* when) {
    for (const Purpose purpose :
         {Purpose::kParameters, Purpose::kGradients, Purpose::kOptimizerState,
          Purpose::kCommunication, Purpose::kScratch, Purpose::kActivations}) {
      const int64_t others = purpose == Purpose::kCommunication ? before : 0;
      EXPECT_EQ(stats.current_bytes(purpose) - others, Total(terms, Tier::kDevice, purpose))
          << device::ToString(purpose) << " " << when;
      const int64_t host_others = purpose == Purpose::kCommunication ? host_before : 0;
      EXPECT_EQ(host_stats.current_bytes(purpose) - host_others, Total(terms, Tier::kHost, purpose))
          << device::ToString(purpose) << " of the host " << when;
    }
  };
  expect("after Create");
  self.context->memory_stats().ResetPeaks();
  self.context->host_memory_stats().ResetPeaks();
  ASSERT_OK(EmptyStep(**zero, *self.stream));
  ASSERT_OK((*zero)->step_stream().Synchronize());
  expect("after a step");
  EXPECT_EQ(stats.peak_bytes() - before, Total(terms, Tier::kDevice));
  EXPECT_EQ(host_stats.peak_bytes() - host_before, Total(terms, Tier::kHost));
}

TEST(AccountingTest, MeasuredBytesEqualTheModel) {
  for (const int ranks : {1, 3, 4, 8}) {
    for (const Setting& setting : Settings()) {
      SCOPED_TRACE(
          absl::StrCat(setting.name, ", stage ", setting.options.stage, ", ranks ", ranks));
      OnThreads({.size = ranks}, [&](Rank& self) { ExpectMemoryOfTheModel(setting, self); });
    }
  }
}

TEST(AccountingTest, WhatTheModelNamesIsThePapersFormula) {
  // Parameters without padding: what is left are the paper's terms and the slots.
  const ModelSpec model = {{"a", {{"a.w", 1 << 15}}}, {"b", {{"b.w", 1 << 15}}}};
  for (const int ranks : {1, 2, 4}) {
    const Plan plan = Plan::Create(model, {.ranks = ranks}).value();
    for (int stage = 0; stage < kStages; ++stage) {
      ZeroOptions options;
      options.stage = stage;
      int64_t bytes = 0;
      for (const MemoryTerm& term : MemoryOf(plan, options)) {
        if (term.name == "padding") {
          EXPECT_EQ(term.bytes, 0);
        }
        if (term.name == "weights" || term.name == "gradients" || term.name == "master" ||
            term.name == "moments") {
          bytes += term.bytes;
        }
      }
      EXPECT_EQ(static_cast<double>(bytes), PaperBytes(1 << 16, ranks, stage));
    }
  }
}

// What each rank of a group sends, in Traffic's fields and by its communicator, beside the model.
void ExpectTrafficOfTheModel(const Setting& setting, Rank& self) {
  const auto sent = [&] {
    int64_t bytes = 0;
    for (int to = 0; to < self.size; ++to) {
      bytes += self.communicator->sent_bytes(to);
      for (const auto& group : self.groups) {
        if (group != nullptr) bytes += group->sent_bytes(to);
      }
    }
    return bytes;
  };
  const int64_t sent_before = sent();
  auto zero = CreateZero(setting.model, setting.options, self);
  ASSERT_OK(zero);
  // Persistent units are gathered for the first time.
  ASSERT_OK(EmptyStep(**zero, *self.stream));
  const Traffic before = (*zero)->traffic();
  const Movement moved_before = (*zero)->movement();
  const device::FileStore* const file = (*zero)->file();
  // Waits for the last update, which with a delay is not over with the step.
  ASSERT_OK((*zero)->CancelStep());
  const int64_t read_before = file == nullptr ? 0 : file->bytes_read();
  const int64_t written_before = file == nullptr ? 0 : file->bytes_written();
  constexpr int kSteps = 3;
  for (int step = 0; step < kSteps; ++step) ASSERT_OK(EmptyStep(**zero, *self.stream));
  ASSERT_OK((*zero)->step_stream().Synchronize());
  const Traffic after = (*zero)->traffic();
  const ZeroGroups groups = GroupsOf(setting.options, self);
  const Traffic wanted =
      TrafficOfStep((*zero)->plan(), setting.options, groups.shards, groups.outer).value();
  EXPECT_EQ(after.between - before.between, kSteps * wanted.between);
  EXPECT_EQ(after.near - before.near, kSteps * wanted.near);
  EXPECT_EQ(after.nodes - before.nodes, kSteps * wanted.nodes);
  EXPECT_EQ(after.gradients - before.gradients, kSteps * wanted.gradients);
  EXPECT_EQ(after.parameters - before.parameters, kSteps * wanted.parameters);
  EXPECT_EQ(after.scalars - before.scalars, kSteps * wanted.scalars);
  // 1-bit Adam and 1-bit LAMB gather their moments once more behind CancelStep.
  if (!setting.options.averages_moments()) {
    EXPECT_EQ(after.setup, before.setup);
  }
  EXPECT_EQ(sent() - sent_before, after.total());
  const Movement moved = (*zero)->movement();
  const Movement step = MovementOfStep((*zero)->plan(), setting.options);
  EXPECT_EQ(moved.to_host - moved_before.to_host, kSteps * step.to_host);
  EXPECT_EQ(moved.from_host - moved_before.from_host, kSteps * step.from_host);
  EXPECT_EQ(moved.file_read - moved_before.file_read, kSteps * step.file_read);
  EXPECT_EQ(moved.file_written - moved_before.file_written, kSteps * step.file_written);
  if (file == nullptr) return;
  // What the file itself has counted.
  ASSERT_OK((*zero)->CancelStep());
  EXPECT_EQ(file->bytes_read() - read_before, kSteps * step.file_read);
  EXPECT_EQ(file->bytes_written() - written_before, kSteps * step.file_written);
  EXPECT_EQ(file->bytes(), Total(MemoryOf((*zero)->plan(), setting.options), device::Tier::kFile));
}

TEST(AccountingTest, TrafficOfDirectCollectivesIsThePapersFormula) {
  for (const int ranks : {1, 3, 4}) {
    for (const Setting& setting : Settings()) {
      SCOPED_TRACE(
          absl::StrCat(setting.name, ", stage ", setting.options.stage, ", ranks ", ranks));
      OnThreads({.size = ranks}, [&](Rank& self) {
        ExpectTrafficOfTheModel(setting, self);
        // The paper's counts, for what it counts.
        if (setting.model.size() != 4 || setting.options.micro_batches != 1) return;
        if (setting.options.communication_dtype.has_value()) return;
        if (!setting.options.backward_units.empty() || !setting.options.runs.empty()) return;
        const Plan plan =
            Plan::Create(setting.model,
                         {.ranks = ranks,
                          .dtype = setting.options.dtype,
                          .bucket_elements = setting.options.bucket_elements,
                          .tile_elements = optim::TensorTile(setting.options.optimizer.kind),
                          .coded = optim::CodesOf(setting.options.optimizer)})
                .value();
        int64_t padded = 0;
        for (const Bucket& bucket : plan.buckets()) padded += bucket.bytes();
        const int64_t times = setting.options.stage < 3 ? 2 : 3;
        const Traffic traffic = TrafficOfStep(plan, setting.options, *self.communicator).value();
        EXPECT_EQ(traffic.gradients + traffic.parameters, times * padded / ranks * (ranks - 1));
      });
    }
  }
}

struct Groups {
  int ranks, shard_ranks, hpz_ranks;
};
constexpr Groups kGroups[] = {{4, 2, 2}, {3, 1, 0}, {2, 2, 1}, {4, 4, 2}};

// Of those of the toy by turns one in five, in groups that have a whole state each, in stage 3 with
// second slices.
std::vector<Setting> SettingsInGroups(int shard_ranks, int hpz_ranks) {
  std::vector<Setting> settings = Settings();
  int turn = shard_ranks + hpz_ranks;
  std::erase_if(settings, [&](const Setting& setting) {
    return setting.model.size() != ToyModel().size() || turn++ % 5 != 0;
  });
  for (Setting& setting : settings) {
    setting.options.shard_ranks = shard_ranks;
    if (setting.options.stage == 3) setting.options.hpz_ranks = hpz_ranks;
  }
  return settings;
}

TEST(AccountingTest, MeasuredBytesEqualTheModelInGroups) {
  for (const auto& [ranks, shard_ranks, hpz_ranks] : kGroups) {
    for (const Setting& setting : SettingsInGroups(shard_ranks, hpz_ranks)) {
      SCOPED_TRACE(
          absl::StrCat(setting.name, ", stage ", setting.options.stage, ", ranks ", ranks));
      OnThreads({.size = ranks}, [&](Rank& self) {
        ExpectMemoryOfTheModel(setting, self);
        self.AwaitOthers();
      });
    }
  }
}

TEST(AccountingTest, TrafficInGroupsIsTheFormula) {
  for (const auto& [ranks, shard_ranks, hpz_ranks] : kGroups) {
    for (const Setting& setting : SettingsInGroups(shard_ranks, hpz_ranks)) {
      SCOPED_TRACE(
          absl::StrCat(setting.name, ", stage ", setting.options.stage, ", ranks ", ranks));
      OnThreads({.size = ranks}, [&](Rank& self) {
        ExpectTrafficOfTheModel(setting, self);
        self.AwaitOthers();
      });
    }
  }
  // Of plain ones by hand: inside as of 2 ranks, and between the 3 groups 2/3 of a slice, which is
  // half of the gradients, there and back, whatever the number of micro-batches.
  for (int stage = 0; stage < kStages; ++stage) {
    for (const int micro_batches : {1, 4}) {
      OnThreads({.size = 6}, [&](Rank& self) {
        ZeroOptions options;
        options.stage = stage;
        options.shard_ranks = 2;
        options.micro_batches = micro_batches;
        options.accumulator = DType::kBFloat16;
        auto zero = CreateZero(PlainModel(), options, self).value();
        const ZeroGroups groups = GroupsOf(options, self);
        const Traffic traffic =
            TrafficOfStep(zero->plan(), options, groups.shards, groups.outer).value();
        int64_t padded = 0;
        for (const Bucket& bucket : zero->plan().buckets()) padded += bucket.bytes();
        EXPECT_EQ(traffic.between, 2 * (padded / 2) / 3 * 2);
        EXPECT_EQ(traffic.gradients, (stage == 0 ? micro_batches + 1 : micro_batches) * padded / 2);
        EXPECT_EQ(traffic.parameters, (stage == 0  ? 0
                                       : stage < 3 ? 1
                                                   : 2 * micro_batches) *
                                          padded / 2);
        EXPECT_EQ(traffic.scalars, 5 * 16);
        self.AwaitOthers();
      });
    }
  }
}

TEST(AccountingTest, SecondSlicesAreTheFormula) {
  for (const int micro_batches : {1, 3}) {
    OnThreads({.size = 6}, [&](Rank& self) {
      ZeroOptions options;
      options.stage = 3;
      options.hpz_ranks = 3;
      options.micro_batches = micro_batches;
      auto zero = CreateZero(PlainModel(), options, self).value();
      const ZeroGroups groups = GroupsOf(options, self);
      const Traffic traffic =
          TrafficOfStep(zero->plan(), options, groups.shards, groups.outer).value();
      int64_t padded = 0;
      for (const Bucket& bucket : zero->plan().buckets()) padded += bucket.bytes();
      EXPECT_EQ(traffic.parameters, micro_batches * padded / 6 * 5);
      EXPECT_EQ(traffic.near, micro_batches * padded / 3 * 2);
      int64_t second = 0;
      for (const MemoryTerm& term : MemoryOf(zero->plan(), options)) {
        second += term.name == "second slices of weights" ? term.bytes : 0;
      }
      EXPECT_EQ(second, padded / 3);
      self.AwaitOthers();
    });
  }
}

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

// The paper's terms are those of a group's ranks: stage 3 in two groups of 2 needs what it needs on
// 2 ranks, but for the padding and what follows from the number of all ranks.
TEST(AccountingTest, AGroupHasTheMemoryOfItsRanks) {
  for (int stage = 0; stage < kStages; ++stage) {
    ZeroOptions options;
    options.stage = stage;
    const auto bytes_of = [&](int ranks, int shard_groups) {
      const Plan plan =
          Plan::Create(PlainModel(), {.ranks = ranks, .shard_groups = shard_groups}).value();
      int64_t bytes = 0;
      for (const MemoryTerm& term : MemoryOf(plan, options)) {
        const bool is_paper = term.name == "weights" || term.name == "gradients" ||
                              term.name == "master" || term.name == "moments";
        bytes += is_paper ? term.bytes : 0;
      }
      return bytes;
    };
    EXPECT_EQ(bytes_of(2, 2), bytes_of(2, 1));
    EXPECT_EQ(bytes_of(2, 2) == bytes_of(4, 1), stage == 0);
  }
}

TEST(AccountingTest, HalvingDoublingOfThreeRanksSendsMore) {
  OnThreads({.size = 3}, [](Rank& self) {
    // No rank leaves before all have joined.
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
    const Plan plan = Plan::Create({{"a", {{"a.w", 96 * 128}}}}, {.ranks = 3}).value();
    const int64_t slice_bytes = plan.buckets()[0].bytes() / 3;
    ZeroOptions options;
    const auto gradients = [&] {
      return TrafficOfStep(plan, options, *self.communicator).value().gradients;
    };
    EXPECT_EQ(gradients(), 2 * slice_bytes);
    options.reduction = collectives::Reduction::kRoundedPerHop;
    options.algorithm = collectives::Algorithm::kHalvingDoubling;
    if (self.rank != 2) return;
    // Rank 2 gives its whole array to a partner.
    EXPECT_EQ(gradients(), 3 * slice_bytes);
    options.reduction = collectives::Reduction::kFp32Partials;
    EXPECT_EQ(gradients(), 6 * slice_bytes);
  });
}

TEST(AccountingTest, AStepKeepsTheAlgorithmsOfCreate) {
  OnThreads({.size = 3}, [](Rank& self) {
    Setting setting = {"", PlainModel(), {}};
    setting.options.reduction = collectives::Reduction::kFp32Partials;
    auto zero = CreateZero(setting.model, setting.options, self).value();
    const Traffic created = zero->traffic();
    const Traffic wanted = TrafficOfStep(zero->plan(), setting.options, *self.communicator).value();
    const int64_t bytes = self.context->memory_stats().current_bytes();
    // A second message in a step costs a second: every algorithm is better than direct.
    collectives::Topology topology;
    topology.ranks_of_node = {3};
    topology.inside = topology.between = {1e-6, 1e9};
    topology.message_s = 1;
    ASSERT_OK(self.communicator->SetTopology(topology));
    EXPECT_NE(TrafficOfStep(zero->plan(), setting.options, *self.communicator)->gradients,
              wanted.gradients);
    ASSERT_OK(EmptyStep(*zero, *self.stream));
    ASSERT_OK(self.communicator->Synchronize(zero->step_stream()));
    EXPECT_EQ(zero->traffic().gradients - created.gradients, wanted.gradients);
    EXPECT_EQ(zero->traffic().parameters - created.parameters, wanted.parameters);
    int64_t sent = 0;
    for (int to = 0; to < self.size; ++to) sent += self.communicator->sent_bytes(to);
    EXPECT_EQ(sent, zero->traffic().total());
    EXPECT_EQ(self.context->memory_stats().current_bytes(), bytes);
    self.AwaitOthers();
  });
}

collectives::CreateEngineFn EmulatedNcclEngines(const collectives::RanksOptions& options) {
  emulator::EmulatedNccl::Reset();
  return collectives::NcclEngines(options);
}

struct EngineCase {
  const char* name;
  collectives::CreateEngineFn (*engines)(const collectives::RanksOptions& options);
};

class EngineTest : public ::testing::TestWithParam<EngineCase> {};

TEST_P(EngineTest, MemoryAndTrafficOfEveryAlgorithmAreThoseOfTheModel) {
  using collectives::Algorithm;
  using collectives::Reduction;
  for (const int ranks : {3, 4}) {
    for (const Reduction reduction :
         {Reduction::kRoundedOnce, Reduction::kRoundedPerHop, Reduction::kFp32Partials}) {
      for (const Algorithm algorithm :
           {Algorithm::kAuto, Algorithm::kDirect, Algorithm::kRing, Algorithm::kBidirectionalRing,
            Algorithm::kHalvingDoubling, Algorithm::kHierarchical, Algorithm::kDoubleTree,
            Algorithm::kParameterServer}) {
        if (!collectives::Exists(reduction, algorithm)) continue;
        // Three ranks are on a node each, where a hierarchy is direct.
        if (ranks == 3 && algorithm == Algorithm::kHierarchical) continue;
        if (algorithm == Algorithm::kAuto && reduction != Reduction::kRoundedOnce) continue;
        for (int stage = 0; stage < kStages; ++stage) {
          // Of parts that are not of one size, one stage that shards nothing and one that shards
          // all.
          if (ranks == 3 && stage % 3 != 0) continue;
          Setting setting = {"", ToyModel(), {}};
          setting.options.stage = stage;
          setting.options.bucket_elements = 1000;
          setting.options.micro_batches = 2;
          setting.options.reduction = reduction;
          setting.options.algorithm = algorithm;
          // So that each algorithm is there with and without an exchange of scales.
          if (reduction == Reduction::kFp32Partials) {
            setting.options.communication_dtype = DType::kFloat16;
          }
          SCOPED_TRACE(absl::StrCat(std::string(collectives::Name(reduction)), ", ",
                                    std::string(collectives::Name(algorithm)), ", stage ", stage,
                                    ", ranks ", ranks));
          const collectives::RanksOptions options = {
              .size = ranks, .ranks_of_node = collectives::RanksOfNodes(ranks, ranks == 4 ? 2 : 1)};
          collectives::OnRanks(options, GetParam().engines(options), [&](Rank& self) {
            ExpectMemoryOfTheModel(setting, self);
            ExpectTrafficOfTheModel(setting, self);
          });
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineTest,
                         ::testing::Values(EngineCase{"threads", collectives::ThreadEngines},
                                           EngineCase{"gloo", collectives::testing::GlooEngines},
                                           EngineCase{"nccl", EmulatedNcclEngines}),
                         [](const auto& info) { return std::string(info.param.name); });

// But for sums of slices, which stay where they are.
TEST(AccountingTest, TheCommunicatorKnowsTheMemoryOfAllBuckets) {
  const collectives::RanksOptions ranks = {.size = 2};
  for (Setting& setting : Settings()) {
    const bool sums_slices = setting.options.accumulation != Accumulation::kAtBoundary &&
                             !setting.options.traits().whole_optimizer_state;
    if (setting.options.accumulates() && sums_slices) continue;
    SCOPED_TRACE(absl::StrCat(setting.name, ", stage ", setting.options.stage));
    // Without a workspace, which counts as communication as well.
    setting.options.reduction = collectives::Reduction::kRoundedPerHop;
    setting.options.algorithm = collectives::Algorithm::kNative;
    collectives::OnRanks(ranks, EmulatedNcclEngines(ranks), [&](Rank& self) {
      const device::MemoryStats& stats = self.context->memory_stats();
      const int64_t before = stats.current_bytes(Purpose::kCommunication);
      auto zero = CreateZero(setting.model, setting.options, self);
      ASSERT_OK(zero);
      // A scale for the wire, on which the ranks agree, has memory of its own.
      const std::optional<DType> wire = setting.options.communication_dtype;
      int64_t of_the_scale = 0;
      if (wire.has_value()) of_the_scale += collectives::CompressedReduction::Bytes(0);
      if (wire == DType::kFloat16) {
        of_the_scale += self.communicator->WorkspaceFor(collectives::kAmaxExchange)->bytes();
      }
      EXPECT_EQ(emulator::EmulatedNccl::RegisteredBytes(self.rank),
                stats.current_bytes(Purpose::kParameters) +
                    stats.current_bytes(Purpose::kGradients) +
                    stats.current_bytes(Purpose::kCommunication) - before - of_the_scale);
      ASSERT_OK(EmptyStep(**zero, *self.stream));
      zero->reset();
      EXPECT_EQ(emulator::EmulatedNccl::RegisteredBytes(self.rank), 0);
    });
  }
}

TEST(AccountingTest, ASkippedStepReadsTheFirstChunksOfTheFileAndWritesNothing) {
  OnThreads({.size = 2}, [](Rank& self) {
    ZeroOptions options;
    options.stage = 2;
    options.dtype = DType::kFloat16;
    options.bucket_elements = 1000;
    options.loss_scaler = optim::LossScaler::Dynamic();
    options.loss_scaler.initial_scale_power = 14;
    options.offload = InFile(device::Tier::kDevice);
    auto zero = CreateZero(ToyModel(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self, {{.step = 1}});
    ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->CancelStep());
    const device::FileStore& file = *zero->file();
    const int64_t read = file.bytes_read(), written = file.bytes_written();
    const int64_t commits = file.commits();
    ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->CancelStep());
    EXPECT_EQ(zero->controller().SaveState(zero->step_stream()).value().step, 1);
    int64_t first = 0;
    for (int chunk = 0; chunk < options.offload.chunk_buffers; ++chunk) {
      first += file.chunk_bytes(chunk);
    }
    EXPECT_EQ(file.bytes_read() - read, first);
    EXPECT_EQ(file.bytes_written(), written);
    EXPECT_EQ(file.commits(), commits);
  });
}

TEST(AccountingTest, StateIsLoadedWithoutDeviceMemory) {
  for (const int ranks : {1, 3}) {
    for (const Setting& setting : Settings()) {
      SCOPED_TRACE(
          absl::StrCat(setting.name, ", stage ", setting.options.stage, ", ranks ", ranks));
      OnThreads({.size = ranks}, [&](Rank& self) {
        auto zero = CreateZero(setting.model, setting.options, self).value();
        const auto state = Capture(*zero, self).value();
        device::MemoryStats& stats = self.context->memory_stats();
        stats.ResetPeaks();
        ASSERT_OK(LoadCaptured(*zero, state));
        EXPECT_EQ(stats.peak_bytes(), stats.current_bytes());
      });
    }
  }
}

TEST(AccountingTest, AStepNeitherWaitsOnTheHostNorAllocates) {
  constexpr int kRanks = 3;
  std::vector<Setting> settings = Settings();
  for (Setting setting : Settings()) {
    // With exchanges as well, of gradients, and of moments.
    if (setting.options.dtype != DType::kBFloat16) continue;
    if (setting.model.size() == ToyModel().size()) setting.model[1].parameters[0].shape = {30, 50};
    for (const GradientCompression method : kGradientCompressions) {
      setting.options.gradient_compression = {.method = method};
      if (Validate(setting.options).ok()) settings.push_back(setting);
    }
    setting.options.gradient_compression.reset();
    // And with errors of codes.
    Setting fed = setting;
    fed.options.quantized_gradients = kernels::QuantFormat::kInt4;
    fed.options.loco.emplace();
    if (Validate(fed.options).ok()) settings.push_back(fed);
    setting.options.optimizer = {.kind = optim::OptimizerKind::kOneBitAdam, .freeze_step = 0};
    if (Validate(setting.options).ok()) settings.push_back(setting);
    setting.options.optimizer = {.kind = optim::OptimizerKind::kOneBitLamb, .freeze_step = 1};
    if (Validate(setting.options).ok()) settings.push_back(setting);
    // Second moments are updated in the first step and the second one. From the second round of
    // steps on all rounds are alike.
    setting.options.optimizer = {.kind = optim::OptimizerKind::kZeroOneAdam};
    setting.options.optimizer.zero_one = {.var_freeze_step = 3,
                                          .var_update_scaler = 1,
                                          .local_step_scaler = 1,
                                          .local_step_clipper = 2};
    if (setting.options.stage > 0) setting.options.optimizer.zero_one.local_step_clipper = 1;
    if (Validate(setting.options).ok()) settings.push_back(setting);
  }
  for (const Setting& setting : settings) {
    SCOPED_TRACE(absl::StrCat(setting.name, ", stage ", setting.options.stage));
    std::barrier meet(kRanks);
    int64_t before = 0, after = 0;
    device::Gate gates[2];
    auto group = collectives::ThreadGroup::Create({.size = kRanks}).value();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        device::ContextOptions no_checks;  // the race checker allocates
        no_checks.checks = false;
        auto context = device::Context::Create(no_checks).value();
        auto compute = context->CreateStream("compute").value();
        auto reader = context->CreateStream("reader").value();
        auto communicator =
            collectives::Communicator::Create(group->Join(rank, *context).value(), *context)
                .value();
        auto zero =
            ZeroOptimizer::Create(setting.model, setting.options, *communicator, *context, *compute)
                .value();
        float losses[2] = {1.0f, 0.0f};
        absl::Status status;
        // The state is lent and returned before each step.
        const auto step = [&] {
          status.Update(zero->ShareErrors());
          status.Update(zero->LendState(*reader));
          status.Update(zero->ReturnState());
          status.Update(EmptyStep(*zero, *compute, losses));
        };
        std::vector<device::Stream*> streams = ZeroOptimizerTestPeer::Streams(*zero);
        for (const auto& each : {&compute, &reader}) streams.push_back(each->get());
        const auto sync = [&] {  // without GoogleTest, which allocates
          for (device::Stream* const stream : streams) status.Update(stream->Synchronize());
          meet.arrive_and_wait();
        };
        const auto steps = [&] {
          for (int i = 0; i < 4; ++i) step();
        };
        // Queues, records of events and the group's list of collectives on their way grow to what
        // they need. It is the most that they can need if no stream starts before all is
        // enqueued, and from the second round on: its first waits keep records of the first round.
        for (device::Gate& gate : gates) {
          for (device::Stream* const stream : streams) {
            status.Update(device::Block(*stream, gate));
          }
          steps();
          meet.arrive_and_wait();
          gate.Open();
          sync();
        }
        if (rank == 0) before = brigade::testing::CountedAllocations();
        const int64_t waits = context->host_waits();
        meet.arrive_and_wait();
        steps();
        const int64_t waited = context->host_waits() - waits;
        sync();
        if (rank == 0) after = brigade::testing::CountedAllocations();
        meet.arrive_and_wait();
        EXPECT_OK(status);
        EXPECT_EQ(waited, 0);
        EXPECT_EQ(zero->state_wait_ns(), 0);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(after - before, 0);
    EXPECT_GT(before, 0);
  }
}

}  // namespace
}  // namespace brigade::zero
