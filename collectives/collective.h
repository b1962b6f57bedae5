#ifndef BRIGADE_COLLECTIVES_COLLECTIVE_H_
#define BRIGADE_COLLECTIVES_COLLECTIVE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/options.h"
#include "brigade/device/requirements.h"
#include "brigade/kernels/reduce/reduce_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kShift,
  kBroadcast,
  // A send and its receive.
  kSend,
  kBarrier,
};

// One call as all ranks must make it: what fingerprints compare. Where options do not apply to the
// kind, or are chosen by the communicator, they are the values below, or what it has chosen: never
// kAuto.
struct CollectiveSignature {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Algorithm algorithm = Algorithm::kDirect;
  precision::DType dtype = precision::DType::kUint8;
  kernels::ReduceOp op = kernels::ReduceOp::kSum;
  // Elements: of the array (all-reduce, shift, broadcast, send), of a rank's part (reduce-scatter,
  // all-gather), of the part from one rank to another (all-to-all).
  int64_t count = 0;
  // The root of a broadcast, the sender, or the distance of a shift.
  int32_t root = 0;
  Reduction reduction = Reduction::kRoundedOnce;
  // What kHierarchical and kDoubleTree need of the topology: nodes of so many ranks, numbered node
  // by node. A divisor of the group's size.
  int32_t ranks_per_node = 1;

  friend bool operator==(const CollectiveSignature&, const CollectiveSignature&) = default;
};

// "all_reduce", ...
absl::string_view Name(CollectiveKind kind);

// all_reduce(sum of 1024 fp32, ring, rounded_per_hop); all_gather(8 int32, hierarchical on nodes
// of 4)
std::string ToString(const CollectiveSignature& signature);

// rank 1 calls <call> as its call 7
std::string DescribeCollective(int rank, absl::string_view collective, uint64_t sequence);

// Calls that end on the host.
enum class HostCollective : uint8_t { kNone, kAllGather, kSplit, kShrink, kHostChannel };

// "all_gather_host", ...
absl::string_view Name(HostCollective collective);

// What the ranks compare before a call: on every engine the same, with the same words.
struct Fingerprint {
  CollectiveSignature signature;
  uint64_t sequence = 0;
  // If it is a call on the host: of signature.count values of each rank.
  HostCollective on_host = HostCollective::kNone;

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

Fingerprint HostFingerprint(HostCollective collective, size_t values, uint64_t sequence);

// rank 1 calls all_reduce(...) as its call 7
std::string Describe(int rank, const Fingerprint& fingerprint);

// InvalidArgument with the text
// "rank 0 calls all_reduce(...) as its call 7, but rank 1 calls barrier() as its call 7".
absl::Status MismatchError(int rank, const Fingerprint& fingerprint, int other,
                           const Fingerprint& other_fingerprint);

// One rank's side of a call.
struct Collective {
  CollectiveSignature signature;
  // Of this communicator's calls, or of the calls between the two ranks.
  uint64_t sequence = 0;
  const void* input = nullptr;
  void* output = nullptr;
  // Of a send: the other rank.
  int peer = 0;
};

// Bounds the bytes of all ranks' arrays of a collective together: more than any address space has,
// and 128 times less than int64_t holds, so that no sum of offsets and sizes overflows.
inline constexpr int64_t kMaxCollectiveBytes = int64_t{1} << 56;

// Whether the collective has a choice of algorithms: an all-reduce, a reduce-scatter or an
// all-gather.
inline bool HasAlgorithms(CollectiveKind kind) { return kind <= CollectiveKind::kAllGather; }

// The type in which partial sums travel and lie in scratch: fp32 for 16-bit sums with
// kFp32Partials, by an algorithm that has partial sums.
precision::DType PartialType(const CollectiveSignature& signature);

// Elements that `rank` of `size` reads and writes.
int64_t InputElements(const CollectiveSignature& signature, int rank, int size);
int64_t OutputElements(const CollectiveSignature& signature, int rank, int size);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COLLECTIVE_H_
