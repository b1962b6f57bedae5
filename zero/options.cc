#include "brigade/zero/options.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/compressed/power_sgd_all_reduce.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/kernels/orthogonalize/orthogonalize_math.h"
#include "brigade/kernels/value_range.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::zero {
namespace {

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("ZeRO: ", what...));
}

absl::Status ValidateChunks(const ZeroOptions& options) {
  const std::vector<int>& chunks = options.chunks;
  for (size_t c = 0; c < chunks.size(); ++c) {
    if (c == 0 ? chunks[c] == 0 : chunks[c] > chunks[c - 1]) continue;
    return Invalid("chunk ", c, " begins with unit ", chunks[c],
                   c == 0 ? ", not with unit 0"
                          : absl::StrCat(", the one before it with unit ", chunks[c - 1]));
  }
  const int count = std::max(1, static_cast<int>(chunks.size()));
  const std::vector<int>& runs = options.runs;
  for (size_t r = 0; r < runs.size(); ++r) {
    if (runs[r] < 0 || runs[r] >= count) {
      return Invalid("run ", r, " is of chunk ", runs[r], " of ", count);
    }
    if (r > 0 && runs[r] == runs[r - 1]) {
      return Invalid("runs ", r - 1, " and ", r, " are both of chunk ", runs[r],
                     "; passes that come one after another are one run");
    }
  }
  for (int chunk = 0; chunk < count && !runs.empty(); ++chunk) {
    if (!absl::c_linear_search(runs, chunk)) return Invalid("chunk ", chunk, " has no run");
  }
  if (options.backward_units.empty() || (count == 1 && runs.empty())) return absl::OkStatus();
  return Invalid("backward_units has ", options.backward_units.size(), " uses, but there are ",
                 count, " chunks and ", runs.size(),
                 " runs; an order of uses is for one chunk without runs");
}

absl::Status ValidateCodes(const ZeroOptions& options) {
  for (const auto& [name, codes] :
       {std::pair("quantized_weights", options.quantized_weights),
        std::pair("quantized_frozen_weights", options.quantized_frozen_weights),
        std::pair("quantized_gradients", options.quantized_gradients)}) {
    if (!codes.has_value()) continue;
    BRIGADE_RETURN_IF_ERROR(kernels::CheckQuantFormat("ZeRO", name, *codes));
  }
  if (options.quantized_weights.has_value() && options.traits().whole_optimizer_state) {
    return Invalid("quantized_weights is given, but stage ", options.stage, " gathers no weights");
  }
  if (options.quantized_frozen_weights.has_value() && options.traits().whole_parameters) {
    return Invalid("quantized_frozen_weights is given, but stage ", options.stage,
                   " keeps all parameters; stage 3 does not");
  }
  if (options.node_ranks < 0) return Invalid("node_ranks is ", options.node_ranks);
  if (options.node_ranks > 0 && !options.quantized_gradients.has_value() &&
      !options.exchanges_signs()) {
    return Invalid(
        "node_ranks is ", options.node_ranks, ", but ",
        options.gradient_compression.has_value()
            ? absl::StrCat("gradient_compression is ", Name(options.gradient_compression->method),
                           "; of exchanges those of signs have two hops")
            : "quantized_gradients is not given");
  }
  if (!options.loco.has_value()) return absl::OkStatus();
  if (!options.quantized_gradients.has_value()) {
    return Invalid("loco is given, but quantized_gradients is not");
  }
  BRIGADE_RETURN_IF_ERROR(kernels::CheckInRange("ZeRO", "loco.err_beta", -1, options.loco->err_beta,
                                                kernels::kBelowOne));
  if (options.loco->reset_steps < 1) {
    return Invalid("loco.reset_steps is ", options.loco->reset_steps, ", not 1 or more");
  }
  return absl::OkStatus();
}

