#include "brigade/benchmarks/common/tensor_list.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

namespace brigade::benchmarks {
namespace {

constexpr uint32_t kSeed = 20240607;
constexpr int64_t kMaxGap = 7;

// In [0, 1). Not std::uniform_real_distribution, whose values depend on the library.
double Uniform(std::mt19937& random) { return random() * 0x1p-32; }

}  // namespace

TensorList::TensorList(std::vector<int64_t> sizes, int64_t max_gap, int64_t alignment)
    : sizes_(std::move(sizes)),
      alignment_(alignment),
      max_gap_(max_gap),
      extent_(std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0}) +
              (max_gap + alignment - 1) * static_cast<int64_t>(sizes_.size())) {}

TensorList TensorList::Flat(int64_t elements) { return TensorList({elements}, 0); }

TensorList TensorList::Mixed(int64_t tensors, int64_t elements) {
  std::mt19937 random(kSeed);
  std::vector<double> weights(tensors);
  double sum = 0.0;
  for (int64_t i = 0; i < tensors; ++i) {
    const double magnitude = Uniform(random);
    weights[i] = std::exp2(i % 100 == 99 ? 16 + 4 * magnitude : 15 * magnitude);
    sum += weights[i];
  }
  std::vector<int64_t> sizes(tensors);
  const double scale = static_cast<double>(elements - tensors) / sum;
  for (int64_t i = 0; i < tensors; ++i) sizes[i] = 1 + static_cast<int64_t>(weights[i] * scale);
  // What rounding down has left over goes to the largest.
  *std::max_element(sizes.begin(), sizes.end()) +=
      elements - std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  for (int64_t i = tensors - 1; i > 0; --i) std::swap(sizes[i], sizes[random() % (i + 1)]);
  return TensorList(std::move(sizes), kMaxGap);
}

TensorList TensorList::Gpt(int64_t elements) {
  constexpr int64_t kLayers = 83, kContext = 1024, kAlignment = 128;
  const auto rest = [&](int64_t width) {
    return elements - kLayers * (12 * width * width + 13 * width) - (kContext + 2) * width;
  };
  int64_t width = 8;
  while (rest(width + 8) > elements / 20) width += 8;
  const int64_t w = width;
  std::vector<int64_t> sizes = {rest(w), kContext * w};
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    // Norm, queries with keys and values, projection; norm, MLP: a weight and a bias each.
    for (const int64_t size :
         {w, w, 3 * w * w, 3 * w, w * w, w, w, w, 4 * w * w, 4 * w, 4 * w * w, w}) {
      sizes.push_back(size);
    }
  }
  sizes.insert(sizes.end(), {w, w});
  return TensorList(std::move(sizes), 0, kAlignment);
}

std::vector<int64_t> TensorList::Offsets(int role) const {
  std::mt19937 random(kSeed + 1 + role);
  std::vector<int64_t> offsets;
  offsets.reserve(sizes_.size());
  int64_t next = 0;
  for (const int64_t size : sizes_) {
    next += static_cast<int64_t>(random() % (max_gap_ + 1));
    next = (next + alignment_ - 1) / alignment_ * alignment_;
    offsets.push_back(next);
    next += size;
  }
  return offsets;
}

}  // namespace brigade::benchmarks
