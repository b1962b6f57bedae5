#include "brigade/checkpoint/layout.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/device/status_macros.h"
#include "nlohmann/json.hpp"

namespace brigade::checkpoint {
namespace {

using precision::DType;

constexpr uint64_t kAlignment = 4096;

std::string FileName(int array, size_t file, size_t files) {
  return absl::StrFormat("%s-%05d-of-%05d.safetensors",
                         array == 0 ? "master" : absl::StrCat("moment", array), file + 1, files);
}

// The tensors of an array, file by file, each file in the order of its data.
std::vector<std::vector<Tensor>> FilesOf(absl::Span<const zero::Parameter> parameters, int array,
                                         optim::OptimizerKind kind, int64_t file_bytes) {
  // Behind these come others, which are fp32.
  constexpr int kMomentsOfCodes = 4;
  std::vector<std::vector<Tensor>> files;
  int64_t bytes = 0;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const zero::ParameterSpec& spec = parameters[p].spec;
    if (array > 0 && !spec.trainable) continue;
    optim::MomentArray of = {spec.trainable ? DType::kFloat32 : *spec.dtype, 1};
    if (array > 0 && array <= kMomentsOfCodes) {
      of = optim::MomentArrayOf(kind, parameters[p].coded, array - 1);
    }
    if (of.block == 0) continue;
    const Tensor tensor = {.parameter = static_cast<int>(p),
                           .array = array,
                           .dtype = of.dtype,
                           .block = of.block,
                           .bytes = of.Bytes(spec.size)};
    if (files.empty() || bytes + tensor.bytes > file_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes;
    files.back().push_back(tensor);
  }
  for (std::vector<Tensor>& file : files) {
    std::stable_sort(file.begin(), file.end(), [](const Tensor& a, const Tensor& b) {
      return precision::SizeOf(a.dtype) > precision::SizeOf(b.dtype);
    });
  }
  return files;
}

}  // namespace

absl::StatusOr<Layout> Layout::Create(absl::Span<const zero::Parameter> parameters, int arrays,
                                      int64_t file_bytes, optim::OptimizerKind kind) {
  Layout layout;
  layout.parameters_.assign(parameters.begin(), parameters.end());
  std::string weight_map;
  int64_t weight_bytes = 0;
  for (int array = 0; array < arrays; ++array) {
    std::vector<std::vector<Tensor>> files = FilesOf(parameters, array, kind, file_bytes);
    for (size_t f = 0; f < files.size(); ++f) {
      TensorFile file = {.name = FileName(array, f, files.size()),
                         .first = static_cast<int>(layout.tensors_.size()),
                         .count = static_cast<int>(files[f].size())};
      std::vector<TensorInfo> infos;
      for (const Tensor& tensor : files[f]) {
        const zero::ParameterSpec& spec = parameters[static_cast<size_t>(tensor.parameter)].spec;
        infos.push_back({.name = spec.name,
                         .type = std::string(TypeName(tensor.dtype)),
                         .shape = {spec.shape.begin(), spec.shape.end()}});
        if (tensor.block > 1) {
          infos.back().shape = {
              static_cast<uint64_t>(tensor.bytes / precision::SizeOf(tensor.dtype))};
        }
      }
      // "format" is what loaders of PyTorch's models ask for.
      BRIGADE_ASSIGN_OR_RETURN(file.header, MakeHeader(infos, {{"format", "pt"}}, kAlignment));
      file.bytes = static_cast<int64_t>(file.header.size());
      for (Tensor& tensor : files[f]) {
        tensor.file = static_cast<int>(layout.files_.size());
        tensor.offset = file.bytes;
        file.bytes += tensor.bytes;
        if (array == 0) {
          const auto& name = parameters[static_cast<size_t>(tensor.parameter)].spec.name;
          absl::StrAppend(&weight_map, weight_map.empty() ? "\n    " : ",\n    ",
                          nlohmann::json(name).dump(), ": \"", file.name, "\"");
          weight_bytes += tensor.bytes;
        }
        layout.tensors_.push_back(tensor);
      }
      layout.bytes_ += file.bytes;
      layout.files_.push_back(std::move(file));
    }
  }
  layout.index_ = absl::StrCat("{\n  \"metadata\": {\"total_size\": ", weight_bytes,
                               "},\n  \"weight_map\": {", weight_map, "\n  }\n}\n");
  return layout;
}

std::vector<Piece> Layout::PiecesOf(const zero::Plan& plan, int rank, const ModelPart& part,
                                    int shard_group) const {
  // Of each parameter the plan's.
  std::vector<const zero::Parameter*> in_plan(parameters_.size());
  const std::vector<int> numbers = NumbersIn(parameters_, plan);
  for (size_t p = 0; p < numbers.size(); ++p) {
    if (numbers[p] >= 0) in_plan[static_cast<size_t>(numbers[p])] = &plan.parameters()[p];
  }
  std::vector<Piece> pieces;
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const Tensor& tensor = tensors_[t];
    if (in_plan[static_cast<size_t>(tensor.parameter)] == nullptr) continue;
    const zero::Parameter& parameter = *in_plan[static_cast<size_t>(tensor.parameter)];
    const int64_t slice = plan.slice(plan.bucket(parameter.bucket));
    const int64_t element_bytes = precision::SizeOf(tensor.dtype);
    // Elements of the bucket that the rank has.
    const int64_t begin = std::max(parameter.begin, rank * slice);
    const int64_t end = std::min(parameter.begin + parameter.spec.size, (rank + 1) * slice);
    const auto add = [&](const parallel::ShardRun& run) {
      const int64_t first = std::max(begin, parameter.begin + run.local);
      const int64_t last = std::min(end, parameter.begin + run.local + run.size);
      if (first >= last) return;
      // Blocks lie whole on a rank, and their parameters begin with one.
      const optim::MomentArray of = {tensor.dtype, tensor.block};
      const int64_t in_tensor = run.global + first - parameter.begin - run.local;
      pieces.push_back({.tensor = static_cast<int>(t),
                        .bucket = parameter.bucket,
                        .slice = {of.Elements(first - rank * slice), of.Elements(last - first)},
                        .offset = of.Elements(in_tensor) * element_bytes,
                        .bytes = of.Bytes(last - first),
                        .is_saved = parameter.spec.counted && shard_group == 0});
    };
    if (begin >= end) continue;
    if (part.parameters.empty()) {
      add({0, 0, parameter.spec.size});
      continue;
    }
    ForEachRun(part.parameters[static_cast<size_t>(tensor.parameter)], part.shards, add);
  }
  return pieces;
}

}  // namespace brigade::checkpoint
