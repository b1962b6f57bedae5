#ifndef BRIGADE_TESTS_ZERO_ACCOUNTING_H_
#define BRIGADE_TESTS_ZERO_ACCOUNTING_H_

// Steps without work, in all settings, whose memory and traffic stand beside the models.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/file/file_store.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/memory_model.h"
#include "gtest/gtest.h"

namespace brigade::zero {

// No tied, frozen or odd parameters.
inline ModelSpec PlainModel() {
  ModelSpec model;
  for (const char* name : {"a", "b", "c", "d"}) {
    model.push_back({name, {{absl::StrCat(name, ".w"), 4096}, {absl::StrCat(name, ".v"), 700}}});
  }
  return model;
}

inline absl::Status EmptyUse(ZeroOptimizer& zero, int unit, Pass pass) {
  absl::Status status = zero.Acquire(unit, pass);
  status.Update(zero.Release(unit));
  return status;
}

inline absl::Status EmptyBackward(ZeroOptimizer& zero, int unit, device::Stream& compute) {
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
inline absl::Status EmptyRuns(ZeroOptimizer& zero, device::Stream& compute) {
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
inline absl::Status EmptyStep(ZeroOptimizer& zero, device::Stream& compute,
                              float* losses = nullptr) {
  const int units = static_cast<int>(zero.plan().units().size());
  const bool has_runs = !zero.options().runs.empty();
  absl::Status status;
  if (has_runs) status = EmptyRuns(zero, compute);
  for (int micro = 0; micro < zero.options().micro_batches && !has_runs; ++micro) {
    for (int unit = 0; unit < units; ++unit) {
      status.Update(EmptyUse(zero, unit, Pass::kForward));
    }
    if (losses != nullptr) {
      status.Update(zero.ScaleLoss(losses, losses + 1, 1, precision::DType::kFloat32));
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

inline std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  ModelSpec mixed = ToyModel();
  mixed[1].parameters[1].dtype = precision::DType::kFloat16;
  for (const ModelSpec& model : {PlainModel(), ToyModel(), mixed}) {
    for (int stage = 0; stage < kStages; ++stage) {
      ZeroOptions options;
      options.stage = stage;
      options.bucket_elements = 1000;
      settings.push_back({"bfloat16", model, options});
      options.dtype = precision::DType::kFloat32;
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
        ZeroOptions adafactor = muon;
        adafactor.optimizer.kind = optim::OptimizerKind::kAdafactor;
        settings.push_back({"bfloat16, Adafactor", matrices, adafactor});
        adafactor.dtype = precision::DType::kFloat32;
        adafactor.optimizer.groups[0].momentum = 0.9;
        adafactor.optimizer.adafactor.scale_parameter = false;
        settings.push_back({"float32, Adafactor with a moment", matrices, adafactor});
      }
      ZeroOptions narrow = options;
      narrow.communication_dtype = precision::DType::kFloat16;
      settings.push_back({"float32 over float16", model, narrow});
      narrow.micro_batches = 2;
      settings.push_back({"float32 over float16, two micro-batches", model, narrow});
      options.optimizer.groups[0].momentum = 0.9;
      options.dtype = precision::DType::kFloat16;
      options.micro_batches = 2;
      options.live_units = 3;
      settings.push_back({"float16, two micro-batches", model, options});
      ZeroOptions wide = options;
      wide.communication_dtype = precision::DType::kFloat32;
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
      for (const precision::DType wire :
           {precision::DType::kBFloat16, precision::DType::kFloat16}) {
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
inline void ExpectMemoryOfTheModel(const Setting& setting, collectives::Rank& self) {
  const device::MemoryStats& stats = self.context->memory_stats();
  const device::MemoryStats& host_stats = self.context->host_memory_stats();
  using device::Tier;
  // Of the communicator itself.
  const int64_t before = stats.current_bytes(device::Purpose::kCommunication);
  const int64_t host_before = host_stats.current_bytes(device::Purpose::kCommunication);
  auto zero = CreateZero(setting.model, setting.options, self);
  ASSERT_OK(zero);
  const ZeroGroups groups = GroupsOf(setting.options, self);
  const std::vector<MemoryTerm> terms =
      MemoryOf((*zero)->plan(), setting.options, groups.shards, groups.outer).value();
  const auto expect = [&](const char* when) {
    for (const device::Purpose purpose :
         {device::Purpose::kParameters, device::Purpose::kGradients,
          device::Purpose::kOptimizerState, device::Purpose::kCommunication,
          device::Purpose::kScratch, device::Purpose::kActivations}) {
      const int64_t others = purpose == device::Purpose::kCommunication ? before : 0;
      EXPECT_EQ(stats.current_bytes(purpose) - others, Total(terms, Tier::kDevice, purpose))
          << device::ToString(purpose) << " " << when;
      const int64_t host_others = purpose == device::Purpose::kCommunication ? host_before : 0;
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

// What each rank of a group sends, in Traffic's fields and by its communicator, beside the model.
inline void ExpectTrafficOfTheModel(const Setting& setting, collectives::Rank& self) {
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

}  // namespace brigade::zero

#endif  // BRIGADE_TESTS_ZERO_ACCOUNTING_H_
