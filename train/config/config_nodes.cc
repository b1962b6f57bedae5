#include "brigade/train/config/config_nodes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/files.h"
#include "brigade/train/config/json_reader.h"

namespace brigade::train {
namespace {

constexpr char kTopology[] = "brigade.topology";

absl::Status Contradiction(absl::string_view path, const Json& value, absl::string_view why) {
  return absl::InvalidArgumentError(ButText(path, value, why));
}

// "they have 2 to 4 ranks", of nodes of several sizes.
std::string SizesText(const collectives::Topology& nodes) {
  const auto [fewest, most] =
      std::minmax_element(nodes.ranks_of_node.begin(), nodes.ranks_of_node.end());
  return absl::StrCat("they have ", *fewest, " to ", *most, " ranks");
}

}  // namespace

std::string InFolder(absl::string_view folder, const std::string& path) {
  return path.front() == '/' ? path : absl::StrCat(folder, "/", path);
}

absl::StatusOr<std::optional<collectives::Topology>> NodesOf(const Settings& s, int ranks,
                                                             absl::string_view folder) {
  if (!s.topology.has_value() && !s.ranks_per_node.has_value()) return std::nullopt;
  // Nodes alone: all links are alike.
  collectives::Topology topology;
  topology.inside = topology.between = {1e-6, 1e9};
  const Json path = s.topology.value_or("");
  if (s.topology.has_value()) {
    const auto text =
        device::ReadFile(InFolder(folder, *s.topology), checkpoint::JsonLimits().bytes);
    if (!text.ok()) return Contradiction(kTopology, path, text.status().message());
    auto machine = collectives::TopologyFromJson(*text);
    if (!machine.ok()) return Contradiction(kTopology, path, machine.status().message());
    topology = *std::move(machine);
  }
  if (s.ranks_per_node.has_value()) {
    topology.ranks_of_node = collectives::RanksOfNodes(ranks, *s.ranks_per_node);
  }
  if (topology.ranks_of_node.empty()) {
    return Contradiction(kTopology, path,
                         "it has no ranks_of_node: brigade.ranks_per_node is needed");
  }
  if (topology.ranks() != ranks) {
    return Contradiction(kTopology, path,
                         absl::StrCat("its nodes have ", topology.ranks(), " ranks, and ", ranks,
                                      " train; brigade.ranks_per_node would replace them"));
  }
  return topology;
}

absl::Status CheckNodes(collectives::Algorithm algorithm,
                        const collectives::CommunicatorOptions& communicator) {
  const auto& nodes = communicator.topology;
  if (algorithm != collectives::Algorithm::kHierarchical || !nodes.has_value() || nodes->Even()) {
    return absl::OkStatus();
  }
  return Contradiction("brigade.algorithm", "hierarchical",
                       absl::StrCat("it needs nodes of one size, and ", SizesText(*nodes)));
}

Hops HopsOf(const collectives::CommunicatorOptions& communicator, int model_ranks, int sharers) {
  const auto& nodes = communicator.topology;
  if (!nodes.has_value() || nodes->nodes() == 1) return {};
  if (!nodes->Even()) {
    return {.why_one = absl::StrCat("two need nodes of one size, and ", SizesText(*nodes))};
  }
  if (model_ranks > 1) return {.why_one = "two need ranks with the whole model"};
  // Of one rank each, or one node: there is but one hop.
  const int of_node = nodes->ranks_of_node.front();
  if (of_node == 1 || of_node >= sharers) return {};
  if (sharers % of_node == 0) return {.node_ranks = of_node};
  return {.why_one = absl::StrCat("two need whole nodes, of ", of_node, " ranks, and ", sharers,
                                  " ranks share a state")};
}

std::string OneHopText(const Said& said, absl::string_view why_one) {
  const char* const per_node = "brigade.ranks_per_node";
  const char* const key = said.Find(per_node) != nullptr ? per_node : kTopology;
  return absl::StrCat(key, " is ", ShortJson(*said.Find(key)),
                      ": codes of gradients, and signs, go in one hop: ", why_one);
}

}  // namespace brigade::train
