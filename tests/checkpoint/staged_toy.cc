#include "brigade/tests/checkpoint/staged_toy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint::testing {
namespace {

using parallel::Shard;
using zero::Pass;
using zero::ZeroOptimizer;

struct ToyParameter {
  const char* unit;
  const char* name;
  Shard shard;
  bool trainable = true;
};

constexpr char kTokens[] = "tokens", kEmbedding[] = "embedding", kHead[] = "head";
// Whose gradient overflows.
constexpr char kOverflows[] = "norm";
constexpr int kOverflow = 1;

const std::vector<ToyParameter>& Parameters() {
  static const auto& parameters =
      *new std::vector<ToyParameter>{{kEmbedding, kTokens, {.shape = {16, 37}, .axis = 0}},
                                     {kEmbedding, "positions", {.shape = {7, 11}}},
                                     {"h.0", "h.0.qkv", {.shape = {24, 33}, .axis = 0, .parts = 3}},
                                     {"h.0", "h.0.bias", {.shape = {3}}},
                                     {"h.1", "h.1.out", {.shape = {45, 8}, .axis = 1}},
                                     {"h.1", "h.1.frozen", {.shape = {50}}, false},
                                     {"h.2", "h.2.qkv", {.shape = {24, 33}, .axis = 0, .parts = 3}},
                                     {"h.2", "h.2.empty", {.shape = {4, 0}}},
                                     {"h.3", "h.3.out", {.shape = {45, 8}, .axis = 1}},
                                     {"h.3", "h.3.frozen", {.shape = {8, 5}, .axis = 0}, false},
                                     {kHead, "norm", {.shape = {65}}}};
  return parameters;
}

int NumberOf(const std::string& name) {
  const auto& all = Parameters();
  return static_cast<int>(
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; }) -
      all.begin());
}

// Of the model, those that a stage has, in their order.
std::vector<std::string> UnitsOf(const ToyGrid& grid, int stage) {
  using Stages = std::vector<std::vector<std::string>>;
  const Stages one = {{kEmbedding, "h.0", "h.1", "h.2", "h.3", kHead}};
  const Stages two = {{kEmbedding, "h.0", "h.1"}, {"h.2", "h.3", kHead}};
  const Stages interleaved = {{kEmbedding, "h.0", "h.2"}, {"h.1", "h.3", kHead}};
  const Stages three = {{kEmbedding, "h.0"}, {"h.1", "h.2"}, {"h.3", kHead}};
  const Stages& stages = grid.interleaved   ? interleaved
                         : grid.stages == 3 ? three
                         : grid.stages == 2 ? two
                                            : one;
  return stages[static_cast<size_t>(stage)];
}

parallel::TensorShards TensorShardsOf(const ToyGrid& grid, int rank) {
  return {.count = grid.shards, .ranks = grid.tensor, .rank = grid.tensor_rank(rank)};
}

zero::ParameterSpec SpecOf(const ToyParameter& parameter, const parallel::TensorShards& shards) {
  zero::ParameterSpec spec = {.name = parameter.name,
                              .size = parameter.shard.local_size(shards),
                              .trainable = parameter.trainable,
                              .counted = parameter.shard.counts_on(shards)};
  if (shards.count == 1 || !parameter.shard.axis.has_value()) spec.shape = parameter.shard.shape;
  return spec;
}

// For each element that a rank has of a parameter, its index in the whole.
std::vector<int64_t> IndicesOf(const std::string& name, const ModelPart& part) {
  const Shard& shard = Parameters()[static_cast<size_t>(NumberOf(name))].shard;
  std::vector<int64_t> indices(static_cast<size_t>(shard.local_size(part.shards)));
  if (part.parameters.empty()) {
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }
  ForEachRun(shard, part.shards, [&](const parallel::ShardRun& run) {
    std::iota(indices.begin() + run.local, indices.begin() + run.local + run.size, run.global);
  });
  return indices;
}

float GradientOf(int number, int64_t i, int step) {
  if (step == kOverflow && number == NumberOf(kOverflows) && i == 1) {
    return std::numeric_limits<float>::infinity();
  }
  return 0.125f * static_cast<float>((number * 7 + i * 3 + step * 5) % 9 - 4);
}

