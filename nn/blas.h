#ifndef BRIGADE_NN_BLAS_H_
#define BRIGADE_NN_BLAS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/operation.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// A matrix of a product, row by row in device memory.
struct Operand {
  void* data = nullptr;
  // Elements from one row to the next.
  int64_t leading = 0;
  // Stored as its transpose; not for c.
  bool transposed = false;
  // Elements from one product of the batch to the next.
  int64_t stride = 0;
  // Of the outer batch.
  int64_t outer_stride = 0;
};

// c = scale a b, or c += scale a b, for each of outer_batch * batch products: a [m, k], b [k, n], c
// [m, n].
struct GemmArguments {
  // Of the matrices.
  precision::DType dtype = precision::DType::kFloat32;
  int64_t m = 0, n = 0, k = 0;
  Operand a = {}, b = {}, c = {};
  int64_t batch = 1, outer_batch = 1;
  double scale = 1;
  bool accumulate = false;
  // The type of c, if it is another one: float32 for 16-bit matrices, whose sums are then not
  // rounded.
  std::optional<precision::DType> c_dtype = std::nullopt;

  precision::DType type_of_c() const { return c_dtype.value_or(dtype); }
};

// Matrix products: by oneDNN (found at run time) or OpenBLAS with one thread on the CPU, by cuBLAS
// (found at run time) on GPUs.
//
// Precision    16-bit types are multiplied and added up in float and rounded once. Where a CPU has
//              instructions for them (bfloat16: AVX512_BF16 or AMX; float16: AVX512_FP16, with
//              oneDNN 3) oneDNN multiplies them as they are, and takes subnormal numbers of
//              bfloat16 and of its sums for 0. Else they are converted. float64 is for tests, on
//              the CPU.
// Determinism  The same bits every time on one machine, for the same sizes and leading dimensions.
//              On the CPU they depend on the library and on the processor: with AVX-512 float32 is
//              oneDNN's too. ONEDNN_MAX_CPU_ISA=AVX2 in the environment leaves all to OpenBLAS.
// Memory       ScratchBytes, at Create. Besides, uncounted, as the libraries have it: on the CPU
//              OpenBLAS's buffers, for the life of the process; up to 2.6 MB of the heap while
//              oneDNN makes a product of float32; its code for each product of 16 bits, by sizes,
//              leading dimensions and scale, made when that is first seen, in 0.3 ms, and kept.
// Stream       Gemm is enqueued and never waits; all calls on one stream.
// Threads      On the CPU, Create sets OpenBLAS to one thread for the whole process, once: products
//              that others make by it are then of one thread too.
// Errors       Create: Unavailable naming the library that is missing. Gemm: InvalidArgument naming
//              the type, those of c and of the others, or the size, which must fit int, or a scale
//              that is no number;
//              ResourceExhausted for a product that needs more workspace.
class Blas {
 public:
  static absl::StatusOr<std::unique_ptr<Blas>> Create(device::Context& context,
                                                      int64_t workspace_bytes);
  virtual ~Blas() = default;

  // What Create allocates: `workspace_bytes`; on CUDA at least the 32 MiB that cuBLAS recommends.
  static int64_t ScratchBytes(device::Device device, int64_t workspace_bytes);

  // Of a product of these sizes, in any order, on the CPU; 0 for float32 and float64.
  static int64_t WorkspaceBytes(precision::DType dtype, int64_t m, int64_t n, int64_t k);

  absl::Status Gemm(const GemmArguments& arguments, device::Stream& stream);

 private:
  // What a product writes besides c.
  virtual device::Access Workspace(const GemmArguments& arguments) const = 0;
  // `operation` declares all that the product reads and writes.
  virtual absl::Status Enqueue(const GemmArguments& arguments, const device::Operation& operation,
                               device::Stream& stream) = 0;
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_BLAS_H_
