#include <string_view>
#include <utility>

#include "brigade/kernels/adafactor/adafactor_parameters.h"
#include "brigade/kernels/muon/muon_parameters.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/train/config/config_sections.h"

namespace brigade::train {
namespace {

Key LearningRate(Settings& s) {
  return {.name = "lr",
          .value = Number(&s.group.lr, kNotNegative),
          .meaning =
              "the learning rate; `--lr` goes before it; without effect beside a schedule "
              "with rates of its own",
          .automatic = ByRate(s)};
}

constexpr char kCorrectsBias[] = "the moments are always corrected";
// Of 1-bit LAMB and 0/1 Adam.
constexpr char kCorrectsNoBias[] = "there is none, in DeepSpeed either";

Keys AdamKeys(Settings& s, Value adam_w_mode, const char* decay) {
  optim::ParameterGroup& group = s.group;
  constexpr char kOneAdam[] = "there is one Adam here, whose formula is the same";
  return {
      LearningRate(s),
      {"betas", Pair(&group.beta1, &group.beta2, kBelowOne), "of the moments' means"},
      {"eps", Number(&group.eps, kPositive), "added to the root of the second moment"},
      {"weight_decay", Number(&group.weight_decay, kNotNegative), decay},
      {"adam_w_mode", std::move(adam_w_mode), "true: AdamW"},
      {"bias_correction", Only(true, kCorrectsBias)},
      {"amsgrad", Only(false, "there is no AMSGrad here")},
      {"torch_adam", Tuning(false, kOneAdam),
       "with true PyTorch's AdamW has a `weight_decay` of 0.01 by default, which must be written"},
      {"fused", Tuning(true, kOneAdam)},
      {"fp32_optimizer_states", Only(true, "the moments are fp32")},
      {"max_grad_norm", Only(0.0, "gradient_clipping says it here")},
  };
}

// Names and defaults of deepspeed/runtime/fp16/onebit/adam.py.
Keys OneBitKeys(Settings& s, const char* bias_correction) {
  optim::ParameterGroup& group = s.group;
  constexpr char kTransport[] = "ranks exchange over the communicator that they have";
  return {
      LearningRate(s),
      {"betas", Pair(&group.beta1, &group.beta2, kBelowOne), "of the moments' means"},
      {"eps", Number(&group.eps, kPositive), "added to the root of the second moment"},
      {"weight_decay", Number(&group.weight_decay, kNotNegative), "of the weights"},
      {"freeze_step", Whole(&s.freeze_step, kStepsOrNone),
       "steps before second moments stay, 15 to 25 % of a training"},
      {"bias_correction", Tuning(true, bias_correction)},
      {"eps_inside_sqrt", Only(false, "epsilon is added to the root")},
      {"amsgrad", Only(false, "there is no AMSGrad here")},
      {"max_grad_norm", Only(0.0, "gradient_clipping says it here")},
      {"cuda_aware", Tuning(false, kTransport)},
      {"comm_backend_name", Tuning("nccl", kTransport)},
      {"exp_avg_mask", NotSupported()},
  };
}

// Names and defaults of deepspeed/runtime/fp16/onebit/zoadam.py.
Keys ZeroOneAdamKeys(Settings& s) {
  Keys keys;
  for (Key& key : OneBitKeys(s, kCorrectsNoBias)) {
    if (std::string_view(key.name) != "freeze_step") {
      keys.push_back(std::move(key));
      continue;
    }
    keys.push_back({"var_freeze_step", Whole(&s.zero_one.var_freeze_step, kSteps),
                    "steps before second moments stay for good: those in which the rate rises"});
    keys.push_back({"var_update_scaler", Whole(&s.zero_one.var_update_scaler, kSteps),
                    "before that so many steps update second moments, as many of every second step "
                    "follow, of every fourth, and so on"});
    keys.push_back(
        {"local_step_scaler", Whole(&s.zero_one.local_step_scaler, kSteps),
         "then ranks meet in each step, behind so many steps in every second one, behind "
         "as many in every fourth, and so on"});
    keys.push_back({"local_step_clipper", Whole(&s.zero_one.local_step_clipper, kSteps),
                    "up to this interval; in stages 1 and 2 it must be 1"});
  }
  return keys;
}

// Names and defaults of bitsandbytes/optim/adamw.py and adam.py.
Keys Adam8Keys(Settings& s, double* weight_decay, const char* decay) {
  optim::ParameterGroup& group = s.group;
  return {
      LearningRate(s),
      {"betas", Pair(&group.beta1, &group.beta2, kBelowOne), "of the moments' means"},
      {"eps", Number(&group.eps, kPositive), "added to the root of the second moment"},
      {"weight_decay", Number(weight_decay, kNotNegative), decay},
      {"min_8bit_size", Whole(&s.coded.min_elements, kCountOrNone),
       "elements of a tensor from which on its moments have 8 bits; of smaller ones 32"},
      {"fp32_embeddings", Flag(&s.fp32_tables),
       "Brigade's: true: moments of embeddings have 32 bits, too, without which trainings have "
       "become unstable"},
      {"optim_bits", Only(8, "with type AdamW and Adam they are 32")},
      {"block_wise", Only(true, "each 256 moments have a scale")},
      {"percentile_clipping", Only(100, "gradient_clipping says it here")},
      {"amsgrad", Only(false, "there is no AMSGrad here")},
      {"is_paged", Tuning(false, "offload_optimizer says where the state is")},
  };
}

// Names of deepspeed/runtime/zero/muon and of torch.optim.Muon, defaults of the former.
Keys MuonKeys(Settings& s) {
  using kernels::MuonScale;
  return {
      LearningRate(s),
      {"muon_lr", Number(&s.muon_lr, kNotNegative),
       "the learning rate of matrices; without it `lr`, whose schedule it follows"},
      {"momentum", Number(&s.muon_momentum, kBelowOne), "how much of the last one stays"},
      {"nesterov", Flag(&s.muon_nesterov), "true: the momentum of the next step"},
      {"ns_steps", Whole(&s.muon.steps, {1.0, kernels::kMaxMuonSteps, "1 to 99"}),
       "steps of Newton and Schulz, by which a matrix becomes nearly orthogonal"},
      {"adjust_lr_fn",
       OneOf(&s.muon.scale,
             {{"original", MuonScale::kOriginal}, {"match_rms_adamw", MuonScale::kMatchRmsAdamW}}),
       "matrices move by sqrt(max(1, rows / columns)) times the rate; match_rms_adamw: 0.2 "
       "sqrt(max(rows, columns)), as much as AdamW moves them"},
      {"weight_decay", Number(&s.group.weight_decay, kNotNegative), "of the weights"},
      {"betas", Pair(&s.muon_beta1, &s.muon_beta2, kBelowOne), "of AdamW's moments"},
      {"eps", Number(&s.muon_eps, kPositive), "added to the root of AdamW's second moment"},
  };
}

// Names and defaults of transformers' Adafactor (optimization.py).
Keys AdafactorKeys(Settings& s) {
  kernels::AdafactorSettings& of = s.adafactor;
  constexpr NumberRange kEps = {0x1p-126, 1.0, "2^-126 to 1"};
  constexpr NumberRange kDecayRate = {-10.0, 0.0, "-10 to 0"};
  return {
      LearningRate(s),
      {"relative_step", Flag(&of.relative_step),
       "the rate is the smaller one of 0.01 and 1 / sqrt(step), and `lr` must not be given"},
      {"warmup_init", Flag(&of.warmup_init),
       "true: instead of 0.01 a millionth of the number of the step"},
      {"scale_parameter", Flag(&of.scale_parameter),
       "a tensor's rate is multiplied by the root mean square of its weights"},
      {"clip_threshold", Number(&of.clip_threshold, kPositive),
       "the root mean square that a tensor's update has at most, before its rate"},
      {"decay_rate", Number(&of.decay_rate, kDecayRate),
       "squares of a step count step^decay_rate in their means"},
      {"eps", Pair(&of.eps1, &of.eps2, kEps),
       "added to squares of gradients; and the least root mean square of weights that counts"},
      {"beta1", Number(&s.adafactor_beta1, kBelowOne),
       "how much of the last step stays; 0: there is no first moment, as without beta1"},
      {"weight_decay", Number(&s.group.weight_decay, kNotNegative), "of the weights"},
  };
}

constexpr char kMostTrust[] = "the most that a tensor's norm over that of its update counts";

Keys LambKeys(Settings& s) {
  optim::ParameterGroup& group = s.group;
  return {
      LearningRate(s),
      {"betas", Pair(&group.beta1, &group.beta2, kBelowOne), "of the moments' means"},
      {"eps", Number(&group.eps, kPositive), "added to the root of the second moment"},
      {"weight_decay", Number(&group.weight_decay, kNotNegative),
       "of the weights, in the update whose norm counts"},
      {"max_coeff", Number(&group.max_trust, kNotNegative), kMostTrust},
      {"min_coeff", Number(&group.min_trust, kNotNegative), "the least"},
      {"bias_correction", Only(true, kCorrectsBias)},
      {"eps_inside_sqrt", Only(false, "it is added to the root")},
      {"amsgrad", Only(false, "there is no AMSGrad here")},
      {"max_grad_norm", Only(0.0, "gradient_clipping says it here")},
  };
}

// Names and defaults of deepspeed/runtime/fp16/onebit/lamb.py.
Keys OneBitLambKeys(Settings& s) {
  kernels::OneBitLambCoefficients& factors = s.one_bit_lamb;
  constexpr NumberRange kLeast = {0x1p-149, 3.0e38, "more than 0, to factor_max"};
  Keys keys;
  for (Key& key : OneBitKeys(s, kCorrectsNoBias)) {
    const std::string_view name = key.name;
    if (name == "weight_decay") key.meaning = "of the weights, in the update whose norm counts";
    if (name == "freeze_step") key.value = Whole(&s.freeze_step, kSteps);
    keys.push_back(std::move(key));
  }
  keys.push_back({"max_coeff", Number(&s.group.max_trust, kNotNegative), kMostTrust});
  keys.push_back({"min_coeff", Number(&s.group.min_trust, kNotNegative), "the least"});
  keys.push_back({"coeff_beta", Number(&factors.coeff_beta, kBelowOne),
                  "of the mean of those ratios before `freeze_step`, which counts from then on"});
  keys.push_back({"factor_max", Number(&factors.factor_max, kPositive),
                  "the most by which that mean is multiplied"});
  keys.push_back({"factor_min", Number(&factors.factor_min, kLeast), "the least"});
  keys.push_back({"factor_threshold", Number(&factors.factor_threshold, kBelowOne),
                  "how much the factor may change in a step, of what it was"});
  return keys;
}

}  // namespace

// Types and defaults as in DeepSpeed's documentation of "optimizer" (deepspeed.ai, "DeepSpeed
// Configuration JSON") and deepspeed/ops/adam/fused_adam.py,
// deepspeed/ops/lion/fused_lion.py and deepspeed/ops/lamb/fused_lamb.py; SGD is PyTorch's.
Key OptimizerKey(Settings& s) {
  using Kind = optim::OptimizerKind;
  optim::ParameterGroup& group = s.group;
  Keys types = {
      {"Adam", Set(&s.optimizer, Kind::kAdam), "AdamW, unless `adam_w_mode` is false",
       AdamKeys(s, Flag(&s.adam_w_mode),
                "of the weights; without `adam_w_mode` it is added to gradients")},
      {"AdamW", Set(&s.optimizer, Kind::kAdamW), "Adam with decay of the weights",
       AdamKeys(s, Only(true, "that is what AdamW means; with type Adam it may be false"),
                "of the weights")},
      {"SGD",
       Set(&s.optimizer, Kind::kSgd),
       "gradient descent, with momentum where that is given",
       {
           LearningRate(s),
           {"momentum", Number(&group.momentum, kBelowOne), "how much of the last step stays"},
           {"dampening", Number(&group.dampening, kUnit), "of gradients in the momentum"},
           {"weight_decay", Number(&group.weight_decay, kNotNegative), "added to gradients"},
           {"nesterov", Flag(&group.nesterov), "true: the momentum of the next step"},
           {"maximize", Only(false, "losses are minimised")},
       }},
      {"Lion",
       Set(&s.optimizer, Kind::kLion),
       "the sign of a momentum: each weight moves by the rate",
       {
           LearningRate(s),
           {"betas", Pair(&group.beta1, &s.lion_beta2, kBelowOne),
            "of the momentum in the direction, and of the one that stays"},
           {"weight_decay", Number(&group.weight_decay, kNotNegative), "of the weights"},
           {"fp32_optimizer_states", Only(true, "the momentum is fp32")},
       }},
      {"Muon", Set(&s.optimizer, Kind::kMuon),
       "of matrices in layers the momentum, made orthogonal; of embeddings, norms and biases AdamW",
       MuonKeys(s)},
      {"Adafactor", Set(&s.optimizer, Kind::kAdafactor),
       "of matrices means of squares of rows and columns instead of second moments, a quarter of "
       "a byte a weight instead of 8; as transformers has it, which also factors the last two of "
       "three extents and more",
       AdafactorKeys(s)},
      {"AdamW8bit", Set(&s.optimizer, Kind::kAdamW8),
       "AdamW whose moments are codes of 8 bits, 2.03 bytes a weight instead of 8; as bitsandbytes "
       "has it",
       Adam8Keys(s, &s.adam_w8_decay, "of the weights")},
      {"Adam8bit", Set(&s.optimizer, Kind::kAdam8), "Adam with such moments",
       Adam8Keys(s, &group.weight_decay, "added to gradients")},
      {"OneBitAdam", Set(&s.optimizer, Kind::kOneBitAdam),
       "AdamW, whose ranks exchange first moments as signs once second "
       "moments stay; stages 0 to 2",
       OneBitKeys(s, kCorrectsBias)},
      {"Lamb", Set(&s.optimizer, Kind::kLamb),
       "Adam, with a rate of each tensor's own: by its norm over that of its update", LambKeys(s)},
      {"OneBitLamb", Set(&s.optimizer, Kind::kOneBitLamb),
       "LAMB without bias correction, whose ranks exchange first moments as signs once second "
       "moments stay, and whose tensors' rates go on from those before; stages 0 to 2",
       OneBitLambKeys(s)},
      {"ZeroOneAdam", Set(&s.optimizer, Kind::kZeroOneAdam),
       "AdamW without bias correction that updates second moments in ever fewer steps, and whose "
       "ranks exchange gradients as signs in the others; once second moments stay, ranks go on "
       "alone and exchange what they have moved as signs in ever fewer steps; stage 0, without "
       "steps alone stages 1 and 2",
       ZeroOneAdamKeys(s)},
  };
  for (const char* name : {"Adagrad", "MuAdam", "MuAdamW", "MuSGD"}) {
    types.push_back({name, NotSupported()});
  }
  static constexpr char kNeeded[] =
      R"(one is needed, like {"type": "AdamW", "params": {"lr": 0.001}}; )"
      "or --lr, for AdamW with that rate";
  return {.name = "optimizer",
          .meaning = "What updates the weights. Without it `--lr` stands for AdamW with that rate.",
          .keys = {{"legacy_fusion", Only(false, "parameters lie in one array, always")}},
          .types = std::move(types),
          .required = s.flags.lr.has_value() ? nullptr : kNeeded};
}

}  // namespace brigade::train
