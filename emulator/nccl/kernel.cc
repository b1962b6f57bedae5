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
    if (part.Reads(rank->rank)) {
      BRIGADE_ASSIGN_OR_RETURN(part.input, streams.Readable(part.input, reads));
    }
    BRIGADE_ASSIGN_OR_RETURN(part.output, streams.Reachable(part.output, writes));
    BRIGADE_ASSIGN_OR_RETURN(const bool has_run,
                             group.Run(rank->rank, rank->collectives++, part, rank->aborted));
    return has_run ? streams.SetWritten(collective->output, writes) : absl::OkStatus();
  }
  absl::InlinedVector<TransferPart, kFewTransfers> parts(transfers.begin(), transfers.end());
  for (TransferPart& part : parts) {
    const auto bytes = static_cast<int64_t>(part.bytes);
    if (part.sends) {
      BRIGADE_ASSIGN_OR_RETURN(const void* const data, streams.Readable(part.data, bytes));
      part.data = const_cast<void*>(data);
    } else {
      BRIGADE_ASSIGN_OR_RETURN(part.data, streams.Reachable(part.data, bytes));
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(const bool has_run, group.Run(rank->rank, parts, rank->aborted));
  if (!has_run) return absl::OkStatus();
  for (const TransferPart& part : transfers) {
    if (part.sends) continue;
    BRIGADE_RETURN_IF_ERROR(streams.SetWritten(part.data, static_cast<int64_t>(part.bytes)));
  }
  return absl::OkStatus();
}

}  // namespace brigade::emulator
