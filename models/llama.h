#ifndef BRIGADE_MODELS_LLAMA_H_
#define BRIGADE_MODELS_LLAMA_H_

#include "absl/status/status.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/rotary.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::models {

// Names, shapes and order of the parameters; sizes are as yet without.
zero::ModelSpec SpecOfLlama(const DecoderConfig& config);

// x += attention(norm(x)), x += down(silu(gate(norm(x))) * up(norm(x))): RMS norms, rotary
// positions, grouped-query attention. Create it by Decoder::Create.
//
// Source       Touvron et al. 2023 (arXiv 2307.09288); transformers, modeling_llama.py.
class Llama final : public Decoder {
 public:
  Llama(const DecoderConfig& config, const DecoderOptions& options, const LoraPlan& plan,
        const ModelCut& cut);

 protected:
  absl::Status ForwardBlock(const Call& call, int first_parameter, const void* x,
                            const BlockArrays& arrays, void* out) override;
  absl::Status BackwardBlock(const Call& call, int first_parameter, const void* x,
                             const BlockArrays& arrays) override;

 private:
  // Of one block.
  struct Layers {
    LinearLayer query, key, value, out, gate, up, down;
    int norm1 = 0, norm2 = 0;
  };

  Layers LayersOf(int first_parameter) const;
  // Elements of a shard in `projected`.
  int64_t ProjectedOf(const Call& call) const { return call.rows() * shard().projected_width(); }
  nn::RotaryShape RotatedOf(const Call& call) const;
  // y = x W^T + bias + residual, all of the residual stream's width.
  absl::Status AddBranch(const Call& call, LinearLayer layer, const void* x, const void* residual,
                         void* y);
  // Queries, keys and values of a shard as attention wants them.
  absl::StatusOr<const void*> Repeat(const Call& call, const BlockArrays& arrays, int s);
  // Of a shard: `heads` from `projected`; and from memory().dheads the gradient of that.
  absl::Status Attention(const Call& call, const BlockArrays& arrays, int s);
  absl::Status AttentionBackward(const Call& call, const BlockArrays& arrays, int s,
                                 void* dprojected);
  // Where keys and values begin in `projected`, or its gradient.
  char* KeysIn(void* projected) const;
  char* ValuesIn(void* projected) const;
  // The second half of the rows of the MLP.
  char* UpIn(void* expanded) const;
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_LLAMA_H_