absl::Status ValidateCompression(const ZeroOptions& options) {
  if (!options.exchanges()) return absl::OkStatus();
  const CompressionOptions compression =
      options.gradient_compression.value_or(CompressionOptions());
  if (!absl::c_linear_search(kGradientCompressions, compression.method)) {
    return Invalid("gradient_compression.method is ", static_cast<int>(compression.method));
  }
  if (compression.method == GradientCompression::kPowerSgd &&
      (compression.rank < 1 || compression.rank > kernels::kMaxLowRank)) {
    return Invalid("gradient_compression.rank is ", compression.rank, ", must be 1 to ",
                   kernels::kMaxLowRank);
  }
  if (compression.method == GradientCompression::kPowerSgd &&
      (compression.iterations < 1 || compression.iterations > collectives::kMostPowerIterations)) {
    return Invalid("gradient_compression.iterations is ", compression.iterations, ", must be 1 to ",
                   collectives::kMostPowerIterations);
  }
  if (compression.method == GradientCompression::kTopK &&
      !(compression.density > 0 && compression.density <= 1)) {
    return Invalid("gradient_compression.density is ", compression.density,
                   ", must be more than 0 and at most 1");
  }
  if (compression.start_step < 0) {
    return Invalid("gradient_compression.start_step is ", compression.start_step);
  }
  const auto contradicts = [&](const auto&... what) {
    return Invalid(
        options.averages_moments()
            ? absl::StrCat("the optimizer is ", optim::ExchangingName(options.optimizer.kind))
            : "gradient_compression is given",
        ", but ", what...);
  };
  if (options.averages_moments() && options.gradient_compression.has_value()) {
    return contradicts("gradient_compression is given; first moments are what it exchanges");
  }
  if (!options.traits().whole_parameters && options.shard_ranks == 0) {
    return contradicts("stage ", options.stage,
                       " has no memory for whole gradients; stages 0 to 2 have, and with "
                       "shard_ranks groups exchange slices");
  }
  if (options.has_local_steps() && !options.traits().whole_optimizer_state) {
    return contradicts(
        "local_step_clipper is ", options.optimizer.zero_one.local_step_clipper, ", and stage ",
        options.stage,
        " cuts weights and moments into slices; local steps need all of both on each "
        "rank, as stage 0 has; with local_step_clipper 1 ranks meet in each step");
  }
  if (options.offload.enabled()) {
    return contradicts("offload.optimizer_state is ",
                       device::ToString(options.offload.optimizer_state),
                       "; what is exchanged goes to updates on the device alone");
  }
  if (options.optimizer.kind == optim::OptimizerKind::kLamb) {
    return contradicts(
        "the optimizer is LAMB, whose norms of tensors take the gradients of slices");
  }
  if (options.optimizer.kind == optim::OptimizerKind::kMuon) {
    return contradicts("the optimizer is Muon, whose matrices take the gradients of slices");
  }
  if (options.optimizer.kind == optim::OptimizerKind::kAdafactor) {
    return contradicts("the optimizer is Adafactor, whose factors take the gradients of slices");
  }
  if (options.optimizer.kind == optim::OptimizerKind::kOneBitLamb && options.model_ranks > 1) {
    return contradicts("model_ranks is ", options.model_ranks,
                       "; the scales of momenta are by the mean over all tensors of the model");
  }
  if (options.quantized_gradients.has_value() && options.shard_ranks == 0) {
    return contradicts("quantized_gradients is ", kernels::Name(*options.quantized_gradients),
                       "; gradients of one group cross the wire in one of the two ways; with "
                       "shard_ranks codes are those of sums inside groups");
  }
  if (options.loco.has_value()) {
    return contradicts("loco is given; a state has the errors of one of the two");
  }
  return absl::OkStatus();
}

