#ifndef BRIGADE_ZERO_INTERNAL_SAVED_ERRORS_H_
#define BRIGADE_ZERO_INTERNAL_SAVED_ERRORS_H_

#include "absl/status/status.h"

namespace brigade::zero::internal {

// What error feedback has left out and not sent yet, as it is saved for any number of ranks and any
// stage: fp32 slices of each bucket, as those of the state, ErrorArraysOf(layout.h) of them. They
// are in the units of the gradient by which an update goes, without the loss scale: what the errors
// of all ranks together would add to it.
class SavedErrors {
 public:
  virtual ~SavedErrors() = default;

  // As at the beginning of a run.
  virtual absl::Status ClearErrors() = 0;
  // This rank's slice of one of a bucket's arrays, on the device.
  virtual float* Slice(int bucket, int array) const = 0;
  // A call of all ranks, between steps: the slices are what the errors are now, and the errors are
  // those of a run that loads these slices.
  virtual absl::Status Share() = 0;
  // The other way round, from the slices of all ranks.
  virtual absl::Status TakeShared(int bucket) = 0;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_SAVED_ERRORS_H_
