#include "brigade/collectives/engines/nccl/communicator.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/nccl/status.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/deadline.h"

namespace brigade::collectives {
namespace {

using Clock = NcclCommunicator::Clock;

// How long the calls of a rank that has left may take to end here.
constexpr absl::Duration kGrace = absl::Seconds(1);
constexpr absl::Duration kLeaveTime = absl::Seconds(1);

// Before the first nap: NCCL starts a thread for each call.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr auto kNap = std::chrono::microseconds(100);

}  // namespace

absl::Status NcclCommunicator::Start(device::Context& context) {
  auto flag =
      context.AllocateHost(sizeof(int32_t), device::Purpose::kCommunication, "failure flag");
  if (!flag.ok()) return Fail(flag.status());
  failure_flag_ = *std::move(flag);
  failure_flag_.as<int32_t>()[0] = 0;
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Create(absl::FunctionRef<NcclOutcome(NcclComm*)> create) {
  NcclOutcome outcome;
  {
    device::MutexLock lock(mutex_);
    outcome = create(&comm_);
  }
  return Settle(outcome);
}

void NcclCommunicator::Adopt(NcclComm comm, bool lent) {
  device::MutexLock lock(mutex_);
  comm_ = comm;
  lent_ = lent;
}

absl::Status NcclCommunicator::Do(absl::FunctionRef<NcclOutcome(NcclComm)> call) {
  NcclOutcome outcome;
  {
    device::MutexLock lock(mutex_);
    if (comm_ == nullptr) return NoCommunicator();
    outcome = call(comm_);
  }
  return Settle(outcome);
}

absl::Status NcclCommunicator::NoCommunicator() const {
  BRIGADE_RETURN_IF_ERROR(status());
  return absl::FailedPreconditionError(absl::StrCat("rank ", rank_, ": there is no ncclComm_t"));
}

// Until NCCL has taken the call, the communicator is gone, or the time is up.
NcclOutcome NcclCommunicator::Poll(NcclOutcome outcome, Clock::time_point deadline) {
  const Clock::time_point begin = Clock::now();
  while (outcome.result == NcclResult::kInProgress) {
    {
      device::MutexLock lock(mutex_);
      if (comm_ == nullptr) return outcome;
      const NcclResult asked = api_.comm_get_async_error(comm_, &outcome.result);
      if (asked != NcclResult::kSuccess) return {asked, "ncclCommGetAsyncError"};
    }
    if (outcome.result != NcclResult::kInProgress) break;
    const Clock::time_point now = Clock::now();
    if (now >= deadline) break;
    if (now - begin < kSpin) {
      std::this_thread::yield();
    } else {
      if (const absl::Status trouble = TroubleElsewhere(); !trouble.ok()) {
        static_cast<void>(Fail(trouble));
      }
      std::this_thread::sleep_for(kNap);
    }
  }
  return outcome;
}

absl::Status NcclCommunicator::Settle(NcclOutcome outcome) {
  if (outcome.result == NcclResult::kInProgress) {
    outcome = Poll(outcome, device::DeadlineAfter(timeout_));
  }
  if (outcome.result == NcclResult::kSuccess) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(status());
  if (outcome.result == NcclResult::kInProgress) {
    return Fail(absl::DeadlineExceededError(absl::StrCat("rank ", rank_, ": ", outcome.function,
                                                         " is still in progress after ",
                                                         absl::FormatDuration(timeout_))));
  }
  absl::Status error;
  {
    device::MutexLock lock(mutex_);
    error = NcclStatus(api_, outcome.result, outcome.function, comm_);
  }
  return Fail(absl::Status(error.code(), absl::StrCat("rank ", rank_, ": ", error.message())));
}

absl::Status NcclCommunicator::Fail(const absl::Status& error) {
  absl::Status first = error;
  if (side_ != nullptr) {
    side_->Abort(error);
    // Unless it is the same one, of which this rank knows more.
    const absl::Status heard = side_->status();
    if (!absl::StartsWith(error.message(), heard.message())) first = heard;
  }
  {
    device::MutexLock lock(status_mutex_);
    if (!status_.ok()) return status_;
    status_ = first;
    failed_ = true;
    // Before the abort, after which the streams go on.
    for (int32_t& flag : failure_flag_.as<int32_t>()) std::atomic_ref(flag).store(1);
  }
  End();
  return first;
}

void NcclCommunicator::End() {
  device::MutexLock lock(mutex_);
  const NcclComm comm = std::exchange(comm_, nullptr);
  if (comm == nullptr) return;
  if (!lent_) {
    api_.comm_abort(comm);  // also if it says that it could not: there is nothing else to do
  } else if (api_.comm_revoke != nullptr) {
    api_.comm_revoke(comm, 0);
  }
}

absl::Status NcclCommunicator::status() const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  device::MutexLock lock(status_mutex_);
  return status_;
}

// A rank that is gone may have left: what it took part in can still end.
absl::Status NcclCommunicator::TroubleElsewhere() {
  if (side_ == nullptr) return absl::OkStatus();
  absl::Status trouble = side_->status();
  if (!absl::IsUnavailable(trouble)) return trouble;
  device::MutexLock lock(status_mutex_);
  grace_ends_ = std::min(grace_ends_, device::DeadlineAfter(kGrace));
  return Clock::now() > grace_ends_ ? trouble : absl::OkStatus();
}

void NcclCommunicator::Look() {
  if (const absl::Status trouble = TroubleElsewhere(); !trouble.ok()) {
    static_cast<void>(Fail(trouble));
    return;
  }
  NcclOutcome outcome = {NcclResult::kSuccess, "a call that was under way"};
  {
    device::MutexLock lock(mutex_);
    if (comm_ == nullptr) return;
    const NcclResult asked = api_.comm_get_async_error(comm_, &outcome.result);
    if (asked != NcclResult::kSuccess) outcome = {asked, "ncclCommGetAsyncError"};
  }
  if (outcome.result != NcclResult::kInProgress) static_cast<void>(Settle(outcome));
}

void NcclCommunicator::Close() {
  NcclOutcome outcome = {NcclResult::kInvalidUsage, ""};
  {
    device::MutexLock lock(mutex_);
    if (lent_) comm_ = nullptr;
    if (comm_ == nullptr) return;
    outcome.result = api_.comm_finalize(comm_);
  }
  outcome = Poll(outcome, device::DeadlineAfter(kLeaveTime));
  if (outcome.result != NcclResult::kSuccess) return End();
  device::MutexLock lock(mutex_);
  if (comm_ != nullptr) api_.comm_destroy(std::exchange(comm_, nullptr));
}

}  // namespace brigade::collectives
