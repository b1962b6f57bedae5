#include "brigade/tests/nn/plain_attention.h"

namespace brigade::nn {

PlainAttention::PlainAttention(const AttentionShape& shape, const Numbers& qkv, const Numbers& dout)
    : shape_(shape), qkv_(qkv), dout_(dout) {
  const auto sized = [](int64_t size) { return Numbers(static_cast<size_t>(size)); };
  out = sized(shape.rows() * shape.width);
  log_sum_exp = sized(shape.statistics());
  dqkv = sized(shape.rows() * 3 * shape.width);
  for (Numbers* const sums : {&score_, &slopes_, &column_slopes_, &column_weight_, &upstream_}) {
    *sums = sized(shape.statistics());
  }
  root_width_ = std::sqrt(static_cast<double>(shape.head_width()));
  scale_ = 1 / root_width_;
  for (int64_t head = 0; head < shape.batch * shape.heads; ++head) Compute(head);
}

void PlainAttention::Compute(int64_t head) {
  const auto width = static_cast<size_t>(shape_.head_width());
  const auto context = static_cast<size_t>(shape_.context);
  const auto row = [&](size_t position, int64_t part) {
    return qkv_.data() + At(head, static_cast<int64_t>(position), part, 3);
  };
  const auto gradient = [&](size_t position, int64_t part) {
    return dqkv.data() + At(head, static_cast<int64_t>(position), part, 3);
  };
  // Column by column, so that the sums of many keys are made at once.
  Numbers keys(width * context), values(width * context);
  for (size_t i = 0; i < context; ++i) {
    const double* const d = dout_.data() + At(head, static_cast<int64_t>(i), 0, 1);
    for (size_t c = 0; c < width; ++c) {
      keys[c * context + i] = row(i, 1)[c];
      values[c * context + i] = row(i, 2)[c];
      largest_query_ = std::max(largest_query_, std::abs(row(i, 0)[c]));
      largest_key_ = std::max(largest_key_, std::abs(row(i, 1)[c]));
      largest_value_ = std::max(largest_value_, std::abs(row(i, 2)[c]));
      largest_dout_ = std::max(largest_dout_, std::abs(d[c]));
    }
  }
  Numbers p(context), dp(context), amounts(context);
  // sums[j] = the dot product of `a` with column j; returns the largest amount on the way.
  const auto dot_products = [&](const double* a, const Numbers& columns, size_t visible,
                                Numbers& sums) {
    std::fill_n(sums.begin(), visible, 0.0);
    std::fill_n(amounts.begin(), visible, 0.0);
    for (size_t c = 0; c < width; ++c) {
      const double* const column = columns.data() + c * context;
      for (size_t j = 0; j < visible; ++j) {
        sums[j] += a[c] * column[j];
        const double amount = std::abs(sums[j]);
        amounts[j] = amount > amounts[j] ? amount : amounts[j];
      }
    }
    return *std::max_element(amounts.begin(), amounts.begin() + static_cast<ptrdiff_t>(visible));
  };
  for (size_t i = 0; i < context; ++i) {
    const auto position = static_cast<int64_t>(i);
    const size_t at = Statistic(head, position), visible = i + 1;
    const double* const q = row(i, 0);
    const double* const d = dout_.data() + At(head, position, 0, 1);
    score_[at] = scale_ * dot_products(q, keys, visible, p);
    upstream_[at] = dot_products(d, values, visible, dp);
    double max = -INFINITY, sum = 0, lost = 0;
    for (size_t j = 0; j < visible; ++j) max = std::max(max, p[j] *= scale_);
    // Kahan's sum: many roundings in one direction would be as large as what double may be off.
    for (size_t j = 0; j < visible; ++j) {
      p[j] = std::exp(p[j] - max);
      const double term = p[j] - lost, next = sum + term;
      lost = (next - sum) - term;
      sum = next;
    }
    log_sum_exp[at] = max + std::log(sum);
    double* const o = out.data() + At(head, position, 0, 1);
    for (size_t j = 0; j < visible; ++j) {
      p[j] /= sum;
      const double* const v = row(j, 2);
      for (size_t c = 0; c < width; ++c) o[c] += p[j] * v[c];
    }
    double delta = 0;
    for (size_t c = 0; c < width; ++c) {
      delta += d[c] * o[c];
      upstream_[at] = std::max(upstream_[at], std::abs(delta));
    }
    const Query query = Of(at, position);
    for (double Query::*const of :
         {&Query::score, &Query::upstream, &Query::log_sum_exp, &Query::terms}) {
      worst_.*of = std::max(worst_.*of, query.*of);
    }
    double* const dq = gradient(i, 0);
    for (size_t j = 0; j < visible; ++j) {
      const double* const k = row(j, 1);
      double* const dk = gradient(j, 1);
      double* const dv = gradient(j, 2);
      const double slope = p[j] * (dp[j] - delta);
      const size_t key = Statistic(head, static_cast<int64_t>(j));
      slopes_[at] += std::abs(slope);
      column_slopes_[key] += std::abs(slope);
      column_weight_[key] += p[j];
      for (size_t c = 0; c < width; ++c) {
        dq[c] += scale_ * slope * k[c];
        dk[c] += scale_ * slope * q[c];
        dv[c] += p[j] * d[c];
      }
    }
  }
}

}  // namespace brigade::nn
