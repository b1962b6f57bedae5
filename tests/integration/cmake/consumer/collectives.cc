// An all-reduce of two ranks that are threads.
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/context.h"

namespace {

using brigade::collectives::Communicator;
using brigade::collectives::ThreadGroup;
using brigade::device::Context;
using brigade::device::Stream;

constexpr int kRanks = 2;

absl::Status Sum(ThreadGroup& group, int rank, float& value) {
  const absl::StatusOr<std::unique_ptr<Context>> context = Context::Create({});
  if (!context.ok()) return context.status();
  const absl::StatusOr<std::unique_ptr<Stream>> stream = (*context)->CreateStream("compute");
  if (!stream.ok()) return stream.status();
  auto engine = group.Join(rank, **context);
  if (!engine.ok()) return engine.status();
  const absl::StatusOr<std::unique_ptr<Communicator>> communicator =
      Communicator::Create(*std::move(engine), **context);
  if (!communicator.ok()) return communicator.status();
  absl::Status status =
      (*communicator)->AllReduce({&value, 1}, absl::Span<float>(&value, 1), {}, **stream);
  status.Update((*stream)->Synchronize());
  return status;
}

}  // namespace

int main() {
  const absl::StatusOr<std::shared_ptr<ThreadGroup>> group = ThreadGroup::Create({.size = kRanks});
  if (!group.ok()) return 1;
  float values[kRanks] = {1.0f, 2.0f};
  absl::Status statuses[kRanks];
  std::thread other([&] { statuses[1] = Sum(**group, 1, values[1]); });
  statuses[0] = Sum(**group, 0, values[0]);
  other.join();
  std::printf("%g, %g, %s\n", values[0], values[1], statuses[0].ToString().c_str());
  return statuses[0].ok() && statuses[1].ok() && values[0] == 3 && values[1] == 3 ? 0 : 1;
}
