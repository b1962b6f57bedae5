#ifndef BRIGADE_MODELS_TENSOR_VALUES_H_
#define BRIGADE_MODELS_TENSOR_VALUES_H_

// Values between files, the host and arrays of a device: what reading, saving and merging share.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/models/decoder.h"
#include "brigade/models/parameter_arrays.h"

namespace brigade::models {

// Whether a tensor of the type becomes weights: F32, F16, BF16 and F64.
bool IsFloatType(absl::string_view type);

// All of a tensor of such a type, each value the nearest float; as many as the tensor has.
absl::Status ReadFloats(const checkpoint::WeightFiles& files,
                        const checkpoint::WeightFiles::Tensor& tensor, absl::Span<float> values);

// Elements of `type` at any address to elements of `to`'s type, the nearest by way of float;
// float64 stays what it is.
void ConvertValues(precision::DType type, const char* from, int64_t count, precision::DType to_type,
                   void* to);

// InvalidArgument for arrays of another number of parameters than the model has.
absl::Status CheckArrays(const ParameterArrays& arrays, const Decoder& model);

// Copies between the host and arrays, in chunks. Each call waits.
class ArrayCopier {
 public:
  static absl::StatusOr<ArrayCopier> Create(device::Context& context);

  // The bytes of a parameter, from `offset` on.
  absl::Status WriteBytes(const void* from, int64_t offset, int64_t bytes, int parameter,
                          ParameterArrays& to);
  absl::Status ReadBytes(const ParameterArrays& from, int parameter, int64_t offset, int64_t bytes,
                         void* to);

  // All values of a parameter, rounded to its type; and as floats.
  absl::Status Write(absl::Span<const float> values, int parameter, ParameterArrays& to);
  absl::StatusOr<std::vector<float>> Read(const ParameterArrays& from, int parameter);

 private:
  ArrayCopier() = default;

  std::unique_ptr<device::Stream> stream_;
  device::Buffer host_;
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_TENSOR_VALUES_H_
