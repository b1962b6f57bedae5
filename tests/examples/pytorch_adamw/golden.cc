// What the specification makes of an update and of a list of gradients, for optimizer_test.py.
//
// golden adamw IN OUT: IN holds lr, beta1, beta2, eps, weight_decay as doubles, the numbers of
// elements and of steps as int64, the parameters as floats, and for each step the multiplier and
// the gradients as floats. OUT gets parameters, first and second moments.
// golden norm IN OUT: IN holds the number of tensors and their sizes as int64, then their elements
// as floats. OUT gets the sum of squares and 1 or 0 for whether all are finite, as doubles.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "brigade/tests/spec/optimizers.h"
#include "brigade/tests/spec/step_control.h"
#include "brigade/tests/spec/sums.h"

namespace {

template <typename T>
std::vector<T> Read(std::istream& in, int64_t count) {
  std::vector<T> values(count);
  in.read(reinterpret_cast<char*>(values.data()), count * sizeof(T));
  if (!in) std::exit(1);
  return values;
}

template <typename T>
void Write(std::ostream& out, const std::vector<T>& values) {
  out.write(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

void AdamW(std::istream& in, std::ostream& out) {
  namespace spec = brigade::spec;
  const std::vector<double> rule_values = Read<double>(in, 5);
  const std::vector<int64_t> counts = Read<int64_t>(in, 2);
  const spec::AdamRule rule = {rule_values[1], rule_values[2], rule_values[3], rule_values[4],
                               /*decoupled=*/true};
  std::vector<float> param = Read<float>(in, counts[0]);
  std::vector<float> m(counts[0]), v(counts[0]);
  for (int64_t step = 1; step <= counts[1]; ++step) {
    const spec::GroupStep group =
        spec::MakeGroupStep(rule.beta1, rule.beta2, static_cast<float>(rule_values[0]), step);
    const float multiplier = Read<float>(in, 1)[0];
    const std::vector<float> grad = Read<float>(in, counts[0]);
    for (int64_t i = 0; i < counts[0]; ++i) {
      const spec::AdamElement x =
          spec::AdamUpdate({param[i], m[i], v[i]}, grad[i], multiplier, rule, group);
      param[i] = x.param;
      m[i] = x.m;
      v[i] = x.v;
    }
  }
  Write(out, param);
  Write(out, m);
  Write(out, v);
}

void Norm(std::istream& in, std::ostream& out) {
  std::vector<std::vector<float>> tensors;
  for (const int64_t size : Read<int64_t>(in, Read<int64_t>(in, 1)[0])) {
    tensors.emplace_back(size);
  }
  for (std::vector<float>& tensor : tensors) tensor = Read<float>(in, tensor.size());
  const brigade::spec::GradStats stats = brigade::spec::SumOfSquares(tensors);
  Write<double>(out, {stats.sum_of_squares, stats.all_finite ? 1.0 : 0.0});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: golden adamw|norm IN OUT\n";
    return 2;
  }
  std::ifstream in(argv[2], std::ios::binary);
  std::ofstream out(argv[3], std::ios::binary);
  argv[1] == std::string("adamw") ? AdamW(in, out) : Norm(in, out);
  return in && out.flush() ? 0 : 1;
}
