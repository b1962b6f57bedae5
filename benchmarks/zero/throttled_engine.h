#ifndef BRIGADE_BENCHMARKS_ZERO_THROTTLED_ENGINE_H_
#define BRIGADE_BENCHMARKS_ZERO_THROTTLED_ENGINE_H_

#include <memory>

#include "brigade/collectives/engines/engine.h"

namespace brigade::benchmarks {

// The engine behind a link of so many bytes per second, each way: after each call its stream waits,
// without computing, for as long as the rank's bytes take. Infinity: no wait.
std::unique_ptr<collectives::Engine> CreateThrottledEngine(
    std::unique_ptr<collectives::Engine> engine, double bytes_per_second);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_ZERO_THROTTLED_ENGINE_H_
