#include "brigade/checkpoint/weights.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/checkpoint/check_part.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype.h"

namespace brigade::checkpoint {
namespace {

using device::Quoted;
using precision::DType;

// Of names in one message.
constexpr size_t kMostNames = 5;

// "3 tensors are ...: "a", "b", "c""
absl::Status NamesError(const std::vector<std::string>& names, absl::string_view what) {
  std::vector<std::string> first;
  for (const std::string& name : names) {
    if (first.size() < kMostNames) first.push_back(Quoted(name, 100));
  }
  return absl::InvalidArgumentError(absl::StrCat(names.size(), what, absl::StrJoin(first, ", "),
                                                 names.size() > first.size() ? ", ..." : ""));
}

// Of a type that ToFloats takes.
bool IsFloat(std::optional<DType> type) {
  return type.has_value() && (*type == DType::kFloat64 || precision::IsTrainingFormat(*type));
}

// Elements of such a type, at any address.
void ToFloats(DType type, const char* from, absl::Span<float> to) {
  precision::VisitAny(type, [&](auto tag) {
    for (size_t i = 0; i < to.size(); ++i) {
      std::memcpy(&tag, from + i * sizeof(tag), sizeof(tag));
      to[i] = static_cast<float>(tag);
    }
  });
}

// What the first rank of a group does.
class WeightReader {
 public:
  WeightReader(const LoadWeightsOptions& options, std::vector<zero::Parameter> model,
               const zero::Plan& plan, const ModelPart& part)
      : options_(options),
        model_(std::move(model)),
        numbers_(NumbersIn(model_, plan)),
        part_(part) {}

  absl::Status Open(const std::string& path, device::SystemCalls& system);
  absl::Status Read(int parameter, absl::Span<float> values);

 private:
  absl::Status Match();
  // Elements of the whole tensor.
  absl::Status ReadRun(const WeightFiles::Tensor& tensor, int64_t begin, absl::Span<float> values);
  absl::Status CheckTensor(const WeightFiles::Tensor& tensor,
                           const zero::ParameterSpec& spec) const;

  const LoadWeightsOptions& options_;
  const std::vector<zero::Parameter> model_;
  // Of the group's parameters, in the model.
  const std::vector<int> numbers_;
  const ModelPart& part_;
  std::optional<WeightFiles> files_;
  // Of each parameter of the model; null: missing.
  std::vector<const WeightFiles::Tensor*> tensors_;
  std::vector<char> chunk_;
};

absl::Status WeightReader::Open(const std::string& path, device::SystemCalls& system) {
  if (options_.chunk_bytes < 8) {
    return absl::InvalidArgumentError(absl::StrCat("chunk_bytes is ", options_.chunk_bytes));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto files, WeightFiles::Open(path, system));
  files_.emplace(std::move(files));
  const absl::Status matched = Match();
  return absl::Status(
      matched.code(),
      matched.ok() ? "" : absl::StrCat(PrintablePath(path), ": ", matched.message()));
}

absl::Status WeightReader::Match() {
  std::set<std::string> wanted;
  std::vector<std::string> missing, unexpected;
  for (const zero::Parameter& parameter : model_) {
    const std::string& own = parameter.spec.name;
    const std::string name = options_.name_in_files ? options_.name_in_files(own) : own;
    wanted.insert(name);
    const WeightFiles::Tensor* const tensor = tensors_.emplace_back(files_->Find(name));
    if (tensor == nullptr) {
      missing.push_back(name);
    } else {
      BRIGADE_RETURN_IF_ERROR(CheckTensor(*tensor, parameter.spec));
    }
  }
  for (const WeightFiles::Tensor& tensor : files_->tensors()) {
    if (wanted.count(tensor.name) == 0) unexpected.push_back(tensor.name);
  }
  if (!missing.empty() && !options_.initialize_missing) {
    return NamesError(missing, " parameters are missing: ");
  }
  if (!unexpected.empty() && !options_.allow_unexpected) {
    return NamesError(unexpected, " tensors are no parameters: ");
  }
  return absl::OkStatus();
}

absl::Status WeightReader::CheckTensor(const WeightFiles::Tensor& tensor,
                                       const zero::ParameterSpec& spec) const {
  if (!IsFloat(DTypeOf(tensor.type))) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(tensor.name), " is ", tensor.type,
                                                   "; F32, F16, BF16 and F64 become weights"));
  }
  const std::vector<uint64_t> shape(spec.shape.begin(), spec.shape.end());
  if (tensor.shape == shape) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(tensor.name), " is [", absl::StrJoin(tensor.shape, ", "),
                   "], the parameter [", absl::StrJoin(shape, ", "), "]"));
}

absl::Status WeightReader::Read(int parameter, absl::Span<float> values) {
  const auto p = static_cast<size_t>(numbers_[static_cast<size_t>(parameter)]);
  const WeightFiles::Tensor* const tensor = tensors_[p];
  if (tensor == nullptr) return options_.initialize_missing(parameter, values);
  if (part_.parameters.empty()) return ReadRun(*tensor, 0, values);
  absl::Status status;
  ForEachRun(part_.parameters[p], part_.shards, [&](const parallel::ShardRun& run) {
    if (!status.ok()) return;
    status = ReadRun(*tensor, run.global,
                     values.subspan(static_cast<size_t>(run.local), static_cast<size_t>(run.size)));
  });
  return status;
}

absl::Status WeightReader::ReadRun(const WeightFiles::Tensor& tensor, int64_t begin,
                                   absl::Span<float> values) {
  const DType type = *DTypeOf(tensor.type);
  const int64_t width = precision::SizeOf(type);
  const auto size = static_cast<int64_t>(values.size());
  const int64_t most = options_.chunk_bytes / width;
  for (int64_t at = 0; at < size; at += most) {
    const int64_t count = std::min(most, size - at);
    chunk_.resize(std::max(chunk_.size(), static_cast<size_t>(count * width)));
    BRIGADE_RETURN_IF_ERROR(
        files_->Read(tensor, (begin + at) * width, count * width, chunk_.data()));
    ToFloats(type, chunk_.data(),
             values.subspan(static_cast<size_t>(at), static_cast<size_t>(count)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadWeights(const std::string& path, zero::ZeroOptimizer& zero,
                         collectives::Communicator& communicator, const LoadWeightsOptions& options,
                         device::SystemCalls& system, const ModelPart& part) {
  BRIGADE_ASSIGN_OR_RETURN(auto model, CheckPart(part, zero, communicator));
  WeightReader reader(options, std::move(model), zero.plan(), part);
  const bool reads = zero.rank() == 0 && zero.shard_group() == 0;
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(
      reads ? reader.Open(path, system) : absl::OkStatus(), communicator));
  return zero.InitializeParameters(
      [&](int parameter, absl::Span<float> values) { return reader.Read(parameter, values); });
}

}  // namespace brigade::checkpoint
