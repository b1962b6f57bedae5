#include "brigade/models/adapter_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/model_cut.h"
#include "brigade/models/new_folder.h"
#include "brigade/models/tensor_values.h"

namespace brigade::models {
namespace {

using checkpoint::TensorInfo;
using checkpoint::WeightFiles;
using device::Quoted;

constexpr char kTransposed[] = ".transposed";

const zero::ParameterSpec& SpecOf(const Decoder& model, int parameter) {
  for (const zero::UnitSpec& unit : model.spec()) {
    if (parameter < static_cast<int>(unit.parameters.size())) {
      return unit.parameters[static_cast<size_t>(parameter)];
    }
    parameter -= static_cast<int>(unit.parameters.size());
  }
  return model.spec().back().parameters.back();
}

// As a whole, whatever this rank has of it.
const std::vector<int64_t>& ShapeOf(const Decoder& model, int parameter) {
  return model.cut()->parameters[static_cast<size_t>(parameter)].shape;
}

// By its name in the file, and as it is there.
TensorInfo InFile(const Decoder& model, int parameter) {
  const zero::ParameterSpec& spec = SpecOf(model, parameter);
  const std::string name(absl::StripSuffix(spec.name, kTransposed));
  const std::vector<int64_t>& whole = ShapeOf(model, parameter);
  std::vector<uint64_t> shape(whole.begin(), whole.end());
  if (name != spec.name) std::swap(shape[0], shape[1]);
  return {.name = name, .type = "F32", .shape = shape};
}

bool IsTransposed(const Decoder& model, int parameter) {
  return absl::EndsWith(SpecOf(model, parameter).name, kTransposed);
}

std::vector<float> Transposed(absl::Span<const float> values, int64_t rows) {
  const auto columns = static_cast<int64_t>(values.size()) / rows;
  std::vector<float> turned(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      turned[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * columns + c)];
    }
  }
  return turned;
}

absl::Status CheckHasAdapters(const Decoder& model) {
  if (!model.modules().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("a model without adapters");
}

absl::Status WriteAdapter(const std::string& path, const Decoder& model,
                          const std::map<int, std::vector<float>>& values, absl::string_view base,
                          device::SystemCalls& system) {
  BRIGADE_ASSIGN_OR_RETURN(auto folder, NewFolder::Create(path, system));
  std::vector<TensorInfo> tensors;
  for (const auto& [parameter, unused] : values) tensors.push_back(InFile(model, parameter));
  BRIGADE_ASSIGN_OR_RETURN(const std::string header,
                           checkpoint::MakeHeader(tensors, {{"format", "pt"}}));
  auto at = static_cast<int64_t>(header.size());
  int64_t bytes = at;
  for (const auto& [unused, each] : values) bytes += static_cast<int64_t>(each.size() * 4);
  BRIGADE_ASSIGN_OR_RETURN(auto file, checkpoint::WritableFile::Create(
                                          system, folder.PathOf(kAdapterWeightsName), bytes));
  BRIGADE_RETURN_IF_ERROR(file.Write(header, 0));
  for (const auto& [parameter, each] : values) {
    const bool transposed = IsTransposed(model, parameter);
    const std::vector<float> turned =
        transposed ? Transposed(each, ShapeOf(model, parameter)[0]) : std::vector<float>();
    const std::vector<float>& written = transposed ? turned : each;
    const size_t size = written.size() * sizeof(float);
    BRIGADE_RETURN_IF_ERROR(file.Write({reinterpret_cast<const char*>(written.data()), size}, at));
    at += static_cast<int64_t>(size);
  }
  BRIGADE_RETURN_IF_ERROR(file.Finish());
  BRIGADE_RETURN_IF_ERROR(folder.WriteText(kAdapterConfigName, AdapterConfigJson(model, base)));
  return folder.Publish();
}

}  // namespace

AdapterFiles::AdapterFiles(WeightFiles files, const Decoder& model)
    : files_(std::make_unique<WeightFiles>(std::move(files))),
      tensors_(model.roles().size()),
      transposed_rows_(model.roles().size()) {}

