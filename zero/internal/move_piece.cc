#include "brigade/zero/internal/move_piece.h"

#include <cstdint>

#include "brigade/collectives/communicator.h"
#include "brigade/device/stream.h"

namespace brigade::zero::internal {

absl::Status MovePiece(const MatrixPiece& piece, int owner, const PieceEnds& ends,
                       precision::DType dtype, bool to_owner, StepStreams& streams) {
  const bool has_piece = piece.rank == streams.rank();
  const bool is_owner = owner == streams.rank();
  const int64_t size = piece.range.size;
  const int64_t bytes = size * precision::SizeOf(dtype);
  device::Stream& stream = streams.comm();
  if (has_piece && is_owner) {
    return to_owner ? stream.Copy(ends.whole, ends.piece, bytes)
                    : stream.Copy(ends.piece, ends.whole, bytes);
  }
  collectives::Communicator& ranks = streams.communicator();
  if (has_piece && to_owner) {
    streams.traffic.gradients += bytes;
    return ranks.Send(ends.piece, size, dtype, owner, stream);
  }
  if (is_owner && !to_owner) {
    streams.traffic.gradients += bytes;
    return ranks.Send(ends.whole, size, dtype, piece.rank, stream);
  }
  if (has_piece) return ranks.Receive(ends.piece, size, dtype, owner, stream);
  if (is_owner) return ranks.Receive(ends.whole, size, dtype, piece.rank, stream);
  return absl::OkStatus();
}

}  // namespace brigade::zero::internal
