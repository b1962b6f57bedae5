// Memory and traffic of every algorithm and engine; a step neither waits on the host nor allocates.

#include <atomic>
#include <barrier>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/device/file/file_store.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/accounting.h"
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
