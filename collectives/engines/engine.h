#ifndef BRIGADE_COLLECTIVES_ENGINES_ENGINE_H_
#define BRIGADE_COLLECTIVES_ENGINES_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/algorithms/workspace.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/engines/registration.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// One rank's part of a group: how its calls are carried out. Communicator checks arguments, counts
// the calls and orders them; an engine may rely on that.
//
// Errors       The first error, with the rank that caused it, ends the group: from then on every
//              call returns it, on every rank that is alive. Where several ranks meet errors of
//              their own at the same time, each may keep its own. Engines say whether the call, its
//              stream or status() returns it first.
// Threads      Abort and status from any thread, CreateSubgroup beside another call; the others
//              from one at a time.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Whether the engine has a collective of its own, Algorithm::kNative, for this kind, type and
  // operation.
  virtual bool HasNative(const CollectiveSignature& /*signature*/) const { return false; }

  // What this rank allocates for a collective with a resolved algorithm, unless it has it already.
  virtual Workspace WorkspaceFor(const CollectiveSignature& signature) const = 0;

  // Allocates it now, so that the first such collective allocates nothing. Not while one runs.
  virtual absl::Status Reserve(const CollectiveSignature& signature) = 0;

  // See Communicator::Register. An engine that reads and writes arrays where they are does nothing.
  virtual absl::StatusOr<Registration> Register(void* /*data*/, int64_t /*bytes*/) {
    return Registration();
  }

  // Enqueues this rank's part of the call on `stream`.
  virtual absl::Status Run(const Collective& collective, device::Stream& stream) = 0;

  // Gives every rank the values of all on the host: all[rank][i], for which there is room.
  // `fingerprint` says which call this is: ranks whose fingerprints differ, also from those of
  // calls of Run, get InvalidArgument that names two of them, and `all` is not written. Ranks whose
  // fingerprints are equal give as many values.
  virtual absl::Status AllGatherHost(const Fingerprint& fingerprint,
                                     absl::Span<const int64_t> values, absl::Span<int64_t> all) = 0;

  // A new engine for those of this group's ranks that are in `members`, this one among them; they
  // are numbered in the order given. Each member calls it with the same list and the same
  // `generation`, which no earlier call had; also if this engine has failed. It returns when all
  // have called it, or with DeadlineExceeded that names those that have not; that does not end this
  // group. The ranks `lost` are gone: the group must not rely on what they served.
  virtual absl::StatusOr<std::unique_ptr<Engine>> CreateSubgroup(absl::Span<const int> members,
                                                                 absl::Span<const int> lost,
                                                                 uint64_t generation) = 0;

  // The same for a split of a group that has not failed, which all its ranks call: `members` is
  // empty for one that is in no new group and gets null.
  virtual absl::StatusOr<std::unique_ptr<Engine>> Split(absl::Span<const int> members,
                                                        uint64_t generation) {
    if (members.empty()) return std::unique_ptr<Engine>();
    return CreateSubgroup(members, {}, generation);
  }

  // A new group of the same ranks for calls on the host alone, which another thread may use beside
  // this one, and after it: Run and Reserve are not called. All ranks of a group that has not
  // failed call it, with a generation as above.
  virtual absl::StatusOr<std::unique_ptr<Engine>> CreateHostChannel(uint64_t generation) {
    std::vector<int> all(static_cast<size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    return Split(all, generation);
  }

  // Ends the group with this error, which is not OK, and every wait of a call on all ranks that the
  // engine can end; a second time changes nothing. Groups made of this one go on.
  virtual void Abort(const absl::Status& reason) = 0;

  virtual absl::Status status() const = 0;

  // Of an engine whose streams go on after an error, with arrays that hold no results: memory that
  // work on the device can read, 0 until the error and 1 from before any stream goes on because of
  // it. Null where the streams' work ends with the error.
  virtual const int32_t* failure_flag() const { return nullptr; }

  // Payload that this rank has sent to `rank` since the beginning, or memory of this rank that the
  // other has read or been written to, where they share it.
  virtual int64_t sent_bytes(int rank) const = 0;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_ENGINE_H_
