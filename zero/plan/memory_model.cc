#include "brigade/zero/plan/memory_model.h"

#include <map>

#include "brigade/collectives/algorithms/workspace.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/collectives/compressed/quantized_all_gather.h"
#include "brigade/collectives/compressed/quantized_reduce_scatter.h"
#include "brigade/device/file/file_options.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/one_bit_lamb_update.h"
#include "brigade/optim/step_executor.h"
#include "brigade/zero/plan/exchange_layout.h"
#include "brigade/zero/plan/factor_layout.h"
#include "brigade/zero/plan/file_layout.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/matrix_layout.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero {
namespace {

using device::Purpose;
using device::Tier;

int64_t BytesOf(const std::map<int64_t, int>& buffers) {
  int64_t bytes = 0;
  for (const auto& [size, count] : buffers) bytes += size * count;
  return bytes;
}

}  // namespace

std::vector<MemoryTerm> MemoryOf(const Plan& plan, const ZeroOptions& options, int rank) {
  const StageTraits& traits = options.traits();
  std::vector<MemoryTerm> terms;
  const auto add = [&](Tier tier, Purpose purpose, const char* name, int64_t bytes) {
    for (MemoryTerm& term : terms) {
      if (term.tier == tier && term.purpose == purpose && term.name == name) {
        term.bytes += bytes;
        return;
      }
    }
    terms.push_back({tier, purpose, name, bytes});
  };
  // An array of the bucket, or of a slice, which has a share of the padding.
  const auto add_array = [&](const Bucket& bucket, Tier tier, Purpose purpose, const char* name,
                             bool whole, int64_t bytes) {
    int64_t unused = 0;
    for (const ElementRange& range : bucket.padding) unused += range.size;
    const int64_t parts = whole ? 1 : plan.ranks();
    const int64_t padding = unused / parts * bytes;
    add(tier, purpose, name, bucket.size / parts * bytes - padding);
    add(tier, purpose, "padding", padding);
  };
  const auto add_gradients = [&](const Bucket& gradient, const char* name, const char* sums,
                                 bool on_host) {
    constexpr auto kPurpose = Purpose::kGradients;
    const bool whole = internal::HasWholeGradients(plan, options);
    if (whole || internal::HasGradientSlice(plan, options, gradient, on_host)) {
      add_array(gradient, Tier::kDevice, kPurpose, name, whole, precision::SizeOf(gradient.dtype));
    }
    if (!options.accumulates()) return;
    add_array(gradient, Tier::kDevice, kPurpose, sums, internal::AccumulatesWhole(plan, options),
              precision::SizeOf(options.accumulator));
  };
  const std::vector<char> offloaded = internal::OffloadedBuckets(plan, options);
  for (size_t b = 0; b < offloaded.size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    const int64_t element = precision::SizeOf(bucket.dtype);
    constexpr int64_t kFloat = sizeof(float);
    if (!options.offload.file_parameters()) {
      add_array(bucket, options.offload.parameters, Purpose::kParameters, "weights",
                traits.whole_parameters, element);
    }
    if (!traits.whole_parameters && internal::StaysWhole(plan, options, bucket)) {
      add_array(bucket, Tier::kDevice, Purpose::kParameters, "persistent units", true, element);
    }
    if (internal::HasSecondSlice(plan, options, bucket)) {
      add(Tier::kDevice, Purpose::kParameters, "second slices of weights",
          internal::SecondSlice(options, bucket) * element);
    }
    if (!bucket.trainable) continue;
    const bool on_host = offloaded[b];
    const Tier state = on_host ? Tier::kHost : Tier::kDevice;
    add_gradients(bucket, "gradients", "sums over micro-batches", on_host);
    if (on_host) {
      add_array(bucket, Tier::kHost, Purpose::kGradients, "gradients", false,
                internal::HostTurns(options) *
                    precision::SizeOf(internal::FinalGradientType(options, bucket)));
      add(Tier::kHost, Purpose::kParameters, "copy of the weights",
          internal::HostWeightBytes(plan, options, bucket));
    }
    if (options.offload.file_state()) continue;
    const bool whole_state = traits.whole_optimizer_state;
    if (internal::HasMaster(options, bucket, on_host)) {
      add_array(bucket, state, Purpose::kOptimizerState, "master", whole_state, kFloat);
    }
    const int moments = optim::Moments(options.optimizer);
    if (bucket.coded && optim::HasCodes(options.optimizer.kind)) {
      add_array(bucket, state, Purpose::kOptimizerState, "moments", whole_state,
                internal::StateBytes(options, bucket, 1, 3, 1));
      const int64_t updated = whole_state ? bucket.size : plan.slice(bucket);
      add(state, Purpose::kOptimizerState, "scales of moments",
          internal::StateBytes(options, bucket, 3, moments + 1, updated));
    } else if (bucket.coded && options.optimizer.kind == optim::OptimizerKind::kAdafactor) {
      const int64_t updated = whole_state ? bucket.size : plan.slice(bucket);
      add(state, Purpose::kOptimizerState, "moments",
          internal::StateBytes(options, bucket, 1, moments + 1, updated));
    } else {
      add_array(bucket, state, Purpose::kOptimizerState, "moments", whole_state,
                internal::StateBytes(options, bucket, 1, moments + 1, 1));
    }
    if (!internal::HasExchanges(plan, options)) continue;
    const internal::ErrorLayout errors = internal::ErrorLayoutOf(plan, options, bucket, rank);
    add(Tier::kDevice, Purpose::kGradients, "exchanged gradients",
        internal::MeanElements(plan, options, bucket) * kFloat);
    add(Tier::kDevice, Purpose::kOptimizerState, "slices of errors",
        internal::HasErrors(plan, options) ? internal::kErrorArrays * plan.slice(bucket) * kFloat
                                           : 0);
    add(Tier::kDevice, Purpose::kOptimizerState, "first moments of all ranks",
        internal::HasWholeMoments(plan, options) ? internal::ExchangedElements(bucket) * kFloat
                                                 : 0);
    add(Tier::kDevice, Purpose::kOptimizerState, "errors of exchanges",
        (errors.own.size + errors.second.size) * kFloat);
    if (!options.has_local_steps()) continue;
    add(Tier::kDevice, Purpose::kOptimizerState, "weights of the last meeting",
        bucket.size * kFloat);
    add(Tier::kDevice, Purpose::kOptimizerState, "moves since the last meeting",
        internal::ExchangedElements(bucket) * kFloat);
  }
  for (size_t g = offloaded.size(); g < plan.gradients().size(); ++g) {
    const Bucket& part = plan.gradients()[g];
    add_gradients(part, "gradients of tied users", "sums of tied users",
                  offloaded[static_cast<size_t>(plan.BucketOf(part))] != 0);
  }
  if (options.offload.file_state()) {
    const internal::FileLayout file(plan, options);
    constexpr bool kState = true;
    const auto add_kind = [&](bool is_state, Purpose purpose, const char* in_file,
                              const char* on_its_way, int directions) {
      add(Tier::kFile, purpose, in_file, 2 * file.Bytes(is_state));
      add(Tier::kHost, purpose, on_its_way,
          directions * file.Buffers(is_state, options) * file.LargestBytes(is_state));
    };
    add_kind(kState, Purpose::kOptimizerState, "optimizer state, two slots", "chunks of the file",
             1);
    add_kind(!kState, Purpose::kParameters, "weights, two slots", "weights from and to the file",
             2);
    const std::vector<int64_t> sizes = file.Sizes();
    add(Tier::kFile, Purpose::kScratch, "table and whole blocks",
        device::FileStoreBytes(sizes) - 2 * (file.Bytes(kState) + file.Bytes(!kState)));
    add(Tier::kHost, Purpose::kScratch, "blocks of the file in flight",
        device::FileStoreMemoryBytes(internal::FileOptionsOf(options), sizes));
    add(Tier::kHost, Purpose::kScratch, "step control", sizeof(kernels::StepState));
  }
  const auto add_buffers = [&](const char* name, int64_t bytes) {
    add(Tier::kDevice, Purpose::kCommunication, name, bytes);
  };
  add_buffers("parameter buffers", BytesOf(internal::WeightBuffers(plan, options)));
  add_buffers("gradient buffers", BytesOf(internal::GradientBuffers(plan, options)));
  add_buffers("gradients on their way", BytesOf(internal::SlicesOnTheirWay(plan, options)));
  const int64_t wire_bytes = internal::WireBufferBytes(plan, options);
  add_buffers("gradients in communication_dtype",
              wire_bytes == 0 ? 0 : collectives::CompressedReduction::Bytes(wire_bytes));
  const auto add_messages = [&](const char* name, int64_t slice, const auto& codes, auto bytes) {
    if (slice > 0) add_buffers(name, bytes(plan.ranks(), slice, *codes));
  };
  const int feedback_nodes =
      internal::HasLoco(plan, options) ? internal::NodesOf(plan, options) : 1;
  add_messages(
      "messages of gradients", internal::LargestGradientOfCodes(plan, options),
      options.quantized_gradients, [&](int ranks, int64_t slice, kernels::QuantFormat codes) {
        return collectives::QuantizedReduceScatter::Bytes(ranks, slice, codes, feedback_nodes);
      });
  for (const Bucket& gradient : plan.gradients()) {
    const auto [local, sum] = internal::LocoErrorBytesOf(plan, options, gradient);
    if (local == 0) continue;
    add(Tier::kDevice, Purpose::kOptimizerState, "errors of gradients", local + sum);
    add(Tier::kDevice, Purpose::kScratch, "errors before the step", local + sum);
  }
  for (const Bucket& bucket : plan.buckets()) {
    if (!bucket.trainable || !options.loco.has_value()) continue;
    add(Tier::kDevice, Purpose::kOptimizerState, "slices of errors",
        internal::kLocoErrorArrays * plan.slice(bucket) * static_cast<int64_t>(sizeof(float)));
  }
  const int64_t largest_codes = internal::LargestGradientOfCodes(plan, options);
  if (options.loco.has_value() && largest_codes > 0) {
    add(Tier::kDevice, Purpose::kOptimizerState, "scale of errors", internal::kLocoScaleBytes);
    add(Tier::kDevice, Purpose::kScratch, "scale of errors",
        internal::kLocoScaleBytes + internal::kLocoControlBytes);
    add(Tier::kDevice, Purpose::kScratch, "errors as they are saved",
        (plan.ranks() + 1) * largest_codes * static_cast<int64_t>(sizeof(float)));
  }
  for (const bool trainable : {true, false}) {
    add_messages("messages of weights", internal::LargestWeightsOfCodes(plan, options, trainable),
                 trainable ? options.quantized_weights : options.quantized_frozen_weights,
                 collectives::QuantizedAllGather::Bytes);
  }
  add_buffers("messages of exchanges", internal::ExchangeBytes(plan, options, rank));
  const int64_t between_bytes = internal::WireBufferBytesBetween(plan, options);
  add_buffers("sums of groups in communication_dtype",
              between_bytes == 0 ? 0 : collectives::CompressedReduction::Bytes(between_bytes));
  const auto lists = internal::GradientLists(plan, options, [](int) { return nullptr; });
  const optim::StepControllerOptions control = internal::ControllerOptions(plan, options);
  add(Tier::kDevice, Purpose::kScratch, "step control",
      optim::StepExecutor::Bytes(options.optimizer, control, lists));
  if (internal::HasExchanges(plan, options)) {
    add(Tier::kDevice, Purpose::kScratch, "step control",
        internal::ExchangeControlBytes(plan, options, rank));
  }
  if (optim::IsLamb(options.optimizer.kind)) {
    const optim::LambSizes sizes = internal::LambSizesOf(plan, options);
    const int ranks = internal::LambRanksOf(plan, options);
    add(Tier::kDevice, Purpose::kScratch, "sums of tensors",
        optim::LambUpdate::Bytes(sizes, ranks));
    if (options.optimizer.kind == optim::OptimizerKind::kOneBitLamb) {
      add(Tier::kDevice, Purpose::kScratch, "sums of tensors",
          optim::OneBitLambUpdate::Bytes(sizes, ranks) +
              sizes.tensors * static_cast<int64_t>(sizeof(kernels::OneBitLambNumbers)));
    }
  }
  if (options.optimizer.kind == optim::OptimizerKind::kMuon) {
    add(Tier::kDevice, Purpose::kScratch, "updates of matrices",
        internal::MatrixLayout(plan, options, rank).bytes());
  }
  if (options.optimizer.kind == optim::OptimizerKind::kAdafactor) {
    add(Tier::kDevice, Purpose::kScratch, "factors of tensors",
        internal::FactorLayout(plan, options, rank).bytes());
  }
  add(Tier::kHost, Purpose::kScratch, "step control",
      optim::StepController::HostBytes(options.optimizer, control) +
          (options.offload.enabled()
               ? internal::HostTurns(options) * internal::DecisionBytes(options)
               : 0));
  return terms;
}

