#ifndef BRIGADE_EXAMPLES_GPT_MODEL_PART_H_
#define BRIGADE_EXAMPLES_GPT_MODEL_PART_H_

namespace brigade::gpt {

// Stages [first, end) of the model: 0 is the embedding, then come the blocks, then the head.
struct StageRange {
  int first = 0;
  int end = 0;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_MODEL_PART_H_
