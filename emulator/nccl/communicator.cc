#include "brigade/emulator/nccl/communicator.h"

namespace brigade::emulator {

using Clock = std::chrono::steady_clock;

NcclState& NcclState::Get() {
  static NcclState nccl;
  return nccl;
}

NcclEntry::NcclEntry(const char* function, NcclComm comm, bool may_be_in_progress) : comm_(comm) {
  NcclState& nccl = NcclState::Get();
  std::lock_guard lock(nccl.mutex);
  auto found = nccl.calls.find(std::string_view(function));
  if (found == nccl.calls.end()) found = nccl.calls.emplace(function, 0).first;
  ++found->second;
  const auto misuse = [&](const char* what) {
    nccl.misuses.push_back(std::string(function) + what);
  };
  if (comm != nullptr && nccl.live.count(comm) == 0) {
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
  for (auto fault = nccl.faults.begin(); fault != nccl.faults.end(); ++fault) {
    const bool this_rank = fault->rank < 0 || comm == nullptr || comm->state->rank == fault->rank;
    if (fault->function != function || !this_rank) continue;
    Apply(*fault);
    nccl.faults.erase(fault);
    return;
  }
}

void NcclEntry::Apply(const EmulatedNccl::Fault& fault) {
  switch (fault.effect) {
    case EmulatedNccl::Effect::kReturns:
      result_ = fault.error;
      return;
    case EmulatedNccl::Effect::kHangs:
      result_ = NcclResult::kInProgress;
      if (comm_ != nullptr) comm_->hangs = true;
      return;
    case EmulatedNccl::Effect::kLater:
      comm_->error = fault.error;
      comm_->error_at = Clock::now() + std::chrono::milliseconds(20);
      return;
  }
}

void EmulatedNccl::Inject(const Fault& fault) {
  std::lock_guard lock(NcclState::Get().mutex);
  NcclState::Get().faults.push_back(fault);
}

bool EmulatedNccl::FaultHappened() {
  std::lock_guard lock(NcclState::Get().mutex);
  return NcclState::Get().faults.empty();
}

void EmulatedNccl::SetCapturing(bool capturing) { NcclState::Get().capturing = capturing; }

int EmulatedNccl::Calls(const std::string& function) {
  std::lock_guard lock(NcclState::Get().mutex);
  return NcclState::Get().calls[function];
}

int EmulatedNccl::LiveComms() {
  std::lock_guard lock(NcclState::Get().mutex);
  return static_cast<int>(NcclState::Get().live.size());
}

int EmulatedNccl::LiveRegistrations() {
  std::lock_guard lock(NcclState::Get().mutex);
  return static_cast<int>(NcclState::Get().registered.size());
}

int64_t EmulatedNccl::RegisteredBytes(int rank) {
  std::lock_guard lock(NcclState::Get().mutex);
  int64_t bytes = 0;
  for (const auto& [data, registration] : NcclState::Get().registered) {
    if (registration.rank == rank) bytes += registration.bytes;
  }
  return bytes;
}

std::vector<std::string> EmulatedNccl::Misuses() {
  std::lock_guard lock(NcclState::Get().mutex);
  return NcclState::Get().misuses;
}

void EmulatedNccl::Reset() {
  NcclState& nccl = NcclState::Get();
  std::lock_guard lock(nccl.mutex);
  nccl.groups.clear();
  nccl.splits.clear();
  nccl.faults.clear();
  nccl.calls.clear();
  nccl.misuses.clear();
  nccl.capturing = false;
}

}  // namespace brigade::emulator
