#ifndef BRIGADE_MODELS_MERGE_H_
#define BRIGADE_MODELS_MERGE_H_

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/context.h"
#include "brigade/models/decoder.h"
#include "brigade/models/parameter_arrays.h"

namespace brigade::models {

// A model whose adapters are part of its base: W + scale B A in the place of W. Passes cost then
// what they cost without adapters.
//
//   BRIGADE_ASSIGN_OR_RETURN(auto merged, MergedAdapters::Merge(model, arrays, context));
//   ... Forward ...
//   BRIGADE_RETURN_IF_ERROR(merged.Unmerge());
//
// Precision    Sums in double, rounded once to the weights' type. Unmerge gives the bits that were
//              there: they are kept, since a subtraction would not.
// Memory       The merged matrices in their own type, and one in double; on the host.
// Errors       InvalidArgument for a model without adapters or whose adapters are merged, for a
//              base of int8 blocks (MergeInto), and for adapters of one of two layers whose weights
//              are tied. After an error nothing is merged, unless the device fails.
class MergedAdapters {
 public:
  // `model`, `arrays` and `context` must outlive it. Waits.
  static absl::StatusOr<MergedAdapters> Merge(Decoder& model, ParameterArrays& arrays,
                                              device::Context& context);

  // Once. Without it the weights stay merged. Waits.
  absl::Status Unmerge();

 private:
  MergedAdapters(Decoder& model, ParameterArrays& arrays, device::Context& context)
      : model_(&model), arrays_(&arrays), context_(&context) {}

  Decoder* model_;
  ParameterArrays* arrays_;
  device::Context* context_;
  // Of each merged parameter the bytes that were there.
  std::map<int, std::vector<char>> before_;
};

// The same into arrays of `plain`, the model without adapters, of any type: what SaveWeights then
// writes. Each value is rounded once, to the type of `to`; int8 blocks are numbers first. Waits.
absl::Status MergeInto(const Decoder& model, const ParameterArrays& from, const Decoder& plain,
                       ParameterArrays& to, device::Context& context);

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_MERGE_H_
