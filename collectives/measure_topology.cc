#include "brigade/collectives/measure_topology.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/cost_model.h"
#include "brigade/collectives/nodes.h"
#include "brigade/device/buffer.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/reduce/reduce.h"

namespace brigade::collectives {
namespace {

constexpr int kRounds = 7;
constexpr int kSmallCalls = 16;          // in a row, so that the host's wait counts little
constexpr double kLargeSeconds = 20e-3;  // beside which waking up counts little
constexpr double kNearlyWhole = 0.1;     // one connection alone need not fill a port
constexpr double kLeastSeconds = 1e-9;   // of what is too fast to be told
constexpr int64_t kElementBytes = sizeof(float);
constexpr int64_t kMostElements = kMostMeasuredBytes / kElementBytes;

absl::Status CheckOrder(const Nodes& nodes) {
  int expected = 0;
  for (const std::vector<int>& ranks : nodes.ranks) {
    for (const int rank : ranks) {
      if (rank != expected) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, " is on the node of rank ", ranks[0], ", and rank ",
                         expected, " is not: ranks are not numbered node by node"));
      }
      ++expected;
    }
  }
  return absl::OkStatus();
}

class Measurement {
 public:
  Measurement(Communicator& world, device::Stream& stream, device::Buffer array)
      : world_(world), stream_(stream), array_(std::move(array)) {}

  absl::StatusOr<Topology> Run(const Nodes& nodes);

 private:
  using Call = std::function<absl::Status()>;
  struct Rates {
    double together, alone;  // bytes/s of a rank
  };

  Call Barrier(Communicator& group) {
    return [&] { return group.Barrier(stream_); };
  }
  Call Gather(Communicator& group, Algorithm algorithm, int64_t count);

  absl::StatusOr<std::vector<double>> Seconds(int times, const std::vector<Call>& calls);
  absl::StatusOr<Rates> BytesPerSecond(Communicator& group, int members, bool sends_alone);
  absl::StatusOr<double> ReducedBytesPerSecond();
  absl::StatusOr<Level> MeasureLevel(Communicator& group, int members, bool is_first, int ranks);
  absl::Status MeasureCalls(Topology& topology);

  Communicator& world_;
  device::Stream& stream_;
  const device::Buffer array_;
};

// An all-gather of `count` elements of each rank, in place.
Measurement::Call Measurement::Gather(Communicator& group, Algorithm algorithm, int64_t count) {
  return [&group, algorithm, count, this] {
    float* const all = array_.as<float>().data();
    return group.AllGather(all + group.rank() * count, all, count,
                           {precision::DType::kFloat32, algorithm}, stream_);
  };
}

// What each of the calls takes, enqueued `times` in a row by every rank. They take turns, so that what else the machine
// does meanwhile is in all of them: their differences count.
absl::StatusOr<std::vector<double>> Measurement::Seconds(int times,
                                                         const std::vector<Call>& calls) {
  std::vector<std::array<double, kRounds>> seconds(calls.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      for (int j = 0; j < times; ++j) BRIGADE_RETURN_IF_ERROR(calls[i]());
      BRIGADE_RETURN_IF_ERROR(stream_.Synchronize());
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      // Also lets all begin the next turn together.
      BRIGADE_ASSIGN_OR_RETURN(all, world_.Exchange({std::bit_cast<int64_t>(elapsed.count())}));
      double slowest = 0;
      for (const int64_t each : all) slowest = std::max(slowest, std::bit_cast<double>(each));
      seconds[i][round] = slowest / times;
    }
  }
  std::vector<double> medians;
  for (auto& rounds : seconds) {
    std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
    medians.push_back(rounds[kRounds / 2]);
  }
  return medians;
}

// Of rings of at most `members` each. What does not grow with the bytes is measured beside, and does not count.
absl::StatusOr<Measurement::Rates> Measurement::BytesPerSecond(Communicator& group, int members,
                                                               bool sends_alone) {
  for (int64_t elements = kMostElements / 128;; elements *= 4) {
    const int64_t count = std::max<int64_t>(1, elements / members);
    const Call small = Gather(group, Algorithm::kRing, 1);
    const Call large = Gather(group, Algorithm::kRing, count);
    const Call alone = sends_alone ? large : [] { return absl::OkStatus(); };
    BRIGADE_ASSIGN_OR_RETURN(seconds, Seconds(1, {small, large, alone}));
    if (seconds[1] < kLargeSeconds && elements * 4 <= kMostElements) continue;
    const auto bytes = static_cast<double>((members - 1) * (count - 1) * kElementBytes);
    const auto rate = [&](double time) {
      return bytes / std::max(time - seconds[0], kLeastSeconds);
    };
    return Rates{rate(seconds[1]), rate(seconds[2])};
  }
}

