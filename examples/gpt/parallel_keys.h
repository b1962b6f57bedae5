#ifndef BRIGADE_EXAMPLES_GPT_PARALLEL_KEYS_H_
#define BRIGADE_EXAMPLES_GPT_PARALLEL_KEYS_H_

// DeepSpeed's keys of ranks that share a model, and ours of a pipeline: parts of ConfigKeys, like
// it with pointers into the settings.

#include "brigade/examples/gpt/config_keys.h"
#include "brigade/examples/gpt/json_reader.h"

namespace brigade::gpt {

// "tensor_parallel".
Keys TensorKeys(Settings& settings);

// "pipeline".
Keys PipelineKeys(Settings& settings);

// "brigade.schedule", "brigade.partition".
Read Schedule(Settings& settings);
Read Partition(Settings& settings);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_PARALLEL_KEYS_H_
