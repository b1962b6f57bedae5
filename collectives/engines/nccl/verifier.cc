#include "brigade/collectives/engines/nccl/verifier.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/time/time.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

// In a block: 0.3 KB from each rank to each.
constexpr int64_t kMostCalls = 8;

// Calls that a host may be ahead of the comparison, 40 KB.
constexpr size_t kAhead = 1024;

// The thread looks for calls and is not woken for each, which would cost the caller more than the
// call itself.
constexpr absl::Duration kInterval = absl::Milliseconds(2);

// The oldest calls of a rank that are not compared yet.
struct Block {
  int64_t count = 0;
  std::array<Fingerprint, kMostCalls> calls;
};
static_assert(std::is_trivially_copyable_v<Block> && sizeof(Block) % sizeof(int64_t) == 0);
constexpr size_t kWords = sizeof(Block) / sizeof(int64_t);

Block BlockOf(const std::vector<int64_t>& all, int rank) {
  Block block;
  std::memcpy(static_cast<void*>(&block), all.data() + static_cast<size_t>(rank) * kWords,
              sizeof(block));
  return block;
}

}  // namespace

CollectiveVerifier::CollectiveVerifier(Engine& side, std::function<void(const absl::Status&)> fail)
    : side_(side),
      fail_(std::move(fail)),
      mine_(kWords),
      all_(kWords * static_cast<size_t>(side.size())) {
  calls_.reserve(kAhead);
  thread_.emplace(kInterval, [this] { CompareAll(); });
}

CollectiveVerifier::~CollectiveVerifier() {
  thread_->Stop();
  CompareAll();
}

void CollectiveVerifier::Add(const Fingerprint& call) {
  device::MutexLock lock(mutex_);
  while (calls_.size() >= kAhead && !failed_) compared_.Wait(mutex_);
  if (!failed_) calls_.push_back(call);
}

void CollectiveVerifier::AddLate(const Fingerprint& call) {
  device::MutexLock lock(mutex_);
  if (!failed_) calls_.push_back(call);
}

bool CollectiveVerifier::IsComparing(const Fingerprint& call) {
  device::MutexLock lock(mutex_);
  return !failed_ && std::find(calls_.begin(), calls_.end(), call) != calls_.end();
}

void CollectiveVerifier::AwaitAll() {
  device::MutexLock lock(mutex_);
  while (!calls_.empty() && !failed_) compared_.Wait(mutex_);
}

void CollectiveVerifier::CompareAll() {
  device::MutexLock lock(mutex_);
  while (!calls_.empty() && !failed_) {
    lock.Unlock();
    const absl::Status compared = Round();
    if (!compared.ok()) fail_(compared);
    lock.Lock();
    failed_ = !compared.ok();
    compared_.SignalAll();
  }
}

// Waits for all ranks to have a call, and compares as many as all have. So all agree on what has
// been compared.
absl::Status CollectiveVerifier::Round() {
  Block block;
  {
    device::MutexLock lock(mutex_);
    block.count = std::min<int64_t>(kMostCalls, static_cast<int64_t>(calls_.size()));
    std::copy_n(calls_.begin(), block.count, block.calls.begin());
  }
  std::memcpy(mine_.data(), static_cast<const void*>(&block), sizeof(block));
  // The side channel compares the first call, and names it in its errors.
  BRIGADE_RETURN_IF_ERROR(side_.AllGatherHost(block.calls[0], mine_, absl::MakeSpan(all_)));
  int64_t calls = kMostCalls;
  for (int rank = 0; rank < side_.size(); ++rank) {
    calls = std::min(calls, BlockOf(all_, rank).count);
  }
  BRIGADE_RETURN_IF_ERROR(Compare(calls));
  device::MutexLock lock(mutex_);
  calls_.erase(calls_.begin(), calls_.begin() + calls);
  return absl::OkStatus();
}

absl::Status CollectiveVerifier::Compare(int64_t calls) const {
  const Block first = BlockOf(all_, 0);
  for (int64_t i = 0; i < calls; ++i) {
    for (int rank = 1; rank < side_.size(); ++rank) {
      const Block other = BlockOf(all_, rank);
      const auto at = static_cast<size_t>(i);
      if (other.calls[at] == first.calls[at]) continue;
      return MismatchError(0, first.calls[at], rank, other.calls[at]);
    }
  }
  return absl::OkStatus();
}

}  // namespace brigade::collectives
