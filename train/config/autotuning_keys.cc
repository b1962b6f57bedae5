#include "brigade/train/config/config_sections.h"

// Names and types are those of deepspeed/autotuning/config.py and constants.py.

namespace brigade::train {

Keys AutotuningKeys(Settings& s) {
  constexpr char kNoJobs[] = "trials run in the tuner's process, which writes one file";
  constexpr char kBatchStays[] = "the batch of a step stays as it is";
  constexpr char kKnown[] = "the model's memory is known by formula";
  AutotuningOptions& tuning = s.autotuning;
  return {
      {"enabled", Flag(&tuning.enabled), "//tune tunes with either; a training takes no notice"},
      {"fast", Flag(&tuning.fast),
       "true: stage and micro-batch alone; DeepSpeed's default is true"},
      {"metric",
       OneOf<TuningMetric>(&tuning.metric, {{"throughput", TuningMetric::kThroughput},
                                            {"latency", TuningMetric::kLatency},
                                            {"flops", TuningMetric::kFlops}}),
       "what is shown of a trial; the batch stays, so that all three order alike"},
      {"start_profile_step", Whole(&tuning.start_profile_step, kSteps),
       "the first step of a trial whose time counts"},
      {"end_profile_step", Whole(&tuning.end_profile_step, kSteps), "the last one"},
      {"tuner_type",
       OneOf<TunerType>(&tuning.tuner_type, {{"model_based", TunerType::kModelBased},
                                             {"gridsearch", TunerType::kGridSearch},
                                             {"random", TunerType::kRandom}}),
       "in which order configurations are tried: by a model of their times, as they are counted "
       "up, "
       "or at random; DeepSpeed's default is gridsearch"},
      {"tuner_early_stopping", Whole(&tuning.tuner_early_stopping, kCount),
       "trials without a better one, after which no more follow"},
      {"tuner_num_trials",
       Otherwise(Whole(&tuning.tuner_num_trials, kCount), "5 of model_based, else 50"),
       "how many are tried at most"},
      {"num_tuning_micro_batch_sizes",
       Otherwise(Whole(&tuning.num_tuning_micro_batch_sizes, kCount), "all"),
       "of the micro-batches so many, the largest ones that fit in memory; DeepSpeed's default is "
       "3"},
      {"min_train_micro_batch_size_per_gpu", Whole(&tuning.min_micro_batch, kCount),
       "the smallest micro-batch"},
      {"max_train_micro_batch_size_per_gpu", Whole(&tuning.max_micro_batch, kCount),
       "the largest micro-batch"},
      {"max_train_batch_size", Tuning(nullptr, kBatchStays)},
      {"mp_size", Tuning(1, "the grid is tuned, or the config says it")},
      {"arg_mappings", Tuning(nullptr, "the tuner writes a config, and no flags")},
      {"results_dir", Tuning(nullptr, kNoJobs)},
      {"exps_dir", Tuning(nullptr, kNoJobs)},
      {"overwrite", Tuning(true, kNoJobs)},
      {"metric_path", Tuning(nullptr, kNoJobs)},
      {"model_info", Tuning(nullptr, kKnown)},
      {"model_info_path", Tuning(nullptr, kKnown)},
  };
}

}  // namespace brigade::train
