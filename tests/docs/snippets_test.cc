// The C++ that pages show in parts: tools/check_docs sees that it is what stands here. What needs
// more ranks than a test of documents is worth is compiled alone.

#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/measurement/measure.h"
#include "brigade/collectives/tuning/select.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/emulator/ptx/launch.h"
#include "brigade/emulator/ptx/memory.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/parallel/pipeline/check.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/parallel/pipeline/simulate.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/schedule.h"
#include "gtest/gtest.h"

namespace brigade {
namespace {

// docs/choosing_a_collective.md.
[[maybe_unused]] absl::Status ChooseByMeasurement(collectives::Communicator* world, int64_t node,
                                                  device::Context* context, device::Stream* stream,
                                                  int64_t bytes) {
  using collectives::CollectiveKind, collectives::MeasureTopology, collectives::Select;
  BRIGADE_ASSIGN_OR_RETURN(auto topology, MeasureTopology(*world, node, *context, *stream));
  BRIGADE_ASSIGN_OR_RETURN(auto choice, Select(topology, CollectiveKind::kAllReduce, bytes));
  return choice.seconds >= 0 ? absl::OkStatus() : absl::InternalError("negative");
}

// docs/emulator.md.
TEST(SnippetsTest, RunAKernelOnTheEmulator) {
  const std::string text_of_the_ptx = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry Axpy(.param .u64 x)
{
  .reg .b64 %rd<4>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [x];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r1, %r1, 256, %r2;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}
)";
  auto module = emulator::Parse(text_of_the_ptx, "axpy.ptx").value();
  auto memory = emulator::Memory::Create(int64_t{1} << 30).value();
  auto loaded = emulator::LoadedModule::Create(module, *memory).value();
  uint64_t x = memory->Allocate(4096, "x").value();  // and memory->Write(x, ...)
  std::vector<uint8_t> parameters(sizeof(x));        // as the kernel declares them
  std::memcpy(parameters.data(), &x, sizeof(x));
  auto result =
      emulator::Launch(loaded, *module->Find("Axpy"), parameters, {.grid = {4}, .block = {256}});
  for (const emulator::Finding& finding : result->findings) std::cerr << finding.ToString() << "\n";
  EXPECT_TRUE(result->findings.empty());
  std::vector<uint32_t> values(1024);
  ASSERT_TRUE(memory->Read(x, values.data(), 4096).ok());
  EXPECT_EQ(values[1023], 1023u);
}

// parallel/pipeline/README.md.
[[maybe_unused]] absl::Status RunAPipeline(int64_t rows, int64_t width, precision::DType dtype,
                                           parallel::Grid& grid, device::Context& context,
                                           device::Stream& compute, parallel::StageModule& module) {
  using namespace parallel;  // NOLINT(google-build-using-namespace)
  BRIGADE_ASSIGN_OR_RETURN(const ScheduleChoice choice, ParseSchedule("zb-h1"));
  BRIGADE_ASSIGN_OR_RETURN(const PipelineSchedule schedule,
                           CreateSchedule({choice, /*stages=*/4, /*micro_batches=*/8}));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<StageBuffers> buffers, Check(schedule));
  BRIGADE_ASSIGN_OR_RETURN(const Simulation step,
                           Simulate(schedule, EqualTimes(schedule.shape, {.forward = 1})));
  BRIGADE_ASSIGN_OR_RETURN(auto executor, PipelineExecutor::Create(schedule, {rows * width, dtype},
                                                                   grid, context, compute));
  BRIGADE_RETURN_IF_ERROR(executor->Run(module));
  return buffers.size() == 4 && step.makespan > 0 ? absl::OkStatus() : absl::InternalError("");
}

// docs/recomputation.md.
TEST(SnippetsTest, PlanActivationsWithinABudget) {
  using namespace recompute;   // NOLINT(google-build-using-namespace)
  constexpr int64_t x = 4096;  // NOLINT(readability-identifier-naming)
  constexpr int blocks = 6;    // NOLINT(readability-identifier-naming)
  const double flops = 1;
  const int64_t most_that_a_forward_pass_needs = 4 * x, budget_bytes = 100 * x;
  int operations = 0;
  const auto Run = [&](const PlacedOperation&) { ++operations; };  // NOLINT
  Chain chain;
  for (int block = 0; block < blocks; ++block) {
    chain.stages.push_back(
        {.forward_time = flops,
         .output_bytes = x,
         .gradient_bytes = x,
         .transient_bytes = most_that_a_forward_pass_needs,
         .options = {
             {.name = "all", .saved_bytes = 20 * x, .backward_time = 2 * flops},
             {.name = "no pointwise", .saved_bytes = 14 * x, .backward_time = 2.1 * flops}}});
  }
  absl::StatusOr<Plan> plan = PlanBudget(chain, budget_bytes);
  absl::StatusOr<Schedule> schedule = Place(chain, *plan);
  for (const PlacedOperation& placed : schedule->operations) Run(placed);
  EXPECT_GE(operations, 2 * blocks);
  EXPECT_LE(plan->peak_bytes, budget_bytes);
}

}  // namespace
}  // namespace brigade
