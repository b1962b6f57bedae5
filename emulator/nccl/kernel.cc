#include "absl/container/inlined_vector.h"
#include "brigade/device/status_macros.h"
#include "brigade/emulator/nccl/streams.h"

namespace brigade::emulator {

absl::Status NcclKernel::Run(absl::Span<const TransferPart> transfers, NcclStreams& streams) const {
  RankGroup& group = *rank->group;
  if (collective.has_value()) {
    CollectivePart part = *collective;
    const auto reads = static_cast<int64_t>(InputBytes(part, group.size()));
    const auto writes = static_cast<int64_t>(OutputBytes(part, group.size()));
    // What is read comes first: bytes that are written count as initialised from then on.
    if (part.Reads(rank->rank)) {
      BRIGADE_ASSIGN_OR_RETURN(part.input, streams.Readable(part.input, reads));
    }
    BRIGADE_ASSIGN_OR_RETURN(part.output, streams.Writable(part.output, writes));
    return group.Run(rank->rank, rank->collectives++, part, rank->aborted);
  }
  absl::InlinedVector<TransferPart, kFewTransfers> parts(transfers.begin(), transfers.end());
  for (const bool sends : {true, false}) {
    for (TransferPart& part : parts) {
      if (part.sends != sends) continue;
      const auto bytes = static_cast<int64_t>(part.bytes);
      if (sends) {
        BRIGADE_ASSIGN_OR_RETURN(const void* const data, streams.Readable(part.data, bytes));
        part.data = const_cast<void*>(data);
      } else {
        BRIGADE_ASSIGN_OR_RETURN(part.data, streams.Writable(part.data, bytes));
      }
    }
  }
  return group.Run(rank->rank, parts, rank->aborted);
}

}  // namespace brigade::emulator
