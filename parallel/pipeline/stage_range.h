#ifndef BRIGADE_PARALLEL_PIPELINE_STAGE_RANGE_H_
#define BRIGADE_PARALLEL_PIPELINE_STAGE_RANGE_H_

#include "brigade/device/requirements.h"

namespace brigade::parallel {

// Stages [first, end) of a model: layers, or what else it is cut between.
struct StageRange {
  int first = 0;
  int end = 0;

  int size() const { return end - first; }
  friend bool operator==(const StageRange&, const StageRange&) = default;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_STAGE_RANGE_H_
