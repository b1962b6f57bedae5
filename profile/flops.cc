#include "brigade/profile/flops.h"

namespace brigade::profile {
namespace {

// Of one text.
double Pairs(double context, AttentionFlops convention) {
  return convention == AttentionFlops::kFull ? context * context : context * (context + 1) / 2;
}

}  // namespace

double MatmulFlops(double m, double k, double n) { return 2 * m * k * n; }

double AttentionForwardFlops(double texts, double context, double width,
                             AttentionFlops convention) {
  return 4 * texts * Pairs(context, convention) * width;
}

double AttentionBackwardFlops(double texts, double context, double width,
                              AttentionFlops convention) {
  return 8 * texts * Pairs(context, convention) * width;
}

double AttentionScoresFlops(double texts, double context, double width, AttentionFlops convention) {
  return 2 * texts * Pairs(context, convention) * width;
}

double SoftmaxFlops(double elements) { return elements; }

double GeluFlops(double elements) { return elements; }

double LayerNormFlops(double elements, bool has_weights) {
  return (has_weights ? 5 : 4) * elements;
}

double FlopsPerToken(const TransformerSize& size, AttentionFlops convention) {
  const auto layers = static_cast<double>(size.layers);
  const auto width = static_cast<double>(size.width), context = static_cast<double>(size.context);
  const double attention = AttentionForwardFlops(1, context, width, convention) +
                           AttentionBackwardFlops(1, context, width, convention);
  return 6 * size.weights + layers * attention / context;
}

double Utilization(double flops_per_second, int ranks, double peak_flops_per_second) {
  if (ranks < 1 || !(peak_flops_per_second > 0)) return 0;
  return flops_per_second / (static_cast<double>(ranks) * peak_flops_per_second);
}

}  // namespace brigade::profile
