#include "brigade/collectives/measurement/measure.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/measurement/nodes.h"
#include "brigade/collectives/tuning/cost_model.h"
#include "brigade/device/buffer.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/kernels/reduce/reduce.h"

namespace brigade::collectives {
namespace {

// Rounds in which calls take turns, and how many of each are in a row there.
struct Sample {
  int rounds, calls;
};
// So many in a row that the host's wait counts little.
constexpr Sample kSmall = {15, 8};
constexpr Sample kLarge = {7, 1};
constexpr Sample kTrial = {3, 1};
// Of a large call: waking up counts little beside it.
constexpr double kLargeSeconds = 20e-3;
// A rank alone need not fill a port: what lacks no more than this of one more port counts as one.
constexpr double kNearlyWhole = 0.1;
// Of a large call's time its bytes take at least this share, whatever the noise of a small one.
constexpr double kLeastShare = 0.5;
// What is too fast to be told takes as long.
constexpr double kLeastSeconds = 1e-9;
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

  absl::StatusOr<std::vector<double>> Seconds(Sample sample, const std::vector<Call>& calls);
  absl::StatusOr<Rates> BytesPerSecond(Communicator& group, int members, bool sends_alone);
  absl::StatusOr<double> ReducedBytesPerSecond();
  absl::StatusOr<double> CodecBytesPerSecond();
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
    return group.AllGather(all + group.rank() * count, all, count, precision::DType::kFloat32,
                           {algorithm}, stream_);
  };
}

// What each of the calls takes, enqueued some in a row by every rank. They take turns, so that what
// else the machine does meanwhile is in all of them: their differences count.
absl::StatusOr<std::vector<double>> Measurement::Seconds(Sample sample,
                                                         const std::vector<Call>& calls) {
  std::vector<std::vector<double>> seconds(calls.size());
  for (int round = 0; round < sample.rounds; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      for (int j = 0; j < sample.calls; ++j) BRIGADE_RETURN_IF_ERROR(calls[i]());
      BRIGADE_RETURN_IF_ERROR(stream_.Synchronize());
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      // Also lets all begin the next turn together.
      BRIGADE_ASSIGN_OR_RETURN(auto all,
                               world_.AllGatherHost({std::bit_cast<int64_t>(elapsed.count())}));
      double slowest = 0;
      for (const int64_t each : all) slowest = std::max(slowest, std::bit_cast<double>(each));
      seconds[i].push_back(slowest / sample.calls);
    }
  }
  std::vector<double> medians;
  for (auto& rounds : seconds) {
    const auto median = rounds.begin() + sample.rounds / 2;
    std::nth_element(rounds.begin(), median, rounds.end());
    medians.push_back(*median);
  }
  return medians;
}

// Of rings of at most `members` each. What does not grow with the bytes is measured beside, and
// does not count.
absl::StatusOr<Measurement::Rates> Measurement::BytesPerSecond(Communicator& group, int members,
                                                               bool sends_alone) {
  for (int64_t elements = kMostElements / 128;; elements *= 4) {
    const int64_t count = std::max<int64_t>(1, elements / members);
    const Call small = Gather(group, Algorithm::kRing, 1);
    const Call large = Gather(group, Algorithm::kRing, count);
    const Call alone = sends_alone ? large : [] { return absl::OkStatus(); };
    BRIGADE_ASSIGN_OR_RETURN(auto trial, Seconds(kTrial, {small, large}));
    if (trial[1] - trial[0] < kLargeSeconds && elements * 4 <= kMostElements) continue;
    BRIGADE_ASSIGN_OR_RETURN(auto seconds, Seconds(kLarge, {small, large, alone}));
    const auto bytes = static_cast<double>((members - 1) * (count - 1) * kElementBytes);
    const auto rate = [&](double time) {
      return bytes / std::max({time - seconds[0], time * kLeastShare, kLeastSeconds});
    };
    return Rates{rate(seconds[1]), rate(seconds[2])};
  }
}

absl::StatusOr<double> Measurement::ReducedBytesPerSecond() {
  constexpr int64_t kCount = kMostElements / 8;
  float* const sum = array_.as<float>().data();
  BRIGADE_ASSIGN_OR_RETURN(
      auto seconds,
      Seconds(kLarge, {[&] {
                return kernels::Reduce({sum, sum + kCount}, {sum}, kCount, {}, stream_);
              }}));
  return static_cast<double>(kCount * kElementBytes) / std::max(seconds[0], kLeastSeconds);
}

