// Prints what a collective should take: bazel run //collectives/tuning:predict -- --ranks=16384
// --operation=all_reduce

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/collectives/tuning/codec_cost.h"
#include "brigade/collectives/tuning/cost_model.h"
#include "brigade/collectives/tuning/select.h"
#include "brigade/collectives/tuning/topology.h"
#include "brigade/device/command_line.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/orthogonalize/orthogonalize_math.h"
#include "brigade/precision/dtype.h"
#include "brigade/precision/dtype_names.h"

ABSL_FLAG(std::string, topology, "",
          "a JSON file as collectives/tuning/topology.h describes it; without, nodes of 8 H100");
ABSL_FLAG(int, ranks, 0, "without, the file's ranks_of_node");
ABSL_FLAG(int, ranks_per_node, 8, "with --ranks; the last node has those that are left");
ABSL_FLAG(std::string, operation, "all_reduce", "all_reduce, reduce_scatter or all_gather");
ABSL_FLAG(brigade::precision::DType, dtype, brigade::precision::DType::kBFloat16,
          "of the array, for codecs: fp32, fp16 or bf16");
ABSL_FLAG(int, low_rank, 4, "of codec power_sgd: the columns of a matrix's factors, 1 to 128");
ABSL_FLAG(double, density, 0.001, "of codec top_k: the share of the elements that a rank sends");
ABSL_FLAG(bool, tsv, false, "one line for each size and algorithm, to be read by programs");

namespace brigade::collectives {
namespace {

constexpr char kPreset[] = "collectives/tuning/topologies/hgx_h100.json";
constexpr int64_t kMinBytes = 1 << 10;
constexpr int64_t kMaxBytes = int64_t{1} << 32;

struct Prediction {
  int64_t bytes;
  // As kModelledAlgorithms; none where one does not exist.
  std::vector<std::optional<double>> seconds;
};

absl::StatusOr<Topology> TopologyOfFlags() {
  const std::string flag = absl::GetFlag(FLAGS_topology);
  const std::string path = flag.empty() ? device::DataFile(kPreset) : device::FromUsersFolder(flag);
  BRIGADE_ASSIGN_OR_RETURN(const std::string text, device::ReadFile(path));
  BRIGADE_ASSIGN_OR_RETURN(auto topology, TopologyFromJson(text));
  const int ranks = absl::GetFlag(FLAGS_ranks), per_node = absl::GetFlag(FLAGS_ranks_per_node);
  if (ranks < 0 || ranks > kMaxModelledRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks is ", ranks, "; it must be 1 to ", kMaxModelledRanks));
  }
  if (per_node < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks_per_node is ", per_node, "; it must be at least 1"));
  }
  if (ranks > 0) topology.ranks_of_node = RanksOfNodes(ranks, per_node);
  BRIGADE_RETURN_IF_ERROR(Validate(topology));
  return topology;
}

absl::StatusOr<CollectiveKind> OperationOfFlags() {
  const std::string name = absl::GetFlag(FLAGS_operation);
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
    if (name == Name(kind)) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--operation is \"", name, "\"; it must be all_reduce, reduce_scatter or all_gather"));
}

absl::Status CheckCodecFlags() {
  const int rank = absl::GetFlag(FLAGS_low_rank);
  const double density = absl::GetFlag(FLAGS_density);
  if (rank < 1 || rank > kernels::kMaxLowRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("--low_rank is ", rank, "; it must be 1 to ", kernels::kMaxLowRank));
  }
  if (density >= 0 && density <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--density is ", density, "; it must be 0 to 1"));
}

absl::StatusOr<std::vector<Prediction>> Predict(const Topology& topology,
                                                CollectiveKind operation) {
  std::vector<Prediction> predictions;
  for (int64_t bytes = kMinBytes; bytes <= kMaxBytes; bytes *= 4) {
    predictions.push_back({bytes, {}});
    for (const Algorithm algorithm : kModelledAlgorithms) {
      const auto phases = PhasesOf(topology, algorithm, operation, bytes);
      std::optional<double>& seconds = predictions.back().seconds.emplace_back();
      if (phases.ok()) {
        seconds = SecondsOf(topology, *phases);
      } else if (!absl::IsFailedPrecondition(phases.status())) {
        return phases.status();
      }
    }
  }
  return predictions;
}

// A table with a column for each algorithm and a row for each size; show(bytes, seconds) is a cell.
template <typename Show>
void PrintTable(const char* title, const std::vector<Prediction>& predictions, const Show& show) {
  const auto width = [](size_t i) {
    return std::max<int>(9, static_cast<int>(Name(kModelledAlgorithms[i]).size()));
  };
  std::printf("%s\n%8s", title, "");
  for (size_t i = 0; i < std::size(kModelledAlgorithms); ++i) {
    std::printf(" %*s ", width(i), std::string(Name(kModelledAlgorithms[i])).c_str());
  }
  for (const Prediction& each : predictions) {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& seconds : each.seconds) best = std::min(best, seconds.value_or(best));
    std::printf("\n%8s", ShowBytes(each.bytes).c_str());
    for (size_t i = 0; i < std::size(kModelledAlgorithms); ++i) {
      const auto& seconds = each.seconds[i];
      const std::string cell = seconds.has_value() ? show(each.bytes, *seconds) : "-";
      std::printf(" %*s%c", width(i), cell.c_str(), seconds == best ? '*' : ' ');
    }
  }
  std::printf("\n\n");
}

