#ifndef BRIGADE_EMULATOR_RUNTIME_CONTROL_H_
#define BRIGADE_EMULATOR_RUNTIME_CONTROL_H_

// What a test may ask of the emulated devices, and tell them, besides CUDA's own functions.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "brigade/emulator/ptx/launch.h"

namespace brigade::emulator {

// Read once, from the environment.
struct Options {
  // BRIGADE_EMULATOR_DEVICES
  int devices = 2;
  // BRIGADE_EMULATOR_DEVICE_BYTES: memory of each, and of what is page-locked. Only what is used
  // is taken from the system.
  int64_t device_bytes = int64_t{4} << 30;
  // BRIGADE_EMULATOR_SEED: chooses the order of blocks, of warps and of a graph's nodes, and the
  // delays.
  uint64_t seed = 1;
  // BRIGADE_EMULATOR_DELAY_US: before every third operation of a stream, up to so many
  // microseconds; 0: none.
  int delay_us = 200;
  // BRIGADE_EMULATOR_THREADS: of the host, for one kernel.
  int threads = 1;
  // BRIGADE_EMULATOR_COUNTS: prints what each kernel executed when the process ends.
  bool counts = false;
};

// A mistake. Reports that nobody takes make the process fail at its end.
struct Report {
  enum class Kind : uint8_t {
    // What a kernel did: `finding`.
    kKernel,
    // A wrong call of the runtime, or of a library that stands on it.
    kCall,
  };
  Kind kind = Kind::kCall;
  FindingKind finding = {};
  std::string text;
};

// Those since the last time.
std::vector<Report> TakeReports();

// The n-th call from now of a function ("cudaMalloc") does nothing and returns `error`.
struct Fault {
  std::string function;
  int64_t nth = 1;
  cudaError_t error = cudaErrorUnknown;
};
void Inject(const Fault& fault);
// Calls of a function since the process began.
int64_t Calls(const std::string& function);

// The devices that have a primary context.
std::vector<int> DevicesWithContext();

// One kernel that has run.
struct LaunchRecord {
  std::string kernel;
  int device = 0;
  Dim3 grid, block;
  int64_t executed = 0;
  AccessCounts loads, stores;
  // Loads and stores of 16 bytes a lane.
  AccessCounts wide;
  int64_t bank_conflicts = 0;
  int64_t read_again = 0, written_again = 0;
};
// From now on launches are recorded, or no longer.
void RecordLaunches(bool on);
// Those that have ended since the last time.
std::vector<LaunchRecord> TakeLaunches();

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_RUNTIME_CONTROL_H_
