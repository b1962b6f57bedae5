#include "brigade/tests/zero/golden.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/spec/stages.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

constexpr double kLearningRate = 0.01;

spec::Format FormatOf(precision::DType dtype) {
  return dtype == precision::DType::kFloat16    ? spec::Format::kFloat16
         : dtype == precision::DType::kBFloat16 ? spec::Format::kBFloat16
                                                : spec::Format::kFloat32;
}

// 0: none.
int BitsOf(const std::optional<kernels::QuantFormat>& codes) {
  if (!codes.has_value()) return 0;
  return *codes == kernels::QuantFormat::kInt8 ? 8 : 4;
}

spec::TrainingRule RuleOf(const GoldenCase& c) {
  spec::TrainingRule rule;
  rule.ranks = static_cast<size_t>(c.ranks);
  rule.shard_ranks = static_cast<size_t>(c.shard_ranks);
  rule.micro_batches = c.micro_batches;
  rule.is_one_bit_adam = c.optimizer == optim::OptimizerKind::kOneBitAdam;
  rule.is_one_bit_lamb = c.optimizer == optim::OptimizerKind::kOneBitLamb;
  const bool is_zero_one = c.optimizer == optim::OptimizerKind::kZeroOneAdam;
  if (is_zero_one) {
    rule.var_freeze_step = c.freeze_step;
    rule.var_update_scaler = c.var_update_scaler;
    rule.local_step_scaler = c.local_step_scaler;
    rule.local_step_clipper = c.local_step_clipper;
  }
  const bool has_moments = rule.is_one_bit_adam || rule.is_one_bit_lamb || is_zero_one;
  const bool exchanges = c.gradient_compression.has_value() || has_moments;
  // These sum first.
  const bool has_groups = c.shard_ranks > 0 && c.shard_ranks < c.ranks;
  rule.reduce_at_boundary =
      (c.accumulation == Accumulation::kAtBoundary || (exchanges && !has_groups)) &&
      c.micro_batches > 1;
  if (exchanges) {
    rule.exchange_from = has_moments ? c.freeze_step : c.gradient_compression->start_step;
  }
  if (c.gradient_compression.has_value()) {
    using Exchange = spec::TrainingRule::Exchange;
    const GradientCompression method = c.gradient_compression->method;
    rule.exchange = method == GradientCompression::kPowerSgd ? Exchange::kPowerSgd
                    : method == GradientCompression::kTopK   ? Exchange::kTopK
                                                             : Exchange::kOneBit;
    rule.factor_rank = static_cast<size_t>(c.gradient_compression->rank);
    rule.power_iterations = c.gradient_compression->iterations;
    rule.density = c.gradient_compression->density;
  }
  rule.format = FormatOf(c.dtype);
  // One micro-batch is not added to anything.
  rule.accumulator = c.micro_batches > 1 ? spec::Format::kFloat32 : rule.format;
  if (c.communication_dtype.has_value()) rule.wire = FormatOf(*c.communication_dtype);
  rule.weight_bits = BitsOf(c.quantized_weights);
  // Those that gather weights have one trajectory, stage 0 another one.
  if (rule.weight_bits > 0) rule.stage = 3;
  rule.gradient_bits = BitsOf(c.quantized_gradients);
  rule.node_ranks = static_cast<size_t>(c.node_ranks);
  if (c.loco.has_value()) {
    rule.loco_beta = static_cast<float>(c.loco->err_beta);
    rule.loco_reset_steps = c.loco->reset_steps;
  }
  if (c.algorithm == collectives::Algorithm::kHierarchical) {
    rule.sum_order = {static_cast<size_t>(c.ranks_per_node),
                      c.reduction == collectives::Reduction::kRoundedPerHop};
  }
  using Optimizer = spec::TrainingRule::Optimizer;
  rule.is_muon = c.optimizer == optim::OptimizerKind::kMuon;
  rule.muon_rule = {.weight_decay = 0.01, .rate = 2.0f};
  if (c.optimizer == optim::OptimizerKind::kAdafactor) {
    const optim::OptimizerOptions options = OptionsOf(c, 0).optimizer;
    const kernels::AdafactorSettings& of = options.adafactor;
    rule.is_adafactor = true;
    rule.adafactor_rule = {of.eps1,
                           of.eps2,
                           of.clip_threshold,
                           of.decay_rate,
                           of.scale_parameter,
                           of.relative_step,
                           of.warmup_init,
                           options.groups[0].momentum,
                           options.groups[0].weight_decay};
  }
  const bool is_adam = optim::IsAdam(c.optimizer) || optim::HasCodes(c.optimizer) || rule.is_muon;
  rule.optimizer = is_adam                                      ? Optimizer::kAdam
                   : c.optimizer == optim::OptimizerKind::kLion ? Optimizer::kLion
                   : c.optimizer == optim::OptimizerKind::kLamb ? Optimizer::kLamb
                                                                : Optimizer::kSgd;
  rule.adam_rule.weight_decay = 0.01;
  rule.adam_rule.decoupled =
      c.optimizer != optim::OptimizerKind::kAdam && c.optimizer != optim::OptimizerKind::kAdam8;
  rule.lamb_rule = {.eps = 1e-8, .weight_decay = c.weight_decay};
  rule.one_bit_lamb_rule.lamb = rule.lamb_rule;
  rule.lion_rule = {.beta2 = 0.999, .weight_decay = 0.01};
  rule.sgd_rule = {.momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01};
  rule.step.loss_scale = {.window = 6, .hysteresis = 1};
  rule.step.divisor = c.ranks * c.micro_batches;
  rule.step.clip = 3.0;
  rule.learning_rates = {static_cast<float>(kLearningRate)};
  if (c.offload.delay_update) rule.delay_from = c.offload.delay_warm_up;
  return rule;
}

}  // namespace

