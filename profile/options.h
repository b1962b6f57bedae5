#ifndef BRIGADE_PROFILE_OPTIONS_H_
#define BRIGADE_PROFILE_OPTIONS_H_

#include <cstdint>
#include <string>

namespace brigade::profile {

// Which step is profiled, and what is told of it; with the names, meaning and defaults of
// DeepSpeed's section flops_profiler, but for the number of the step.
struct Options {
  bool enabled = false;
  // The first step is 1, and warms up. DeepSpeed compares its key with the steps that have been
  // made, so that its default of 1 is the second step: this one.
  int64_t profile_step = 2;
  // How deep modules are told: 0 the model, 1 its units, 2 the parts of these; -1: all.
  int module_depth = -1;
  // How many modules of each depth the summary names.
  int top_modules = 1;
  // With the tables of units and kernels.
  bool detailed = true;
  // Empty: standard output.
  std::string output_file = {};
  // Of hardware flops: what is made again, in units of the forward pass. 0: counted, from what the
  // plan makes again.
  double recompute_fwd_factor = 0;
  // Where the machine's ceilings are, or go once they are measured; empty: they are measured.
  std::string ceilings_file = {};
  // Of matrix products, instead of what is measured; 0: not given.
  double peak_flops_per_second = 0;
};

}  // namespace brigade::profile

#endif  // BRIGADE_PROFILE_OPTIONS_H_
