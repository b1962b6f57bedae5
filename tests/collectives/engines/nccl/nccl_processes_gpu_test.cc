// NCCL between two processes that share one GPU, each of which says that it is a host of its own:
// slow, and right.

#include <cstdlib>
#include <vector>

#include "brigade/collectives/init.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

constexpr int64_t kCount = 100000;

absl::Status AddTwice(int rank, int port) {
  setenv("NCCL_HOSTID", rank == 0 ? "first" : "second", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_NET", "Socket", 1);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setenv("NCCL_ALGO", "Ring", 1);
  setenv("NCCL_PROTO", "Simple", 1);
  setenv("NCCL_MAX_CTAS", "4", 1);
  LaunchInfo launch_info;
  launch_info.rank = rank;
  launch_info.size = 2;
  launch_info.master_port = port;
  device::ContextOptions options;
  options.device = device::Cuda();
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create(options));
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context->CreateStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(auto world, Init(launch_info, {}, *context));
  const int64_t bytes = kCount * static_cast<int64_t>(sizeof(float));
  BRIGADE_ASSIGN_OR_RETURN(auto array, context->Allocate(bytes, device::Purpose::kGradients));
  std::vector<float> host(kCount);
  for (const ReduceOptions& options :
       {ReduceOptions{.reduction = Reduction::kRoundedPerHop, .algorithm = Algorithm::kNative},
        ReduceOptions{}}) {
    host.assign(kCount, static_cast<float>(rank + 1));
    BRIGADE_RETURN_IF_ERROR(stream->Copy(array.data(), host.data(), bytes));
    BRIGADE_RETURN_IF_ERROR(world->AllReduce(array.data(), array.data(), kCount,
                                             precision::DType::kFloat32, options, *stream));
    BRIGADE_RETURN_IF_ERROR(stream->Copy(host.data(), array.data(), bytes));
    BRIGADE_RETURN_IF_ERROR(stream->Synchronize());
    for (const float sum : host) {
      if (sum != 3.0f) return absl::InternalError("a sum is wrong");
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(auto part, world->Split(rank, 0));
  BRIGADE_RETURN_IF_ERROR(part->Barrier(*stream));
  BRIGADE_RETURN_IF_ERROR(world->Barrier(*stream));
  BRIGADE_RETURN_IF_ERROR(stream->Synchronize());
  return world->status();
}

TEST(NcclProcessesGpuTest, TwoProcessesOnOneGpuAdd) {
  const int port = testing::FreePort();
  for (const testing::Report& report :
       testing::RunRanks(2, [&](int rank, testing::Fault&) { return AddTwice(rank, port); })) {
    EXPECT_OK(report.status);
  }
}

}  // namespace
}  // namespace brigade::collectives
