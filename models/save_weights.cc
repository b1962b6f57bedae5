#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/new_folder.h"
#include "brigade/models/tensor_values.h"
#include "brigade/models/weights.h"
#include "nlohmann/json.hpp"

namespace brigade::models {
namespace {

using checkpoint::TensorInfo;
using checkpoint::WritableFile;

constexpr int64_t kChunkBytes = int64_t{4} << 20;

// Parameters [first, end) of the spec.
struct FilePlan {
  std::string name = {};
  int first = 0, end = 0;
  int64_t bytes = 0;
};

bool IsSaved(const Decoder& model, int parameter) {
  return model.roles()[static_cast<size_t>(parameter)].is_base();
}

std::vector<FilePlan> PlanFiles(const Decoder& model, const ParameterArrays& arrays, int64_t most) {
  std::vector<FilePlan> files(1);
  for (int p = 0; p < arrays.size(); ++p) {
    if (!IsSaved(model, p)) continue;
    const int64_t bytes = arrays.size_of(p) * precision::SizeOf(arrays.dtype());
    if (files.back().bytes > 0 && files.back().bytes + bytes > most) {
      files.push_back({.first = p, .end = p});
    }
    files.back().end = p + 1;
    files.back().bytes += bytes;
  }
  for (size_t f = 0; f < files.size(); ++f) {
    files[f].name = files.size() == 1
                        ? "model.safetensors"
                        : absl::StrFormat("model-%05d-of-%05d.safetensors", f + 1, files.size());
  }
  return files;
}

// Copies arrays to the host in chunks.
class Writer {
 public:
  Writer(const Decoder& model, const ParameterArrays& arrays, device::SystemCalls& system,
         ArrayCopier& copier)
      : model_(model), arrays_(arrays), system_(system), copier_(copier), chunk_(kChunkBytes) {}

  absl::Status Write(const FilePlan& plan, const std::string& path) {
    std::vector<TensorInfo> tensors;
    for (int p = plan.first; p < plan.end; ++p) {
      if (!IsSaved(model_, p)) continue;
      const ParameterRole& role = model_.roles()[static_cast<size_t>(p)];
      tensors.push_back({.name = role.name,
                         .type = std::string(checkpoint::TypeName(arrays_.dtype())),
                         .shape = {role.shape.begin(), role.shape.end()}});
    }
    // As transformers wants it.
    BRIGADE_ASSIGN_OR_RETURN(const std::string header,
                             checkpoint::MakeHeader(tensors, {{"format", "pt"}}));
    auto at = static_cast<int64_t>(header.size());
    BRIGADE_ASSIGN_OR_RETURN(auto file, WritableFile::Create(system_, path, at + plan.bytes));
    BRIGADE_RETURN_IF_ERROR(file.Write(header, 0));
    for (int p = plan.first; p < plan.end; ++p) {
      if (!IsSaved(model_, p)) continue;
      const int64_t bytes = arrays_.bytes_of(p);
      for (int64_t done = 0; done < bytes; done += kChunkBytes) {
        const int64_t count = std::min(kChunkBytes, bytes - done);
        BRIGADE_RETURN_IF_ERROR(copier_.ReadBytes(arrays_, p, done, count, chunk_.data()));
        BRIGADE_RETURN_IF_ERROR(file.Write({chunk_.data(), static_cast<size_t>(count)}, at));
        at += count;
      }
    }
    return file.Finish();
  }

 private:
  const Decoder& model_;
  const ParameterArrays& arrays_;
  device::SystemCalls& system_;
  ArrayCopier& copier_;
  std::vector<char> chunk_;
};

std::string IndexText(const std::vector<FilePlan>& files, const Decoder& model) {
  nlohmann::json map = nlohmann::json::object();
  int64_t total = 0;
  for (const FilePlan& file : files) {
    total += file.bytes;
    for (int p = file.first; p < file.end; ++p) {
      if (IsSaved(model, p)) map[model.roles()[static_cast<size_t>(p)].name] = file.name;
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  return index.dump(2) + "\n";
}

}  // namespace

absl::Status SaveWeights(const std::string& path, const Decoder& model, const ParameterArrays& from,
                         device::Context& context, const SaveWeightsOptions& options,
                         device::SystemCalls& system) {
  if (options.most_file_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("most_file_bytes is ", options.most_file_bytes, "; it must be at least 1"));
  }
  if (!precision::IsTrainingFormat(from.dtype())) {
    return absl::InvalidArgumentError("weights of float64 are for tests, and not saved");
  }
  BRIGADE_RETURN_IF_ERROR(CheckArrays(from, model));
  for (const ParameterRole& role : model.roles()) {
    if (role.kind == ParameterRole::Kind::kInt8Base) {
      return absl::InvalidArgumentError(
          "weights that lie as int8 blocks are not saved: merge into a model that has them whole");
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(auto folder, NewFolder::Create(path, system));
  const std::vector<FilePlan> files = PlanFiles(model, from, options.most_file_bytes);
  BRIGADE_ASSIGN_OR_RETURN(auto copier, ArrayCopier::Create(context));
  Writer writer(model, from, system, copier);
  for (const FilePlan& file : files) {
    BRIGADE_RETURN_IF_ERROR(writer.Write(file, folder.PathOf(file.name)));
  }
  if (files.size() > 1) {
    BRIGADE_RETURN_IF_ERROR(
        folder.WriteText(checkpoint::kWeightIndexName, IndexText(files, model)));
  }
  BRIGADE_RETURN_IF_ERROR(folder.WriteText(kConfigName, ConfigJson(model.config())));
  return folder.Publish();
}

}  // namespace brigade::models
