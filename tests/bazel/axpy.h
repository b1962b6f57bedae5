#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace brigade::tests {

// y[i] += a * x[i], rounded after the product and after the sum.
//
// Errors  InvalidArgument naming both sizes.
absl::Status Axpy(float a, absl::Span<const float> x, absl::Span<float> y);

// What the build knows of CUDA: the launcher's error for a null pointer, or "no toolkit".
absl::Status CudaState();

}  // namespace brigade::tests