std::vector<GoldenCase> GoldenCases() {
  using optim::OptimizerKind;
  using precision::DType;
  std::vector<GoldenCase> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const OptimizerKind kind :
           {OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kLion}) {
        cases.push_back({ranks, dtype, kind, 1, Accumulation::kEveryMicroBatch});
        cases.push_back({ranks, dtype, kind, 3, Accumulation::kEveryMicroBatch});
        cases.push_back({ranks, dtype, kind, 3, Accumulation::kAtBoundary});
      }
    }
  }
  // Gradients of each type over a wire of each type.
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const DType wire : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      GoldenCase c = {3, dtype, OptimizerKind::kAdamW};
      c.communication_dtype = wire;
      if (wire != dtype) {
        cases.push_back(c);
        c.micro_batches = 2;
        cases.push_back(c);
      }
      // Sums over micro-batches are in fp32, and so cross every narrower wire in another type.
      c.micro_batches = 2;
      c.accumulation = Accumulation::kAtBoundary;
      cases.push_back(c);
    }
  }
  // With a topology: what auto takes by it for sums that are rounded once, and the hierarchy.
  using collectives::Algorithm;
  using collectives::Reduction;
  GoldenCase c = {4, DType::kBFloat16, OptimizerKind::kAdamW};
  c.ranks_per_node = 2;
  cases.push_back(c);
  c.algorithm = Algorithm::kHierarchical;
  for (const Reduction reduction : {Reduction::kFp32Partials, Reduction::kRoundedPerHop}) {
    c.reduction = reduction;
    c.dtype = DType::kBFloat16;
    c.communication_dtype = {};
    cases.push_back(c);
    c.dtype = DType::kFloat32;
    c.communication_dtype = DType::kFloat16;
    cases.push_back(c);
  }
  return cases;
}

