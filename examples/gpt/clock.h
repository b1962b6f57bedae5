#ifndef BRIGADE_EXAMPLES_GPT_CLOCK_H_
#define BRIGADE_EXAMPLES_GPT_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace brigade::gpt {

// Of the steady clock, in which the tracer counts as well.
inline int64_t SteadyNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_CLOCK_H_
