#ifndef BRIGADE_OPTIM_ZERO_ONE_SCHEDULE_H_
#define BRIGADE_OPTIM_ZERO_ONE_SCHEDULE_H_

#include <algorithm>
#include <cstdint>

namespace brigade::optim {

// When 0/1 Adam does what (Lu et al. 2022, arXiv 2202.06009), with names and defaults of DeepSpeed.
// All of 1 or more.
struct ZeroOneSchedule {
  // The steps before second moments stay for good.
  int64_t var_freeze_step = 100000;
  // Until then so many steps update second moments, as many of every second step follow, of every
  // fourth, and so on.
  int64_t var_update_scaler = 16;
  // From then on ranks meet in each step, behind so many steps in every second one, and so on...
  int64_t local_step_scaler = 32678;
  // ...up to this interval. 1: in each step, for ever.
  int64_t local_step_clipper = 16;
};

enum class ZeroOneStep : uint8_t {
  // Second moments are updated, by the mean gradient.
  kVariance,
  // Gradients cross as signs, and second moments stay.
  kSigns,
  // They have stayed for good, and ranks agree on moments and weights again, by signs.
  kMeeting,
  // Each rank goes on alone.
  kLocal,
};

// What the step does behind so many that were tried, skipped ones too.
inline ZeroOneStep StepOf(const ZeroOneSchedule& schedule, int64_t tried) {
  if (tried < schedule.var_freeze_step) {
    // Counted from 1. Behind the last one that is updated with an interval `last` may have some
    // more, of which none is a multiple of it.
    const int64_t step = tried + 1;
    int64_t interval = 1, last = schedule.var_update_scaler;
    while (step > last) {
      interval *= 2;
      last += schedule.var_update_scaler * interval;
    }
    return step % interval == 0 ? ZeroOneStep::kVariance : ZeroOneStep::kSigns;
  }
  const int64_t doublings = (tried - schedule.var_freeze_step) / schedule.local_step_scaler;
  const int64_t interval =
      std::min(int64_t{1} << std::min<int64_t>(doublings, 62), schedule.local_step_clipper);
  return tried % interval == interval - 1 ? ZeroOneStep::kMeeting : ZeroOneStep::kLocal;
}

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_ZERO_ONE_SCHEDULE_H_
