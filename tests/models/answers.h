#ifndef BRIGADE_TESTS_MODELS_ANSWERS_H_
#define BRIGADE_TESTS_MODELS_ANSWERS_H_

// What a reference has computed, as files of tensors, and how near it has to be met.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "brigade/checkpoint/weight_files.h"
#include "brigade/tests/models/lab.h"
#include "gtest/gtest.h"

namespace brigade::models {

// The names of a folder's folders with answers.
inline std::vector<std::string> CasesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (std::filesystem::exists(entry.path() / "answers.safetensors")) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

template <typename T>
std::vector<T> Tensor(const checkpoint::WeightFiles& files, const std::string& name) {
  const auto* const tensor = files.Find(name);
  if (tensor == nullptr) {
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  std::vector<T> values(static_cast<size_t>(tensor->bytes) / sizeof(T));
  EXPECT_OK(files.Read(*tensor, 0, tensor->bytes, values.data()));
  return values;
}

template <typename T>
double Largest(const std::vector<T>& values) {
  double most = 0;
  for (const T value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

// The largest error, in units of the largest value that is wanted.
template <typename T>
double Error(const std::vector<double>& values, const std::vector<T>& wanted) {
  EXPECT_EQ(values.size(), wanted.size());
  if (values.size() != wanted.size()) return std::numeric_limits<double>::infinity();
  double error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(values[i] - static_cast<double>(wanted[i]));
    // Not by max, which leaves a NaN out.
    if (!(difference <= error)) error = difference;
  }
  EXPECT_GT(Largest(wanted), 0);
  return error / Largest(wanted);
}

// A way to compute a model.
struct Kind {
  precision::DType dtype;
  bool recompute;
  // Of logits and gradients: some roundings of the type in a row.
  double error;
  const char* name;
};

inline std::vector<Kind> Kinds(double error_of_bf16) {
  using precision::DType;
  // The reference's rotations are in float, in float64 too.
  std::vector<Kind> kinds = {{DType::kFloat32, false, 1e-5, "fp32"},
                             {DType::kFloat32, true, 1e-5, "fp32_recompute"},
                             {DType::kFloat16, false, 2e-2, "fp16"},
                             {DType::kBFloat16, false, error_of_bf16, "bf16"}};
  if (!kOnGpu) kinds.push_back({DType::kFloat64, false, 1e-5, "fp64"});
  return kinds;
}

}  // namespace brigade::models

#endif  // BRIGADE_TESTS_MODELS_ANSWERS_H_