absl::Status TakeStep(const StagedRank& rank, int step) {
  ZeroOptimizer& zero = *rank.zero;
  const int units = static_cast<int>(zero.plan().units().size());
  for (int unit = 0; unit < units; ++unit) {
    BRIGADE_RETURN_IF_ERROR(zero.Acquire(unit, Pass::kForward));
    BRIGADE_RETURN_IF_ERROR(zero.Release(unit));
  }
  for (int unit = units; unit-- > 0;) {
    BRIGADE_RETURN_IF_ERROR(zero.Acquire(unit, Pass::kBackward));
    for (const int p : zero.plan().unit(unit).parameters) {
      const zero::Parameter& parameter = zero.plan().parameter(p);
      // What two units use has its gradient from its own.
      if (parameter.unit != unit || !parameter.spec.trainable) continue;
      BRIGADE_ASSIGN_OR_RETURN(const zero::GradientTarget target, zero.Gradient(unit, p));
      const precision::DType dtype = *parameter.spec.dtype;
      BRIGADE_RETURN_IF_ERROR(rank.self.stream->Enqueue(
          {"gradient",
           {device::Writes(target.data, parameter.spec.size * precision::SizeOf(dtype))}},
          [=, number = NumberOf(parameter.spec.name),
           indices = IndicesOf(parameter.spec.name, rank.part)](device::ThreadPool&) {
            for (size_t i = 0; i < indices.size(); ++i) {
              zero::Store(target.data, dtype, static_cast<int64_t>(i),
                          GradientOf(number, indices[i], step));
            }
            return absl::OkStatus();
          }));
    }
    BRIGADE_RETURN_IF_ERROR(zero.Release(unit));
    BRIGADE_RETURN_IF_ERROR(zero.GradientsReady(unit));
  }
  BRIGADE_RETURN_IF_ERROR(zero.FinishBackward());
  return zero.Step();
}

absl::Status Initialize(const StagedRank& rank) {
  return rank.zero->InitializeParameters([&](int parameter, absl::Span<float> values) {
    const std::string& name = rank.zero->plan().parameter(parameter).spec.name;
    const std::vector<int64_t> indices = IndicesOf(name, rank.part);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = zero::InitialWeight(NumberOf(name), indices[i]);
    }
    return absl::OkStatus();
  });
}

// At the step before those that are taken beside.
void Save(const StagedRank& rank, const StagedRun& run) {
  SaverOptions options = ToRoot(run.mode);
  if (run.beside > 0) options.staging_bytes = SaverOptions().staging_bytes;
  auto saver = Saver::Create(options, *rank.zero, *rank.self.communicator, *rank.self.context,
                             *run.to, rank.part);
  ASSERT_OK(saver);
  ASSERT_OK((*saver)->Begin(TrainingFields()));
  for (int step = run.last - run.beside; step < run.last; ++step) {
    ASSERT_OK(TakeStep(rank, step));
  }
  EXPECT_TRUE(run.beside == 0 || rank.zero->state_wait_ns() == 0);
  const auto report = (*saver)->Wait();
  ASSERT_OK(report);
  EXPECT_OK(report->older_removed);
}

}  // namespace

zero::ModelSpec StagedToy() { return SpecOf({.shards = 1}, 0); }

std::vector<Shard> ShardsOfToy() {
  std::vector<Shard> shards;
  for (const ToyParameter& parameter : Parameters()) shards.push_back(parameter.shard);
  return shards;
}

std::string ToString(const ToyGrid& grid) {
  return absl::StrCat("tensor ", grid.tensor, " data ", grid.data, " stages ", grid.stages,
                      grid.interleaved ? " interleaved" : "", " shards ", grid.shards);
}

zero::ModelSpec SpecOf(const ToyGrid& grid, int rank) {
  const parallel::TensorShards shards = TensorShardsOf(grid, rank);
  zero::ModelSpec model;
  for (const std::string& unit : UnitsOf(grid, grid.stage(rank))) {
    zero::UnitSpec& spec = model.emplace_back(zero::UnitSpec{unit, {}, {}});
    for (const ToyParameter& parameter : Parameters()) {
      if (parameter.unit == unit) spec.parameters.push_back(SpecOf(parameter, shards));
    }
    if (unit != kHead) continue;
    if (model.front().name == kEmbedding) {
      spec.tied = {kTokens};
    } else {
      spec.parameters.push_back(SpecOf(Parameters()[0], shards));
      spec.parameters.back().counted = false;
    }
  }
  return model;
}

ModelPart PartOf(const ToyGrid& grid, int rank) {
  ModelPart part = {.shards = TensorShardsOf(grid, rank)};
  if (grid.shards > 1) part.parameters = ShardsOfToy();
  if (grid.stages > 1) part.model = StagedToy();
  return part;
}

