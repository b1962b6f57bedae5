#include "brigade/collectives/tuning/codec_cost.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/tuning/select.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/kernels/orthogonalize/orthogonalize_math.h"
#include "brigade/kernels/sign_pack/sign_pack_math.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::collectives {
namespace {

template <typename... Why>
absl::Status Refuse(Codec codec, const Why&... why) {
  return absl::FailedPreconditionError(absl::StrCat(Name(codec), " ", why...));
}

// What an array and its parts are.
struct Sizes {
  // Elements, of the array and of a rank's part; bytes of an element; ranks.
  double whole, part, element;
  int64_t part_elements;
  int ranks;
};

absl::StatusOr<std::vector<Phase>> BestPhases(const Topology& topology, CollectiveKind operation,
                                              int64_t bytes) {
  BRIGADE_ASSIGN_OR_RETURN(const Choice choice, Select(topology, operation, bytes));
  return PhasesOf(topology, choice.algorithm, operation, bytes);
}

bool HasTwoHops(const Topology& topology) {
  return topology.nodes() > 1 && topology.ranks_of_node.front() > 1 && topology.Even();
}

// An all-to-all of messages of that size: the exchange of a direct reduce-scatter, without sums; or
// that of a hierarchical one, with all that goes to a rank of the node in one message. What a call
// costs is between nodes, where there are several; those inside are a step.
absl::StatusOr<std::vector<Phase>> Exchange(const Topology& topology, int64_t message_bytes,
                                            bool two_hops) {
  const Algorithm algorithm = two_hops ? Algorithm::kHierarchical : Algorithm::kDirect;
  BRIGADE_ASSIGN_OR_RETURN(std::vector<Phase> phases,
                           PhasesOf(topology, algorithm, CollectiveKind::kReduceScatter,
                                    topology.ranks() * message_bytes));
  for (Phase& phase : phases) {
    phase.reduced_bytes = 0;
    phase.call_s = 0;
  }
  phases.back().call_s = topology.call_s;
  if (two_hops) phases.front().queued = topology.ranks_of_node.front() - 2;
  return phases;
}

absl::StatusOr<CodecCost> CostOfScatter(const Topology& topology, kernels::QuantFormat format,
                                        bool error_feedback, const Sizes& sizes) {
  const int ranks_per_node = topology.ranks_of_node.front();
  const bool two_hops = HasTwoHops(topology);
  const int64_t message = kernels::QuantBytes(sizes.part_elements, format);
  const double codes = static_cast<double>(message) * sizes.ranks;
  CodecCost cost;
  BRIGADE_ASSIGN_OR_RETURN(cost.phases, Exchange(topology, message, two_hops));
  // To codes, and these added up; in two hops the sums of a node become codes too.
  cost.memory_bytes = sizes.whole * sizes.element + 2 * codes + sizes.part * sizes.element +
                      (two_hops ? 2 * codes / ranks_per_node : 0);
  if (error_feedback) {
    // Of what a rank sends, and of the sums of a node: copied, read and written.
    const auto errors = static_cast<double>(
        sizes.ranks * kernels::QuantBytes(sizes.part_elements, kernels::QuantFormat::kInt8));
    cost.memory_bytes += 4 * (errors + (two_hops ? errors / ranks_per_node : 0));
  }
  return cost;
}

absl::StatusOr<CodecCost> CostOfGather(const Topology& topology, kernels::QuantFormat format,
                                       const Sizes& sizes) {
  const int64_t message = kernels::QuantBytes(sizes.part_elements, format);
  CodecCost cost;
  BRIGADE_ASSIGN_OR_RETURN(cost.phases,
                           BestPhases(topology, CollectiveKind::kAllGather, sizes.ranks * message));
  cost.memory_bytes =
      (sizes.part + sizes.whole) * sizes.element + static_cast<double>(message) * (1 + sizes.ranks);
  return cost;
}

// Between nodes of one rank; or between ranks that read one memory.
absl::StatusOr<CodecCost> CostOfOneBit(const Topology& topology, const Sizes& sizes) {
  const int64_t message = kernels::SignBytes(sizes.part_elements);
  CodecCost cost;
  BRIGADE_ASSIGN_OR_RETURN(cost.phases, Exchange(topology, message, /*two_hops=*/false));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<Phase> gather,
                           BestPhases(topology, CollectiveKind::kAllGather, sizes.ranks * message));
  cost.phases.insert(cost.phases.end(), gather.begin(), gather.end());
  // Errors are saved, and array and errors read twice and errors written once; so of the sum, which
  // is written before; signs of all are written once and read twice; and the result is written.
  const auto signs = static_cast<double>(message);
  cost.memory_bytes = sizes.whole * (8 + 2 * (sizes.element + 4) + 4 + sizes.element) +
                      sizes.part * (8 + 4 + 20) + signs * (3 * sizes.ranks + 1);
  return cost;
}

