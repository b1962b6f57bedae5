#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_VERIFIER_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_VERIFIER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/periodic_thread.h"

namespace brigade::collectives {

// Compares this rank's calls with those of the other ranks, beside the calls and in a thread of its
// own.
//
// Errors       Given once to `fail`: InvalidArgument for calls that differ, with the same two named
//              on all ranks; the error of the side channel if a rank does not come or is gone.
// Allocation   Add makes none.
// Threads      Add, AwaitAll from one at a time; the others from any.
// Destruction  Compares first what was added.
class CollectiveVerifier {
 public:
  // Nobody else calls side.AllGatherHost between an Add and the end of AwaitAll.
  CollectiveVerifier(Engine& side, std::function<void(const absl::Status&)> fail);
  ~CollectiveVerifier();

  // Waits for the other ranks' hosts if this one is a thousand calls ahead of the comparison.
  void Add(const Fingerprint& call);

  // The same from any thread, without a wait, for a call whose time is over: the group ends.
  void AddLate(const Fingerprint& call);

  // Whether the call was added and its comparison has not ended.
  bool IsComparing(const Fingerprint& call);

  // Until all that was added has been compared, or something has failed.
  void AwaitAll();

 private:
  void CompareAll();
  absl::Status Round();
  absl::Status Compare(int64_t calls) const;

  Engine& side_;
  const std::function<void(const absl::Status&)> fail_;
  // Blocks of fingerprints: this rank's, and all by rank.
  std::vector<int64_t> mine_, all_;

  device::Mutex mutex_;
  device::CondVar compared_;
  // Those that are not compared yet.
  std::vector<Fingerprint> calls_ ABSL_GUARDED_BY(mutex_);
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;

  // Last: it uses the others.
  std::optional<device::PeriodicThread> thread_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_VERIFIER_H_
