#ifndef BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_TRANSPORT_ENGINE_H_
#define BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_TRANSPORT_ENGINE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/collectives/engines/transport/transport.h"
#include "brigade/device/context.h"

namespace brigade::collectives {

// A transport among some ranks of a group, numbered in the order given; see Engine::CreateSubgroup.
// No two groups with the same members have the same label.
using Regroup = std::function<absl::StatusOr<std::unique_ptr<Transport>>(
    absl::Span<const int> members, absl::Span<const int> lost, const std::string& label)>;

struct TransportEngineOptions {
  // What a message carries is compared with its checksum where it arrives: checked_transport.h. The
  // same on all ranks.
  bool verify_messages = false;
};

// Carries programs out by messages, in the stream's worker. CPU contexts only.
//
// Fingerprints A call's first message to a rank carries its fingerprint: checked_transport.h. Calls
//              that differ end the group on all ranks with an error that names both sides, and no
//              payload of one is written into an array of the other. On a rank that exchanges
//              nothing with the odd one, a call may have ended well before.
// Checksums    DataLoss, on all ranks, naming both ends of a message that has arrived damaged.
// Pipeline     Instructions go in chunks: while one is reduced, the next is on its way.
// Failed work  A call that its stream skips, because something failed before it, ends the group
//              with an error that says so, and has the stream's; the other ranks do not wait for
//              the deadline.
// Memory       Chunks to receive into, counted as communication in `context`, which this group and
//              those made of it keep.
// Lifetime     Destroyed with calls in a queue, it carries them out first.
//
// InvalidArgument for a context that is not on the CPU.
absl::StatusOr<std::unique_ptr<Engine>> CreateTransportEngine(
    std::unique_ptr<Transport> transport, Regroup regroup, std::shared_ptr<device::Context> context,
    const TransportEngineOptions& options = {});

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_TRANSPORT_ENGINE_H_
