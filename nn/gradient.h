#ifndef BRIGADE_NN_GRADIENT_H_
#define BRIGADE_NN_GRADIENT_H_

namespace brigade::nn {

// Where a layer writes a gradient, or adds to what is there.
struct Gradient {
  void* data = nullptr;
  bool accumulate = false;
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_GRADIENT_H_
