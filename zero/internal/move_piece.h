#ifndef BRIGADE_ZERO_INTERNAL_MOVE_PIECE_H_
#define BRIGADE_ZERO_INTERNAL_MOVE_PIECE_H_

#include "absl/status/status.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/plan/matrix_layout.h"

namespace brigade::zero::internal {

// What a rank has of an array that is cut between ranks, for a piece of it to cross; null: it has
// none.
struct PieceEnds {
  // Of this rank's piece, and of the owner's whole array where that piece lies in it.
  void* piece = nullptr;
  void* whole = nullptr;
};

// Moves a piece of an array of `dtype` to its owner, or back: a copy where one rank is both, else a
// message, which counts as gradients: it is what has become of them. A call of both ranks; others
// may make it too, and do nothing.
//
// Stream       Enqueued on the communication stream.
// Errors       Those of Communicator::Send.
absl::Status MovePiece(const MatrixPiece& piece, int owner, const PieceEnds& ends,
                       precision::DType dtype, bool to_owner, StepStreams& streams);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_MOVE_PIECE_H_
