#ifndef BRIGADE_COLLECTIVES_TUNING_CODEC_COST_H_
#define BRIGADE_COLLECTIVES_TUNING_CODEC_COST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/tuning/cost_model.h"
#include "brigade/collectives/tuning/topology.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// As what an array crosses the wire.
//
// kNone          As it is.
// kInt8, kInt4   As codes, in a reduce-scatter (QuantizedReduceScatter) or an all-gather
//                (QuantizedAllGather).
// kOneBit        As signs, in an all-reduce (OneBitAllReduce).
// kPowerSgd      As factors of matrices, in an all-reduce (PowerSgdAllReduce).
// kTopK          As the elements of greatest magnitude, in an all-reduce (TopKAllReduce).
//
// Codes and signs are added up in two hops where nodes have several ranks and one size.
enum class Codec : uint8_t { kNone, kInt8, kInt4, kOneBit, kPowerSgd, kTopK };
inline constexpr Codec kCodecs[] = {Codec::kNone,   Codec::kInt8,     Codec::kInt4,
                                    Codec::kOneBit, Codec::kPowerSgd, Codec::kTopK};
// Those that send something of each element in each call.
inline constexpr Codec kElementCodecs[] = {Codec::kNone, Codec::kInt8, Codec::kInt4,
                                           Codec::kOneBit};

// "none", "int8", "int4", "one_bit", "power_sgd", "top_k".
absl::string_view Name(Codec codec);

// How much kPowerSgd and kTopK keep of an array, and whether sums of codes keep their errors.
struct CodecSettings {
  // The columns of each factor of a matrix.
  int32_t rank = 4;
  // The array is taken for square matrices with sides of so many elements; for one of its own size
  // if it is smaller.
  int64_t matrix_side = 1024;
  // The share of the elements that each rank sends.
  double density = 0.001;
  // kInt8 and kInt4 in a reduce-scatter: what codes leave out enters the next ones (LoCo,
  // kernels/loco_quant). Errors are int8 codes, read and written in each call, and copied before,
  // so that a step that is skipped has them as they were. kOneBit, kPowerSgd and kTopK have errors
  // of their own, always.
  bool error_feedback = false;
};

// What a rank does for a collective of `elements` of the whole array.
struct CodecCost {
  // Of its exchanges.
  std::vector<Phase> phases;
  // That its codecs read and write: 0 of kNone, whose sums are in the phases.
  double memory_bytes = 0;
};

// Of kNone with the algorithm that Select prefers.
//
// Errors       Those of Select; InvalidArgument for negative elements, a type of no 16 or 32 bits,
//              or settings out of range. FailedPrecondition with the reason for a codec that the
//              operation does not have, for matrices whose factors save nothing, and for every
//              codec where the topology does not know memory_bytes_per_s.
absl::StatusOr<CodecCost> CodecCostOf(const Topology& topology, Codec codec,
                                      CollectiveKind operation, int64_t elements,
                                      precision::DType dtype, const CodecSettings& settings = {});

// Of the phases, and of the bytes in memory, which no exchange hides.
double SecondsOf(const Topology& topology, const CodecCost& cost);

struct CodecChoice {
  Codec codec = Codec::kNone;
  // The predicted time.
  double seconds = 0;
  // One sentence, with the best two times.
  std::string reason;
};

// The cheapest of `codecs` by the model; of equals the first. So a codec is chosen only where it
// pays: for large arrays where the memory bytes c of an element, memory bandwidth M, link bandwidth
// L of a rank, wire bytes b0 before and b1 after have c / M < k (p - 1) / p (b0 - b1) / L, with k 2
// for an all-reduce and else 1. All ranks must choose alike: with one topology they do. What is
// lost of the values is not looked at: that is for the caller to allow, who names kPowerSgd and
// kTopK if they may be chosen. Arithmetic is not in the model: factors of rank 16 and more take
// longer where a processor has few instructions for a byte.
//
// Errors       Those of CodecCostOf, but for codecs that do not exist here; FailedPrecondition,
//              with every codec's reason, if none does.
// Source       Agarwal et al., On the utility of gradient compression (arXiv 2103.00543), for where
//              compression lost.
absl::StatusOr<CodecChoice> SelectCodec(const Topology& topology, CollectiveKind operation,
                                        int64_t elements, precision::DType dtype,
                                        absl::Span<const Codec> codecs = kElementCodecs,
                                        const CodecSettings& settings = {});

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_TUNING_CODEC_COST_H_
