#ifndef BRIGADE_TESTS_REPLICAS_REPLICA_JOB_H_
#define BRIGADE_TESTS_REPLICAS_REPLICA_JOB_H_

// Replicas of small trainings for tests: ranks in order, each replica's first.

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/status_macros.h"
#include "brigade/replicas/outer_optimizer.h"
#include "brigade/replicas/replica_groups.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/zero/shard_groups.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::replicas {

// Changes an OuterOptimizer in ways that only a test wants.
class OuterOptimizerTestPeer {
 public:
  using WaitPoint = OuterOptimizer::WaitPoint;

  static void OmitWait(OuterOptimizer& outer, WaitPoint point) { outer.omitted_ = point; }
};

// A rank of a replica. Destroyed in reverse order.
struct Member {
  ReplicaGroups groups;
  // Of the replica's ranks, with ZeroOptions::shard_ranks.
  zero::ShardGroups shards;
  std::unique_ptr<zero::ZeroOptimizer> zero;
  std::unique_ptr<OuterOptimizer> outer;
  int replica = 0;
};

// `initialize` and Join are the caller's.
inline absl::StatusOr<Member> CreateMember(const zero::ModelSpec& model,
                                           const zero::ZeroOptions& zero_options,
                                           const OuterOptions& options, int replicas,
                                           collectives::Rank& self) {
  Member member;
  BRIGADE_ASSIGN_OR_RETURN(member.groups, ReplicaGroups::Create(*self.communicator, replicas));
  member.replica = self.rank / (self.size / replicas);
  collectives::Communicator& inside = *member.groups.inside;
  if (zero_options.shard_ranks > 0) {
    BRIGADE_ASSIGN_OR_RETURN(member.shards,
                             zero::ShardGroups::Create(inside, zero_options.shard_ranks));
  }
  const bool has_groups = zero_options.shard_ranks > 0;
  BRIGADE_ASSIGN_OR_RETURN(
      member.zero,
      zero::ZeroOptimizer::Create(model, zero_options, has_groups ? *member.shards.shards : inside,
                                  *self.context, *self.stream,
                                  has_groups ? member.shards.Outer(inside) : zero::OuterGroups()));
  BRIGADE_ASSIGN_OR_RETURN(
      member.outer,
      OuterOptimizer::Create(*member.zero, options, *member.groups.inside, *self.context));
  return member;
}

// Units of one fp32 parameter each, in buckets of their own; plain SGD.
inline zero::ModelSpec Lines(int units, int64_t size) {
  zero::ModelSpec model;
  for (int u = 0; u < units; ++u) {
    const std::string name = "line" + std::to_string(u);
    model.push_back({name, {{.name = name + ".w", .size = size}}, {}});
  }
  return model;
}
inline zero::ZeroOptions Plain(int stage, double lr) {
  zero::ZeroOptions options;
  options.stage = stage;
  options.dtype = precision::DType::kFloat32;
  options.optimizer.kind = optim::OptimizerKind::kSgd;
  options.optimizer.groups = {{.lr = lr}};
  return options;
}

// A step in which element i of each gradient of Lines has the value gradient(i).
inline absl::Status StepAlong(Member& member, collectives::Rank& self,
                              const std::function<float(int64_t i)>& gradient) {
  zero::ZeroOptimizer& zero = *member.zero;
  const int units = static_cast<int>(zero.plan().units().size());
  for (int u = 0; u < units; ++u) {
    zero::UnitScope scope(zero, u, zero::Pass::kForward);
    BRIGADE_RETURN_IF_ERROR(scope.Release());
  }
  for (int u = units; u-- > 0;) {
    zero::UnitScope scope(zero, u, zero::Pass::kBackward);
    const zero::ParameterSpec& spec = zero.plan().parameter(u).spec;
    if (spec.trainable) {
      const zero::GradientTarget target = scope.gradient(u);
      BRIGADE_RETURN_IF_ERROR(scope.status());
      std::vector<float> values(static_cast<size_t>(spec.size));
      for (size_t i = 0; i < values.size(); ++i) values[i] = gradient(static_cast<int64_t>(i));
      BRIGADE_RETURN_IF_ERROR(self.stream->Enqueue(
          {"gradient", {device::Writes(target.data, spec.size * 4)}},
          [values, target](device::ThreadPool&) {
            std::memcpy(target.data, values.data(), values.size() * sizeof(float));
            return absl::OkStatus();
          }));
    }
    BRIGADE_RETURN_IF_ERROR(scope.Release());
    BRIGADE_RETURN_IF_ERROR(zero.GradientsReady(u));
  }
  BRIGADE_RETURN_IF_ERROR(zero.FinishBackward());
  return zero.Step();
}
inline absl::Status StepAlong(Member& member, collectives::Rank& self, float gradient) {
  return StepAlong(member, self, [gradient](int64_t) { return gradient; });
}

// All parameters with this value.
inline absl::Status SetAll(Member& member, float value) {
  return member.zero->InitializeParameters([&](int, absl::Span<float> values) {
    for (float& each : values) each = value;
    return absl::OkStatus();
  });
}

// The master of this replica, parameter after parameter; and w0, of stage 0 or a replica of one
// rank.
inline absl::StatusOr<std::vector<float>> Masters(zero::ZeroOptimizer& zero) {
  std::vector<std::vector<float>> by_parameter(zero.plan().parameters().size());
  BRIGADE_RETURN_IF_ERROR(zero.ExportParameters([&](int p, absl::Span<const float> values) {
    by_parameter[static_cast<size_t>(p)].assign(values.begin(), values.end());
    return absl::OkStatus();
  }));
  std::vector<float> all;
  for (const auto& each : by_parameter) all.insert(all.end(), each.begin(), each.end());
  return all;
}

}  // namespace brigade::replicas

#endif  // BRIGADE_TESTS_REPLICAS_REPLICA_JOB_H_
