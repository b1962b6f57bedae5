#ifndef BRIGADE_COLLECTIVES_ALGORITHMS_WORKSPACE_H_
#define BRIGADE_COLLECTIVES_ALGORITHMS_WORKSPACE_H_

#include <algorithm>
#include <cstdint>

#include "brigade/collectives/collective.h"

namespace brigade::collectives {

// How a group's ranks reach each other, as far as it decides what memory a collective needs.
enum class EngineKind : uint8_t {
  // Kernels that read the other ranks' memory.
  kThreads,
  // Messages in chunks: Gloo.
  kTransport,
  kNccl,
};

// What a rank allocates for a collective beside the caller's arrays, counted as communication
// (device/memory_stats.h). All parts are kept for the next one: what several collectives need is
// the larger of each.
struct Workspace {
  // Scratch of the program.
  int64_t scratch_bytes = 0;
  // For what comes from other ranks to be reduced.
  int64_t landing_bytes = 0;
  // For the partial results of more arrays than a kernel reduces at once.
  int64_t partials_bytes = 0;

  int64_t bytes() const { return scratch_bytes + landing_bytes + partials_bytes; }

  friend bool operator==(const Workspace&, const Workspace&) = default;
};
inline Workspace Max(const Workspace& a, const Workspace& b) {
  return {std::max(a.scratch_bytes, b.scratch_bytes), std::max(a.landing_bytes, b.landing_bytes),
          std::max(a.partials_bytes, b.partials_bytes)};
}

// In chunks of so many bytes a transport carries parts; an engine of this kind may be made with
// another value for tests. Of 64 MiB between 2 and 4 ranks on Gloo, 1 MiB is slower by 4 %, 256 KiB
// by 10 to 20 %.
inline constexpr int64_t kTransportChunkBytes = int64_t{4} << 20;

// How messages that are to be reduced lie on a transport: a ring of `window` messages of
// `message_bytes`.
struct LandingRing {
  int64_t window = 0;
  int64_t message_bytes = 0;
};
LandingRing LandingRingOf(const CollectiveSignature& signature, int rank, int size,
                          int64_t chunk_bytes);

// Where NCCL puts a part of `bytes` bytes: parts begin at multiples of whole vectors.
int64_t NcclLandingBytes(int64_t bytes);

// Whether NCCL's own functions carry the collective out, and not a program of ours over its sends.
bool IsNcclsOwn(const CollectiveSignature& signature);

// What `rank` of `size` allocates for a signature whose algorithm is resolved
// (Communicator::Resolve).
Workspace WorkspaceOf(const CollectiveSignature& signature, int rank, int size, EngineKind kind);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ALGORITHMS_WORKSPACE_H_
