#ifndef BRIGADE_DIGESTS_TENSOR_DUMP_H_
#define BRIGADE_DIGESTS_TENSOR_DUMP_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/digests/tensor_map.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/step_observer.h"

namespace brigade::digests {

// Writes a step's gradients and weights, as ZeroOptimizer::Observe shows them, to files: to be
// compared element by element with those of another run. Each rank writes what it has of each
// tensor, so that the files are whole tensors whatever the stage and the grid:
//
//   FOLDER/gradients/NAME.fp32, FOLDER/weights/NAME.bf16, ...
//
// elements alone, row-major, of the type that the file's name ends with; weights as the update has
// left them. For one step: it takes memory of the host, and Write waits for files.
//
// Ranks        Of one file system.
// Errors       What the system says, naming the file.
class TensorDump final : public zero::StepObserver {
 public:
  // The last two must outlive it. This rank writes what it counts, if its group is the first of
  // those with a whole state.
  TensorDump(std::string folder, const TensorMap& map, bool is_first_group,
             device::Context& context)
      : folder_(std::move(folder)), map_(map), is_first_group_(is_first_group), context_(context) {}

  absl::Status OnWeights(absl::Span<const zero::ObservedArray>, device::Stream&) override {
    return absl::OkStatus();
  }
  absl::Status OnGradients(absl::Span<const zero::ObservedArray> gradients,
                           device::Stream& stream) override {
    return Keep("gradients", gradients, stream);
  }
  absl::Status OnUpdated(absl::Span<const zero::ObservedArray> weights,
                         device::Stream& stream) override {
    return Keep("weights", weights, stream);
  }

  // When the stream has come so far.
  absl::Status Write();

 private:
  struct Kept {
    std::string kind;
    zero::ObservedArray array;
    device::Buffer bytes;
  };

  absl::Status Keep(const char* kind, absl::Span<const zero::ObservedArray> arrays,
                    device::Stream& stream);

  const std::string folder_;
  const TensorMap& map_;
  const bool is_first_group_;
  device::Context& context_;
  std::vector<Kept> kept_;
};

// A tensor of a dump.
struct DumpedTensor {
  std::string path;
  precision::DType dtype = precision::DType::kFloat32;
  std::string bytes;
};

// `kind`: "gradients" or "weights". NotFound without it; DataLoss if it has another size than the
// tensor, as where a rank's part is missing.
absl::StatusOr<DumpedTensor> ReadDumped(const std::string& folder, const std::string& kind,
                                        const TensorName& tensor);

}  // namespace brigade::digests

#endif  // BRIGADE_DIGESTS_TENSOR_DUMP_H_
