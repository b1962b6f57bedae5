// An all-reduce between four ranks that are threads of this process.

#include <cstdio>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"

namespace {

namespace collectives = brigade::collectives;
namespace device = brigade::device;

constexpr char kHelp[] = "usage: all_reduce_threads\nSums arrays of four ranks that are threads.\n";
constexpr int kRanks = 4;

absl::Status RunRank(int rank, collectives::ThreadGroup& group) {
  const std::vector<float> input(1000, static_cast<float>(rank + 1));
  std::vector<float> sum(input.size());
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create({}));
  // After the memory that its work uses: when a function ends, the stream does before the memory.
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context->CreateStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(auto engine, group.Join(rank, *context));
  BRIGADE_ASSIGN_OR_RETURN(auto communicator,
                           collectives::Communicator::Create(std::move(engine), *context));

  BRIGADE_RETURN_IF_ERROR(communicator->AllReduce(input, absl::MakeSpan(sum), {}, *stream));
  BRIGADE_RETURN_IF_ERROR(communicator->Synchronize(*stream));
  std::printf("rank %d of %d: the sum is %g\n", rank, communicator->size(), sum[0]);
  return absl::OkStatus();
}

absl::Status Run() {
  BRIGADE_ASSIGN_OR_RETURN(auto group, collectives::ThreadGroup::Create({.size = kRanks}));
  std::vector<absl::Status> statuses(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { statuses[rank] = RunRank(rank, *group); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& status : statuses) BRIGADE_RETURN_IF_ERROR(status);
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
