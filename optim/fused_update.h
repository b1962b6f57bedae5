#ifndef BRIGADE_OPTIM_FUSED_UPDATE_H_
#define BRIGADE_OPTIM_FUSED_UPDATE_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/adam8/adam8.h"
#include "brigade/kernels/lamb/lamb_math.h"
#include "brigade/kernels/lion/lion.h"
#include "brigade/kernels/sgd/sgd.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/step_controller.h"
#include "brigade/precision/dtype.h"

namespace brigade::optim {

// A range of the parameters with the arrays that the update reads and writes. Device memory, [size]
// each.
struct UpdateSegment {
  // The fp32 master.
  float* param = nullptr;
  // Adam, LAMB and Lion: m. SGD: momentum, unused in a group without it.
  float* first_moment = nullptr;
  // Adam and LAMB: v. SGD and Lion: null.
  float* second_moment = nullptr;
  // Of UpdateTypes::grad.
  const void* grad = nullptr;
  // The rounded new parameter, of UpdateTypes::copy; null if there is no copy.
  void* copy = nullptr;
  int64_t size = 0;
  int32_t group = 0;
  // Where moments are codes, instead of these: codes [size], and scales of each 256.
  uint8_t* first_codes = nullptr;
  uint8_t* second_codes = nullptr;
  float* first_scales = nullptr;
  float* second_scales = nullptr;
  // Of LAMB with several ranks: the tensor that this is a piece of (LambUpdate).
  kernels::LambTensor tensor = {};
  // Of 1-bit LAMB once moments are exchanged (OneBitLambUpdate): the fresh second moment; which of
  // all tensors this is a piece of, and where the sums of its tiles are.
  float* fresh_moment = nullptr;
  int32_t tensor_index = 0;
  int64_t first_tile = 0;
};

struct UpdateTypes {
  precision::DType grad = precision::DType::kFloat32;
  // None: no 16-bit copy.
  std::optional<precision::DType> copy = {};
};

// Segments of one pair of types, updated in one call of the optimizer's kernel.
struct UpdateList {
  UpdateTypes types = {};
  std::vector<UpdateSegment> segments = {};
};

// The second pass of a step over memory: the optimizer's update of a fixed list of segments, as the
// StepController has decided. Not of LAMB, whose update of an element depends on others
// (LambUpdate); of Muon what AdamW updates; of Adafactor nothing.
//
// Traffic      kernels/adam/adam.h, adam8.h, sgd.h and lion.h: 30 bytes per element with AdamW,
//              fp32 gradients and a copy, 28 with 16-bit gradients and a copy.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits.
// Errors       Those of the kernels, when enqueued.
class FusedUpdate {
 public:
  FusedUpdate(const OptimizerOptions& options, const std::vector<UpdateSegment>& segments,
              const UpdateTypes& types);

  // Follows StepController::Decide. The decision is in memory that `stream` can read.
  absl::Status Enqueue(const StepDecision& decision, device::Stream& stream) const;

 private:
  UpdateTypes types_;
  kernels::WeightDecayMode weight_decay_mode_;
  std::vector<kernels::AdamGroup> adam_groups_;
  std::vector<kernels::SgdGroup> sgd_groups_;
  std::vector<kernels::LionGroup> lion_groups_;
  std::variant<std::vector<kernels::AdamSegment>, std::vector<kernels::SgdSegment>,
               std::vector<kernels::LionSegment>>
      segments_;
  // Those of Adam whose moments are codes, beside the others.
  std::vector<kernels::Adam8Segment> coded_;
};

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_FUSED_UPDATE_H_
