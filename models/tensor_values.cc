#include "brigade/models/tensor_values.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/device/status_macros.h"
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

}  // namespace

bool IsFloatType(absl::string_view type) {
  const auto dtype = checkpoint::DTypeOf(type);
  return dtype.has_value() && (*dtype == DType::kFloat64 || precision::IsTrainingFormat(*dtype));
}

void ConvertValues(DType type, const char* from, int64_t count, DType to_type, void* to) {
  nn::VisitReal(to_type, [&](auto to_tag) {
    using To = decltype(to_tag);
    To* const target = static_cast<To*>(to);
    nn::VisitReal(type, [&](auto tag) {
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(&tag, from + i * static_cast<int64_t>(sizeof(tag)), sizeof(tag));
        target[i] = Converted<decltype(tag), To>(tag);
      }
    });
  });
}

absl::Status ReadFloats(const WeightFiles& files, const WeightFiles::Tensor& tensor,
                        absl::Span<float> values) {
  const DType type = *checkpoint::DTypeOf(tensor.type);
  const int64_t width = precision::SizeOf(type);
  const auto size = static_cast<int64_t>(values.size());
  std::vector<char> chunk(static_cast<size_t>(std::min(kChunkBytes, size * width)));
  const int64_t most = kChunkBytes / width;
  for (int64_t at = 0; at < size; at += most) {
    const int64_t count = std::min(most, size - at);
    BRIGADE_RETURN_IF_ERROR(files.Read(tensor, at * width, count * width, chunk.data()));
    ConvertValues(type, chunk.data(), count, DType::kFloat32, values.data() + at);
  }
  return absl::OkStatus();
}

absl::Status CheckArrays(const ParameterArrays& arrays, const Decoder& model) {
  if (model.cut()->is_sharded()) {
    return absl::InvalidArgumentError(absl::StrCat("arrays of whole parameters for a model of ",
                                                   model.cut()->shards.count, " tensor shards"));
  }
  const size_t size = model.roles().size();
  if (static_cast<size_t>(arrays.size()) == size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("arrays of ", arrays.size(), " parameters for a model of ", size));
}

absl::StatusOr<ArrayCopier> ArrayCopier::Create(device::Context& context) {
  ArrayCopier copier;
  BRIGADE_ASSIGN_OR_RETURN(copier.stream_, context.CreateStream("weights"));
  BRIGADE_ASSIGN_OR_RETURN(copier.host_,
                           context.AllocateHost(kChunkBytes, device::Purpose::kScratch, "weights"));
  return copier;
}

absl::Status ArrayCopier::WriteBytes(const void* from, int64_t offset, int64_t bytes, int parameter,
                                     ParameterArrays& to) {
  char* const target = static_cast<char*>(to.weights(parameter)) + offset;
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    const int64_t count = std::min(kChunkBytes, bytes - at);
    std::memcpy(host_.data(), static_cast<const char*>(from) + at, static_cast<size_t>(count));
    BRIGADE_RETURN_IF_ERROR(stream_->Copy(target + at, host_.data(), count));
    // The memory is written again.
    BRIGADE_RETURN_IF_ERROR(stream_->Synchronize());
  }
  return absl::OkStatus();
}

absl::Status ArrayCopier::ReadBytes(const ParameterArrays& from, int parameter, int64_t offset,
                                    int64_t bytes, void* to) {
  const char* const source = static_cast<const char*>(from.weights(parameter)) + offset;
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    const int64_t count = std::min(kChunkBytes, bytes - at);
    BRIGADE_RETURN_IF_ERROR(stream_->Copy(host_.data(), source + at, count));
    BRIGADE_RETURN_IF_ERROR(stream_->Synchronize());
    std::memcpy(static_cast<char*>(to) + at, host_.data(), static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status ArrayCopier::Write(absl::Span<const float> values, int parameter,
                                ParameterArrays& to) {
  const DType type = to.type_of(parameter);
  std::vector<char> bytes(static_cast<size_t>(to.bytes_of(parameter)));
  ConvertValues(DType::kFloat32, reinterpret_cast<const char*>(values.data()),
                to.size_of(parameter), type, bytes.data());
  return WriteBytes(bytes.data(), 0, to.bytes_of(parameter), parameter, to);
}

absl::StatusOr<std::vector<float>> ArrayCopier::Read(const ParameterArrays& from, int parameter) {
  std::vector<char> bytes(static_cast<size_t>(from.bytes_of(parameter)));
  BRIGADE_RETURN_IF_ERROR(ReadBytes(from, parameter, 0, from.bytes_of(parameter), bytes.data()));
  std::vector<float> values(static_cast<size_t>(from.size_of(parameter)));
  ConvertValues(from.type_of(parameter), bytes.data(), from.size_of(parameter), DType::kFloat32,
                values.data());
  return values;
}

}  // namespace brigade::models
