#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weights.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/weights.h"
#include "brigade/nn/functions.h"

namespace brigade::models {
namespace {

using checkpoint::WeightFiles;
using precision::DType;

constexpr int64_t kChunkBytes = int64_t{4} << 20;

template <typename From, typename To>
To Converted(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<To, double>) {
    return static_cast<double>(nn::Widen(value));
  } else {
    return To(static_cast<float>(value));
  }
}

// Numbers at any address.
template <typename To>
void Convert(DType type, const char* from, int64_t count, To* to) {
  nn::VisitReal(type, [&](auto tag) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(&tag, from + i * static_cast<int64_t>(sizeof(tag)), sizeof(tag));
      to[i] = Converted<decltype(tag), To>(tag);
    }
  });
}

}  // namespace

absl::Status LoadWeights(const std::string& path, const Decoder& model, ParameterArrays& to,
                         device::Context& context, device::SystemCalls& system) {
  BRIGADE_ASSIGN_OR_RETURN(const auto files, WeightFiles::Open(path, system));
  BRIGADE_ASSIGN_OR_RETURN(const auto tensors, MatchTensors(files, model));
  if (static_cast<int>(tensors.size()) != to.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("arrays of ", to.size(), " parameters for a model of ", tensors.size()));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context.CreateStream("load weights"));
  BRIGADE_ASSIGN_OR_RETURN(const auto host,
                           context.AllocateHost(kChunkBytes, device::Purpose::kScratch, "weights"));
  std::vector<char> chunk(static_cast<size_t>(kChunkBytes));
  const int64_t most = kChunkBytes / static_cast<int64_t>(sizeof(double));
  const int64_t width = precision::SizeOf(to.dtype());
  for (int p = 0; p < to.size(); ++p) {
    const WeightFiles::Tensor& tensor = *tensors[static_cast<size_t>(p)];
    const DType type = *checkpoint::DTypeOf(tensor.type);
    const int64_t width_in_file = precision::SizeOf(type);
    for (int64_t at = 0; at < to.size_of(p); at += most) {
      const int64_t count = std::min(most, to.size_of(p) - at);
      BRIGADE_RETURN_IF_ERROR(
          files.Read(tensor, at * width_in_file, count * width_in_file, chunk.data()));
      nn::VisitReal(to.dtype(), [&](auto tag) {
        Convert(type, chunk.data(), count, static_cast<decltype(tag)*>(host.data()));
      });
      BRIGADE_RETURN_IF_ERROR(
          stream->Copy(static_cast<char*>(to.weights(p)) + at * width, host.data(), count * width));
      // The memory is written again.
      BRIGADE_RETURN_IF_ERROR(stream->Synchronize());
    }
  }
  return absl::OkStatus();
}

absl::Status LoadWeights(const std::string& path, const Decoder& model, zero::ZeroOptimizer& zero,
                         collectives::Communicator& communicator, device::SystemCalls& system) {
  std::map<std::string, std::string> names;
  const auto match = [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const auto files, WeightFiles::Open(path, system));
    BRIGADE_ASSIGN_OR_RETURN(const auto tensors, MatchTensors(files, model));
    size_t p = 0;
    for (const zero::UnitSpec& unit : model.spec()) {
      for (const zero::ParameterSpec& parameter : unit.parameters) {
        names[parameter.name] = tensors[p++]->name;
      }
    }
    return absl::OkStatus();
  };
  const bool reads = zero.rank() == 0 && zero.shard_group() == 0;
  BRIGADE_RETURN_IF_ERROR(
      collectives::AgreeOnStatus(reads ? match() : absl::OkStatus(), communicator));
  return checkpoint::LoadWeights(
      path, zero, communicator,
      {.name_in_files = [&](const std::string& parameter) { return names.at(parameter); },
       // MatchTensors has seen that they are no weights.
       .allow_unexpected = true},
      system);
}

}  // namespace brigade::models
