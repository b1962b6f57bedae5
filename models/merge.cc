#include "brigade/models/merge.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/tensor_values.h"
#include "brigade/nn/functions.h"

namespace brigade::models {
namespace {

using precision::DType;

absl::StatusOr<std::vector<double>> Numbers(const Decoder& model, const ParameterArrays& from,
                                            int parameter, ArrayCopier& copier) {
  std::vector<char> bytes(static_cast<size_t>(from.bytes_of(parameter)));
  BRIGADE_RETURN_IF_ERROR(
      copier.ReadBytes(from, parameter, 0, from.bytes_of(parameter), bytes.data()));
  const ParameterRole& role = model.roles()[static_cast<size_t>(parameter)];
  if (role.kind == ParameterRole::Kind::kInt8Base) {
    std::vector<float> words(static_cast<size_t>(from.size_of(parameter)));
    ConvertValues(DType::kFloat32, bytes.data(), from.size_of(parameter), DType::kFloat32,
                  words.data());
    std::vector<float> values(static_cast<size_t>(role.size()));
    DequantizeWords(words, absl::MakeSpan(values));
    return std::vector<double>(values.begin(), values.end());
  }
  std::vector<double> numbers(static_cast<size_t>(from.size_of(parameter)));
  ConvertValues(from.type_of(parameter), bytes.data(), from.size_of(parameter), DType::kFloat64,
                numbers.data());
  return numbers;
}

// weights += scale B A, in the layout of the layer's own weight.
absl::Status AddProduct(const Decoder& model, const LoraModule& module, const ParameterArrays& from,
                        ArrayCopier& copier, std::vector<double>& weights) {
  BRIGADE_ASSIGN_OR_RETURN(const auto a, Numbers(model, from, module.a, copier));
  BRIGADE_ASSIGN_OR_RETURN(const auto b, Numbers(model, from, module.b, copier));
  const auto rank = static_cast<size_t>(model.options().lora->rank);
  const double scale = model.options().lora->scale();
  // Of an embedding, [inputs, rank] and the rows of its table.
  const bool embeds = module.is_embedding(), by_inputs = embeds || module.input_major;
  const auto inputs = static_cast<size_t>(module.inputs);
  const auto outputs = static_cast<size_t>(module.outputs);
  std::vector<double> row(inputs);
  for (size_t o = 0; o < outputs; ++o) {
    row.assign(inputs, 0.0);
    for (size_t r = 0; r < rank; ++r) {
      const double factor = b[o * rank + r];
      for (size_t i = 0; i < inputs; ++i) {
        row[i] += factor * (embeds ? a[i * rank + r] : a[r * inputs + i]);
      }
    }
    for (size_t i = 0; i < inputs; ++i) {
      weights[by_inputs ? i * outputs + o : o * inputs + i] += scale * row[i];
    }
  }
  return absl::OkStatus();
}

// The float of so many bits more than 16-bit types have that rounding it rounds the double once:
// to zero, and odd if something is lost (Boldo and Melquiond 2008).
float RoundedToOdd(double x) {
  float near = static_cast<float>(x);
  if (static_cast<double>(near) == x || std::isnan(x)) return near;
  auto bits = std::bit_cast<uint32_t>(near);
  if (std::abs(static_cast<double>(near)) > std::abs(x)) --bits;
  return std::bit_cast<float>(bits | 1);
}

std::vector<char> Rounded(const std::vector<double>& numbers, DType type) {
  std::vector<char> bytes(numbers.size() * static_cast<size_t>(precision::SizeOf(type)));
  nn::VisitReal(type, [&](auto tag) {
    using T = decltype(tag);
    T* const to = reinterpret_cast<T*>(bytes.data());
    for (size_t i = 0; i < numbers.size(); ++i) {
      if constexpr (sizeof(T) == 2) {
        to[i] = T(RoundedToOdd(numbers[i]));
      } else {
        to[i] = static_cast<T>(numbers[i]);
      }
    }
  });
  return bytes;
}

absl::Status CheckMerges(const Decoder& model, const ParameterArrays& from) {
  if (model.modules().empty()) {
    return absl::InvalidArgumentError("a model without adapters to merge");
  }
  if (!model.applies_adapters()) return absl::InvalidArgumentError("the adapters are merged");
  BRIGADE_RETURN_IF_ERROR(CheckArrays(from, model));
  for (const LoraModule& module : model.modules()) {
    if (!model.config().tied || (!module.is_head() && module.kind != LoraModule::Kind::kTokens)) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the adapter of ", device::Quoted(module.name, 100),
                     " cannot be merged: the head and the embedding have one weight"));
  }
  return absl::OkStatus();
}