absl::StatusOr<collectives::Workspace> WorkspaceOfStep(const Plan& plan, const ZeroOptions& options,
                                                       collectives::Communicator& group,
                                                       StepGroup role, int rank) {
  collectives::Workspace workspace;
  for (const internal::StepCollective& each : internal::CollectivesOfStep(plan, options, rank)) {
    if (each.group != role) continue;
    BRIGADE_ASSIGN_OR_RETURN(const auto needed, group.WorkspaceFor(each.signature));
    workspace = collectives::Max(workspace, needed);
  }
  return workspace;
}

absl::StatusOr<std::vector<MemoryTerm>> MemoryOf(const Plan& plan, const ZeroOptions& options,
                                                 collectives::Communicator& communicator,
                                                 const OuterGroups& outer) {
  // By communicator, which may have several roles.
  std::map<const collectives::Communicator*, collectives::Workspace> workspaces;
  for (const StepGroup role : kStepGroups) {
    collectives::Communicator& group = internal::GroupOf(role, communicator, outer);
    BRIGADE_ASSIGN_OR_RETURN(const auto needed,
                             WorkspaceOfStep(plan, options, group, role, communicator.rank()));
    collectives::Workspace& workspace = workspaces[&group];
    workspace = collectives::Max(workspace, needed);
  }
  int64_t bytes = 0;
  for (const auto& [group, workspace] : workspaces) bytes += workspace.bytes();
  std::vector<MemoryTerm> terms = MemoryOf(plan, options, communicator.rank());
  terms.push_back({Tier::kDevice, Purpose::kCommunication, "workspace of collectives", bytes});
  return terms;
}

int64_t Total(const std::vector<MemoryTerm>& terms, Tier tier) {
  int64_t bytes = 0;
  for (const MemoryTerm& term : terms) bytes += term.tier == tier ? term.bytes : 0;
  return bytes;
}

int64_t Total(const std::vector<MemoryTerm>& terms, Tier tier, Purpose purpose) {
  int64_t bytes = 0;
  for (const MemoryTerm& term : terms) {
    bytes += term.tier == tier && term.purpose == purpose ? term.bytes : 0;
  }
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