absl::StatusOr<double> Measurement::ReducedBytesPerSecond() {
  constexpr int64_t kCount = kMostElements / 8;
  float* const sum = array_.as<float>().data();
  BRIGADE_ASSIGN_OR_RETURN(
      seconds, Seconds(1, {[&] {
                         return kernels::Reduce({sum, sum + kCount}, {sum}, kCount, {}, stream_);
                       }}));
  return static_cast<double>(kCount * kElementBytes) / std::max(seconds[0], kLeastSeconds);
}

// A step is what a ring has beyond a barrier. A port is as fast as a rank alone: if all together are faster, there are
// several. `ranks` is how many a node has at most.
absl::StatusOr<Level> Measurement::MeasureLevel(Communicator& group, int members, bool is_first,
                                                int ranks) {
  BRIGADE_ASSIGN_OR_RETURN(
      seconds, Seconds(kSmallCalls, {Barrier(group), Gather(group, Algorithm::kRing, 1)}));
  BRIGADE_ASSIGN_OR_RETURN(rates, BytesPerSecond(group, members, is_first));
  Level level;
  level.call_s = seconds[0];
  level.latency_s = std::max(0.0, seconds[1] - seconds[0]) / (members - 1);
  const double as_fast = std::min<double>(ranks, ranks * rates.together / rates.alone);
  level.ports = std::max(1, static_cast<int>(as_fast + kNearlyWhole));
  level.bytes_per_s = rates.together * ((ranks + level.ports - 1) / level.ports);
  return level;
}

// What a direct exchange of all takes beyond its one step is by messages that wait for another.
absl::Status Measurement::MeasureCalls(Topology& topology) {
  BRIGADE_ASSIGN_OR_RETURN(
      seconds, Seconds(kSmallCalls, {Barrier(world_), Gather(world_, Algorithm::kDirect, 1)}));
  topology.call_s = seconds[0];
  BRIGADE_ASSIGN_OR_RETURN(phases, PhasesOf(topology, Route::kDirect, CallKind::kAllGather,
                                            topology.ranks() * kElementBytes));
  if (phases.empty() || phases.front().queued == 0) return absl::OkStatus();
  topology.message_s = std::max(0.0, seconds[1] - SecondsOf(topology, phases)) /
                       static_cast<double>(phases.front().queued);
  return absl::OkStatus();
}

absl::StatusOr<Topology> Measurement::Run(const Nodes& nodes) {
  Topology topology;
  for (const auto& ranks : nodes.ranks) {
    topology.ranks_of_node.push_back(static_cast<int>(ranks.size()));
  }
  const int most = *std::max_element(topology.ranks_of_node.begin(), topology.ranks_of_node.end());
  BRIGADE_RETURN_IF_ERROR(stream_.FillBytes(array_.data(), 0, array_.bytes()));
  BRIGADE_ASSIGN_OR_RETURN(reduced_bytes_per_s, ReducedBytesPerSecond());
  topology.reduced_bytes_per_s = reduced_bytes_per_s;
  topology.inside.bytes_per_s = reduced_bytes_per_s;  // of a rank alone: there is no link
  if (most > 1) {
    BRIGADE_ASSIGN_OR_RETURN(group, world_.Split(nodes.node, nodes.place));
    BRIGADE_ASSIGN_OR_RETURN(level, MeasureLevel(*group, most, true, 1));
    topology.inside = level;
  }
  topology.between = topology.inside;
  if (topology.nodes() > 1) {
    BRIGADE_ASSIGN_OR_RETURN(group, world_.Split(nodes.place, nodes.node));
    BRIGADE_ASSIGN_OR_RETURN(level, MeasureLevel(*group, topology.nodes(), nodes.place == 0, most));
    topology.between = level;
    if (most == 1) topology.inside = level;
  }
  BRIGADE_RETURN_IF_ERROR(MeasureCalls(topology));
  return topology;
}

}  // namespace

absl::StatusOr<Topology> MeasureTopology(Communicator& world, int64_t node,
                                         device::Context& context, device::Stream& stream) {
  BRIGADE_ASSIGN_OR_RETURN(nodes, FindNodes(world, node));
  BRIGADE_RETURN_IF_ERROR(CheckOrder(nodes));
  BRIGADE_ASSIGN_OR_RETURN(
      array,
      context.Allocate(kMostMeasuredBytes, device::Purpose::kCommunication, "measured topology"));
  return Measurement(world, stream, std::move(array)).Run(nodes);
}

}  // namespace brigade::collectives
