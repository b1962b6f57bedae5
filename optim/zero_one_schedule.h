#ifndef BRIGADE_OPTIM_ZERO_ONE_SCHEDULE_H_
#define BRIGADE_OPTIM_ZERO_ONE_SCHEDULE_H_

#include <cstdint>

namespace brigade::optim {

// When 0/1 Adam does what (Lu et al. 2022, arXiv 2202.06009), with names and defaults of DeepSpeed.
struct ZeroOneSchedule {
  // Of second moments: so many updates of them, in each step, then as many in every second step,
  // every fourth, and so on.
  int64_t var_update_scaler = 16;
};

// Whether the step behind so many that were tried, skipped ones too, updates second moments.
inline bool UpdatesVariance(const ZeroOneSchedule& schedule, int64_t tried) {
  // Counted from 1; the last one with this interval.
  const int64_t step = tried + 1;
  int64_t interval = 1, last = schedule.var_update_scaler;
  while (step > last) {
    interval *= 2;
    last = last / interval * interval + schedule.var_update_scaler * interval;
  }
  return step % interval == 0;
}

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_ZERO_ONE_SCHEDULE_H_
