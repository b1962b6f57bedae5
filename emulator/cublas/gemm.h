#ifndef BRIGADE_EMULATOR_CUBLAS_GEMM_H_
#define BRIGADE_EMULATOR_CUBLAS_GEMM_H_

#include <cstdint>

#include "absl/status/status.h"

namespace brigade::emulator {

enum class GemmType : uint8_t { kFloat32, kFloat16, kBFloat16 };

// A matrix of a product in the device's memory, column by column as cuBLAS has it.
struct GemmMatrix {
  void* data = nullptr;
  GemmType type = GemmType::kFloat32;
  // Elements from one column to the next, and from one product to the next.
  int64_t leading = 0, stride = 0;
  // Stored as its transpose; not for c.
  bool transposed = false;
};

// c = alpha a b + beta c, for each of the batch: a is [m, k], b [k, n].
struct GemmCall {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  GemmMatrix a = {}, b = {}, c = {};
  float alpha = 1, beta = 0;
  // Of 16-bit outputs: whether partial sums may be rounded to their type.
  bool reduces_in_16_bits = false;
};

// Computes it inside a kernel's run.
//
// Precision    Sums in fp32, rounded once to c's type; with reduces_in_16_bits the sum of every
//              kReducedTerms products, and the sum of those sums, is rounded to c's type. cuBLAS
//              would do so more rarely; here it always shows.
// Traffic      c is read only if beta is not 0; nothing between the columns is touched.
// Errors       InvalidArgument if an address is no multiple of its type's size, or if columns of c
//              overlap each other or those of a or b.
absl::Status RunGemm(const GemmCall& call);

inline constexpr int64_t kReducedTerms = 8;

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_CUBLAS_GEMM_H_
