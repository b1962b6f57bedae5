#ifndef BRIGADE_TESTS_SPEC_ADAM8_H_
#define BRIGADE_TESTS_SPEC_ADAM8_H_

// The executable specification of Adam with moments of 8 bits: Dettmers et al. 2022 (arXiv
// 2110.02861), with the numbers of bitsandbytes' create_dynamic_map. A step of a whole tensor, in
// blocks of 256 elements: moments are made of codes, updated as in optimizers.h, and become codes
// again.
//
// The 256 numbers are 0, 1, and in decade i, from 0 to 6, n = 2^i of them (of second moments 2 n):
// 10^(i - 6) times the middles of as many equal parts of [0.1, 1]; of first moments, which have
// signs, also below 0. A code is the number's place in ascending order, and stands for what is
// nearest to it, but second moments above 0 never become 0. Every line is one rounding, std::fma
// included.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "brigade/tests/spec/optimizers.h"

namespace brigade::spec {

inline constexpr size_t kAdam8Block = 256;
inline constexpr double kAdam8Decades[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0};

// How many numbers of decade `decade` there are on one side of 0, and what is counted before them:
// 0 is no number, and first ones are counted from 1 on.
inline int Adam8Numbers(bool has_sign, int decade) { return (has_sign ? 1 : 2) << decade; }
inline int Adam8CountedBefore(bool has_sign, int decade) {
  int before = 0;
  for (int i = 0; i < decade; ++i) before += Adam8Numbers(has_sign, i);
  return before;
}

// The number of a code.
inline float Adam8Number(bool has_sign, int code) {
  const int count = has_sign ? std::abs(code - 127) : code;
  if (count == 0) return 0.0f;
  if (count == Adam8CountedBefore(has_sign, 7) + 1) return 1.0f;
  int decade = 6;
  while (count <= Adam8CountedBefore(has_sign, decade)) --decade;
  const int numbers = Adam8Numbers(has_sign, decade);
  const int place = count - Adam8CountedBefore(has_sign, decade) - 1;
  // Exact.
  const float middle = (static_cast<float>(place) + 0.5f) / static_cast<float>(numbers);
  const float in_decade = std::fma(0.9f, middle, 0.1f);
  const float number = in_decade * static_cast<float>(kAdam8Decades[decade]);
  return has_sign && code < 127 ? -number : number;
}

// The code of a magnitude from 0 to 1 with a sign.
inline int Adam8Code(bool has_sign, float magnitude, bool is_negative) {
  int decade = 0;
  while (decade < 6) {
    // Between the last number of the decade and the first one of the next.
    const double end = kAdam8Decades[decade] * (1.0 + 0.9 / Adam8Numbers(has_sign, decade));
    if (!(magnitude > static_cast<float>(end))) break;
    ++decade;
  }
  const int numbers = Adam8Numbers(has_sign, decade);
  // The decade's part of [0.1, 1], from 1 to 2, in one rounding; the product is exact.
  const float part =
      std::fma(std::max(magnitude, 0x1p-23f), static_cast<float>(1.0 / kAdam8Decades[decade] / 0.9),
               static_cast<float>(8.0 / 9.0));
  const float place = part * static_cast<float>(numbers);
  const int whole = std::min(static_cast<int>(place) - numbers, numbers - 1);
  int count = Adam8CountedBefore(has_sign, decade) + whole + 1;
  // A second moment above 0 stays above 0.
  const double zero_end = 1e-6 * (0.1 + 0.45 / Adam8Numbers(true, 0)) / 2;
  if (has_sign ? magnitude < static_cast<float>(zero_end) : magnitude == 0.0f) count = 0;
  const double highest = 1.0 - 0.45 / Adam8Numbers(has_sign, 6);
  const bool has_one = !(has_sign && is_negative);
  if (has_one && magnitude > static_cast<float>((highest + 1.0) / 2)) {
    count = Adam8CountedBefore(has_sign, 7) + 1;
  }
  if (!has_sign) return count;
  return is_negative ? 127 - count : 127 + count;
}

// The codes of a block, and its scale.
inline float Adam8Encode(bool has_sign, const std::vector<float>& moments, uint8_t* codes) {
  float largest = 0.0f;
  bool is_finite = true;
  for (const float x : moments) {
    is_finite = is_finite && std::isfinite(x);
    largest = std::max(largest, std::fabs(x));
  }
  const float up = largest < 0x1p-100f ? 0x1p100f : 1.0f;
  const float raised = largest * up;
  const float inverse = 1.0f / (raised == 0.0f || !is_finite ? 1.0f : raised);
  for (size_t i = 0; i < moments.size(); ++i) {
    const float magnitude = is_finite ? std::fabs(moments[i]) : 0.0f;
    const float x = magnitude * up;
    codes[i] = static_cast<uint8_t>(Adam8Code(has_sign, x * inverse, std::signbit(moments[i])));
  }
  return is_finite ? largest : std::numeric_limits<float>::quiet_NaN();
}

struct Adam8Tensor {
  std::vector<float> param;
  std::vector<uint8_t> m, v;
  // Of each block.
  std::vector<float> m_scale, v_scale;
};

inline void Adam8Step(Adam8Tensor& x, const std::vector<float>& gradients, float multiplier,
                      const AdamRule& rule, const GroupStep& step) {
  for (size_t begin = 0; begin < x.param.size(); begin += kAdam8Block) {
    const size_t block = begin / kAdam8Block;
    std::vector<float> m, v;
    for (size_t i = begin; i < std::min(x.param.size(), begin + kAdam8Block); ++i) {
      AdamElement element = {x.param[i], Adam8Number(true, x.m[i]) * x.m_scale[block],
                             Adam8Number(false, x.v[i]) * x.v_scale[block]};
      element = AdamUpdate(element, gradients[i], multiplier, rule, step);
      x.param[i] = element.param;
      m.push_back(element.m);
      v.push_back(element.v);
    }
    x.m_scale[block] = Adam8Encode(true, m, &x.m[begin]);
    x.v_scale[block] = Adam8Encode(false, v, &x.v[begin]);
  }
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_ADAM8_H_
