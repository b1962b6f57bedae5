#ifndef BRIGADE_PARALLEL_PIPELINE_PICTURE_H_
#define BRIGADE_PARALLEL_PIPELINE_PICTURE_H_

#include <string>

#include "brigade/parallel/pipeline/item.h"
#include "brigade/parallel/pipeline/simulate.h"

namespace brigade::parallel {

// An SVG of a simulated step: a row for each stage, a box for each computation with the number of
// its micro-batch, darker from chunk to chunk, a line for each transfer that takes time.
std::string DrawSvg(const PipelineSchedule& schedule, const Simulation& simulation);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_PICTURE_H_