// A row for each size, with what each codec of the operation takes, and the one that pays.
absl::Status PrintCodecs(const Topology& topology, CollectiveKind operation) {
  const precision::DType dtype = absl::GetFlag(FLAGS_dtype);
  const CodecSettings settings = {.rank = absl::GetFlag(FLAGS_low_rank),
                                  .density = absl::GetFlag(FLAGS_density)};
  const auto cost_of = [&](Codec codec, int64_t bytes) {
    return CodecCostOf(topology, codec, operation, bytes / precision::SizeOf(dtype), dtype,
                       settings);
  };
  BRIGADE_RETURN_IF_ERROR(cost_of(Codec::kNone, kMaxBytes).status());
  std::vector<Codec> codecs;
  for (const Codec codec : kCodecs) {
    if (cost_of(codec, kMaxBytes).ok()) codecs.push_back(codec);
  }
  if (codecs.size() < 2) return absl::OkStatus();
  std::printf("\nPredicted time of an array of %s as codes (* the shortest)\n%8s",
              std::string(precision::ShortName(dtype)).c_str(), "");
  for (const Codec codec : codecs) std::printf(" %9s ", std::string(Name(codec)).c_str());
  for (int64_t bytes = kMinBytes; bytes <= kMaxBytes; bytes *= 4) {
    const int64_t elements = bytes / precision::SizeOf(dtype);
    BRIGADE_ASSIGN_OR_RETURN(const CodecChoice best,
                             SelectCodec(topology, operation, elements, dtype, codecs, settings));
    std::printf("\n%8s", ShowBytes(bytes).c_str());
    for (const Codec codec : codecs) {
      // Small matrices have no factors.
      const auto cost = cost_of(codec, bytes);
      std::printf(" %9s%c", cost.ok() ? ShowSeconds(SecondsOf(topology, *cost)).c_str() : "-",
                  codec == best.codec ? '*' : ' ');
    }
  }
  std::printf("\n");
  return absl::OkStatus();
}

absl::Status Main() {
  BRIGADE_ASSIGN_OR_RETURN(auto topology, TopologyOfFlags());
  BRIGADE_ASSIGN_OR_RETURN(auto operation, OperationOfFlags());
  BRIGADE_RETURN_IF_ERROR(CheckCodecFlags());
  BRIGADE_ASSIGN_OR_RETURN(auto predictions, Predict(topology, operation));
  const auto gigabytes_per_s = [&](int64_t bytes, double seconds) {
    return BusBandwidth(operation, topology.ranks(), bytes, seconds) / 1e9;
  };
  if (absl::GetFlag(FLAGS_tsv)) {
    std::printf("bytes\talgorithm\tseconds\tbusbw_gigabytes_per_s\n");
    for (const Prediction& each : predictions) {
      for (size_t i = 0; i < each.seconds.size(); ++i) {
        if (!each.seconds[i].has_value()) continue;
        std::printf("%lld\t%s\t%.6g\t%.6g\n", static_cast<long long>(each.bytes),
                    std::string(Name(kModelledAlgorithms[i])).c_str(), *each.seconds[i],
                    gigabytes_per_s(each.bytes, *each.seconds[i]));
      }
    }
    return absl::OkStatus();
  }
  const std::string machine = absl::GetFlag(FLAGS_topology);
  std::printf("%s between %d ranks, nodes: %d; machine: %s\n\n",
              std::string(Name(operation)).c_str(), topology.ranks(), topology.nodes(),
              machine.empty() ? "hgx_h100" : machine.c_str());
  PrintTable("Predicted time (* the shortest)", predictions,
             [](int64_t, double seconds) { return ShowSeconds(seconds); });
  PrintTable("Predicted bus bandwidth, GB/s", predictions, [&](int64_t bytes, double seconds) {
    return absl::StrFormat("%.4g", gigabytes_per_s(bytes, seconds));
  });
  std::printf("What kAuto takes where a sum may be rounded per hop\n");
  for (const Prediction& each : predictions) {
    BRIGADE_ASSIGN_OR_RETURN(auto choice, Select(topology, operation, each.bytes));
    std::printf("%s\n", choice.reason.c_str());
  }
  return PrintCodecs(topology, operation);
}

}  // namespace
}  // namespace brigade::collectives

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv, "Time and bus bandwidth of collectives, by a model of the machine.",
      brigade::collectives::Main);
}