std::string ToString(const GoldenCase& c) {
  return absl::StrCat(
      "ranks_", c.ranks, "_", precision::Name(c.dtype), "_optimizer_",
      static_cast<int>(c.optimizer), "_micro_", c.micro_batches,
      c.accumulation == Accumulation::kAtBoundary ? "_at_boundary" : "",
      c.communication_dtype.has_value() ? "_over_" : "",
      c.communication_dtype.has_value() ? precision::Name(*c.communication_dtype) : "",
      c.ranks_per_node > 0 ? absl::StrCat("_nodes_of_", c.ranks_per_node, "_",
                                          std::string(collectives::Name(c.algorithm)), "_",
                                          std::string(collectives::Name(c.reduction)))
                           : "",
      c.offload.enabled() ? absl::StrCat("_", ToString(c.offload)) : "",
      c.offload.delay_update ? absl::StrCat("_delayed_from_", c.offload.delay_warm_up) : "",
      c.reload_at >= 0 ? absl::StrCat("_reloaded_at_", c.reload_at) : "",
      c.tied_apart ? "_tied_apart" : "",
      c.loco.has_value() ? absl::StrCat("_loco_", c.loco->reset_steps) : "",
      c.chunks.empty() ? "" : absl::StrCat("_chunks_", absl::StrJoin(c.chunks, "_")),
      c.has_runs ? "_in_runs" : "",
      c.shard_ranks > 0 ? absl::StrCat("_shards_of_", c.shard_ranks) : "",
      c.hpz_ranks > 0 ? absl::StrCat("_near_", c.hpz_ranks) : "",
      BitsOf(c.quantized_weights) > 0 ? absl::StrCat("_weights_", BitsOf(c.quantized_weights)) : "",
      BitsOf(c.quantized_gradients) > 0 ? absl::StrCat("_gradients_", BitsOf(c.quantized_gradients))
                                        : "",
      BitsOf(c.quantized_frozen_weights) > 0
          ? absl::StrCat("_frozen_", BitsOf(c.quantized_frozen_weights))
          : "",
      c.node_ranks > 0 ? absl::StrCat("_in_nodes_of_", c.node_ranks) : "",
      c.gradient_compression.has_value()
          ? absl::StrCat(
                "_", Name(c.gradient_compression->method), "_from_",
                c.gradient_compression->start_step,
                c.bucket_elements == 1000 ? "" : absl::StrCat("_buckets_", c.bucket_elements))
          : "",
      c.weight_decay == 0.01 ? "" : "_other_decay",
      optim::AveragesMoments(c.optimizer) ? absl::StrCat("_frozen_from_", c.freeze_step) : "",
      c.optimizer == optim::OptimizerKind::kZeroOneAdam
          ? absl::StrCat("_by_", c.var_update_scaler, "_local_", c.local_step_scaler, "_to_",
                         c.local_step_clipper)
          : "");
}

ZeroOptions OptionsOf(const GoldenCase& c, int stage) {
  ZeroOptions options;
  options.stage = stage;
  options.dtype = c.dtype;
  options.optimizer.kind = c.optimizer;
  options.optimizer.freeze_step = c.freeze_step;
  options.optimizer.zero_one = {std::max<int64_t>(c.freeze_step, 1), c.var_update_scaler,
                                c.local_step_scaler, c.local_step_clipper};
  // So many that the toy has tensors of both kinds.
  options.optimizer.coded.min_elements = 500;
  optim::ParameterGroup& group = options.optimizer.groups[0];
  group.lr = kLearningRate;
  group.weight_decay = c.weight_decay;
  if (c.optimizer == optim::OptimizerKind::kSgd) {
    group.momentum = 0.9;
    group.dampening = 0.1;
  }
  if (c.optimizer == optim::OptimizerKind::kMuon) {
    group.momentum = 0.95;
    group.nesterov = true;
    options.optimizer.muon.rate = 2.0;
  }
  if (c.optimizer == optim::OptimizerKind::kAdafactor) {
    // Each setting in some case.
    group.momentum = c.dtype == precision::DType::kBFloat16 ? 0.9 : 0.0;
    options.optimizer.adafactor.relative_step = c.dtype != precision::DType::kFloat16;
    options.optimizer.adafactor.scale_parameter = c.ranks != 2;
  }
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.loss_scale_window = 6;
  options.loss_scaler.hysteresis = 1;
  options.max_grad_norm = 3.0;
  options.micro_batches = c.micro_batches;
  options.accumulation = c.accumulation;
  options.bucket_elements = c.bucket_elements;
  options.communication_dtype = c.communication_dtype;
  options.reduction = c.reduction;
  options.algorithm = c.algorithm;
  options.offload = c.offload;
  options.tied_apart = c.tied_apart;
  options.chunks = c.chunks;
  options.shard_ranks = c.shard_ranks;
  if (stage == 3) options.hpz_ranks = c.hpz_ranks;
  options.quantized_weights = c.quantized_weights;
  options.quantized_gradients = c.quantized_gradients;
  options.quantized_frozen_weights = c.quantized_frozen_weights;
  options.node_ranks = c.node_ranks;
  options.gradient_compression = c.gradient_compression;
  options.loco = c.loco;
  if (c.has_runs) {
    const int chunks = static_cast<int>(c.chunks.size());
    options.runs = RunsOf(InterleavedPasses(chunks, c.micro_batches));
  }
  return options;
}

