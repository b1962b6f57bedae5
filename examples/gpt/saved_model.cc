#include "brigade/examples/gpt/saved_model.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/checkpoint_reader.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/tensor_values.h"
#include "brigade/nn/texts.h"

namespace brigade::gpt {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::WeightFiles;
using precision::DType;

constexpr char kHeads[] = "heads";

// In a decoder's names, and whether it is a matrix, which lies there as [inputs, outputs].
struct Place {
  std::string name = {};
  bool transposed = false;
};

// Of each parameter of the example, in the order of its spec.
std::vector<Place> PlacesOf(const ModelOptions& options) {
  // In the order of Block.
  constexpr const char* kNames[kBlockParameters] = {
      "ln_1.weight",        "ln_1.bias",        "attn.c_attn.weight", "attn.c_attn.bias",
      "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",        "ln_2.bias",
      "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};
  std::vector<Place> places = {{"transformer.wte.weight"}, {"transformer.wpe.weight"}};
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    for (int i = 0; i < kBlockParameters; ++i) {
      const bool is_matrix =
          ShardOf(options, BlockParameter(layer, static_cast<Block>(i))).shape.size() == 2;
      places.push_back({absl::StrCat("transformer.h.", layer, ".", kNames[i]), is_matrix});
    }
  }
  places.push_back({"transformer.ln_f.weight"});
  places.push_back({"transformer.ln_f.bias"});
  return places;
}

std::vector<zero::ParameterSpec> ParametersOf(const ModelOptions& options) {
  std::vector<zero::ParameterSpec> all;
  for (const zero::UnitSpec& unit : SpecOf(options)) {
    all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
  }
  return all;
}

}  // namespace

absl::StatusOr<SavedModel> SavedModel::Open(const std::string& path, int64_t heads,
                                            device::SystemCalls& system) {
  SavedModel saved;
  saved.path_ = path;
  saved.options_.heads = heads;
  const bool is_file =
      absl::EndsWith(path, checkpoint::kSafetensorsEnding) || absl::EndsWith(path, ".json");
  absl::Status status;
  if (is_file) {
    status = saved.OpenWeights(path, system);
  } else {
    std::string folder = path;
    BRIGADE_ASSIGN_OR_RETURN(const bool is_one, checkpoint::IsCheckpoint(system, path));
    if (!is_one) {
      BRIGADE_ASSIGN_OR_RETURN(const auto steps, checkpoint::ListCheckpoints(system, path));
      if (steps.empty()) {
        return absl::NotFoundError(
            absl::StrCat(device::Printable(path, 400), " has no checkpoint"));
      }
      folder = checkpoint::CheckpointPath(path, steps.back());
    }
    status = saved.OpenCheckpoint(folder, system);
  }
  BRIGADE_RETURN_IF_ERROR(status);
  status = saved.Measure();
  if (status.ok()) status = saved.Check();
  if (status.ok()) return saved;
  return absl::Status(status.code(),
                      absl::StrCat(device::Printable(path, 400), ": ", status.message()));
}

absl::Status SavedModel::OpenCheckpoint(const std::string& folder, device::SystemCalls& system) {
  BRIGADE_ASSIGN_OR_RETURN(auto opened, CheckpointReader::Open(system, folder));
  const auto reader = std::make_shared<CheckpointReader>(std::move(opened));
  BRIGADE_ASSIGN_OR_RETURN(const auto headers, reader->ReadHeaders());
  BRIGADE_ASSIGN_OR_RETURN(const auto index, reader->ReadIndex());
  for (size_t f = 0; f < headers.size(); ++f) {
    const std::string& name = reader->manifest().files[f].name;
    for (const checkpoint::TensorInfo& tensor : headers[f].tensors) {
      // Moments have the same names in files of their own.
      const auto found = index.file_of.find(tensor.name);
      const auto dtype = checkpoint::DTypeOf(tensor.type);
      if (found == index.file_of.end() || found->second != name || !dtype.has_value()) continue;
      const auto offset = static_cast<int64_t>(headers[f].data_begin + tensor.begin);
      tensors_[tensor.name] = {tensor.shape, *dtype, [=](absl::Span<char> bytes) {
                                 return reader->Read(static_cast<int>(f), offset,
                                                     static_cast<int64_t>(bytes.size()),
                                                     bytes.data());
                               }};
    }
  }
  const checkpoint::Fields& training = reader->manifest().training;
  const auto said = training.find(kHeads);
  int64_t heads = 0;
  if (said == training.end() || !absl::SimpleAtoi(said->second, &heads)) return absl::OkStatus();
  if (options_.heads != 0 && options_.heads != heads) {
    return absl::InvalidArgumentError(absl::StrCat(device::Printable(folder, 400), " has ", heads,
                                                   " heads, not ", options_.heads));
  }
  options_.heads = heads;
  return absl::OkStatus();
}

