#include "brigade/replicas/round_plan.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/plan/traffic.h"

namespace brigade::replicas {
namespace {

using device::Purpose;
using device::Tier;

constexpr int64_t kFloat = sizeof(float);

bool IsCompressed(const OuterOptions& options) {
  return options.wire != precision::DType::kFloat32;
}

// Of a round of float16 on the wire: whether ranks agree on a scale first.
bool HasScale(const OuterOptions& options) { return options.wire == precision::DType::kFloat16; }

}  // namespace

absl::StatusOr<std::vector<std::vector<int>>> FragmentsOf(const zero::Plan& plan, int fragments) {
  std::vector<int> trainable;
  int64_t total = 0;
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    if (!plan.buckets()[b].trainable) continue;
    trainable.push_back(static_cast<int>(b));
    total += plan.buckets()[b].size;
  }
  const auto count = static_cast<int>(trainable.size());
  if (count < fragments) {
    return absl::InvalidArgumentError(absl::StrCat("replicas: fragments is ", fragments,
                                                   ", but there are ", count,
                                                   " trainable buckets; smaller ones are more"));
  }
  if (total == 0) {
    return absl::InvalidArgumentError("replicas: no trainable parameter has an element");
  }
  std::vector<std::vector<int>> parts(static_cast<size_t>(fragments));
  int next = 0;
  int64_t before = 0;
  for (int k = 0; k < fragments; ++k) {
    const double wanted = static_cast<double>(total) * (k + 1) / fragments;
    // Each later fragment needs a bucket too.
    const int last = count - (fragments - 1 - k);
    do {
      parts[static_cast<size_t>(k)].push_back(trainable[static_cast<size_t>(next)]);
      before += plan.bucket(trainable[static_cast<size_t>(next)]).size;
      ++next;
      if (next == last) break;
      const double with =
          static_cast<double>(before + plan.bucket(trainable[static_cast<size_t>(next)]).size);
      if (std::abs(with - wanted) > std::abs(static_cast<double>(before) - wanted)) break;
    } while (true);
  }
  return parts;
}

int64_t UpdatedElements(const zero::Plan& plan, const zero::ZeroOptions& options,
                        const zero::Bucket& bucket) {
  return options.traits().whole_optimizer_state ? bucket.size : plan.slice(bucket);
}

absl::StatusOr<std::vector<zero::MemoryTerm>> MemoryOf(const zero::Plan& plan,
                                                       const zero::ZeroOptions& zero_options,
                                                       const OuterOptions& options) {
  BRIGADE_ASSIGN_OR_RETURN(const auto fragments, FragmentsOf(plan, options.fragments));
  const internal::FragmentSizes sizes = internal::SizesOf(fragments, plan, zero_options);
  std::vector<zero::MemoryTerm> terms = {
      {Tier::kDevice, Purpose::kOptimizerState, "outer weights", sizes.all * kFloat},
      {Tier::kDevice, Purpose::kCommunication, "deltas", sizes.largest * kFloat},
      {Tier::kDevice, Purpose::kScratch, "check of deltas",
       sizes.most_tiles * static_cast<int64_t>(sizeof(double)) +
           static_cast<int64_t>(sizeof(kernels::GradStats))},
      {Tier::kHost, Purpose::kScratch, "check of deltas", sizeof(kernels::GradStats)}};
  if (options.momentum > 0) {
    terms.push_back(
        {Tier::kDevice, Purpose::kOptimizerState, "outer momentum", sizes.all * kFloat});
  }
  if (IsCompressed(options)) {
    terms.push_back({Tier::kDevice, Purpose::kCommunication, "deltas on the wire",
                     collectives::CompressedReduction::Bytes(sizes.largest_bucket *
                                                             precision::SizeOf(options.wire))});
  }
  return terms;
}

absl::StatusOr<collectives::Workspace> WorkspaceOfRounds(const zero::Plan& plan,
                                                         const zero::ZeroOptions& zero_options,
                                                         const OuterOptions& options,
                                                         collectives::Communicator& between) {
  collectives::Workspace workspace;
  const auto add = [&](const collectives::CollectiveSignature& signature) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const auto needed, between.WorkspaceFor(signature));
    workspace = collectives::Max(workspace, needed);
    return absl::OkStatus();
  };
  for (const zero::Bucket& bucket : plan.buckets()) {
    if (!bucket.trainable) continue;
    BRIGADE_RETURN_IF_ERROR(
        add(internal::DeltaSumOf(options, UpdatedElements(plan, zero_options, bucket))));
  }
  if (HasScale(options)) BRIGADE_RETURN_IF_ERROR(add(collectives::kAmaxExchange));
  return workspace;
}