std::vector<Injection> InjectionsOf(const GoldenCase& c) {
  std::vector<Injection> injections = {
      {.step = 7, .rank = c.ranks - 1, .micro_batch = c.micro_batches - 1}, {.step = 30}};
  // In intervals of 4, 5 and 8 steps a meeting.
  if (c.optimizer == optim::OptimizerKind::kZeroOneAdam) injections.push_back({.step = 39});
  return injections;
}

ModelSpec ModelOf(optim::OptimizerKind optimizer) {
  return optim::IsLamb(optimizer) ? ModelOfLargeTensors() : ToyMatrices();
}

Trajectory Specified(const GoldenCase& c) {
  const Plan plan =
      Plan::Create(ModelOf(c.optimizer), {.ranks = c.ranks,
                                          .dtype = c.dtype,
                                          .bucket_elements = c.bucket_elements,
                                          .tile_elements = optim::TensorTile(c.optimizer),
                                          .coded = optim::CodesOf(OptionsOf(c, 0).optimizer)})
          .value();
  std::vector<int> number(plan.buckets().size(), -1);  // among those that are trained
  spec::Buckets master;
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (!bucket.trainable) continue;
    number[b] = static_cast<int>(master.size());
    master.emplace_back(static_cast<size_t>(bucket.size), 0.0f);
    for (const BucketEntry& entry : bucket.entries) {
      for (int64_t i = 0; i < entry.range.size; ++i) {
        master.back()[static_cast<size_t>(entry.range.begin + i)] =
            InitialWeight(entry.parameter, i);
      }
    }
  }
  spec::TrainingRule rule = RuleOf(c);
  for (const Bucket& bucket : plan.buckets()) {
    if (!bucket.trainable) continue;
    rule.coded.push_back(bucket.coded);
    std::vector<spec::Range>& entries = rule.entries.emplace_back();
    std::vector<spec::TensorPlace>& places = rule.places.emplace_back();
    size_t at = 0;
    for (const BucketEntry& entry : bucket.entries) {
      const auto size = static_cast<size_t>(entry.range.size);
      entries.push_back({static_cast<size_t>(entry.range.begin), size});
      const ParameterSpec& spec = plan.parameter(entry.parameter).spec;
      // Adafactor's matrices have two extents, and may be tables.
      const bool has_rows =
          rule.is_adafactor ? spec.shape.size() == 2 : spec.shape.size() >= 2 && spec.low_rank;
      const size_t rows = has_rows ? static_cast<size_t>(spec.shape[0]) : 1;
      places.push_back({at, rows, size / rows});
      at += size;
    }
  }
  // With tied_apart: the part that a unit which is not the first to use a parameter has of its
  // bucket's gradient.
  std::map<std::pair<int, int>, size_t> part_of;  // [unit, bucket]
  for (int unit = 0; unit < static_cast<int>(plan.units().size()) && c.tied_apart; ++unit) {
    for (const int p : plan.unit(unit).parameters) {
      const Parameter& of = plan.parameter(p);
      if (of.unit == unit || !part_of.insert({{unit, of.bucket}, rule.parts.size()}).second)
        continue;
      rule.parts.push_back(static_cast<size_t>(number[static_cast<size_t>(of.bucket)]));
    }
  }
  // What is not trained, as passes see it: by bucket.
  std::map<int, std::vector<float>> frozen;
  const int64_t sharers = c.shard_ranks == 0 ? c.ranks : c.shard_ranks;
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (bucket.trainable) continue;
    std::vector<float>& values = frozen[static_cast<int>(b)];
    values.resize(static_cast<size_t>(bucket.size));
    for (const BucketEntry& entry : bucket.entries) {
      for (int64_t i = 0; i < entry.range.size; ++i) {
        values[static_cast<size_t>(entry.range.begin + i)] =
            spec::Round(rule.format, InitialWeight(entry.parameter, i));
      }
    }
    if (!c.quantized_frozen_weights.has_value() || sharers == 1) continue;
    std::vector<std::vector<float>> slices;
    for (int64_t s = 0; s < sharers; ++s) {
      const auto slice = static_cast<std::ptrdiff_t>(bucket.size / sharers);
      slices.emplace_back(values.begin() + s * slice, values.begin() + (s + 1) * slice);
    }
    values = spec::QuantizedGather(slices, BitsOf(c.quantized_frozen_weights), rule.format);
  }
  const auto element = [&](auto& buckets, int parameter, int64_t i) -> auto& {
    const Parameter& p = plan.parameter(parameter);
    return buckets[static_cast<size_t>(number[static_cast<size_t>(p.bucket)])]
                  [static_cast<size_t>(p.begin + i)];
  };
  int step = 0;
  const std::vector<Injection> injections = InjectionsOf(c);
  const spec::Backward backward = [&](size_t rank, int micro, const spec::Buckets& weights,
                                      float loss_scale) {
    const auto weight = [&](int parameter, int64_t i) {
      return plan.parameter(parameter).spec.trainable
                 ? element(weights, parameter, i)
                 : frozen.at(plan.parameter(parameter)
                                 .bucket)[static_cast<size_t>(plan.parameter(parameter).begin + i)];
    };
    spec::Buckets gradients = weights;
    for (const size_t whole : rule.parts) gradients.push_back(gradients[whole]);
    for (auto& bucket : gradients) bucket.assign(bucket.size(), 0.0f);
    for (int unit = static_cast<int>(plan.units().size()); unit-- > 0;) {
      const float activation = Activation(plan, unit, weight);
      for (const int p : plan.unit(unit).parameters) {
        if (!HasGradient(plan, unit, p)) continue;
        const Parameter& of = plan.parameter(p);
        const auto part = part_of.find({unit, of.bucket});
        for (int64_t i = 0; i < of.spec.size; ++i) {
          float& gradient =
              part == part_of.end()
                  ? element(gradients, p, i)
                  : gradients[master.size() + part->second][static_cast<size_t>(of.begin + i)];
          gradient = spec::Round(
              rule.format,
              gradient + GradientElement({static_cast<int>(rank), micro, step, unit, p, i},
                                         weight(p, i), activation, loss_scale, injections));
        }
      }
    }
    return gradients;
  };

  spec::Training training(rule, master);
  Trajectory wanted;
  for (; step < kGoldenSteps; ++step) {
    // A loaded state's weights are those of its master.
    if (step == c.reload_at) {
      training.Publish();
      training.ShareErrors();
    }
    training.Step(backward);
    const spec::StepState& s = training.state();
    kernels::StepState state = {};
    state.step = s.step;
    state.loss_scale = s.loss_scale;
    state.grad_norm = s.grad_norm;
    state.grad_multiplier = s.multiplier;
    state.skip = s.skip ? 1 : 0;
    wanted.states.push_back(state);
  }
  training.ShareErrors();
  const spec::Buckets result = training.FullMaster();
  for (size_t p = 0; p < plan.parameters().size(); ++p) {
    const ParameterSpec& spec = plan.parameters()[p].spec;
    std::vector<float>& values = wanted.parameters.emplace_back();
    for (int64_t i = 0; i < spec.size; ++i) {
      const int index = static_cast<int>(p);
      values.push_back(spec.trainable ? element(result, index, i)
                                      : spec::Round(rule.format, InitialWeight(index, i)));
    }
  }
  return wanted;
}

