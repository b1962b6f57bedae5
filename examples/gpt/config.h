#ifndef BRIGADE_EXAMPLES_GPT_CONFIG_H_
#define BRIGADE_EXAMPLES_GPT_CONFIG_H_
#include "brigade/zero/batch_sizes.h"
#include "brigade/zero/options.h"
namespace brigade::gpt {
struct TrainConfig {
  zero::BatchSizes batch;
  zero::ZeroOptions zero;
};
}  // namespace brigade::gpt
#endif
