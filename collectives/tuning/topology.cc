#include "brigade/collectives/tuning/topology.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "nlohmann/json.hpp"

namespace brigade::collectives {
namespace {

using Json = nlohmann::json;
// Takes a value and returns nothing, or returns what it must be instead.
using Readers = std::map<std::string, std::function<std::string(const Json&)>>;

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

std::string Quoted(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

absl::Status ReadObject(absl::string_view path, const Json& object, const Readers& readers) {
  if (!object.is_object()) return Invalid(path, " is ", Quoted(object), "; it must be an object");
  for (const auto& [name, value] : object.items()) {
    const auto reader = readers.find(name);
    if (reader == readers.end()) return Invalid(path, " has no key ", Quoted(Json(name)));
    const std::string wanted = reader->second(value);
    if (!wanted.empty()) {
      return Invalid(path, ".", name, " is ", Quoted(value), "; it must be ", wanted);
    }
  }
  return absl::OkStatus();
}

// A number in the file's unit, stored in ours.
auto Number(double* target, double unit) {
  return [=](const Json& value) -> std::string {
    if (!value.is_number()) return "a number";
    *target = value.get<double>() * unit;
    return "";
  };
}

bool IsCount(const Json& value) {
  return value.is_number_integer() && value >= 1 && value <= kMaxModelledRanks;
}
const std::string kCount = absl::StrCat("a whole number from 1 to ", kMaxModelledRanks);

absl::Status ReadLevel(const Json& machine, const char* name, Level& level) {
  const auto object = machine.find(name);
  if (object == machine.end()) return Invalid("the topology has no \"", name, "\"");
  const auto ports = [&level](const Json& value) -> std::string {
    if (!IsCount(value)) return kCount;
    level.ports = value.get<int>();
    return "";
  };
  return ReadObject(absl::StrCat("topology.", name), *object,
                    {{"latency_us", Number(&level.latency_s, 1e-6)},
                     {"gigabytes_per_s", Number(&level.bytes_per_s, 1e9)},
                     {"ports", ports}});
}

absl::Status ValidateLevel(absl::string_view name, const Level& level) {
  const auto wrong = [&](absl::string_view what, double value, absl::string_view wanted) {
    return Invalid("the ", what, " ", name, " is ", value, "; it must be ", wanted);
  };
  if (!(level.latency_s >= 0 && level.latency_s <= 1)) {
    return wrong("latency", level.latency_s, "0 to 1 s");
  }
  if (!(level.bytes_per_s > 0 && std::isfinite(level.bytes_per_s))) {
    return wrong("bandwidth", level.bytes_per_s, "more than 0 bytes/s, and finite");
  }
  if (level.ports < 1) return wrong("number of ports", level.ports, "1 or more");
  return absl::OkStatus();
}

}  // namespace

int Topology::ranks() const {
  return std::accumulate(ranks_of_node.begin(), ranks_of_node.end(), 0);
}

bool Topology::Even() const {
  return std::adjacent_find(ranks_of_node.begin(), ranks_of_node.end(), std::not_equal_to<>()) ==
         ranks_of_node.end();
}

std::vector<int> RanksOfNodes(int ranks, int ranks_per_node) {
  std::vector<int> nodes(ranks / ranks_per_node, ranks_per_node);
  if (ranks % ranks_per_node != 0) nodes.push_back(ranks % ranks_per_node);
  return nodes;
}

absl::StatusOr<std::vector<int>> RanksOfNodes(absl::Span<const int> local_ranks) {
  std::vector<int> nodes;
  for (size_t rank = 0; rank < local_ranks.size(); ++rank) {
    const int local_rank = local_ranks[rank];
    if (local_rank == 0) nodes.push_back(0);
    const int expected = nodes.empty() ? 0 : nodes.back();
    if (local_rank != expected) {
      return Invalid("rank ", rank, " has local rank ", local_rank, " and not ", expected,
                     ": ranks are not numbered node by node");
    }
    ++nodes.back();
  }
  return nodes;
}

std::optional<Topology> SubsetOf(const Topology& topology, absl::Span<const int> ranks) {
  std::vector<int> node_of_rank;
  for (int node = 0; node < topology.nodes(); ++node) {
    node_of_rank.insert(node_of_rank.end(), topology.ranks_of_node[static_cast<size_t>(node)],
                        node);
  }
  Topology subset = topology;
  subset.ranks_of_node.clear();
  std::vector<int> nodes;  // in the order of their first ranks
  for (const int rank : ranks) {
    const int node = node_of_rank[static_cast<size_t>(rank)];
    if (nodes.empty() || nodes.back() != node) {
      if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) return std::nullopt;
      nodes.push_back(node);
      subset.ranks_of_node.push_back(0);
    }
    ++subset.ranks_of_node.back();
  }
  return subset;
}

absl::StatusOr<Topology> TopologyFromJson(absl::string_view text) {
  const Json machine =
      Json::parse(text.begin(), text.end(), /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (machine.is_discarded()) return Invalid("the topology is not JSON");
  Topology topology;
  const auto nodes = [&topology](const Json& value) -> std::string {
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), IsCount)) {
      return absl::StrCat("an array; of each node, ", kCount);
    }
    topology.ranks_of_node = value.get<std::vector<int>>();
    return "";
  };
  const auto later = [](const Json&) { return ""; };
  BRIGADE_RETURN_IF_ERROR(
      ReadObject("topology", machine,
                 {{"source", [](const Json& value) { return value.is_string() ? "" : "a string"; }},
                  {"inside", later},
                  {"between", later},
                  {"reduced_gigabytes_per_s", Number(&topology.reduced_bytes_per_s, 1e9)},
                  {"memory_gigabytes_per_s", Number(&topology.memory_bytes_per_s, 1e9)},
                  {"message_us", Number(&topology.message_s, 1e-6)},
                  {"call_us", Number(&topology.call_s, 1e-6)},
                  {"ranks_of_node", nodes}}));
  BRIGADE_RETURN_IF_ERROR(ReadLevel(machine, "inside", topology.inside));
  BRIGADE_RETURN_IF_ERROR(ReadLevel(machine, "between", topology.between));
  return topology;
}

absl::Status Validate(const Topology& topology) {
  if (topology.ranks_of_node.empty()) return Invalid("the topology has no nodes");
  int64_t ranks = 0;
  for (const int each : topology.ranks_of_node) {
    if (each < 1) return Invalid("a node of the topology has ", each, " ranks");
    ranks += each;
  }
  if (ranks > kMaxModelledRanks) {
    return Invalid("the topology has ", ranks, " ranks, more than ", kMaxModelledRanks);
  }
  if (!(topology.reduced_bytes_per_s > 0)) {
    return Invalid("a rank reduces ", topology.reduced_bytes_per_s,
                   " bytes/s; it must be more than 0");
  }
  if (!(topology.memory_bytes_per_s >= 0 && std::isfinite(topology.memory_bytes_per_s))) {
    return Invalid("a rank's memory has ", topology.memory_bytes_per_s,
                   " bytes/s; it must be finite and not negative");
  }
  for (const auto& [what, seconds] :
       {std::pair("message", topology.message_s), std::pair("call", topology.call_s)}) {
    if (seconds >= 0 && seconds <= 1) continue;
    return Invalid("the time of a ", what, " is ", seconds, "; it must be 0 to 1 s");
  }
  BRIGADE_RETURN_IF_ERROR(ValidateLevel("inside nodes", topology.inside));
  return ValidateLevel("between nodes", topology.between);
}

}  // namespace brigade::collectives