// Of an array that becomes int8 codes, and of codes that become an array.
absl::StatusOr<double> Measurement::CodecBytesPerSecond() {
  constexpr int64_t kCount = kMostElements / 2;
  constexpr auto kFormat = kernels::QuantFormat::kInt8;
  float* const array = array_.as<float>().data();
  void* const codes = array + kCount;
  const kernels::BlockQuantOptions options = {.format = kFormat};
  BRIGADE_ASSIGN_OR_RETURN(
      auto seconds,
      Seconds(kLarge,
              {[&] {
                 return kernels::BlockQuantize({{array, codes, kCount}}, options, stream_);
               },
               [&] {
                 return kernels::BlockDequantize({{codes, array, kCount}}, options, stream_);
               }}));
  const int64_t bytes = kCount * kElementBytes + kernels::QuantBytes(kCount, kFormat);
  return 2 * static_cast<double>(bytes) / std::max(seconds[0] + seconds[1], kLeastSeconds);
}

// A step is what a ring has beyond a barrier. A port is as fast as a rank alone: if all together
// are faster, there are several. `ranks` is how many a node has at most.
absl::StatusOr<Level> Measurement::MeasureLevel(Communicator& group, int members, bool is_first,
                                                int ranks) {
  BRIGADE_ASSIGN_OR_RETURN(auto seconds,
                           Seconds(kSmall, {Barrier(group), Gather(group, Algorithm::kRing, 1)}));
  BRIGADE_ASSIGN_OR_RETURN(auto rates, BytesPerSecond(group, members, is_first));
  Level level;
  level.latency_s = std::max(0.0, seconds[1] - seconds[0]) / (members - 1);
  const double as_fast = std::min<double>(ranks, ranks * rates.together / rates.alone);
  level.ports = std::max(1, static_cast<int>(as_fast + kNearlyWhole));
  level.bytes_per_s = rates.together * ((ranks + level.ports - 1) / level.ports);
  return level;
}

// What a direct exchange of all takes beyond its one step is by messages that wait for another.
absl::Status Measurement::MeasureCalls(Topology& topology) {
  BRIGADE_ASSIGN_OR_RETURN(
      auto seconds, Seconds(kSmall, {Barrier(world_), Gather(world_, Algorithm::kDirect, 1)}));
  topology.call_s = seconds[0];
  BRIGADE_ASSIGN_OR_RETURN(auto phases,
                           PhasesOf(topology, Algorithm::kDirect, CollectiveKind::kAllGather,
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
  BRIGADE_ASSIGN_OR_RETURN(auto reduced_bytes_per_s, ReducedBytesPerSecond());
  topology.reduced_bytes_per_s = reduced_bytes_per_s;
  BRIGADE_ASSIGN_OR_RETURN(topology.memory_bytes_per_s, CodecBytesPerSecond());
  topology.inside.bytes_per_s = reduced_bytes_per_s;  // of a rank alone: there is no link
  BRIGADE_ASSIGN_OR_RETURN(auto inside, world_.Split(nodes.node, nodes.place));
  BRIGADE_ASSIGN_OR_RETURN(auto between, world_.Split(nodes.place, nodes.node));
  if (most > 1) {
    BRIGADE_ASSIGN_OR_RETURN(topology.inside, MeasureLevel(*inside, most, true, 1));
  }
  topology.between = topology.inside;
  if (topology.nodes() > 1) {
    BRIGADE_ASSIGN_OR_RETURN(auto level,
                             MeasureLevel(*between, topology.nodes(), nodes.place == 0, most));
    topology.between = level;
    if (most == 1) topology.inside = level;
  }
  BRIGADE_RETURN_IF_ERROR(MeasureCalls(topology));
  return topology;
}

}  // namespace

absl::StatusOr<Topology> MeasureTopology(Communicator& world, int64_t node,
                                         device::Context& context, device::Stream& stream) {
  BRIGADE_ASSIGN_OR_RETURN(auto nodes, FindNodes(world, node));
  BRIGADE_RETURN_IF_ERROR(CheckOrder(nodes));
  BRIGADE_ASSIGN_OR_RETURN(
      auto array,
      context.Allocate(kMostMeasuredBytes, device::Purpose::kCommunication, "measured topology"));
  return Measurement(world, stream, std::move(array)).Run(nodes);
}

}  // namespace brigade::collectives
