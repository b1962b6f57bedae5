#include "brigade/tests/zero/toy_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/shard_groups.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

// In [-1, 1), by SplitMix64.
float Noise(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return std::ldexp(static_cast<float>(x >> 40), -23) - 1.0f;
}

}  // namespace

ModelSpec ToyModel() {
  return {{"embedding", {{"wte", 700}, {"wpe", 37}}, {}},
          {"h.0", {{"h.0.w", 1500}, {"h.0.b", 3}, {"h.0.frozen", 50, {}, 0, false}}, {}},
          {"h.1", {{"h.1.w", 1500}, {"h.1.b", 3}, {"h.1.unused", 9}, {"h.1.empty", 0}}, {}},
          {"idle", {{"idle.w", 20}}, {}},
          {"head", {{"ln", 65}}, {"wte"}}};
}

ModelSpec ModelOfLargeTensors() {
  return {{"embedding", {{"wte", 20'000}, {"wpe", 37}}, {}},
          {"h.0", {{"h.0.w", 16'384}, {"h.0.b", 3}, {"h.0.frozen", 50, {}, 0, false}}, {}},
          {"head", {{"h.1.unused", 9}, {"h.1.empty", 0}, {"ln", 9000}}, {"wte"}}};
}

ModelSpec ToyMatrices() {
  ModelSpec model = ToyModel();
  model[0].parameters[0].shape = {35, 20};
  model[1].parameters[0].shape = {30, 50};
  model[2].parameters[0].shape = {5, 6, 50};
  model[3].parameters[0].shape = {4, 5};
  model[3].parameters[0].low_rank = false;
  return model;
}

float InitialWeight(int parameter, int64_t i) {
  return 0.5f * Noise(static_cast<uint64_t>(parameter) << 40 | static_cast<uint64_t>(i));
}

std::vector<ChunkPass> InterleavedPasses(int chunks, int micro_batches) {
  std::vector<std::pair<int, ChunkPass>> at_time;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int micro = 0; micro < micro_batches; ++micro) {
      at_time.push_back({2 * micro + chunk, {chunk, micro, Pass::kForward}});
      at_time.push_back(
          {2 * micro + chunks + 3 * (chunks - 1 - chunk), {chunk, micro, Pass::kBackward}});
    }
  }
  std::stable_sort(at_time.begin(), at_time.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ChunkPass> passes;
  for (const auto& [time, pass] : at_time) passes.push_back(pass);
  return passes;
}

std::vector<int> RunsOf(const std::vector<ChunkPass>& passes) {
  std::vector<int> runs;
  for (const ChunkPass& each : passes) {
    if (runs.empty() || runs.back() != each.chunk) runs.push_back(each.chunk);
  }
  return runs;
}

bool HasGradient(const Plan& plan, int unit, int parameter) {
  const ParameterSpec& spec = plan.parameter(parameter).spec;
  return spec.trainable && spec.name != "h.1.unused" && plan.unit(unit).name != "idle";
}

float Activation(const Plan& plan, int unit,
                 const std::function<float(int parameter, int64_t i)>& weight) {
  float sum = 0;
  for (const int p : plan.unit(unit).parameters) {
    const int64_t size = plan.parameter(p).spec.size;
    for (int64_t i = 0; i < size; i += 1 + size / 5) sum = sum + weight(p, i);
  }
  return sum;
}

float GradientElement(const GradientInput& at, float weight, float activation, float loss_scale,
                      const std::vector<Injection>& injections) {
  if (at.i == 1) {
    for (const Injection& each : injections) {
      const bool is_this = each.parameter == -1 || each.parameter == at.parameter;
      if (is_this && each.step == at.step && each.rank == at.rank &&
          each.micro_batch == at.micro_batch) {
        return each.value;
      }
    }
  }
  const auto seed = static_cast<uint64_t>(((at.rank * 8 + at.micro_batch) * 256 + at.step) * 64 +
                                          at.unit * 8 + at.parameter);
  const float noise = Noise(seed << 24 | static_cast<uint64_t>(at.i));
  const float slope = 0.125f * weight + 0.03125f * activation;
  return (noise + slope) * loss_scale;
}

float Load(const void* data, precision::DType dtype, int64_t i) {
  float value = 0;
  precision::VisitFloat(dtype, [&](auto tag) {
    value = static_cast<float>(static_cast<const decltype(tag)*>(data)[i]);
  });
  return value;
}

void Store(void* data, precision::DType dtype, int64_t i, float value) {
  precision::VisitFloat(dtype, [&](auto tag) {
    static_cast<decltype(tag)*>(data)[i] = static_cast<decltype(tag)>(value);
  });
}

ToyTrainer::ToyTrainer(ZeroOptimizer& zero, collectives::Rank& self,
                       std::vector<Injection> injections)
    : on_copies(self.context->device().kind != device::DeviceKind::kCpu),
      zero_(zero),
      self_(self),
      injections_(std::move(injections)),
      scratch_(self.context
                   ->Allocate((2 + zero.plan().units().size()) * sizeof(float),
                              device::Purpose::kActivations, "activations")
                   .value()),
      loss_(scratch_.as<float>().data()),
      scaled_(loss_ + 1),
      activations_(loss_ + 2) {
  const float one = 1.0f;
  EXPECT_OK(self_.stream->Copy(loss_, &one, sizeof(one)));
  EXPECT_OK(self_.stream->Synchronize());
}

absl::Status ToyTrainer::Enqueue(const char* name, const std::vector<Array>& arrays, Work work) {
  if (on_copies) return ComputeOnCopies(arrays, work);
  std::vector<device::Access> accesses;
  std::vector<void*> addresses;
  for (const Array& array : arrays) {
    accesses.push_back(array.writes ? device::Writes(array.data, array.bytes)
                                    : device::Reads(array.data, array.bytes));
    addresses.push_back(array.data);
  }
  return self_.stream->Enqueue({name, accesses}, [addresses, work](device::ThreadPool&) {
    work(addresses);
    return absl::OkStatus();
  });
}

absl::Status ToyTrainer::ComputeOnCopies(const std::vector<Array>& arrays, const Work& work) {
  std::vector<std::vector<char>> copies;
  std::vector<void*> addresses;
  for (const Array& array : arrays) {
    copies.emplace_back(static_cast<size_t>(array.bytes));
    addresses.push_back(copies.back().data());
    if (!array.reads) continue;
    BRIGADE_RETURN_IF_ERROR(self_.stream->Copy(addresses.back(), array.data, array.bytes));
  }
  BRIGADE_RETURN_IF_ERROR(self_.stream->Synchronize());
  work(addresses);
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].writes) continue;
    BRIGADE_RETURN_IF_ERROR(self_.stream->Copy(arrays[i].data, addresses[i], arrays[i].bytes));
  }
  return self_.stream->Synchronize();
}

std::vector<ToyTrainer::View> ToyTrainer::Views(int unit, UnitScope& scope) const {
  std::vector<View> views;
  for (const int p : zero_.plan().unit(unit).parameters) {
    const ParameterSpec& spec = zero_.plan().parameter(p).spec;
    views.push_back({p, *spec.dtype, scope.weights(p), spec.size, {}, false});
  }
  return views;
}

absl::Status ToyTrainer::Step() {
  const int micro_batches = zero_.options().micro_batches;
  const int chunks = static_cast<int>(zero_.options().chunks.size());
  BRIGADE_RETURN_IF_ERROR(Passes(InterleavedPasses(chunks, micro_batches)));
  for (int micro = 0; micro < micro_batches && chunks == 0; ++micro) {
    BRIGADE_RETURN_IF_ERROR(MicroBatch(micro));
  }
  BRIGADE_RETURN_IF_ERROR(zero_.Step());
  ++step;
  return absl::OkStatus();
}

absl::Status ToyTrainer::MicroBatch(int micro_batch) {
  BRIGADE_RETURN_IF_ERROR(Forward());
  BRIGADE_RETURN_IF_ERROR(zero_.ScaleLoss(loss_, scaled_, 1, precision::DType::kFloat32));
  BRIGADE_RETURN_IF_ERROR(Backward(micro_batch));
  return zero_.FinishBackward();
}

absl::Status ToyTrainer::Forward() {
  const int units = static_cast<int>(zero_.plan().units().size());
  for (int unit = 0; unit < units; ++unit) {
    BRIGADE_RETURN_IF_ERROR(Forward(unit, Pass::kForward));
  }
  return absl::OkStatus();
}

absl::Status ToyTrainer::Forward(int unit, Pass pass) {
  UnitScope scope(zero_, unit, pass);
  const std::vector<View> views = Views(unit, scope);
  BRIGADE_RETURN_IF_ERROR(scope.status());
  std::vector<Array> arrays = {{activations_ + unit, sizeof(float), false, true}};
  for (const View& view : views) {
    arrays.push_back(
        {const_cast<void*>(view.weights), view.size * precision::SizeOf(view.dtype), true, false});
  }
  BRIGADE_RETURN_IF_ERROR(
      Enqueue("toy forward", arrays, [this, unit, views](const std::vector<void*>& at) {
        *static_cast<float*>(at[0]) = Activation(zero_.plan(), unit, [&](int parameter, int64_t i) {
          for (size_t v = 0; v < views.size(); ++v) {
            if (views[v].parameter == parameter) return Load(at[1 + v], views[v].dtype, i);
          }
          return 0.0f;
        });
      }));
  return scope.Release();
}

absl::Status ToyTrainer::Passes(const std::vector<ChunkPass>& passes) {
  const std::vector<int>& chunks = zero_.options().chunks;
  if (!passes.empty()) {
    BRIGADE_RETURN_IF_ERROR(zero_.ScaleLoss(loss_, scaled_, 1, precision::DType::kFloat32));
  }
  for (size_t i = 0; i < passes.size(); ++i) {
    const auto& [chunk, micro, pass] = passes[i];
    const bool has_runs = !zero_.options().runs.empty();
    if (has_runs && (i == 0 || passes[i - 1].chunk != chunk)) {
      BRIGADE_RETURN_IF_ERROR(zero_.BeginRun(chunk));
    }
    const auto next = static_cast<size_t>(chunk) + 1;
    const int end =
        next < chunks.size() ? chunks[next] : static_cast<int>(zero_.plan().units().size());
    std::vector<int> units(static_cast<size_t>(end - chunks[next - 1]));
    std::iota(units.begin(), units.end(), chunks[next - 1]);
    if (pass == Pass::kForward) {
      for (const int unit : units) BRIGADE_RETURN_IF_ERROR(Forward(unit, pass));
    } else {
      std::reverse(units.begin(), units.end());
      BRIGADE_RETURN_IF_ERROR(Backward(micro, units));
      BRIGADE_RETURN_IF_ERROR(zero_.FinishBackward(chunk));
    }
    if (has_runs && (i + 1 == passes.size() || passes[i + 1].chunk != chunk)) {
      BRIGADE_RETURN_IF_ERROR(zero_.EndRun());
    }
  }
  return absl::OkStatus();
}

absl::Status ToyTrainer::Backward(int micro_batch) {
  std::vector<int> uses = zero_.options().backward_units;
  if (uses.empty()) {
    uses.resize(zero_.plan().units().size());
    std::iota(uses.rbegin(), uses.rend(), 0);
  }
  return Backward(micro_batch, uses);
}

absl::Status ToyTrainer::Backward(int micro_batch, const std::vector<int>& uses) {
  int late = -1;
  for (size_t use = 0; use < uses.size(); ++use) {
    const int unit = uses[use];
    if (std::count(uses.begin() + static_cast<ptrdiff_t>(use) + 1, uses.end(), unit) > 0) {
      BRIGADE_RETURN_IF_ERROR(Forward(unit, Pass::kBackward));
      continue;
    }
    UnitScope scope(zero_, unit, Pass::kBackward);
    std::vector<View> views = Views(unit, scope);
    std::vector<Array> arrays = {{activations_ + unit, sizeof(float), true, false},
                                 {scaled_, sizeof(float), true, false}};
    bool writes = false;
    for (View& view : views) {
      const int64_t bytes = view.size * precision::SizeOf(view.dtype);
      arrays.push_back({const_cast<void*>(view.weights), bytes, true, false});
      view.has_gradient = HasGradient(zero_.plan(), unit, view.parameter);
      if (!view.has_gradient) continue;
      view.target = scope.gradient(view.parameter);
      arrays.push_back({view.target.data, bytes, view.target.accumulate, true});
      writes = true;
    }
    BRIGADE_RETURN_IF_ERROR(scope.status());
    BRIGADE_RETURN_IF_ERROR(Enqueue(
        "toy backward", arrays,
        [this, unit, micro_batch, views, at_step = step](const std::vector<void*>& at) {
          const float activation = *static_cast<float*>(at[0]);
          const float loss_scale = *static_cast<float*>(at[1]);
          size_t next = 2;
          for (const View& view : views) {
            const void* const weights = at[next++];
            if (!view.has_gradient) continue;
            void* const gradient = at[next++];
            for (int64_t i = 0; i < view.size; ++i) {
              const float part = GradientElement(
                  {self_.rank, micro_batch, at_step, unit, view.parameter, i},
                  Load(weights, view.dtype, i), activation, loss_scale, injections_);
              const float before = view.target.accumulate ? Load(gradient, view.dtype, i) : 0.0f;
              Store(gradient, view.dtype, i, before + part);
            }
          }
        }));
    BRIGADE_RETURN_IF_ERROR(scope.Release());
    if (!writes && zero_.options().stage < 2) continue;
    // Late: with the next unit that has gradients, after it.
    if (report_late && late < 0) {
      late = unit;
      continue;
    }
    BRIGADE_RETURN_IF_ERROR(zero_.GradientsReady(unit));
    if (late >= 0) BRIGADE_RETURN_IF_ERROR(zero_.GradientsReady(late));
    late = -1;
  }
  return late >= 0 ? zero_.GradientsReady(late) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ZeroOptimizer>> CreateZero(const ModelSpec& model,
                                                          const ZeroOptions& options,
                                                          collectives::Rank& self) {
  collectives::Communicator& all = *self.communicator;
  if (options.shard_ranks == 0 && options.hpz_ranks == 0 && options.node_ranks == 0) {
    return ZeroOptimizer::Create(model, options, all, *self.context, *self.stream);
  }
  BRIGADE_ASSIGN_OR_RETURN(
      ShardGroups groups,
      ShardGroups::Create(all, options.shard_ranks, options.hpz_ranks, options.node_ranks));
  const OuterGroups outer = groups.Outer(all);
  collectives::Communicator& shards = *groups.shards;
  self.groups.push_back(std::move(groups.shards));
  self.groups.push_back(std::move(groups.between));
  self.groups.push_back(std::move(groups.near));
  self.groups.push_back(std::move(groups.node));
  self.groups.push_back(std::move(groups.nodes));
  return ZeroOptimizer::Create(model, options, shards, *self.context, *self.stream, outer);
}

absl::Status InitializeToy(ZeroOptimizer& zero) {
  return zero.InitializeParameters([](int parameter, absl::Span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = InitialWeight(parameter, static_cast<int64_t>(i));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<std::vector<float>>> Exported(ZeroOptimizer& zero) {
  std::vector<std::vector<float>> all(zero.plan().parameters().size());
  BRIGADE_RETURN_IF_ERROR(zero.ExportParameters([&](int parameter, absl::Span<const float> values) {
    all[static_cast<size_t>(parameter)].assign(values.begin(), values.end());
    return absl::OkStatus();
  }));
  return all;
}

std::vector<OffloadOptions> Offloads() {
  constexpr auto kDevice = device::Tier::kDevice, kHost = device::Tier::kHost,
                 kFile = device::Tier::kFile;
  return {{.optimizer_state = kHost},
          {.optimizer_state = kHost, .host_share = 0.5},
          {.optimizer_state = kHost, .parameters = kHost},
          InFile(kDevice),
          InFile(kHost),
          InFile(kFile)};
}

OffloadOptions InFile(device::Tier parameters, int64_t chunk_elements) {
  return {.optimizer_state = device::Tier::kFile,
          .parameters = parameters,
          // Small blocks and chunks, so that there are many.
          .file = {.directory = ::testing::TempDir(), .block_bytes = 4096, .queue_depth = 2},
          .chunk_elements = chunk_elements};
}

std::vector<Home> Homes() {
  std::vector<Home> homes;
  for (int stage = 0; stage < kStages; ++stage) {
    homes.push_back({stage});
    for (const OffloadOptions& offload : Offloads()) {
      const Home home = {stage, offload};
      ZeroOptions options;
      home.Set(options);
      if (Validate(options).ok()) homes.push_back(home);
    }
  }
  return homes;
}

std::string ToString(const OffloadOptions& offload) {
  return absl::StrCat(offload.file_state()
                          ? "File"
                          : absl::StrCat("Host", static_cast<int>(100 * offload.host_share)),
                      offload.host_parameters() ? "HostParameters" : "",
                      offload.file_parameters() ? "FileParameters" : "");
}

std::string ToString(const Home& home) {
  return absl::StrCat("Stage", home.stage, home.offload.enabled() ? ToString(home.offload) : "");
}

}  // namespace brigade::zero