// Sums inside nodes, and in each place signs of a part of them between nodes, at once.
absl::StatusOr<CodecCost> CostOfOneBitInTwoHops(const Topology& topology, const Sizes& sizes) {
  const int ranks_per_node = topology.ranks_of_node.front(), nodes = topology.nodes();
  const int64_t local = (static_cast<int64_t>(sizes.whole) + ranks_per_node - 1) / ranks_per_node;
  const int64_t part = (local + nodes - 1) / nodes;
  Topology inside = topology;
  inside.ranks_of_node = {ranks_per_node};
  inside.call_s = 0;
  const int64_t bytes = ranks_per_node * local * static_cast<int64_t>(sizes.element);
  CodecCost cost;
  BRIGADE_ASSIGN_OR_RETURN(
      cost.phases, PhasesOf(inside, Algorithm::kDirect, CollectiveKind::kReduceScatter, bytes));
  // Those of one place have one rank on each node, and share its ports with the other places.
  Topology between = topology;
  between.ranks_of_node.assign(static_cast<size_t>(nodes), 1);
  const int sharing = (ranks_per_node + topology.between.ports - 1) / topology.between.ports;
  between.between.ports = 1;
  const Sizes of_place = {static_cast<double>(local), static_cast<double>(part), sizes.element,
                          part, nodes};
  BRIGADE_ASSIGN_OR_RETURN(CodecCost signs, CostOfOneBit(between, of_place));
  for (Phase& phase : signs.phases) phase.between.bytes *= sharing;
  cost.phases.insert(cost.phases.end(), signs.phases.begin(), signs.phases.end());
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<Phase> gather,
                           PhasesOf(inside, Algorithm::kDirect, CollectiveKind::kAllGather, bytes));
  cost.phases.insert(cost.phases.end(), gather.begin(), gather.end());
  cost.memory_bytes = signs.memory_bytes;
  return cost;
}

// What both of these do with an array before and after: errors are saved, and the array is added to
// them; where it has 16 bits, the mean is written from one in fp32.
double BytesWithErrors(const Sizes& sizes) { return sizes.whole * (8 + sizes.element + 8); }

absl::StatusOr<CodecCost> CostOfPowerSgd(const Topology& topology, const CodecSettings& settings,
                                         const Sizes& sizes) {
  const double side =
      std::min(static_cast<double>(settings.matrix_side), std::floor(std::sqrt(sizes.whole)));
  if (4 * settings.rank >= side) {
    return Refuse(Codec::kPowerSgd, "saves nothing by rank ", settings.rank,
                  " of matrices with sides of ", side, " elements");
  }
  // Of P, and so many of Q.
  const auto factors = static_cast<int64_t>(std::ceil(settings.rank * sizes.whole / side));
  const int64_t bytes = factors * static_cast<int64_t>(sizeof(float));
  CodecCost cost;
  BRIGADE_ASSIGN_OR_RETURN(
      cost.phases, PhasesOf(topology, Algorithm::kDirect, CollectiveKind::kAllReduce, bytes));
  const std::vector<Phase> first = cost.phases;
  cost.phases.insert(cost.phases.end(), first.begin(), first.end());
  // Both products read the matrix, and the product is written beside what it leaves.
  const double narrowed = sizes.element == 4 ? 0 : 4 + sizes.element;
  cost.memory_bytes = BytesWithErrors(sizes) + sizes.whole * (4 + 4 + 12 + narrowed);
  return cost;
}

absl::StatusOr<CodecCost> CostOfTopK(const Topology& topology, const CodecSettings& settings,
                                     const Sizes& sizes) {
  constexpr double kPairBytes = sizeof(int32_t) + sizeof(float);
  const double message = std::ceil(settings.density * sizes.whole) * kPairBytes;
  CodecCost cost;
  BRIGADE_ASSIGN_OR_RETURN(cost.phases, BestPhases(topology, CollectiveKind::kAllGather,
                                                   sizes.ranks * static_cast<int64_t>(message)));
  // Selection reads the errors five times on a GPU; the mean is written once.
  cost.memory_bytes =
      BytesWithErrors(sizes) + sizes.whole * (20 + sizes.element) + message * (1 + sizes.ranks);
  return cost;
}

absl::Status CheckSettings(const CodecSettings& settings) {
  if (settings.rank < 1 || settings.rank > kernels::kMaxLowRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", settings.rank, ", must be 1 to ", kernels::kMaxLowRank));
  }
  if (settings.matrix_side < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix_side is ", settings.matrix_side, ", must be 1 or more"));
  }
  if (settings.density >= 0 && settings.density <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("density is ", settings.density, ", must be 0 to 1"));
}

}  // namespace