absl::StatusOr<std::vector<zero::MemoryTerm>> MemoryOf(const zero::Plan& plan,
                                                       const zero::ZeroOptions& zero_options,
                                                       const OuterOptions& options,
                                                       collectives::Communicator& between) {
  BRIGADE_ASSIGN_OR_RETURN(auto terms, MemoryOf(plan, zero_options, options));
  BRIGADE_ASSIGN_OR_RETURN(const collectives::Workspace workspace,
                           WorkspaceOfRounds(plan, zero_options, options, between));
  terms.push_back(
      {Tier::kDevice, Purpose::kCommunication, "workspace of rounds", workspace.bytes()});
  return terms;
}

absl::StatusOr<RoundTraffic> TrafficOfRound(const zero::Plan& plan,
                                            const zero::ZeroOptions& zero_options,
                                            const OuterOptions& options, int fragment,
                                            collectives::Communicator& inside,
                                            collectives::Communicator& between) {
  BRIGADE_ASSIGN_OR_RETURN(const auto fragments, FragmentsOf(plan, options.fragments));
  RoundTraffic traffic;
  const auto bytes = [](const collectives::CollectiveSignature& signature,
                        collectives::Communicator& group) -> absl::StatusOr<int64_t> {
    BRIGADE_ASSIGN_OR_RETURN(const auto resolved, group.Resolve(signature));
    return collectives::WireBytes(resolved, group.rank(), group.size());
  };
  for (const int b : fragments[static_cast<size_t>(fragment)]) {
    const zero::Bucket& bucket = plan.bucket(b);
    BRIGADE_ASSIGN_OR_RETURN(
        const int64_t deltas,
        bytes(internal::DeltaSumOf(options, UpdatedElements(plan, zero_options, bucket)), between));
    traffic.between += deltas;
    if (HasScale(options)) {
      BRIGADE_ASSIGN_OR_RETURN(const int64_t scale, bytes(collectives::kAmaxExchange, between));
      traffic.between += scale;
    }
    BRIGADE_ASSIGN_OR_RETURN(const int64_t gathered,
                             zero::TrafficOfChangedMaster(plan, zero_options, bucket, inside));
    traffic.parameters += gathered;
  }
  return traffic;
}

absl::StatusOr<RoundTraffic> TrafficOfSteps(const zero::Plan& plan,
                                            const zero::ZeroOptions& zero_options,
                                            const OuterOptions& options, int64_t before,
                                            int64_t steps, collectives::Communicator& inside,
                                            collectives::Communicator& between) {
  RoundTraffic traffic;
  for (int k = 0; k < options.fragments; ++k) {
    BRIGADE_ASSIGN_OR_RETURN(const RoundTraffic of_round,
                             TrafficOfRound(plan, zero_options, options, k, inside, between));
    int64_t sent = 0, used = 0;
    for (int64_t step = before + 1; step <= before + steps; ++step) {
      const bool begins = step <= options.start_step;
      sent += begins || DueFragment(options, step) == k ? 1 : 0;
      // A sum that the steps before have sent is used here, and the last one may not be yet.
      used += begins || (step - options.delay > before &&
                         DueFragment(options, step - options.delay) == k)
                  ? 1
                  : 0;
    }
    traffic.between += sent * of_round.between;
    traffic.parameters += used * of_round.parameters;
  }
  return traffic;
}

namespace internal {

FragmentSizes SizesOf(const std::vector<std::vector<int>>& fragments, const zero::Plan& plan,
                      const zero::ZeroOptions& options) {
  FragmentSizes sizes;
  for (const std::vector<int>& fragment : fragments) {
    int64_t elements = 0, tiles = 0;
    for (const int b : fragment) {
      const kernels::GradSegment segment = {nullptr,
                                            UpdatedElements(plan, options, plan.bucket(b))};
      elements += segment.size;
      sizes.largest_bucket = std::max(sizes.largest_bucket, segment.size);
      tiles += kernels::GradCheckWorkspaceSize({&segment, 1});
    }
    sizes.all += elements;
    sizes.largest = std::max(sizes.largest, elements);
    sizes.most_tiles = std::max(sizes.most_tiles, tiles);
  }
  return sizes;
}

collectives::CollectiveSignature DeltaSumOf(const OuterOptions& options, int64_t count) {
  return {.kind = collectives::CollectiveKind::kAllReduce,
          .algorithm = collectives::Algorithm::kAuto,
          .dtype = options.wire,
          .count = count,
          .reduction = collectives::Reduction::kRoundedOnce};
}

}  // namespace internal

}  // namespace brigade::replicas
