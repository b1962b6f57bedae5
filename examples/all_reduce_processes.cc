// An all-reduce between processes, on one host or many: over Gloo on CPUs, over NCCL on GPUs.
//
//   mpirun --allow-run-as-root --oversubscribe -n 4 bazel-bin/examples/all_reduce_processes
//   torchrun --nproc-per-node=4 --no-python bazel-bin/examples/all_reduce_processes
//
// srun does as well, and so does anything that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

#include <cstdio>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/init.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"

namespace {

namespace collectives = brigade::collectives;
namespace device = brigade::device;

constexpr char kHelp[] =
    "usage: all_reduce_processes\nSums arrays of ranks, which mpirun, torchrun or srun starts.\n";

absl::Status Run() {
  BRIGADE_ASSIGN_OR_RETURN(auto launch_info, collectives::LaunchInfoFromEnvironment());
  const std::vector<float> input(1000, static_cast<float>(launch_info.rank + 1));
  std::vector<float> sum(input.size());
  // On a GPU: {.device = device::Cuda(launch_info.local_rank)}, and memory of Context::Allocate.
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create({}));
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context->CreateStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(auto world, collectives::Init(launch_info, {}, *context));

  BRIGADE_RETURN_IF_ERROR(world->AllReduce(input, absl::MakeSpan(sum), {}, *stream));
  BRIGADE_RETURN_IF_ERROR(world->Synchronize(*stream));
  std::printf("rank %d of %d: the sum is %g\n", world->rank(), world->size(), sum[0]);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const bool help = argc == 2 && std::string_view(argv[1]) == "--help";
  if (argc > 1) std::fputs(kHelp, help ? stdout : stderr);
  if (argc > 1) return help ? 0 : 2;
  const absl::Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
