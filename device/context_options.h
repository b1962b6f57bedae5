#ifndef BRIGADE_DEVICE_CONTEXT_OPTIONS_H_
#define BRIGADE_DEVICE_CONTEXT_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "brigade/device/device.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/tracing/tracer.h"

namespace brigade::device {

// For tests: the worker of every CPU stream sleeps a random time before each task, so that tasks
// which no event orders run in another order from run to run.
struct RandomDelay {
  uint64_t seed = 0;
  // 0: no delays.
  int max_delay_us = 0;
};

struct ContextOptions {
  Device device = Cpu();

  // Threads that one CPU operation may use; 0: all cores.
  int compute_threads = 0;

  // Limit of the device memory that the context owns; 0: none.
  int64_t memory_limit_bytes = 0;
  // Limit of the host's memory that it owns (Context::AllocateHost); 0: none.
  int64_t host_memory_limit_bytes = 0;

  // Of a CPU, to see what a slower link takes: how many bytes a stream copies in a second, at most,
  // between the device memory that the context owns and other memory (Context::AllocateHost, the
  // caller's). It waits and computes nothing, as a GPU's copy does. 0: as fast as memory is.
  double link_bytes_per_second = 0;

  // Names the context in every message: "rank 3". Empty: the device's name.
  std::string name = {};

  // Race checker and poison on free. Default: BRIGADE_CHECKS of the environment (0 or 1), else on
  // in debug builds.
  std::optional<bool> checks = {};

  // Must outlive the context and all that it created. Null: RaceChecker::Default().
  RaceChecker* race_checker = nullptr;

  // Records what this context's streams run; null: nothing is recorded. Must outlive the context
  // and all that it created.
  Tracer* tracer = nullptr;

  RandomDelay random_delay = {};
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_CONTEXT_OPTIONS_H_