absl::StatusOr<AdapterFiles> AdapterFiles::Open(const std::string& folder, const Decoder& model,
                                                device::SystemCalls& system) {
  BRIGADE_RETURN_IF_ERROR(CheckHasAdapters(model));
  BRIGADE_ASSIGN_OR_RETURN(const LoraOptions written, ReadAdapterConfig(folder, system));
  const LoraOptions& wanted = *model.options().lora;
  if (written.rank != wanted.rank || written.scale() != wanted.scale()) {
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint::PrintablePath(folder), " has adapters of rank ", written.rank, " and scale ",
        written.scale(), "; the model's have rank ", wanted.rank, " and scale ", wanted.scale()));
  }
  const std::string path = absl::StrCat(folder, "/", kAdapterWeightsName);
  BRIGADE_ASSIGN_OR_RETURN(auto opened, WeightFiles::Open(path, system));
  AdapterFiles files(std::move(opened), model);
  const absl::Status matched = files.Match(model);
  if (matched.ok()) return files;
  return absl::Status(matched.code(),
                      absl::StrCat(checkpoint::PrintablePath(path), ": ", matched.message()));
}

absl::Status AdapterFiles::Match(const Decoder& model) {
  std::set<const WeightFiles::Tensor*> used;
  const auto match = [&](int parameter, const std::string& name, const std::vector<uint64_t>& shape,
                         bool must) -> absl::Status {
    const WeightFiles::Tensor* const tensor = files_->Find(name);
    if (tensor == nullptr) {
      if (!must) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("there is no tensor ", Quoted(name, 200)));
    }
    if (tensor->shape != shape) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(name, 200), " is [", absl::StrJoin(tensor->shape, ", "),
                       "] and not [", absl::StrJoin(shape, ", "), "]"));
    }
    if (!IsFloatType(tensor->type)) {
      return absl::InvalidArgumentError(absl::StrCat(Quoted(name, 200), " is ", tensor->type,
                                                     "; F32, F16, BF16 and F64 become weights"));
    }
    used.insert(tensor);
    tensors_[static_cast<size_t>(parameter)] = tensor;
    return absl::OkStatus();
  };
  for (const LoraModule& module : model.modules()) {
    for (const int parameter : {module.a, module.b}) {
      const TensorInfo info = InFile(model, parameter);
      BRIGADE_RETURN_IF_ERROR(match(parameter, info.name, info.shape, true));
      if (IsTransposed(model, parameter)) {
        transposed_rows_[static_cast<size_t>(parameter)] = static_cast<int64_t>(info.shape[0]);
      }
    }
  }
  // PEFT saves tables and heads whole where they have adapters, or where the vocabulary has grown.
  for (size_t p = 0; p < model.roles().size(); ++p) {
    const ParameterRole& role = model.roles()[p];
    if (role.kind != ParameterRole::Kind::kBase || role.shape.size() != 2) continue;
    const std::vector<uint64_t> shape(role.shape.begin(), role.shape.end());
    const absl::string_view module = absl::StripSuffix(role.name, ".weight");
    for (const absl::string_view ending : {".base_layer.weight", ".weight"}) {
      BRIGADE_RETURN_IF_ERROR(match(
          static_cast<int>(p), absl::StrCat("base_model.model.", module, ending), shape, false));
    }
  }
  for (const WeightFiles::Tensor& tensor : files_->tensors()) {
    if (used.count(&tensor) != 0) continue;
    // A head that is tied is the embedding.
    if (model.config().tied && absl::StartsWith(tensor.name, "base_model.model.lm_head.") &&
        absl::EndsWith(tensor.name, ".weight") && !absl::StrContains(tensor.name, ".lora_")) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(tensor.name, 200), " is of no adapter of the model"));
  }
  return absl::OkStatus();
}

absl::Status AdapterFiles::Read(int parameter, absl::Span<float> values) const {
  const WeightFiles::Tensor& tensor = *tensors_[static_cast<size_t>(parameter)];
  BRIGADE_RETURN_IF_ERROR(ReadFloats(*files_, tensor, values));
  const int64_t rows = transposed_rows_[static_cast<size_t>(parameter)];
  if (rows == 0) return absl::OkStatus();
  const std::vector<float> turned = Transposed(values, rows);
  std::copy(turned.begin(), turned.end(), values.begin());
  return absl::OkStatus();
}

