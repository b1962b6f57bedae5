#include "brigade/train/config/config_sections.h"

// Names, defaults and meaning are those of deepspeed/profiling/config.py and constants.py.

namespace brigade::train {

Key ProfilerKey(Settings& s) {
  profile::Options& profiler = s.profiler;
  constexpr NumberRange kDepth = {-1.0, 1 << 20, "-1 to 2^20"};
  constexpr NumberRange kTop = {1.0, 1 << 20, "1 to 2^20"};
  return {.name = "flops_profiler",
          .meaning =
              "What one step's operations, bytes and times are, and what limits them "
              "(`docs/profiling.md`).",
          .keys = {{"enabled", Flag(&profiler.enabled), "true: a step is profiled"},
                   {"profile_step", Whole(&s.profile_step, kCountOrNone),
                    "how many steps are made before it: 0 is the first, which warms up. "
                    "`--profile_step`, which counts from 1, goes before it"},
                   {"module_depth", Whole(&profiler.module_depth, kDepth),
                    "how deep modules are told: 0 the model, 1 its units, 2 their parts; -1: all"},
                   {"top_modules", Whole(&profiler.top_modules, kTop),
                    "the largest of each depth that are named"},
                   {"detailed", Flag(&profiler.detailed),
                    "true: with tables of units, kernels and collectives"},
                   {"output_file", Otherwise(Text(&s.profiler_output), "standard output"),
                    "where the profile goes; a relative path begins at the config's folder. "
                    "`--profile` goes before it"},
                   {"recompute_fwd_factor", Number(&profiler.recompute_fwd_factor, kNotNegative),
                    "of HFU: what is made again, in units of the forward pass; 0: counted by the "
                    "plan of recomputation"}},
          .has_switch = true};
}

}  // namespace brigade::train
