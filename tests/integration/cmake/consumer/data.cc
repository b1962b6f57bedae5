// An epoch of ten samples in steps of four: each once, and not from the first to the last.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/data/sampler.h"

int main() {
  using brigade::data::Sampler;
  const absl::StatusOr<Sampler> sampler = Sampler::Create({.samples = 10, .batch = 4, .seed = 1});
  if (!sampler.ok()) return 1;
  std::vector<int64_t> seen;
  for (int64_t step = 0; step < sampler->StepsPerEpoch(); ++step) {
    for (const int64_t sample : sampler->Samples(sampler->AtStep(step))) seen.push_back(sample);
  }
  for (const int64_t sample : seen) std::printf("%d ", static_cast<int>(sample));
  std::vector<int64_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  return std::is_permutation(seen.begin(), seen.end(), all.begin(), all.end()) && seen != all ? 0
                                                                                              : 1;
}
