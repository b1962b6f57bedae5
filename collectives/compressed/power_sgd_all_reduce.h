#ifndef BRIGADE_COLLECTIVES_COMPRESSED_POWER_SGD_ALL_REDUCE_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_POWER_SGD_ALL_REDUCE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/codec_call.h"
#include "brigade/collectives/engines/call_order.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/amax/amax_math.h"
#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/orthogonalize/orthogonalize_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// A tensor of a bucket: a matrix, row by row, which begins at `offset`, in elements. A vector is
// one of one row.
struct PowerSgdTensor {
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

// Whether factors of that rank send less than half of the tensor: 2 rank (rows + columns) <
// rows * columns. The others cross the wire as they are.
inline bool HasFactors(const PowerSgdTensor& tensor, int64_t rank) {
  return 2 * rank * (tensor.rows + tensor.columns) < tensor.rows * tensor.columns;
}

// What a bucket consists of, in elements.
struct PowerSgdSizes {
  // From its begin to the end of its last tensor.
  int64_t count = 0;
  // Of the tensors with factors, together; so long are the caller's errors.
  int64_t matrices = 0;
  // Of all factors: rank * rows and rank * columns for each. The caller keeps the second ones.
  int64_t p = 0, q = 0;
  // Of the tensors without.
  int64_t plain = 0;
  // Columns of all Q.
  int64_t factor_columns = 0;
  // That sums of tiles need (kernels/orthogonalize).
  int64_t workspace = 0;
};
PowerSgdSizes PowerSgdSizesOf(absl::Span<const PowerSgdTensor> tensors, int64_t rank);

// The exchanges: sums of P and of the tensors without factors, and of Q; with several iterations of
// P alone and of Q again, for each but the first. One of no elements is left out.
struct PowerSgdCalls {
  CollectiveSignature first, second, again;
};
inline PowerSgdCalls PowerSgdCallsOf(const PowerSgdSizes& sizes) {
  const auto sum = [](int64_t count) {
    return CollectiveSignature{
        .kind = CollectiveKind::kAllReduce, .dtype = precision::DType::kFloat32, .count = count};
  };
  return {sum(sizes.p + sizes.plain), sum(sizes.q), sum(sizes.p)};
}

struct PowerSgdOptions {
  // Columns of each factor, at most kMaxLowRank.
  int32_t rank = 1;
  // Of the bucket: fp32, fp16 or bf16.
  precision::DType dtype = precision::DType::kFloat32;
  // Of Orthogonalize.
  double epsilon = 1e-8;
  // How often P and Q are made of the same matrices: each time their columns come nearer to the
  // directions in which the mean is largest.
  int32_t iterations = 1;
};
inline constexpr int32_t kMostPowerIterations = 8;

// What a bucket's exchanges leave for the next one: the caller's, in fp32 and device memory, zero
// at the beginning. Save both with the state of a training. Only the mean over ranks of `error`
// enters the identity below: for another number of ranks each new rank may get that.
struct PowerSgdState {
  // [matrices]: what was left out of this rank's matrices, one after the other, in the order of the
  // bucket.
  float* error = nullptr;
  // [q]: their factors, the same on all ranks.
  float* q = nullptr;
};

// The mean of buckets whose matrices cross the wire as factors of a low rank, with error feedback.
// Of each matrix M_r = input_r + error_r:
//
//   Q = the last one's columns, or ColumnSeed's where they are zero, made orthonormal
//   P = M_0 Q + M_1 Q + ...          the first exchange; then P's columns are made orthonormal, by
//                                    two passes
//   Q = (M_0^T P + M_1^T P + ...) / size     the second one; kept for the next call. Of several
//                                            iterations all but the last go on with Q made
//                                            orthonormal
//   output = P Q^T;   error_r = M_r - output
//
// so that at every step the sum over steps of outputs + mean over ranks of error is the sum over
// steps of the inputs' mean, but for roundings to fp32. Where all M_r have one image of at most
// `rank` dimensions, the output is their mean.
//
// Order        All ranks make the same calls in the same order; they take part in the order of the
//              communicator's other calls. A call runs after this object's earlier ones, whatever
//              stream they were on.
// Arrays       Memory of the stream's device. input, output: a bucket each; output may be input.
//              Elements between tensors are not touched.
// Precision    All in fp32; results are rounded to the type. Sums over ranks are kDirect's, in
//              ascending order; products and columns as kernels/orthogonalize.
// Determinism  All ranks get the same bits, on every engine and device.
// Not finite   An element that is infinite or NaN on a rank makes the whole matrix NaN on all, or
//              the element where there are no factors; errors and Q keep every bit then, on all
//              ranks. Products that overflow count likewise; magnitudes of 2^100 and more are not
//              for this.
// Skipped      So they do if *state says that its step is skipped. It is read on the stream, behind
//              the exchanges; all ranks give the same. What outputs hold is then of no use.
// Traffic      PowerSgdCallsOf's: 8 rank (rows + columns) (size - 1) / size bytes a matrix, in two
//              all-reduces for the whole bucket, for each iteration. In memory 40 bytes for each
//              element of fp32, and 8 more for each further iteration.
// Memory       Bytes(tensors, options), of purpose communication: P and Q, tensors without factors
//              in fp32, 4 bytes an element of the matrices for the error before the call, and 4
//              more for the product where the bucket has 16 bits.
// Errors       InvalidArgument for this rank's bad arguments: nothing happens, the others wait.
//              Everything else as Communicator; ranks whose exchanges differ in size are told,
//              other shapes and types of the same sizes are not noticed.
// Allocation   None in steady state, and no host wait but in Create.
// Lifetime     Communicator and context must outlive all calls. Once the communicator has failed it
//              must go first: other ranks may still read the messages.
// Threads      One thread at a time.
// Source       Vogels, Karimireddy, Jaggi, PowerSGD (arXiv 1905.13727), algorithms 1 and 2.
class PowerSgdAllReduce {
 public:
  // For buckets of these tensors, which lie in ascending order and do not overlap.
  static absl::StatusOr<std::unique_ptr<PowerSgdAllReduce>> Create(
      Communicator& communicator, device::Context& context,
      absl::Span<const PowerSgdTensor> tensors, const PowerSgdOptions& options);
  // What that allocates.
  static int64_t Bytes(absl::Span<const PowerSgdTensor> tensors, const PowerSgdOptions& options);

