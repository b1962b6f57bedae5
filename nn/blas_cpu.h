#ifndef BRIGADE_NN_BLAS_CPU_H_
#define BRIGADE_NN_BLAS_CPU_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "brigade/device/context.h"
#include "brigade/nn/blas.h"

namespace brigade::nn {

absl::StatusOr<std::unique_ptr<Blas>> CreateCpuBlas(device::Context& context,
                                                    int64_t workspace_bytes);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_BLAS_CPU_H_
