#include "brigade/emulator/nccl/communicator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

using brigade::emulator::NcclResult;
using Clock = std::chrono::steady_clock;

NcclResult ncclComm::Error() const {
  return Clock::now() >= error_at ? error : NcclResult::kSuccess;
}

void ncclComm::Keep(NcclResult new_error) {
  error = new_error;
  error_at = Clock::time_point::min();
}

bool ncclComm::InProgress() const {
  // Calls after ncclCommRevoke wait for it.
  return !initialised || split.has_value() || hangs || polls_left > 0 ||
         (awaits_kernels && !revoked);
}

namespace brigade::emulator {

NcclState& NcclState::Get() {
  static NcclState nccl;
  return nccl;
}

void NcclState::AddMisuse(const std::string& misuse) {
  last_error = misuse;
  misuses.push_back(misuse);
  streams.load()->Report(misuse);
}

void NcclState::SetLastError(std::string error) {
  const device::MutexLock lock(mutex);
  last_error = std::move(error);
}

NcclEntry::NcclEntry(const char* function) : function_(function) {
  const device::MutexLock lock(NcclState::Get().mutex);
  Begin();
  ApplyFaults();
}

NcclEntry::NcclEntry(const char* function, NcclComm comm, Needs needs) : function_(function) {
  const device::MutexLock lock(NcclState::Get().mutex);
  Begin();
  if (comm == nullptr || NcclState::Get().live.count(comm) == 0) {
    is_gone_ = true;
    RefuseLocked(comm == nullptr ? "on no communicator" : "on a communicator that is gone");
    return;
  }
  comm_ = comm;
  is_inside_ = !comm->inside.exchange(true);
  if (!is_inside_) {
    NcclState::Get().AddMisuse(absl::StrCat(function, " while another thread is in NCCL"));
  }
  if (needs == Needs::kReady) {
    result_ = comm->Error();
    was_in_progress_ = result_ == NcclResult::kSuccess && comm->InProgress();
    if (was_in_progress_) RefuseLocked("while a call is in progress");
  }
  if (!failed()) ApplyFaults();
}

void NcclEntry::Begin() {
  auto& calls = NcclState::Get().calls;
  auto found = calls.find(absl::string_view(function_));
  if (found == calls.end()) found = calls.emplace(function_, 0).first;
  ++found->second;
}

void NcclEntry::RefuseLocked(absl::string_view why) {
  NcclState::Get().AddMisuse(absl::StrCat(function_, " ", why));
  result_ = NcclResult::kInvalidArgument;
}

NcclResult NcclEntry::Refuse(NcclResult result, absl::string_view why) {
  const device::MutexLock lock(NcclState::Get().mutex);
  RefuseLocked(why);
  return result_ = result;
}

NcclResult NcclEntry::KeepError() {
  if (comm_ != nullptr && has_error() && !was_in_progress_ && !comm_->revoked) {
    comm_->Keep(result_);
  }
  return result_;
}

void NcclEntry::ApplyFaults() {
  auto& faults = NcclState::Get().faults;
  const auto fault = std::find_if(faults.begin(), faults.end(), [&](const auto& each) {
    const bool is_of_rank = each.rank < 0 || comm_ == nullptr || comm_->state->rank == each.rank;
    return each.function == function_ && is_of_rank;
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
      if (comm_ == nullptr) return;
      comm_->error = fault.error;
      comm_->error_at = Clock::now() + std::chrono::milliseconds(20);
      return;
  }
}

NcclComm CreateComm(std::shared_ptr<RankState> state) {
  auto& comms = NcclState::Get().comms;
  comms.push_back(std::make_unique<ncclComm>());
  const NcclComm comm = comms.back().get();
  comm->kernels = {state.get(), [state](RankState* rank) { rank->kernels_ended = true; }};
  comm->state = std::move(state);
  NcclState::Get().live.insert(comm);
  return comm;
}

std::shared_ptr<RankState> CreateRank(int rank) {
  auto state = std::make_shared<RankState>();
  state->rank = rank;
  state->order = NcclState::Get().streams.load()->CreateOrder();
  return state;
}

absl::Status JoinGroup(const std::string& name, int size, RankState& rank) {
  auto& groups = NcclState::Get().groups;
  std::erase_if(groups, [](const auto& each) { return each.second.expired(); });
  std::shared_ptr<RankGroup> group;
  if (const auto known = groups.find(name); known != groups.end()) group = known->second.lock();
  if (group == nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(group, RankGroup::Open(name, size));
    groups[name] = group;
  }
  if (group->size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("of ", size, " ranks, where others have ", group->size()));
  }
  BRIGADE_RETURN_IF_ERROR(group->Join(rank.rank));
  rank.group = std::move(group);
  return absl::OkStatus();
}

absl::StatusOr<bool> Advance(ncclComm& comm) {
  NcclSplit& split = *comm.split;
  if (split.state == nullptr) {
    RankGroup& parent = *comm.state->group;
    const auto place = parent.PlaceInSplit(comm.state->rank, split.number);
    if (!place.has_value()) return false;
    if (split.color < 0) return true;
    split.state = CreateRank(place->rank);
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
  for (const auto& [handle, registration] : NcclState::Get().registered) {
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