absl::Status SavedModel::OpenWeights(const std::string& path, device::SystemCalls& system) {
  BRIGADE_ASSIGN_OR_RETURN(auto opened, WeightFiles::Open(path, system));
  const auto files = std::make_shared<WeightFiles>(std::move(opened));
  for (const WeightFiles::Tensor& tensor : files->tensors()) {
    const auto dtype = checkpoint::DTypeOf(tensor.type);
    if (!dtype.has_value()) continue;
    tensors_[tensor.name] = {tensor.shape, *dtype, [files, &tensor](absl::Span<char> bytes) {
                               return files->Read(tensor, 0, static_cast<int64_t>(bytes.size()),
                                                  bytes.data());
                             }};
  }
  return absl::OkStatus();
}

absl::Status SavedModel::Measure() {
  const auto shape_of = [&](const char* name) {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? std::vector<uint64_t>() : found->second.shape;
  };
  const auto tokens = shape_of("tokens"), positions = shape_of("positions");
  constexpr uint64_t kMost = uint64_t{1} << 40;
  if (tokens.size() != 2 || positions.size() != 2 || tokens[0] != nn::kVocabulary ||
      tokens[1] > kMost || positions[0] > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("no model of this example: \"tokens\" is [", absl::StrJoin(tokens, ", "),
                     "] and \"positions\" [", absl::StrJoin(positions, ", "), "]"));
  }
  options_.width = static_cast<int64_t>(tokens[1]);
  options_.context = static_cast<int64_t>(positions[0]);
  options_.layers = 0;
  while (tensors_.count(absl::StrCat("h.", options_.layers, ".norm1.weight")) != 0) {
    ++options_.layers;
  }
  if (options_.heads == 0) {
    return absl::InvalidArgumentError("the weights do not say how many heads the model has");
  }
  return Validate(options_);
}

absl::Status SavedModel::Check() const {
  const auto parameters = ParametersOf(options_);
  for (const zero::ParameterSpec& parameter : parameters) {
    const auto found = tensors_.find(parameter.name);
    const std::vector<uint64_t> shape(parameter.shape.begin(), parameter.shape.end());
    if (found == tensors_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no parameter ", device::Quoted(parameter.name)));
    }
    if (found->second.shape != shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          device::Quoted(parameter.name), " is [", absl::StrJoin(found->second.shape, ", "),
          "] and not [", absl::StrJoin(shape, ", "), "]"));
    }
    if (!precision::IsTrainingFormat(found->second.dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat(device::Quoted(parameter.name), " is no weight"));
    }
  }
  if (tensors_.size() == parameters.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "there are ", tensors_.size(), " tensors; the model has ", parameters.size(), " parameters"));
}

models::DecoderConfig SavedModel::config() const {
  const int64_t inner = ShardOf(options_, BlockParameter(0, kExpandBias)).shape[0];
  return {.architecture = models::Architecture::kGpt2,
          .vocabulary = nn::kVocabulary,
          .layers = options_.layers,
          .width = options_.width,
          .heads = options_.heads,
          .key_value_heads = options_.heads,
          .head_width = options_.width / options_.heads,
          .inner = inner,
          .positions = options_.context,
          .tied = true};
}

absl::Status SavedModel::Load(const models::Decoder& model, models::ParameterArrays& to,
                              device::Context& context) const {
  BRIGADE_RETURN_IF_ERROR(models::CheckArrays(to, model));
  BRIGADE_ASSIGN_OR_RETURN(auto copier, models::ArrayCopier::Create(context));
  std::map<std::string, int> numbers;
  for (size_t p = 0; p < model.roles().size(); ++p) {
    numbers[model.roles()[p].name] = static_cast<int>(p);
  }
  const auto parameters = ParametersOf(options_);
  const auto places = PlacesOf(options_);
  for (size_t p = 0; p < parameters.size(); ++p) {
    const Tensor& tensor = tensors_.at(parameters[p].name);
    const auto found = numbers.find(places[p].name);
    if (found == numbers.end() || to.size_of(found->second) != parameters[p].size) {
      return absl::InvalidArgumentError(
          absl::StrCat("the decoder has no ", device::Quoted(places[p].name), " of this size"));
    }
    const auto size = static_cast<size_t>(parameters[p].size);
    std::vector<char> bytes(size * static_cast<size_t>(precision::SizeOf(tensor.dtype)));
    BRIGADE_RETURN_IF_ERROR(tensor.read(absl::MakeSpan(bytes)));
    std::vector<float> values(size);
    models::ConvertValues(tensor.dtype, bytes.data(), parameters[p].size, DType::kFloat32,
                          values.data());
    if (places[p].transposed) {
      const auto rows = static_cast<size_t>(parameters[p].shape[0]), columns = size / rows;
      std::vector<float> turned(size);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < columns; ++c) turned[c * rows + r] = values[r * columns + c];
      }
      values = std::move(turned);
    }
    BRIGADE_RETURN_IF_ERROR(copier.Write(values, found->second, to));
  }
  return absl::OkStatus();
}

}  // namespace brigade::gpt
