#include "brigade/parallel/plan/cost.h"

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

// Memory without limit of speed: products take their operations at 1 TFLOP/s. Links: no latency.
Machine Ideal(double inside = 1e30, double between = 1e30) {
  Machine machine;
  machine.device = {.name = "d",
                    .peak_flops = 2e12,
                    .product_efficiency = 0.5,
                    .memory_bytes = 1e12,
                    .memory_bytes_per_s = 1e30};
  machine.ranks_per_node = 4;
  machine.topology.inside = {0, inside, 1};
  machine.topology.between = {0, between, 4};
  return machine;
}

const Transformer kModel = {
    .name = "toy", .layers = 8, .width = 256, .heads = 8, .context = 128, .vocabulary = 1024};

struct Case {
  Execution execution = {};
  Configuration configuration = {};
  Machine machine = Ideal();

  StepTime Time() const {
    MemoryModel memory(kModel, execution);
    CostModel cost(kModel, machine, execution);
    return cost.TimeOf(configuration,
                       *memory.ZeroOf(configuration, configuration.grid.pipeline > 1));
  }
};

Case Plain(int64_t batch) {
  Case plain;
  plain.execution.batch = batch;
  plain.execution.fused_attention = false;
  return plain;
}

TEST(CostModelTest, IsTheOperationsOfTheModel) {
  Case one = Plain(16);
  EXPECT_NEAR(one.Time().total() * 1e12 / ModelFlops(kModel, 16, false, false), 1, 1e-9);
  one.configuration.recomputation = Recomputation::kFull;
  EXPECT_NEAR(one.Time().total() * 1e12 / ModelFlops(kModel, 16, true, false), 1, 1e-9);
  Case grid = Plain(16);
  grid.configuration.grid = {.tensor = 4, .context = 1, .data = 2};
  EXPECT_NEAR(grid.Time().total() * 1e12 * 8 / ModelFlops(kModel, 16, false, false), 1, 1e-9);
}

TEST(CostModelTest, MakesAttentionAgainIfThatIsSelected) {
  Case one = Plain(1);
  const double before = one.Time().total();
  one.configuration.recomputation = Recomputation::kSelective;
  // Two products of s * s * h of each block, forward once more.
  EXPECT_NEAR((one.Time().total() - before) * 1e12, 8 * 4.0 * 128 * 128 * 256, 1);
}

TEST(CostModelTest, HasTheBubbleOfTheSchedule) {
  Case pipeline = Plain(16);
  pipeline.configuration.grid.pipeline = 4;
  const double work = ModelFlops(kModel, 16, false, false) / 1e12 / 4;
  EXPECT_NEAR(pipeline.Time().bubble / work, 3.0 / 16, 1e-9);
  pipeline.configuration.schedule = {ScheduleKind::kInterleaved, 2};
  EXPECT_NEAR(pipeline.Time().bubble / work, 3.0 / 32, 1e-9);
}

// The last stage has the logits: its time counts, and not the mean.
TEST(CostModelTest, WaitsForTheStageThatTakesLongest) {
  Case pipeline = Plain(16);
  const double whole = pipeline.Time().compute;
  pipeline.configuration.grid.pipeline = 8;
  const double logits = 16 * 128 * 3 * 2.0 * 256 * 1024 / 1e12;
  EXPECT_NEAR(pipeline.Time().compute, (whole - logits) / 8 + logits, 1e-9);
}

TEST(CostModelTest, WaitsForSumsOverTensorRanks) {
  Case tensor = Plain(4);
  tensor.machine = Ideal(1e9);
  tensor.configuration.grid.tensor = 4;
  tensor.configuration.micro_batch = 4;
  const double bytes = 4 * 128 * 256 * 2 * 0.75;  // what a rank sends to gather
  // Forward two gathers and two reduce-scatters, backward six, of the logits two.
  EXPECT_NEAR(tensor.Time().tensor, (8 * 10 + 2) * bytes / 1e9, 1e-9);
  tensor.execution.sequence_parallel = false;
  EXPECT_NEAR(tensor.Time().tensor, (8 * 8 + 2) * bytes / 1e9, 1e-9);
  tensor.configuration.recomputation = Recomputation::kFull;
  EXPECT_NEAR(tensor.Time().tensor, (8 * 12 + 2) * bytes / 1e9, 1e-9);
  tensor.execution.tensor_sum_bytes = 4;
  EXPECT_NEAR(tensor.Time().tensor, 2 * (8 * 12 + 2) * bytes / 1e9, 1e-9);
}

TEST(CostModelTest, HidesGradientsBehindTheBackwardPass) {
  Case data = Plain(2);
  data.configuration.grid.data = 2;
  data.configuration.zero_stage = 1;
  data.machine = Ideal(1e9);
  const double hidden = data.Time().data;
  data.execution.overlap_data = false;
  const double exposed = data.Time().data;
  // Two bytes of gradients and of weights, half of which go to the other rank.
  const double bytes = static_cast<double>(Parameters(kModel));
  EXPECT_NEAR(exposed, 2 * bytes / 1e9, 0.03 * exposed);
  // The last bucket's reduction and the gather are left, or what the pass is too short for.
  EXPECT_LT(hidden, 0.9 * exposed);
  EXPECT_GT(hidden, bytes / 1e9);
}

