#ifndef BRIGADE_MODELS_GPT2_H_
#define BRIGADE_MODELS_GPT2_H_

#include "absl/status/status.h"
#include "brigade/models/decoder.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::models {

// Names, shapes and order of the parameters; sizes are as yet without.
zero::ModelSpec SpecOfGpt2(const DecoderConfig& config);

// x += attention(norm(x)), x += contract(gelu(expand(norm(x)))): layer norms, learned positions,
// biases, matrices of [inputs, outputs] (Conv1D). Create it by Decoder::Create.
//
// Source       Radford et al. 2019; transformers, modeling_gpt2.py.
class Gpt2 final : public Decoder {
 public:
  Gpt2(const DecoderConfig& config, const DecoderOptions& options, const LoraPlan& plan,
       const ModelCut& cut);

 protected:
  absl::Status ForwardBlock(const Call& call, int first_parameter, const void* x,
                            const BlockArrays& arrays, void* out) override;
  absl::Status BackwardBlock(const Call& call, int first_parameter, const void* x,
                             const BlockArrays& arrays) override;

 private:
  struct Layers {
    LinearLayer projection, out, expand, contract;
  };

  Layers LayersOf(int first_parameter) const;
  // y = x W + bias + residual, all of the residual stream's width.
  absl::Status AddBranch(const Call& call, LinearLayer layer, const void* x, const void* residual,
                         void* y);
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_GPT2_H_