// The matrix of a layer with what its adapter adds.
absl::StatusOr<std::vector<double>> Merged(const Decoder& model, const ParameterArrays& from,
                                           const LoraModule& module, ArrayCopier& copier) {
  BRIGADE_ASSIGN_OR_RETURN(auto numbers, Numbers(model, from, module.weight, copier));
  BRIGADE_RETURN_IF_ERROR(AddProduct(model, module, from, copier, numbers));
  return numbers;
}

}  // namespace

absl::StatusOr<MergedAdapters> MergedAdapters::Merge(Decoder& model, ParameterArrays& arrays,
                                                     device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(CheckMerges(model, arrays));
  for (const LoraModule& module : model.modules()) {
    if (model.roles()[static_cast<size_t>(module.weight)].kind != ParameterRole::Kind::kBase) {
      return absl::InvalidArgumentError(
          "adapters cannot be merged into int8 blocks: merge into a model that has them whole");
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(auto copier, ArrayCopier::Create(context));
  MergedAdapters merged(model, arrays, context);
  absl::Status status;
  for (const LoraModule& module : model.modules()) {
    const int p = module.weight;
    std::vector<char> before(static_cast<size_t>(arrays.bytes_of(p)));
    status = copier.ReadBytes(arrays, p, 0, arrays.bytes_of(p), before.data());
    if (!status.ok()) break;
    const auto numbers = Merged(model, arrays, module, copier);
    status = numbers.status();
    if (!status.ok()) break;
    merged.before_[p] = std::move(before);
    const std::vector<char> bytes = Rounded(*numbers, arrays.type_of(p));
    status = copier.WriteBytes(bytes.data(), 0, arrays.bytes_of(p), p, arrays);
    if (!status.ok()) break;
  }
  if (!status.ok()) {
    merged.Unmerge().IgnoreError();
    return status;
  }
  model.set_applies_adapters(false);
  return merged;
}

absl::Status MergedAdapters::Unmerge() {
  BRIGADE_ASSIGN_OR_RETURN(auto copier, ArrayCopier::Create(*context_));
  for (const auto& [parameter, bytes] : before_) {
    BRIGADE_RETURN_IF_ERROR(copier.WriteBytes(bytes.data(), 0, static_cast<int64_t>(bytes.size()),
                                              parameter, *arrays_));
  }
  before_.clear();
  model_->set_applies_adapters(true);
  return absl::OkStatus();
}

absl::Status MergeInto(const Decoder& model, const ParameterArrays& from, const Decoder& plain,
                       ParameterArrays& to, device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(CheckMerges(model, from));
  BRIGADE_RETURN_IF_ERROR(CheckArrays(to, plain));
  std::map<std::string, int> base;
  for (size_t p = 0; p < model.roles().size(); ++p) {
    const ParameterRole& role = model.roles()[p];
    if (role.is_base()) base[role.name] = static_cast<int>(p);
  }
  BRIGADE_ASSIGN_OR_RETURN(auto copier, ArrayCopier::Create(context));
  for (size_t p = 0; p < plain.roles().size(); ++p) {
    const ParameterRole& role = plain.roles()[p];
    const auto found = base.find(role.name);
    if (role.kind != ParameterRole::Kind::kBase || found == base.end() ||
        model.roles()[static_cast<size_t>(found->second)].shape != role.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("merging into a model with ", device::Quoted(role.name, 100),
                       ", which is not as the model's with adapters"));
    }
    BRIGADE_ASSIGN_OR_RETURN(auto numbers, Numbers(model, from, found->second, copier));
    for (const LoraModule& module : model.modules()) {
      if (module.weight != found->second) continue;
      BRIGADE_RETURN_IF_ERROR(AddProduct(model, module, from, copier, numbers));
    }
    const auto parameter = static_cast<int>(p);
    const std::vector<char> bytes = Rounded(numbers, to.type_of(parameter));
    BRIGADE_RETURN_IF_ERROR(
        copier.WriteBytes(bytes.data(), 0, to.bytes_of(parameter), parameter, to));
  }
  return absl::OkStatus();
}

}  // namespace brigade::models