absl::Status LoadAdapter(const std::string& folder, const Decoder& model, ParameterArrays& to,
                         device::Context& context, device::SystemCalls& system) {
  BRIGADE_ASSIGN_OR_RETURN(const AdapterFiles files, AdapterFiles::Open(folder, model, system));
  BRIGADE_RETURN_IF_ERROR(CheckArrays(to, model));
  BRIGADE_ASSIGN_OR_RETURN(auto copier, ArrayCopier::Create(context));
  for (int p = 0; p < to.size(); ++p) {
    if (!files.Has(p)) continue;
    std::vector<float> values(static_cast<size_t>(to.size_of(p)));
    BRIGADE_RETURN_IF_ERROR(files.Read(p, absl::MakeSpan(values)));
    BRIGADE_RETURN_IF_ERROR(copier.Write(values, p, to));
  }
  return absl::OkStatus();
}

absl::Status SaveAdapter(const std::string& path, const Decoder& model, const ParameterArrays& from,
                         device::Context& context, absl::string_view base,
                         device::SystemCalls& system) {
  BRIGADE_RETURN_IF_ERROR(CheckHasAdapters(model));
  BRIGADE_RETURN_IF_ERROR(CheckArrays(from, model));
  BRIGADE_ASSIGN_OR_RETURN(auto copier, ArrayCopier::Create(context));
  std::map<int, std::vector<float>> values;
  for (const LoraModule& module : model.modules()) {
    for (const int parameter : {module.a, module.b}) {
      BRIGADE_ASSIGN_OR_RETURN(values[parameter], copier.Read(from, parameter));
    }
  }
  return WriteAdapter(path, model, values, base, system);
}

namespace {

// The values of all ranks, of which each has some parameters, or parts of them: of each its number,
// the tensor rank that has it, its size, its numbers.
absl::Status GatherValues(const ModelCut& cut, std::map<int, std::vector<float>>& values,
                          collectives::Communicator& communicator) {
  std::string mine;
  for (const auto& [number, numbers] : values) {
    const int64_t head[] = {number, cut.shards.rank, static_cast<int64_t>(numbers.size())};
    mine.append(reinterpret_cast<const char*>(head), sizeof(head));
    mine.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto all, collectives::AllGatherBytes(mine, communicator));
  values.clear();
  for (const std::string& of_rank : all) {
    for (size_t at = 0; at < of_rank.size();) {
      int64_t head[3];
      std::memcpy(head, of_rank.data() + at, sizeof(head));
      at += sizeof(head);
      std::vector<float> part(static_cast<size_t>(head[2]));
      std::memcpy(part.data(), of_rank.data() + at, part.size() * sizeof(float));
      at += part.size() * sizeof(float);
      const parallel::Shard& shard = cut.parameters[static_cast<size_t>(head[0])];
      std::vector<float>& whole = values[static_cast<int>(head[0])];
      whole.resize(static_cast<size_t>(shard.size()));
      parallel::TensorShards of = cut.shards;
      of.rank = static_cast<int>(head[1]);
      parallel::ForEachRun(shard, of, [&](const parallel::ShardRun& run) {
        std::copy_n(part.begin() + run.local, run.size, whole.begin() + run.global);
      });
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveAdapter(const std::string& path, const Decoder& model, zero::ZeroOptimizer& zero,
                         collectives::Communicator& communicator, absl::string_view base,
                         device::SystemCalls& system) {
  BRIGADE_RETURN_IF_ERROR(CheckHasAdapters(model));
  const bool is_shared = zero.options().model_ranks > 1;
  const bool reads = zero.rank() == 0 && zero.shard_group() == 0;
  auto numbers = NumbersIn(model, zero.plan(), is_shared);
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(numbers.status(), communicator));
  std::map<int, std::vector<float>> values;
  BRIGADE_RETURN_IF_ERROR(zero.ExportParameters([&](int parameter, absl::Span<const float> master) {
    const int number = (*numbers)[static_cast<size_t>(parameter)];
    if (reads && model.roles()[static_cast<size_t>(number)].is_adapter()) {
      values[number].assign(master.begin(), master.end());
    }
    return absl::OkStatus();
  }));
  // Stages of a pipeline have some each, and tensor ranks parts. Of several shards on one rank they
  // lie otherwise.
  if (is_shared || model.cut()->is_sharded()) {
    BRIGADE_RETURN_IF_ERROR(GatherValues(*model.cut(), values, communicator));
  }
  const bool writes = is_shared ? communicator.rank() == 0 : reads;
  return collectives::AgreeOnStatus(
      writes ? WriteAdapter(path, model, values, base, system) : absl::OkStatus(), communicator);
}

}  // namespace brigade::models
