#ifndef BRIGADE_TRAIN_CONFIG_CONFIG_NODES_H_
#define BRIGADE_TRAIN_CONFIG_CONFIG_NODES_H_

// Which ranks are on one node, and what follows from it.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/options.h"
#include "brigade/collectives/tuning/topology.h"
#include "brigade/train/config/config_grid.h"
#include "brigade/train/config/config_keys.h"

namespace brigade::train {

// Relative paths begin at the config's folder.
std::string InFolder(absl::string_view folder, const std::string& path);

// Of `ranks` ranks, by brigade.topology and brigade.ranks_per_node; none without both. Errors name
// the former.
absl::StatusOr<std::optional<collectives::Topology>> NodesOf(const Settings& settings, int ranks,
                                                             absl::string_view folder);

// InvalidArgument where the algorithm needs nodes of one size, and they are of several.
absl::Status CheckNodes(collectives::Algorithm algorithm,
                        const collectives::CommunicatorOptions& communicator);

// The way of codes of gradients, and of signs.
struct Hops {
  // ZeroOptions'; 0: they go in one hop.
  int node_ranks = 0;
  // Why they do, where there are nodes for two; else empty.
  std::string why_one = {};
};

// Two, inside nodes and between them, where the ranks that share a state are several whole nodes of
// one size, and have no part in a model that others share.
Hops HopsOf(const collectives::CommunicatorOptions& communicator, int model_ranks, int sharers);

// For TrainConfig::without_effect, naming the key that has the nodes.
std::string OneHopText(const Said& said, absl::string_view why_one);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_CONFIG_NODES_H_