  const PowerSgdSizes& sizes() const { return sizes_; }

  // `step`: device memory; null: the step is not skipped.
  absl::Status AllReduce(const void* input, void* output, const PowerSgdState& state,
                         const kernels::StepState* step, device::Stream& stream);

 private:
  // Where things lie in `scratch_`, in bytes.
  struct Scratch {
    Scratch(const PowerSgdSizes& sizes, const PowerSgdOptions& options);
    // Errors before the call, first; Q before it; products, if they are not the output; sums of
    // tiles; where columns of Q begin; the factor of the mean; the maximum of what was exchanged.
    int64_t q, product, workspace, begins, mean, amax, amax_workspace;
    int64_t end;
  };

  PowerSgdAllReduce(Communicator& communicator, device::Context& context,
                    std::vector<PowerSgdTensor> tensors, const PowerSgdOptions& options,
                    MessageBuffer message, device::Buffer scratch, CallOrder order);

  template <typename T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(scratch_.as<char>().data() + offset);
  }
  // P, tensors without factors and Q lie one after the other in the message.
  float* message() const { return reinterpret_cast<float*>(message_.at(0)); }
  absl::Status WriteConstants();
  absl::Status Check(const void* input, void* output, const PowerSgdState& state,
                     const kernels::StepState* step, device::Stream& stream) const;
  // The lists of this call, in `low_rank_` and `columns_`.
  void ListMatrices(const PowerSgdState& state, void* output);
  // Casts the tensors with factors, or those without, between a bucket and what lies densely.
  absl::Status FromBucket(const void* bucket, bool with_factors, float* dense,
                          device::Stream& stream);
  absl::Status ToBucket(const float* dense, bool with_factors, void* bucket,
                        device::Stream& stream);
  absl::Status Sum(float* data, const CollectiveSignature& call, device::Stream& stream);

  Communicator& communicator_;
  device::Context& context_;
  const std::vector<PowerSgdTensor> tensors_;
  const PowerSgdOptions options_;
  const PowerSgdSizes sizes_;
  const MessageBuffer message_;
  const Scratch layout_;
  const device::Buffer scratch_;
  CallOrder order_;
  std::vector<kernels::LowRankSegment> low_rank_;
  std::vector<kernels::OrthogonalizeSegment> p_, q_;
  std::vector<kernels::CastSegment> casts_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_POWER_SGD_ALL_REDUCE_H_