absl::Status Train(collectives::Rank& self, const ZeroOptions& options,
                   const std::vector<Injection>& injections, Trajectory& trained, bool on_copies,
                   int reload_at) {
  BRIGADE_ASSIGN_OR_RETURN(auto zero, CreateZero(ModelOf(options.optimizer.kind), options, self));
  BRIGADE_RETURN_IF_ERROR(InitializeToy(*zero));
  ToyTrainer trainer(*zero, self, injections);
  trainer.on_copies = trainer.on_copies || on_copies;
  trainer.report_late = self.rank % 2 == 1 && options.stage < 3;
  for (int step = 0; step < kGoldenSteps; ++step) {
    if (step == reload_at) {
      BRIGADE_ASSIGN_OR_RETURN(const CapturedState state, Capture(*zero, self));
      BRIGADE_RETURN_IF_ERROR(LoadCaptured(*zero, state));
    }
    BRIGADE_RETURN_IF_ERROR(trainer.Step());
    BRIGADE_RETURN_IF_ERROR(zero->controller().RequestState(zero->step_stream()));
    // Now and then, so that steps queue up.
    if (step % 8 != 7 && step + 1 != kGoldenSteps) continue;
    BRIGADE_RETURN_IF_ERROR(zero->step_stream().Synchronize());
    while (true) {
      BRIGADE_ASSIGN_OR_RETURN(auto state, zero->controller().TakeState());
      if (!state.has_value()) break;
      trained.states.push_back(*state);
    }
  }
  BRIGADE_RETURN_IF_ERROR(zero->ShareErrors());
  BRIGADE_RETURN_IF_ERROR(self.stream->Synchronize());
  BRIGADE_ASSIGN_OR_RETURN(trained.parameters, Exported(*zero));
  return absl::OkStatus();
}

