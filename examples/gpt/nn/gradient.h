#ifndef BRIGADE_EXAMPLES_GPT_NN_GRADIENT_H_
#define BRIGADE_EXAMPLES_GPT_NN_GRADIENT_H_

namespace brigade::nn {

// Where a layer writes a gradient, or adds to what is there.
struct Gradient {
  void* data = nullptr;
  bool accumulate = false;
};

}  // namespace brigade::nn

#endif  // BRIGADE_EXAMPLES_GPT_NN_GRADIENT_H_
