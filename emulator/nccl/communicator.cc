#include "brigade/emulator/nccl/communicator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::emulator {

using Clock = std::chrono::steady_clock;

NcclState& NcclState::Get() {
  static NcclState nccl;
  return nccl;
}

NcclEntry::NcclEntry(const char* function) : comm_(nullptr) {
  const device::MutexLock lock(NcclState::Get().mutex);
  Count(function);
  ApplyFaults(function);
}

NcclEntry::NcclEntry(const char* function, NcclComm comm, bool may_be_in_progress) : comm_(comm) {
  const device::MutexLock lock(NcclState::Get().mutex);
  Count(function);
  if (comm == nullptr || NcclState::Get().live.count(comm) == 0) {
    Refuse(function, comm == nullptr ? " on no communicator" : " on a communicator that is gone");
    comm_ = nullptr;
    is_gone_ = true;
    return;
  }
  if (comm->inside.exchange(true)) {
    NcclState::Get().misuses.push_back(std::string(function) + " while another thread is in NCCL");
  }
  const bool in_progress =
      !comm->initialised || comm->split.has_value() || comm->hangs || comm->polls_left > 0;
  if (in_progress && !may_be_in_progress) {
    Refuse(function, " while a call is in progress");
  } else {
    ApplyFaults(function);
  }
}

void NcclEntry::Count(const char* function) const {
  auto& calls = NcclState::Get().calls;
  auto found = calls.find(std::string_view(function));
  if (found == calls.end()) found = calls.emplace(function, 0).first;
  ++found->second;
}

void NcclEntry::Refuse(const char* function, const char* why) {
  NcclState::Get().misuses.push_back(NcclState::Get().last_error = std::string(function) + why);
  result_ = NcclResult::kInvalidArgument;
}

void NcclEntry::ApplyFaults(const char* function) {
  auto& faults = NcclState::Get().faults;
  const auto fault = std::find_if(faults.begin(), faults.end(), [&](const auto& each) {
    const bool is_of_rank = each.rank < 0 || comm_ == nullptr || comm_->state->rank == each.rank;
    return each.function == function && is_of_rank;
  });
  if (fault == faults.end()) return;
  Apply(*fault);
  faults.erase(fault);
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

NcclComm CreateComm(std::shared_ptr<RankState> state) {
  const NcclComm comm = new ncclComm;
  comm->state = std::move(state);
  NcclState::Get().live.insert(comm);
  return comm;
}

absl::Status JoinGroup(const std::string& name, int size, RankState& rank) {
  std::weak_ptr<RankGroup>& known = NcclState::Get().groups[name];
  rank.group = known.lock();
  if (rank.group == nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(rank.group, RankGroup::Open(name, size));
    known = rank.group;
  }
  rank.group->Join();
  return absl::OkStatus();
}

NcclResult SystemError(const absl::Status& error) {
  NcclState::Get().last_error = error.ToString();
  return NcclResult::kSystemError;
}

absl::StatusOr<bool> Advance(ncclComm& comm) {
  NcclSplit& split = *comm.split;
  if (split.state == nullptr) {
    RankGroup& parent = *comm.state->group;
    const auto place = parent.PlaceInSplit(comm.state->rank, split.number);
    if (!place.has_value()) return false;
    if (split.color < 0) return true;
    split.state = std::make_shared<RankState>();
    split.state->rank = place->rank;
    BRIGADE_RETURN_IF_ERROR(
        JoinGroup(absl::StrCat(parent.name(), ".", split.number, ".", split.color), place->size,
                  *split.state));
  }
  return split.state->group->is_complete();
}

void EmulatedNccl::Inject(const Fault& fault) {
  const device::MutexLock lock(NcclState::Get().mutex);
  NcclState::Get().faults.push_back(fault);
}

bool EmulatedNccl::FaultHappened() {
  const device::MutexLock lock(NcclState::Get().mutex);
  return NcclState::Get().faults.empty();
}

void EmulatedNccl::SetCapturing(bool capturing) { NcclState::Get().capturing = capturing; }

int EmulatedNccl::Calls(const std::string& function) {
  const device::MutexLock lock(NcclState::Get().mutex);
  return NcclState::Get().calls[function];
}

int EmulatedNccl::LiveComms() {
  const device::MutexLock lock(NcclState::Get().mutex);
  return static_cast<int>(NcclState::Get().live.size());
}

int EmulatedNccl::LiveRegistrations() {
  const device::MutexLock lock(NcclState::Get().mutex);
  return static_cast<int>(NcclState::Get().registered.size());
}

int64_t EmulatedNccl::RegisteredBytes(int rank) {
  const device::MutexLock lock(NcclState::Get().mutex);
  int64_t bytes = 0;
  for (const auto& [data, registration] : NcclState::Get().registered) {
    if (registration.rank == rank) bytes += registration.bytes;
  }
  return bytes;
}

std::vector<std::string> EmulatedNccl::Misuses() {
  const device::MutexLock lock(NcclState::Get().mutex);
  return NcclState::Get().misuses;
}

void EmulatedNccl::Reset() {
  const device::MutexLock lock(NcclState::Get().mutex);
  NcclState::Get().groups.clear();
  NcclState::Get().faults.clear();
  NcclState::Get().calls.clear();
  NcclState::Get().misuses.clear();
  NcclState::Get().capturing = false;
}

}  // namespace brigade::emulator