StagedRank CreateStaged(collectives::Rank& self, const ToyGrid& grid,
                        const zero::ZeroOptions& options, const zero::ModelSpec& spec) {
  const int color = grid.tensor_rank(self.rank) + grid.tensor * grid.stage(self.rank);
  StagedRank rank = {self, self.communicator->Split(color, self.rank).value(),
                     PartOf(grid, self.rank), nullptr};
  zero::ZeroOptions of_group = options;
  of_group.model_ranks = grid.groups();
  rank.zero = ZeroOptimizer::Create(spec, of_group, *rank.group, *self.context, *self.stream,
                                    {self.communicator.get()})
                  .value();
  return rank;
}

void AddStateOf(const StagedRank& rank, StagedState& state) {
  static auto& mutex = *new std::mutex;
  const absl::StatusOr<zero::CapturedState> own = zero::Capture(*rank.zero, rank.self);
  ASSERT_OK(own);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto arrays = static_cast<size_t>(rank.zero->state_arrays());
  if (state.arrays.empty()) {
    state.step = own->step;
    state.arrays.resize(arrays);
    for (auto& array : state.arrays) {
      for (const ToyParameter& parameter : Parameters()) {
        // Nobody's.
        array.emplace_back(static_cast<size_t>(parameter.shard.size()), -99.0f);
      }
    }
  }
  EXPECT_EQ(std::memcmp(&own->step, &state.step, sizeof(state.step)), 0);
  const zero::Plan& plan = rank.zero->plan();
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const zero::Bucket& bucket = plan.buckets()[b];
    const int64_t begin = rank.zero->rank() * plan.slice(bucket), end = begin + plan.slice(bucket);
    const precision::DType dtype = bucket.trainable ? precision::DType::kFloat32 : bucket.dtype;
    for (const zero::BucketEntry& entry : bucket.entries) {
      const std::string& name = plan.parameter(entry.parameter).spec.name;
      const std::vector<int64_t> indices = IndicesOf(name, rank.part);
      for (size_t a = 0; a < own->arrays[b].size(); ++a) {
        std::vector<float>& whole = state.arrays[a][static_cast<size_t>(NumberOf(name))];
        for (int64_t i = std::max(begin, entry.range.begin);
             i < std::min(end, entry.range.begin + entry.range.size); ++i) {
          const float value = zero::Load(own->arrays[b][a].data(), dtype, i - begin);
          const int64_t in_whole = indices[static_cast<size_t>(i - entry.range.begin)];
          float& element = whole[static_cast<size_t>(in_whole)];
          ASSERT_TRUE(element == -99.0f || element == value) << name << " " << in_whole;
          element = value;
        }
      }
    }
  }
}

StagedState Train(const StagedRun& run) {
  StagedState state;
  collectives::OnThreads({.size = run.grid.ranks()}, [&](collectives::Rank& self) {
    zero::ZeroOptions options = ToyOptions(run.stage);
    options.offload = run.offload;
    const StagedRank rank = CreateStaged(self, run.grid, options, SpecOf(run.grid, self.rank));
    if (run.from != nullptr) {
      ASSERT_OK(Load(CheckpointPath(kRoot, run.first), TrainingFields(), *rank.zero,
                     *self.communicator, {}, *run.from, rank.part));
    } else {
      ASSERT_OK(Initialize(rank));
    }
    for (int step = run.first; step < run.last - run.beside; ++step) {
      ASSERT_OK(TakeStep(rank, step));
    }
    if (run.to != nullptr) Save(rank, run);
    ASSERT_OK(self.stream->Synchronize());
    AddStateOf(rank, state);
    self.AwaitOthers();
  });
  return state;
}

void ExpectSame(const StagedState& a, const StagedState& b) {
  EXPECT_EQ(std::memcmp(&a.step, &b.step, sizeof(a.step)), 0);
  ASSERT_EQ(a.arrays.size(), b.arrays.size());
  for (size_t array = 0; array < a.arrays.size(); ++array) {
    for (size_t p = 0; p < Parameters().size(); ++p) {
      const std::vector<float>&of_a = a.arrays[array][p], &of_b = b.arrays[array][p];
      ASSERT_EQ(of_a.size(), of_b.size());
      if (of_a.empty()) continue;
      EXPECT_EQ(std::memcmp(of_a.data(), of_b.data(), of_a.size() * sizeof(float)), 0)
          << "array " << array << " of " << Parameters()[p].name;
    }
  }
}

}  // namespace brigade::checkpoint::testing
