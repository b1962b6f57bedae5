#include "brigade/checkpoint/joint_work.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

// How often ranks that still work tell each other so: at first, and at most.
constexpr absl::Duration kFirstInterval = absl::Milliseconds(1);
constexpr absl::Duration kLastInterval = absl::Milliseconds(100);

}  // namespace

absl::StatusOr<std::unique_ptr<JointWork>> JointWork::Create(
    std::unique_ptr<collectives::Communicator> channel) {
  BRIGADE_ASSIGN_OR_RETURN(auto thread, device::TaskThread::Create());
  return absl::WrapUnique(new JointWork(std::move(channel), std::move(thread)));
}

absl::Status JointWork::Run(absl::FunctionRef<absl::Status()> work) {
  enum : int64_t { kWorks, kDone, kFailed };
  absl::Status status, exchanged;
  thread_->Start([&] { status = work(); });
  absl::Duration interval = kFirstInterval;
  while (true) {
    const int64_t mine = !thread_->WaitFor(interval) ? kWorks : status.ok() ? kDone : kFailed;
    const auto all = channel_->AllGatherHost({mine});
    exchanged = all.status();
    if (!all.ok()) break;
    if (std::count(all->begin(), all->end(), kFailed) > 0) cancelled_ = true;
    if (std::count(all->begin(), all->end(), kWorks) == 0) break;
    // Those that have done their work wait in the exchange for those that have not.
    interval = std::min(2 * interval, kLastInterval);
  }
  if (!exchanged.ok()) cancelled_ = true;
  thread_->Wait();
  BRIGADE_RETURN_IF_ERROR(exchanged);
  const absl::Status agreed = collectives::AgreeOnStatus(status, *channel_);
  if (status.ok()) return agreed;
  return absl::Status(status.code(),
                      absl::StrCat("rank ", channel_->rank(), ": ", status.message()));
}

void JointWork::Cancel() {
  channel_->Abort(absl::CancelledError("the saver is gone"));
  cancelled_ = true;
}

}  // namespace brigade::checkpoint
