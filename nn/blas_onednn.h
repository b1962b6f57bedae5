#ifndef BRIGADE_NN_BLAS_ONEDNN_H_
#define BRIGADE_NN_BLAS_ONEDNN_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "brigade/nn/blas.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// Matrix products by oneDNN, each on the thread that calls: what blas_cpu.cc takes instead of
// OpenBLAS where it is the faster one. The library is loaded when it is first asked for, so that
// binaries start without it.
class OneDnn {
 public:
  // One 16-bit product, with the code that oneDNN has made for its shape.
  class Product {
   public:
    virtual ~Product() = default;
    // `scratch` is aligned to 64 bytes, and as large as Prepare was told. By one thread at a time.
    virtual absl::Status Run(const void* a, const void* b, void* c, void* scratch) = 0;
  };

  // Null where the build or the machine has no oneDNN, where its threads are TBB's, which cannot be
  // limited to the caller, and where it uses no AVX-512: none of this processor's, or less by
  // ONEDNN_MAX_CPU_ISA. Its products were slower than OpenBLAS's then (docs/decisions/0150).
  static const OneDnn* Get();
  virtual ~OneDnn() = default;

  // Whether the processor has instructions that multiply pairs of these numbers.
  virtual bool Multiplies(precision::DType dtype) const = 0;

  // Null if oneDNN has no code for the product that uses those instructions, or needs more scratch:
  // a matter of shapes alone.
  virtual std::unique_ptr<Product> Prepare(const GemmArguments& arguments,
                                           int64_t scratch_bytes) const = 0;

  // A product of fp32, of the operands at these addresses instead of the arguments'.
  virtual absl::Status Multiply(const GemmArguments& arguments, const float* a, int64_t a_leading,
                                const float* b, int64_t b_leading, float beta, float* c,
                                int64_t c_leading) const = 0;
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_BLAS_ONEDNN_H_