// Two nodes of four: a group of a node reduces inside, and sends its slice of what it has summed.
TEST(CostModelTest, SendsSlicesBetweenGroupsOnceAStep) {
  Case groups = Plain(32);
  groups.configuration.grid.data = 8;
  groups.configuration.zero_stage = 2;
  groups.configuration.shard_ranks = 4;
  groups.execution.overlap_data = false;
  groups.machine = Ideal(1e30, 1e9);
  // Four micro-batches, whose sums are in fp32: of the slice half and half.
  const double slice = static_cast<double>(Parameters(kModel)) / 4;
  EXPECT_NEAR(groups.Time().data, 4 * slice / 1e9, 0.03 * groups.Time().data);
  // Where all share a state each micro-batch's reduction crosses, and the gather: a node's half of
  // what it has summed, in two bytes, five times.
  Case whole = groups;
  whole.configuration.shard_ranks = 0;
  EXPECT_NEAR(whole.Time().data, 5 * slice / 1e9, 0.03 * whole.Time().data);
  // Hidden behind the last backward pass, but for the last bucket's.
  groups.execution.overlap_data = true;
  const StepTime hidden = groups.Time();
  EXPECT_LT(hidden.data, 4 * slice / 1e9);
  groups.machine = Ideal(1e30, 1e6);
  const double long_sums = 4 * slice / 1e6;
  // What four passes could hide does not count, the last one's backward pass does.
  EXPECT_GT(groups.Time().data, long_sums - 0.8 * 0.7 * hidden.compute / 4);
  EXPECT_EQ(groups.Time().round, 0);
}

TEST(CostModelTest, SharesARoundOutOverItsPeriod) {
  Case replicas = Plain(32);
  replicas.configuration.grid.data = 8;
  replicas.configuration.zero_stage = 2;
  replicas.configuration.replicas = 2;
  replicas.execution.replica_period = 10;
  replicas.machine = Ideal(1e30, 1e9);
  // A rank's quarter in fp32, half there and half back; weights are gathered inside.
  const double slice = static_cast<double>(Parameters(kModel)) / 4;
  EXPECT_NEAR(replicas.Time().round, 4 * slice / 1e9 / 10, 0.03 * replicas.Time().round);
  // No gradient leaves a replica.
  EXPECT_LT(replicas.Time().data, 1e-9);
  replicas.execution.round_bytes = 2;
  EXPECT_NEAR(replicas.Time().round, 2 * slice / 1e9 / 10, 0.03 * replicas.Time().round);
  replicas.execution.replica_period = 1;
  EXPECT_NEAR(replicas.Time().round, 2 * slice / 1e9, 0.03 * replicas.Time().round);
  replicas.machine = Ideal(1e30, 1e30);
  replicas.machine.device.memory_bytes_per_s = 1e9;
  EXPECT_NEAR(replicas.Time().round, 50 * slice / 1e9 / kMemoryEfficiency,
              0.03 * replicas.Time().round);
}

TEST(CostModelTest, HidesARingBehindAttention) {
  Case ring = Plain(4);
  ring.configuration.grid.context = 2;
  ring.machine = Ideal(1e30);
  EXPECT_EQ(ring.Time().context, 0);
  ring.machine = Ideal(1e6);
  const double slow = ring.Time().context;
  EXPECT_GT(slow, 0);
  ring.execution.context_method = ContextMethod::kUlysses;
  EXPECT_GT(ring.Time().context, 0);
}

TEST(CostModelTest, UpdatesWhatARankOwns) {
  Case data = Plain(4);
  data.machine.device.memory_bytes_per_s = 1e9;
  data.configuration.grid.data = 4;
  const double whole = data.Time().optimizer;
  data.configuration.zero_stage = 1;
  EXPECT_NEAR(data.Time().optimizer, whole / 4, 1e-12);
  EXPECT_NEAR(whole, 30 * static_cast<double>(Parameters(kModel)) / 1e9 / kMemoryEfficiency,
              0.01 * whole);
}

TEST(ProductSecondsTest, IsOperationsOrBytesWhicheverTakesLonger) {
  const Device device = {"d", 100, 0.5, 1, 10 / kMemoryEfficiency};
  EXPECT_DOUBLE_EQ(ProductSeconds(device, {100, 100, 100}), 2e6 / 50);
  EXPECT_DOUBLE_EQ(ProductSeconds(device, {1, 1, 100, 3}), 3 * 2 * 201 / 10.0);
  EXPECT_DOUBLE_EQ(ProductSeconds(device, {1, 1, 100, 1, 98}), (2 * 201 + 98) / 10.0);
}

TEST(MachineTest, RefusesWhatNoMachineHas) {
  using testing::StatusIs;
  Machine machine = Ideal();
  machine.device.peak_flops = 0;
  EXPECT_THAT(Validate(machine),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the device's peak in FLOP/s is 0; it must be more than 0"));
  EXPECT_THAT(MachineByName("abacus"),
              StatusIs(absl::StatusCode::kNotFound,
                       "there is no machine \"abacus\"; there are dgx_a100, hgx_h100, "
                       "dgx2h_v100"));
}

}  // namespace
}  // namespace brigade::parallel
