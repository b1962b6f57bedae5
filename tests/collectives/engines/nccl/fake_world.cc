#include "brigade/tests/collectives/engines/nccl/fake_world.h"

namespace brigade::collectives {

using Clock = std::chrono::steady_clock;

FakeWorld& FakeWorld::Get() {
  static FakeWorld world;
  return world;
}

FakeEntry::FakeEntry(const char* function, NcclComm comm, bool may_be_in_progress) : comm_(comm) {
  FakeWorld& world = FakeWorld::Get();
  std::lock_guard lock(world.mutex);
  auto found = world.calls.find(std::string_view(function));
  if (found == world.calls.end()) found = world.calls.emplace(function, 0).first;
  ++found->second;
  const auto misuse = [&](const char* what) {
    world.misuses.push_back(std::string(function) + what);
  };
  if (comm != nullptr && world.live.count(comm) == 0) {
    misuse(" on a communicator that is gone");
    comm_ = nullptr;
    is_gone_ = true;
    result_ = NcclResult::kInvalidArgument;
    return;
  }
  if (comm != nullptr) {
    if (comm->inside.exchange(true)) misuse(" while another thread is in NCCL");
    const bool in_progress =
        !comm->initialised || comm->splitting != nullptr || comm->hangs || comm->polls_left > 0;
    if (in_progress && !may_be_in_progress) misuse(" while a call is in progress");
  }
  for (auto fault = world.faults.begin(); fault != world.faults.end(); ++fault) {
    const bool this_rank = fault->rank < 0 || comm == nullptr || comm->state->rank == fault->rank;
    if (fault->function != function || !this_rank) continue;
    Apply(*fault);
    world.faults.erase(fault);
    return;
  }
}

void FakeEntry::Apply(const FakeNccl::Fault& fault) {
  switch (fault.effect) {
    case FakeNccl::Effect::kReturns:
      result_ = fault.error;
      return;
    case FakeNccl::Effect::kHangs:
      result_ = NcclResult::kInProgress;
      if (comm_ != nullptr) comm_->hangs = true;
      return;
    case FakeNccl::Effect::kLater:
      comm_->error = fault.error;
      comm_->error_at = Clock::now() + std::chrono::milliseconds(20);
      return;
  }
}

void FakeNccl::Inject(const Fault& fault) {
  std::lock_guard lock(FakeWorld::Get().mutex);
  FakeWorld::Get().faults.push_back(fault);
}

bool FakeNccl::FaultHappened() {
  std::lock_guard lock(FakeWorld::Get().mutex);
  return FakeWorld::Get().faults.empty();
}

void FakeNccl::SetCapturing(bool capturing) { FakeWorld::Get().capturing = capturing; }

int FakeNccl::Calls(const std::string& function) {
  std::lock_guard lock(FakeWorld::Get().mutex);
  return FakeWorld::Get().calls[function];
}

int FakeNccl::LiveComms() {
  std::lock_guard lock(FakeWorld::Get().mutex);
  return static_cast<int>(FakeWorld::Get().live.size());
}

int FakeNccl::LiveRegistrations() {
  std::lock_guard lock(FakeWorld::Get().mutex);
  return static_cast<int>(FakeWorld::Get().registered.size());
}

int64_t FakeNccl::RegisteredBytes(int rank) {
  std::lock_guard lock(FakeWorld::Get().mutex);
  int64_t bytes = 0;
  for (const auto& [data, registration] : FakeWorld::Get().registered) {
    if (registration.rank == rank) bytes += registration.bytes;
  }
  return bytes;
}

std::vector<std::string> FakeNccl::Misuses() {
  std::lock_guard lock(FakeWorld::Get().mutex);
  return FakeWorld::Get().misuses;
}

void FakeNccl::Reset() {
  FakeWorld& world = FakeWorld::Get();
  std::lock_guard lock(world.mutex);
  world.groups.clear();
  world.splits.clear();
  world.faults.clear();
  world.calls.clear();
  world.misuses.clear();
  world.capturing = false;
}

}  // namespace brigade::collectives