absl::Status Compare(const Trajectory& trained, const Trajectory& wanted) {
  if (trained.states.size() != wanted.states.size() ||
      trained.parameters.size() != wanted.parameters.size()) {
    return absl::InternalError(
        absl::StrCat(trained.states.size(), " states, ", trained.parameters.size(), " parameters"));
  }
  for (size_t s = 0; s < wanted.states.size(); ++s) {
    const kernels::StepState& a = trained.states[s];
    const kernels::StepState& b = wanted.states[s];
    if (a.step == b.step && a.skip == b.skip &&
        std::bit_cast<uint32_t>(a.loss_scale) == std::bit_cast<uint32_t>(b.loss_scale) &&
        std::bit_cast<uint64_t>(a.grad_norm) == std::bit_cast<uint64_t>(b.grad_norm)) {
      continue;
    }
    return absl::InternalError(absl::StrCat("step ", s, ": scale ", a.loss_scale, ", norm ",
                                            a.grad_norm, ", skip ", a.skip, "; wanted ",
                                            b.loss_scale, ", ", b.grad_norm, ", ", b.skip));
  }
  for (size_t p = 0; p < wanted.parameters.size(); ++p) {
    const std::vector<float>& a = trained.parameters[p];
    const std::vector<float>& b = wanted.parameters[p];
    if (a.size() != b.size())
      return absl::InternalError(absl::StrCat("parameter ", p, " is missing"));
    for (size_t i = 0; i < b.size(); ++i) {
      if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
      return absl::InternalError(
          absl::StrCat("parameter ", p, ", element ", i, " is ", a[i], "; wanted ", b[i]));
    }
  }
  return absl::OkStatus();
}

void ExpectTheSpecificationsBits(const GoldenCase& c, device::Device device, bool on_copies) {
  const Trajectory wanted = Specified(c);
  int skipped = 0;
  for (const kernels::StepState& state : wanted.states) skipped += state.skip;
  EXPECT_GE(skipped, 2);
  EXPECT_LT(skipped, kGoldenSteps / 2);
  int trained_stages = 0;
  const int stages = kStages;
  for (int stage = c.hpz_ranks > 0 ? 3 : 0; stage < stages; ++stage) {
    for (const bool overlap : {true, false}) {
      if (!overlap && c.ranks != 2 && c.shard_ranks != 2) continue;
      device::RaceChecker checker;
      ZeroOptions options = OptionsOf(c, stage);
      options.overlap_comm = overlap;
      if (!Validate(options).ok()) continue;
      // One group has no memory for what it would exchange.
      if (stage == 3 && options.exchanges() && c.shard_ranks == c.ranks) continue;
      ++trained_stages;
      collectives::RanksOptions ranks = {
          .size = c.ranks, .race_checker = &checker, .device = device};
      if (c.ranks_per_node > 0) {
        ranks.ranks_of_node = collectives::RanksOfNodes(c.ranks, c.ranks_per_node);
      }
      collectives::OnThreads(ranks, [&](collectives::Rank& self) {
        Trajectory trained;
        EXPECT_OK(Train(self, options, InjectionsOf(c), trained, on_copies, c.reload_at));
        EXPECT_OK(Compare(trained, wanted)) << "stage " << stage << ", rank " << self.rank;
      });
      EXPECT_TRUE(checker.reports().empty());
    }
  }
  EXPECT_GT(trained_stages, 0);
}

std::vector<GoldenCase> WholeTensorCases(optim::OptimizerKind kind) {
  using precision::DType;
  std::vector<GoldenCase> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      if (ranks == 3 || dtype == DType::kBFloat16) cases.push_back({ranks, dtype, kind});
    }
  }
  GoldenCase c = {2, DType::kBFloat16, kind};
  c.micro_batches = 3;
  cases.push_back(c);
  c.accumulation = Accumulation::kAtBoundary;
  c.reload_at = 20;
  cases.push_back(c);
  // A tensor in each bucket, whose slices many ranks have nothing in.
  c = {4, DType::kFloat32, kind};
  c.bucket_elements = 1;
  c.reload_at = 10;
  cases.push_back(c);
  c = {4, DType::kBFloat16, kind};
  c.shard_ranks = 2;
  cases.push_back(c);
  return cases;
}

}  // namespace brigade::zero
