#include "brigade/zero/plan/memory_model.h"

#include <algorithm>

#include "brigade/collectives/algorithms/workspace.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/device/status_macros.h"
#include "brigade/optim/step_executor.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero {
namespace {

using device::Purpose;

int64_t PooledBytes(const Plan& plan, const ZeroOptions& options, const std::vector<int>& uses,
                    const std::function<bool(const Bucket&)>& chosen) {
  int64_t bytes = 0;
  for (const auto& [size, count] : PooledBuffersNeeded(plan, uses, options.live_units, chosen)) {
    bytes += size * count;
  }
  return bytes;
}

}  // namespace

std::vector<MemoryTerm> MemoryOf(const Plan& plan, const ZeroOptions& options) {
  const StageTraits& traits = options.traits();
  std::vector<MemoryTerm> terms;
  const auto add = [&](Purpose purpose, const char* name, int64_t bytes) {
    for (MemoryTerm& term : terms) {
      if (term.purpose == purpose && term.name == name) {
        term.bytes += bytes;
        return;
      }
    }
    terms.push_back({purpose, name, bytes});
  };
  for (const Bucket& bucket : plan.buckets()) {
    int64_t unused = 0;
    for (const ElementRange& range : bucket.padding) unused += range.size;
    // An array of the bucket, or of a slice, which has a share of the padding.
    const auto add_array = [&](Purpose purpose, const char* name, bool whole, int64_t bytes) {
      const int64_t parts = whole ? 1 : plan.ranks();
      const int64_t padding = unused / parts * bytes;
      add(purpose, name, bucket.size / parts * bytes - padding);
      add(purpose, "padding", padding);
    };
    const int64_t element = precision::SizeOf(bucket.dtype);
    const int64_t accumulator = precision::SizeOf(options.accumulator);
    constexpr int64_t kFloat = sizeof(float);
    add_array(Purpose::kParameters, "weights", traits.whole_parameters, element);
    if (!traits.whole_parameters && internal::StaysWhole(plan, options, bucket)) {
      add_array(Purpose::kParameters, "persistent units", true, element);
    }
    if (!bucket.trainable) continue;
    if (traits.whole_gradients || !options.accumulates()) {
      add_array(Purpose::kGradients, "gradients", traits.whole_gradients, element);
    }
    if (options.accumulates()) {
      add_array(Purpose::kGradients, "sums over micro-batches", internal::AccumulatesWhole(options),
                accumulator);
    }
    const bool whole_state = traits.whole_optimizer_state;
    if (internal::HasMaster(bucket)) {
      add_array(Purpose::kOptimizerState, "master", whole_state, kFloat);
    }
    add_array(Purpose::kOptimizerState, "moments", whole_state,
              optim::Moments(options.optimizer) * kFloat);
  }
  add(Purpose::kCommunication, "parameter buffers",
      PooledBytes(
          plan, options, internal::UnitsOfMicroBatch(plan, options),
          [&](const Bucket& bucket) { return !internal::StaysWhole(plan, options, bucket); }));
  add(Purpose::kCommunication, "gradient buffers",
      PooledBytes(plan, options, internal::GradientUnits(plan), [&](const Bucket& bucket) {
        return bucket.trainable && !traits.whole_gradients;
      }));
  const int64_t wire_bytes = internal::WireBufferBytes(plan, options);
  add(Purpose::kCommunication, "gradients in communication_dtype",
      wire_bytes == 0 ? 0 : collectives::CompressedReduction::Bytes(wire_bytes));
  add(Purpose::kScratch, "step control",
      optim::StepExecutor::Bytes(
          options.optimizer, internal::ControllerOptions(plan, options),
          internal::GradientLists(plan, options, [](int) { return nullptr; })));
  return terms;
}

absl::StatusOr<std::vector<MemoryTerm>> MemoryOf(const Plan& plan, const ZeroOptions& options,
                                                 collectives::Communicator& communicator) {
  collectives::Workspace workspace;
  for (const internal::StepCollective& each : internal::CollectivesOfStep(plan, options)) {
    BRIGADE_ASSIGN_OR_RETURN(const auto needed, communicator.WorkspaceFor(each.signature));
    workspace = collectives::Max(workspace, needed);
  }
  std::vector<MemoryTerm> terms = MemoryOf(plan, options);
  terms.push_back({Purpose::kCommunication, "workspace of collectives", workspace.bytes()});
  return terms;
}

int64_t Total(const std::vector<MemoryTerm>& terms) {
  int64_t bytes = 0;
  for (const MemoryTerm& term : terms) bytes += term.bytes;
  return bytes;
}

int64_t Total(const std::vector<MemoryTerm>& terms, Purpose purpose) {
  int64_t bytes = 0;
  for (const MemoryTerm& term : terms) bytes += term.purpose == purpose ? term.bytes : 0;
  return bytes;
}

double PaperBytes(double parameters, int64_t ranks, int stage) {
  // 16-bit weights, 16-bit gradients, fp32 master and two moments.
  const StageTraits& traits = kStageTraits[stage];
  const auto kept = [&](bool whole, double bytes) {
    return bytes * parameters / (whole ? 1.0 : static_cast<double>(ranks));
  };
  return kept(traits.whole_parameters, 2) + kept(traits.whole_gradients, 2) +
         kept(traits.whole_optimizer_state, 12);
}

}  // namespace brigade::zero