absl::Status ValidateFile(const OffloadOptions& offload) {
  if (offload.host_share != 1) {
    return Invalid("offload.optimizer_state is file with host_share ", offload.host_share,
                   "; a step that cannot be written must leave all of it as it was");
  }
  if (offload.chunk_elements < 1) {
    return Invalid("offload.chunk_elements is ", offload.chunk_elements);
  }
  if (offload.chunk_buffers < 2) {
    return Invalid("offload.chunk_buffers is ", offload.chunk_buffers, ", not 2 or more");
  }
  if (offload.file_limit_bytes < 0) {
    return Invalid("offload.file_limit_bytes is ", offload.file_limit_bytes);
  }
  if (offload.file.crash_safety != device::CrashSafety::kNone) {
    return Invalid("offload.file.crash_safety is ", device::ToString(offload.file.crash_safety),
                   "; the file ends with the process, and checkpoints are what is resumed from");
  }
  return offload.file.Validate();
}

absl::Status ValidateOffload(const ZeroOptions& options) {
  const OffloadOptions& offload = options.offload;
  const absl::string_view state = device::ToString(offload.optimizer_state);
  const absl::string_view parameters = device::ToString(offload.parameters);
  const auto is_known = [](device::Tier tier) { return tier <= device::Tier::kFile; };
  if (!is_known(offload.optimizer_state) || !is_known(offload.parameters)) {
    return Invalid("offload.optimizer_state is ", static_cast<int>(offload.optimizer_state),
                   ", offload.parameters ", static_cast<int>(offload.parameters),
                   "; both must be device, host or file");
  }
  if (!(offload.host_share >= 0 && offload.host_share <= 1)) {
    return Invalid("offload.host_share is ", offload.host_share, ", not 0 to 1");
  }
  if (offload.host_threads < 0) return Invalid("offload.host_threads is ", offload.host_threads);
  if (offload.delay_warm_up < 0) {
    return Invalid("offload.delay_warm_up is ", offload.delay_warm_up);
  }
  if (offload.delay_update && (!offload.enabled() || offload.host_share != 1)) {
    return Invalid("offload.delay_update needs the whole optimizer state on the host or in a file");
  }
  if (!offload.enabled()) {
    if (offload.host_share != 1) {
      return Invalid("offload.host_share is ", offload.host_share,
                     ", but the optimizer state is on the device");
    }
    if (offload.parameters != device::Tier::kDevice) {
      return Invalid("offload.parameters is ", parameters,
                     ", but the optimizer state is on the device");
    }
    return absl::OkStatus();
  }
  if (options.traits().whole_optimizer_state) {
    return Invalid("offload.optimizer_state is ", state, ", but in stage ", options.stage,
                   " every rank updates everything; stages 1 to 3 share it out");
  }
  if (offload.file_state()) BRIGADE_RETURN_IF_ERROR(ValidateFile(offload));
  if (offload.parameters == device::Tier::kDevice) return absl::OkStatus();
  if (options.traits().whole_parameters) {
    return Invalid("offload.parameters is ", parameters, ", but stage ", options.stage,
                   " keeps all parameters; stage 3 does not");
  }
  if (offload.host_share != 1) {
    return Invalid("offload.parameters is ", parameters, " with host_share ", offload.host_share,
                   "; the update of parameters that are there is the host's");
  }
  if (offload.file_parameters() && !offload.file_state()) {
    return Invalid("offload.parameters is file, but the optimizer state is on the ", state,
                   "; a step that cannot be written must leave both as they were");
  }
  if (offload.file_parameters() && offload.delay_update) {
    return Invalid("offload.delay_update needs parameters on the device or the host");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const ZeroOptions& options) {
  if (options.stage < 0 || options.stage >= kStages) {
    return Invalid("stage is ", options.stage, ", not 0 to 3");
  }
  if (!precision::IsTrainingFormat(options.dtype) ||
      !precision::IsTrainingFormat(options.accumulator)) {
    return Invalid("dtype is ", precision::ShortName(options.dtype), ", accumulator ",
                   precision::ShortName(options.accumulator), "; both must be fp32, fp16 or bf16");
  }
  if (options.communication_dtype.has_value() &&
      !precision::IsTrainingFormat(*options.communication_dtype)) {
    return Invalid("communication_dtype is ", precision::ShortName(*options.communication_dtype),
                   "; it must be fp32, fp16 or bf16");
  }
  if (options.micro_batches < 1) return Invalid("micro_batches is ", options.micro_batches);
  if (options.accumulation > Accumulation::kAtBoundary) {
    return Invalid("accumulation is ", static_cast<int>(options.accumulation));
  }
  if (options.accumulation == Accumulation::kAtBoundary && !options.traits().whole_gradients &&
      !(options.exchanges() && options.shard_ranks == 0)) {
    return Invalid("accumulation at the boundary needs whole gradients, which stage ",
                   options.stage, " does not keep");
  }
  if (options.bucket_elements < 1) return Invalid("bucket_elements is ", options.bucket_elements);
  if (options.model_ranks < 1) return Invalid("model_ranks is ", options.model_ranks);
  if (options.shard_ranks < 0) return Invalid("shard_ranks is ", options.shard_ranks);
  if (options.hpz_ranks < 0) return Invalid("hpz_ranks is ", options.hpz_ranks);
  if (options.hpz_ranks > 0 && options.traits().whole_parameters) {
    return Invalid("hpz_ranks is ", options.hpz_ranks, ", but stage ", options.stage,
                   " keeps all parameters; stage 3 does not");
  }
  BRIGADE_RETURN_IF_ERROR(ValidateCodes(options));
  if (options.live_units < 1) return Invalid("live_units is ", options.live_units);
  if (options.persistence_threshold < 0) {
    return Invalid("persistence_threshold is ", options.persistence_threshold);
  }
  if (options.persistence_threshold > 0 && options.traits().whole_parameters) {
    return Invalid("persistence_threshold is ", options.persistence_threshold, ", but stage ",
                   options.stage, " keeps all parameters");
  }
  if (!collectives::IsValid(options.algorithm) || !collectives::IsValid(options.reduction)) {
    return Invalid("algorithm is ", static_cast<int>(options.algorithm), ", reduction is ",
                   static_cast<int>(options.reduction));
  }
  if (!collectives::Exists(options.reduction, options.algorithm)) {
    return Invalid("reduction is ", collectives::Name(options.reduction),
                   ", which does not exist with algorithm ", collectives::Name(options.algorithm));
  }
  BRIGADE_RETURN_IF_ERROR(ValidateChunks(options));
  if (!(options.max_grad_norm > 0)) {
    return Invalid("max_grad_norm is ", options.max_grad_norm, "; it must be positive");
  }
  BRIGADE_RETURN_IF_ERROR(ValidateOffload(options));
  BRIGADE_RETURN_IF_ERROR(ValidateCompression(options));
  if (options.optimizer.kind == optim::OptimizerKind::kLamb && options.offload.enabled()) {
    return Invalid("offload.optimizer_state is ", device::ToString(options.offload.optimizer_state),
                   ", but the optimizer is LAMB, whose update of an element needs norms of its "
                   "whole tensor; Adam, SGD and Lion can be offloaded");
  }
  if (options.optimizer.kind == optim::OptimizerKind::kMuon && options.offload.enabled()) {
    return Invalid("offload.optimizer_state is ", device::ToString(options.offload.optimizer_state),
                   ", but the optimizer is Muon, whose update of an element needs its whole "
                   "matrix; Adam, SGD and Lion can be offloaded");
  }
  if (options.optimizer.kind == optim::OptimizerKind::kAdafactor && options.offload.enabled()) {
    return Invalid("offload.optimizer_state is ", device::ToString(options.offload.optimizer_state),
                   ", but the optimizer is Adafactor, whose update of an element needs its whole "
                   "tensor; Adam, SGD and Lion can be offloaded");
  }
  BRIGADE_RETURN_IF_ERROR(optim::Validate(options.optimizer));
  return optim::Validate(options.loss_scaler);
}

}  // namespace brigade::zero