absl::string_view Name(Codec codec) {
  switch (codec) {
    case Codec::kNone:
      return "none";
    case Codec::kInt8:
      return "int8";
    case Codec::kInt4:
      return "int4";
    case Codec::kOneBit:
      return "one_bit";
    case Codec::kPowerSgd:
      return "power_sgd";
    case Codec::kTopK:
      return "top_k";
  }
  return "?";
}

absl::StatusOr<CodecCost> CodecCostOf(const Topology& topology, Codec codec,
                                      CollectiveKind operation, int64_t elements,
                                      precision::DType dtype, const CodecSettings& settings) {
  BRIGADE_RETURN_IF_ERROR(Validate(topology));
  BRIGADE_RETURN_IF_ERROR(CheckSettings(settings));
  if (elements < 0 || elements > kMaxCollectiveBytes / 4) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", elements, " elements"));
  }
  if (!precision::IsTrainingFormat(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the array is ", precision::ShortName(dtype), ", must be fp32, fp16 or bf16"));
  }
  const int64_t bytes = precision::SizeOf(dtype);
  if (codec == Codec::kNone) {
    CodecCost cost;
    BRIGADE_ASSIGN_OR_RETURN(cost.phases, BestPhases(topology, operation, elements * bytes));
    return cost;
  }
  const bool scatters = operation == CollectiveKind::kReduceScatter;
  const bool gathers = operation == CollectiveKind::kAllGather;
  const bool of_blocks = codec == Codec::kInt8 || codec == Codec::kInt4;
  const bool exists = of_blocks ? scatters || gathers : operation == CollectiveKind::kAllReduce;
  if (!exists) return Refuse(codec, "has no ", Name(operation));
  if (topology.memory_bytes_per_s == 0) {
    return Refuse(codec, "takes a rank's memory, whose bandwidth the topology does not know");
  }
  const int ranks = topology.ranks();
  const int64_t part = (elements + ranks - 1) / ranks;
  const Sizes sizes = {static_cast<double>(elements), static_cast<double>(part),
                       static_cast<double>(bytes), part, ranks};
  if (codec == Codec::kOneBit) {
    return HasTwoHops(topology) ? CostOfOneBitInTwoHops(topology, sizes)
                                : CostOfOneBit(topology, sizes);
  }
  if (codec == Codec::kPowerSgd) return CostOfPowerSgd(topology, settings, sizes);
  if (codec == Codec::kTopK) return CostOfTopK(topology, settings, sizes);
  const kernels::QuantFormat format =
      codec == Codec::kInt8 ? kernels::QuantFormat::kInt8 : kernels::QuantFormat::kInt4;
  return scatters ? CostOfScatter(topology, format, settings.error_feedback, sizes)
                  : CostOfGather(topology, format, sizes);
}

double SecondsOf(const Topology& topology, const CodecCost& cost) {
  const double memory =
      cost.memory_bytes == 0 ? 0 : cost.memory_bytes / topology.memory_bytes_per_s;
  return SecondsOf(topology, cost.phases) + memory;
}

absl::StatusOr<CodecChoice> SelectCodec(const Topology& topology, CollectiveKind operation,
                                        int64_t elements, precision::DType dtype,
                                        absl::Span<const Codec> codecs,
                                        const CodecSettings& settings) {
  std::vector<CodecChoice> choices;
  std::vector<std::string> refused;
  for (const Codec codec : codecs) {
    const auto cost = CodecCostOf(topology, codec, operation, elements, dtype, settings);
    if (absl::IsFailedPrecondition(cost.status())) {
      refused.emplace_back(cost.status().message());
      continue;
    }
    if (!cost.ok()) return cost.status();
    choices.push_back({codec, SecondsOf(topology, *cost), ""});
  }
  const std::string what =
      absl::StrCat(Name(operation), " of ", ShowBytes(elements * precision::SizeOf(dtype)), " in ",
                   precision::ShortName(dtype));
  if (choices.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no codec in ", what, ": ",
                     refused.empty() ? "none was given" : absl::StrJoin(refused, "; ")));
  }
  const auto faster = [](const CodecChoice& a, const CodecChoice& b) {
    return a.seconds < b.seconds;
  };
  std::stable_sort(choices.begin(), choices.end(), faster);
  CodecChoice& best = choices.front();
  best.reason = absl::StrCat(Name(best.codec), " in ", what, ": ", ShowSeconds(best.seconds));
  if (choices.size() > 1) {
    absl::StrAppend(&best.reason, ", before ", Name(choices[1].codec), " with ",
                    ShowSeconds(choices[1].seconds));
  }
  return best;
}

}  // namespace brigade::collectives
