#ifndef BRIGADE_PROFILE_FLOPS_H_
#define BRIGADE_PROFILE_FLOPS_H_

// Floating-point operations by formula: a multiplication and an addition each count one.
//
// Source       Narayanan et al. 2021 (arXiv 2104.04473), appendix; Chowdhery et al. 2022 (PaLM,
//              arXiv 2204.02311), appendix B: MFU; what is not a product as in DeepSpeed's
//              flops_profiler: 1 an element for softmax and GELU, 4 or 5 for norms, none for
//              embeddings.

#include <cstdint>

namespace brigade::profile {

// What of the scores of self-attention counts.
enum class AttentionFlops : uint8_t {
  // All pairs of positions: that of published figures, and of DeepSpeed.
  kFull,
  // The pairs that a causal model needs: a position sees itself and those before it.
  kCausal,
};

// [m, k] by [k, n].
double MatmulFlops(double m, double k, double n);

// Of `texts`, with `width` columns of all heads together: the scores, and what they weigh. 2 (QK +
// PV) of each pair.
double AttentionForwardFlops(double texts, double context, double width, AttentionFlops convention);

// The gradients of values, of probabilities, of queries and of keys: twice the forward pass.
double AttentionBackwardFlops(double texts, double context, double width,
                              AttentionFlops convention);
// What a backward pass that has not kept the scores makes again: half of the forward pass.
double AttentionScoresFlops(double texts, double context, double width, AttentionFlops convention);

// Of elements.
double SoftmaxFlops(double elements);
double GeluFlops(double elements);
double LayerNormFlops(double elements, bool has_weights = true);

// A model as far as a token's operations go.
struct TransformerSize {
  // Of the products: without positions, and without a table of tokens that only looks up. What
  // publications call N has these too, which is nearly the same in large models.
  double weights = 0;
  int64_t layers = 0;
  int64_t width = 0;
  int64_t context = 0;
};

// Of a token's forward and backward pass: 6 N + 12 L d s, or with kCausal 6 N + 6 L d (s + 1).
double FlopsPerToken(const TransformerSize& size, AttentionFlops convention);

// The share of what `ranks` devices with this peak could do that a training's own operations are,
// 0 for a peak of 0 ("model flops utilization"). With the operations that are made again as well it
// is HFU, "hardware flops utilization".
double Utilization(double flops_per_second, int ranks, double peak_flops_per_second);

// Of a model that makes all of its forward pass again, the operations in units of those of a pass
// that makes nothing again: 4/3.
inline constexpr double kAllAgain = 4.0 / 3.0;

}  // namespace brigade::profile

#endif  // BRIGADE_PROFILE_FLOPS_H_
