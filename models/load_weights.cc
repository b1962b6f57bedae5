#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weights.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/adapter_files.h"
#include "brigade/models/model_cut.h"
#include "brigade/models/tensor_values.h"
#include "brigade/models/weights.h"

namespace brigade::models {
namespace {

using checkpoint::WeightFiles;
using precision::DType;

constexpr int64_t kChunkBytes = int64_t{4} << 20;

// The values of a model's parameters: of the base from its files, of adapters from theirs or new.
class Values {
 public:
  static absl::StatusOr<Values> Open(const std::string& path, const Decoder& model,
                                     const AdapterStart& adapters, device::SystemCalls& system) {
    BRIGADE_ASSIGN_OR_RETURN(auto files, WeightFiles::Open(path, system));
    Values values(std::make_unique<WeightFiles>(std::move(files)), model, adapters.seed);
    BRIGADE_ASSIGN_OR_RETURN(values.tensors_, MatchTensors(*values.files_, model));
    if (!adapters.folder.empty()) {
      BRIGADE_ASSIGN_OR_RETURN(auto own, AdapterFiles::Open(adapters.folder, model, system));
      values.adapters_.emplace(std::move(own));
    }
    return values;
  }

  const WeightFiles& files() const { return *files_; }
  // Whose tensor alone says what the parameter is; null for others.
  const WeightFiles::Tensor* TensorOf(int parameter) const {
    const auto p = static_cast<size_t>(parameter);
    const bool is_other = adapters_.has_value() && adapters_->Has(parameter);
    return is_other || model_->roles()[p].kind != ParameterRole::Kind::kBase ? nullptr
                                                                             : tensors_[p];
  }

  // As the spec has them.
  absl::Status Read(int parameter, absl::Span<float> values) const {
    if (adapters_.has_value() && adapters_->Has(parameter)) {
      return adapters_->Read(parameter, values);
    }
    const auto p = static_cast<size_t>(parameter);
    const ParameterRole& role = model_->roles()[p];
    if (role.is_adapter()) {
      model_->Initialize(parameter, seed_, values);
      return absl::OkStatus();
    }
    if (role.kind == ParameterRole::Kind::kBase) return ReadFloats(*files_, *tensors_[p], values);
    std::vector<float> numbers(static_cast<size_t>(role.size()));
    BRIGADE_RETURN_IF_ERROR(ReadFloats(*files_, *tensors_[p], absl::MakeSpan(numbers)));
    QuantizeShards(model_->config(), role, model_->cut()->shards.count, numbers, values);
    return absl::OkStatus();
  }

 private:
  Values(std::unique_ptr<WeightFiles> files, const Decoder& model, uint64_t seed)
      : files_(std::move(files)), model_(&model), seed_(seed) {}

  std::unique_ptr<WeightFiles> files_;
  const Decoder* model_;
  uint64_t seed_;
  std::vector<const WeightFiles::Tensor*> tensors_;
  std::optional<AdapterFiles> adapters_;
};

}  // namespace

absl::Status LoadWeights(const std::string& path, const Decoder& model, ParameterArrays& to,
                         device::Context& context, device::SystemCalls& system,
                         const AdapterStart& adapters) {
  BRIGADE_ASSIGN_OR_RETURN(const Values values, Values::Open(path, model, adapters, system));
  BRIGADE_RETURN_IF_ERROR(CheckArrays(to, model));
  BRIGADE_ASSIGN_OR_RETURN(auto copier, ArrayCopier::Create(context));
  std::vector<char> chunk(static_cast<size_t>(kChunkBytes)), converted(chunk.size());
  const int64_t most = kChunkBytes / static_cast<int64_t>(sizeof(double));
  for (int p = 0; p < to.size(); ++p) {
    const WeightFiles::Tensor* const tensor = values.TensorOf(p);
    if (tensor == nullptr) {
      std::vector<float> all(static_cast<size_t>(to.size_of(p)));
      BRIGADE_RETURN_IF_ERROR(values.Read(p, absl::MakeSpan(all)));
      BRIGADE_RETURN_IF_ERROR(copier.Write(all, p, to));
      continue;
    }
    // F64 stays what it is.
    const DType type = *checkpoint::DTypeOf(tensor->type);
    const int64_t width = precision::SizeOf(to.type_of(p)), width_in_file = precision::SizeOf(type);
    for (int64_t at = 0; at < to.size_of(p); at += most) {
      const int64_t count = std::min(most, to.size_of(p) - at);
      BRIGADE_RETURN_IF_ERROR(
          values.files().Read(*tensor, at * width_in_file, count * width_in_file, chunk.data()));
      ConvertValues(type, chunk.data(), count, to.type_of(p), converted.data());
      BRIGADE_RETURN_IF_ERROR(
          copier.WriteBytes(converted.data(), at * width, count * width, p, to));
    }
  }
  return absl::OkStatus();
}

absl::Status LoadWeights(const std::string& path, const Decoder& model, zero::ZeroOptimizer& zero,
                         collectives::Communicator& communicator, device::SystemCalls& system,
                         const AdapterStart& adapters) {
  const bool reads = zero.rank() == 0 && zero.shard_group() == 0;
  std::optional<Values> values;
  // Of the model, whose stages may have some each.
  std::vector<int> numbers;
  const auto open = [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(auto opened, Values::Open(path, model, adapters, system));
    BRIGADE_ASSIGN_OR_RETURN(numbers,
                             NumbersIn(model, zero.plan(), zero.options().model_ranks > 1));
    values.emplace(std::move(opened));
    return absl::OkStatus();
  };
  BRIGADE_RETURN_IF_ERROR(
      collectives::AgreeOnStatus(reads ? open() : absl::OkStatus(), communicator));
  return zero.InitializeParameters([&](int parameter, absl::Span<float> to) -> absl::Status {
    const int number = numbers[static_cast<size_t>(parameter)];
    const ModelCut& cut = *model.cut();
    if (!cut.is_sharded()) return values->Read(number, to);
    // Of tensor ranks each has a part.
    const parallel::Shard& shard = cut.parameters[static_cast<size_t>(number)];
    std::vector<float> whole(static_cast<size_t>(shard.size()));
    BRIGADE_RETURN_IF_ERROR(values->Read(number, absl::MakeSpan(whole)));
    CutValues(shard, cut.shards, whole, to);
    return absl::OkStatus();
  });
}

}  // namespace brigade::models
