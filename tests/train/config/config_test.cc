#include "brigade/train/config/config.h"

#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// Files and texts that are right, and what they mean.

namespace brigade::train {
namespace {

using optim::OptimizerKind;
using precision::DType;

std::string Example(const char* name) { return absl::StrCat("examples/gpt/configs/", name); }

// A config with `more` of the given keys, with commas before them.
absl::StatusOr<TrainConfig> With(const std::string& more) {
  return ParseConfig(
      absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"})", more, "}"), 4);
}

TEST(ConfigTest, ReadsTheExampleOfSgdInFp16AndStage2) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, ReadConfig(Example("sgd_fp16_zero2.json"), 4));
  EXPECT_EQ(config.batch, (zero::BatchSizes{4, 1, 1}));
  const zero::ZeroOptions& zero = config.zero;
  EXPECT_EQ(zero.stage, 2);
  EXPECT_EQ(zero.dtype, DType::kFloat16);
  EXPECT_EQ(zero.micro_batches, 1);
  EXPECT_EQ(zero.max_grad_norm, std::numeric_limits<double>::infinity());
  EXPECT_EQ(zero.optimizer.kind, OptimizerKind::kSgd);
  ASSERT_EQ(zero.optimizer.groups.size(), 1u);
  EXPECT_EQ(zero.optimizer.groups[0].lr, 0.001);
  EXPECT_EQ(zero.optimizer.groups[0].momentum, 0.9);
  EXPECT_TRUE(std::holds_alternative<optim::ConstantLR>(zero.optimizer.groups[0].schedule));
  EXPECT_TRUE(zero.loss_scaler.dynamic());
  EXPECT_EQ(zero.loss_scaler.initial_scale_power, 16);
  EXPECT_EQ(zero.loss_scaler.loss_scale_window, 1000);
  EXPECT_EQ(zero.loss_scaler.hysteresis, 2);
  EXPECT_EQ(zero.loss_scaler.min_loss_scale, 1.0f);
  EXPECT_TRUE(zero.loss_scaler.check_overflow);
}

TEST(ConfigTest, ReadsTheExampleOfAdamWInBf16AndStage3) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, ReadConfig(Example("adamw_bf16_zero3.json"), 4));
  EXPECT_EQ(config.batch, (zero::BatchSizes{32, 4, 2}));
  const zero::ZeroOptions& zero = config.zero;
  EXPECT_EQ(zero.stage, 3);
  EXPECT_EQ(zero.dtype, DType::kBFloat16);
  EXPECT_EQ(zero.loss_scaler.loss_scale, 1.0f);
  EXPECT_EQ(zero.micro_batches, 2);
  EXPECT_EQ(zero.max_grad_norm, 1.0);
  EXPECT_EQ(zero.bucket_elements, 500000);
  EXPECT_EQ(zero.persistence_threshold, 1000);
  EXPECT_EQ(zero.live_units, 3);
  EXPECT_EQ(zero.optimizer.kind, OptimizerKind::kAdamW);
  const optim::ParameterGroup& group = zero.optimizer.groups[0];
  EXPECT_EQ(group.lr, 0.002);
  EXPECT_EQ(group.beta1, 0.9);
  EXPECT_EQ(group.beta2, 0.95);
  EXPECT_EQ(group.eps, 1e-8);
  EXPECT_EQ(group.weight_decay, 0.1);
  const auto& cosine = std::get<optim::WarmupCosineLR>(group.schedule);
  EXPECT_EQ(cosine.total_num_steps, 400);
  EXPECT_EQ(cosine.warmup_num_steps, 40);
  EXPECT_EQ(cosine.cos_min_ratio, 0.1);
}

TEST(ConfigTest, ReadsTheExampleOfAdamInFp32AndStage0) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, ReadConfig(Example("adam_fp32_zero0.json"), 4));
  EXPECT_EQ(config.batch, (zero::BatchSizes{32, 8, 1}));
  EXPECT_EQ(config.zero.stage, 0);
  EXPECT_EQ(config.zero.dtype, DType::kFloat32);
  EXPECT_EQ(config.zero.loss_scaler.loss_scale, 1.0f);
  EXPECT_EQ(config.zero.optimizer.kind, OptimizerKind::kAdam);
  const auto& warmup = std::get<optim::WarmupLR>(config.zero.optimizer.groups[0].schedule);
  EXPECT_EQ(warmup.warmup_num_steps, 20);
  EXPECT_EQ(warmup.warmup_type, optim::WarmupType::kLinear);
  EXPECT_FALSE(warmup.warmup_max_lr.has_value());
}

TEST(ConfigTest, HasDeepSpeedsDefaultsAndZeroOptionsForMemoryAndSpeed) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(""));
  const zero::ZeroOptions defaults;
  EXPECT_EQ(config.batch, (zero::BatchSizes{8, 2, 1}));
  EXPECT_EQ(config.zero.stage, 0);
  EXPECT_EQ(config.zero.dtype, DType::kFloat32);
  EXPECT_EQ(config.zero.accumulator, DType::kFloat32);
  EXPECT_EQ(config.zero.bucket_elements, defaults.bucket_elements);
  EXPECT_EQ(config.zero.overlap_comm, defaults.overlap_comm);
  EXPECT_EQ(config.zero.live_units, defaults.live_units);
  EXPECT_EQ(config.zero.optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(config.zero.optimizer.groups[0].lr, 0.001);
  EXPECT_EQ(config.zero.optimizer.groups[0].weight_decay, 0.0);
}

TEST(ConfigTest, ReadsMomentsOf8BitsWithTheDefaultsOfBitsandbytes) {
  const auto config = [](const char* text) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 4, "optimizer": )", text, "}"), 4)
        .value()
        .zero.optimizer;
  };
  const optim::OptimizerOptions plain = config(R"({"type": "AdamW8bit", "params": {"lr": 0.5}})");
  EXPECT_EQ(plain.kind, OptimizerKind::kAdamW8);
  EXPECT_EQ(plain.groups[0].weight_decay, 0.01);
  EXPECT_EQ(plain.coded.min_elements, 4096);
  EXPECT_FALSE(plain.coded.tables);
  const optim::OptimizerOptions all = config(
      R"({"type": "Adam8bit", "params": {"betas": [0.5, 0.75], "eps": 0.125, "weight_decay": 0.25,
          "min_8bit_size": 100, "fp32_embeddings": false, "optim_bits": 8, "is_paged": false}})");
  EXPECT_EQ(all.kind, OptimizerKind::kAdam8);
  EXPECT_EQ(all.groups[0].beta2, 0.75);
  EXPECT_EQ(all.groups[0].eps, 0.125);
  EXPECT_EQ(all.groups[0].weight_decay, 0.25);
  EXPECT_EQ(all.coded.min_elements, 100);
  EXPECT_TRUE(all.coded.tables);
  EXPECT_THAT(ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "AdamW8bit"},
                              "tensor_parallel": {"autotp_size": 2}})",
                          4),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("optimizer.type is \"AdamW8bit\", whose "
                                                     "moments have a scale for each 256")));
  EXPECT_THAT(ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "AdamW8bit"},
                              "brigade": {"replicas": 2}})",
                          4),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("brigade.replicas is 2, but optimizer.type")));
}

TEST(ConfigTest, ReadsLionWithItsOwnBetas) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig lion,
                       ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "Lion",
                      "params": {"lr": 0.0001, "weight_decay": 0.5}}})",
                                   1));
  EXPECT_EQ(lion.zero.optimizer.kind, OptimizerKind::kLion);
  EXPECT_EQ(lion.zero.optimizer.groups[0].lr, 0.0001);
  EXPECT_EQ(lion.zero.optimizer.groups[0].beta1, 0.9);
  EXPECT_EQ(lion.zero.optimizer.groups[0].beta2, 0.99);
  EXPECT_EQ(lion.zero.optimizer.groups[0].weight_decay, 0.5);
  ASSERT_OK_AND_ASSIGN(const TrainConfig own,
                       ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "Lion",
                      "params": {"betas": [0.95, 0.98]}}})",
                                   1));
  EXPECT_EQ(own.zero.optimizer.groups[0].beta1, 0.95);
  EXPECT_EQ(own.zero.optimizer.groups[0].beta2, 0.98);
}

TEST(ConfigTest, ReadsMuonWithDeepSpeedsNames) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig own,
                       ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "Muon",
                      "params": {"lr": 0.001, "muon_lr": 0.02, "momentum": 0.9, "nesterov": false,
                      "ns_steps": 6, "weight_decay": 0.1, "betas": [0.8, 0.9], "eps": 1e-6,
                      "adjust_lr_fn": "match_rms_adamw"}}})",
                                   1));
  const optim::OptimizerOptions& optimizer = own.zero.optimizer;
  EXPECT_EQ(optimizer.kind, OptimizerKind::kMuon);
  EXPECT_EQ(optimizer.groups[0].lr, 0.001);
  EXPECT_DOUBLE_EQ(optimizer.muon.rate, 20);
  EXPECT_EQ(optimizer.muon.steps, 6);
  EXPECT_EQ(optimizer.muon.scale, kernels::MuonScale::kMatchRmsAdamW);
  EXPECT_EQ(optimizer.groups[0].momentum, 0.9);
  EXPECT_FALSE(optimizer.groups[0].nesterov);
  EXPECT_EQ(optimizer.groups[0].weight_decay, 0.1);
  EXPECT_EQ(optimizer.groups[0].beta1, 0.8);
  EXPECT_EQ(optimizer.groups[0].beta2, 0.9);
  EXPECT_EQ(optimizer.groups[0].eps, 1e-6);
  ASSERT_OK_AND_ASSIGN(const TrainConfig plain,
                       ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "Muon"}})", 1));
  EXPECT_EQ(plain.zero.optimizer.muon.rate, 1);
  EXPECT_EQ(plain.zero.optimizer.groups[0].momentum, 0.95);
  EXPECT_TRUE(plain.zero.optimizer.groups[0].nesterov);
  EXPECT_EQ(plain.zero.optimizer.groups[0].beta2, 0.95);
  const auto refuses = [](const char* json, int ranks, const char* text) {
    EXPECT_THAT(ParseConfig(json, ranks).status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(text)));
  };
  refuses(R"({"train_batch_size": 4, "optimizer": {"type": "Muon"},
              "tensor_parallel": {"autotp_size": 2}})",
          2, "which makes whole matrices orthogonal");
  refuses(R"({"train_batch_size": 4, "optimizer": {"type": "Muon"}, "brigade": {"replicas": 2}})",
          2, "whose matrices have one moment");
  refuses(R"({"train_batch_size": 4, "optimizer": {"type": "Muon",
              "params": {"lr": 0, "muon_lr": 0.1}}})",
          1, "it goes by the schedule of lr, which is 0");
}

TEST(ConfigTest, ReadsAdafactorWithTransformersNames) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig own,
                       ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "Adafactor",
                      "params": {"lr": 0.002, "relative_step": false, "scale_parameter": false,
                      "clip_threshold": 2, "decay_rate": -0.7, "eps": [1e-20, 0.01], "beta1": 0.8,
                      "weight_decay": 0.1}}, "scheduler": {"type": "WarmupLR",
                      "params": {"warmup_max_lr": 0.002}}})",
                                   1));
  const optim::OptimizerOptions& optimizer = own.zero.optimizer;
  EXPECT_EQ(optimizer.kind, OptimizerKind::kAdafactor);
  EXPECT_EQ(optimizer.groups[0].lr, 0.002);
  EXPECT_EQ(optimizer.groups[0].momentum, 0.8);
  EXPECT_EQ(optimizer.groups[0].weight_decay, 0.1);
  EXPECT_FALSE(optimizer.adafactor.relative_step);
  EXPECT_FALSE(optimizer.adafactor.scale_parameter);
  EXPECT_EQ(optimizer.adafactor.clip_threshold, 2);
  EXPECT_EQ(optimizer.adafactor.decay_rate, -0.7);
  EXPECT_EQ(optimizer.adafactor.eps1, 1e-20);
  EXPECT_EQ(optimizer.adafactor.eps2, 0.01);
  ASSERT_OK_AND_ASSIGN(const TrainConfig plain,
                       ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "Adafactor",
                      "params": {"warmup_init": true}}})",
                                   1));
  EXPECT_EQ(plain.zero.optimizer.groups[0].momentum, 0);
  EXPECT_TRUE(plain.zero.optimizer.adafactor.relative_step);
  EXPECT_TRUE(plain.zero.optimizer.adafactor.scale_parameter);
  EXPECT_TRUE(plain.zero.optimizer.adafactor.warmup_init);
  EXPECT_EQ(plain.zero.optimizer.adafactor.eps1, 1e-30);
  EXPECT_EQ(plain.zero.optimizer.adafactor.decay_rate, -0.8);
  const auto refuses = [](const char* params, const char* more, int ranks, const char* text) {
    const std::string json = std::string(R"({"train_batch_size": 4, "optimizer": {"type":
        "Adafactor", "params": {)") +
                             params + "}}" + more + "}";
    EXPECT_THAT(ParseConfig(json, ranks).status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(text)));
  };
  refuses(R"("lr": 0.1)", "", 1, "by which the rate goes by the step alone");
  refuses("", R"(, "scheduler": {"type": "WarmupLR"})", 1, "scheduler.type");
  refuses(R"("relative_step": false, "warmup_init": true)", "", 1, "whose beginning it is");
  refuses(R"("decay_rate": 0.8)", "", 1, "-10 to 0");
  refuses(R"("eps": [0, 0.001])", "", 1, "2^-126 to 1");
  refuses("", R"(, "tensor_parallel": {"autotp_size": 2})", 2, "whose factors are of whole");
  refuses("", R"(, "brigade": {"replicas": 2})", 2, "whose factors of matrices replicas do not");
}

TEST(ConfigTest, ReadsWhatRanksExchangeAsSigns) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig one_bit,
                       ParseConfig(R"({"train_batch_size": 4, "zero_optimization": {"stage": 2},
                      "optimizer": {"type": "OneBitAdam", "params": {"lr": 0.0001,
                      "freeze_step": 40, "weight_decay": 0.5, "cuda_aware": true,
                      "comm_backend_name": "mpi"}}})",
                                   4));
  EXPECT_EQ(one_bit.zero.optimizer.kind, OptimizerKind::kOneBitAdam);
  EXPECT_EQ(one_bit.zero.optimizer.freeze_step, 40);
  EXPECT_EQ(one_bit.zero.optimizer.groups[0].weight_decay, 0.5);
  EXPECT_FALSE(one_bit.zero.gradient_compression.has_value());
  ASSERT_OK_AND_ASSIGN(const TrainConfig signs,
                       ParseConfig(R"({"train_batch_size": 4, "zero_optimization": {"stage": 1},
                      "optimizer": {"type": "AdamW", "params": {"lr": 0.1}},
                      "brigade": {"gradient_compression": "one_bit",
                                  "gradient_compression_start_step": 30}})",
                                   4));
  ASSERT_TRUE(signs.zero.gradient_compression.has_value());
  EXPECT_EQ(signs.zero.gradient_compression->method, zero::GradientCompression::kOneBit);
  EXPECT_EQ(signs.zero.gradient_compression->start_step, 30);
  const auto other = [](const std::string& keys, const StepFlags& flags = {}) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 4, "zero_optimization": {"stage": 1},
                      "optimizer": {"type": "AdamW", "params": {"lr": 0.1}},
                      "brigade": {)",
                                    keys, "}}"),
                       4, "", {}, flags);
  };
  ASSERT_OK_AND_ASSIGN(const TrainConfig factors, other(R"("gradient_compression": "power_sgd",
                                                           "gradient_compression_rank": 8)"));
  EXPECT_EQ(factors.zero.gradient_compression->method, zero::GradientCompression::kPowerSgd);
  EXPECT_EQ(factors.zero.gradient_compression->rank, 8);
  // The flag goes before the file.
  ASSERT_OK_AND_ASSIGN(const TrainConfig greatest,
                       other(R"("gradient_compression": "power_sgd",
                                "gradient_compression_density": 0.25)",
                             {.gradient_compression = zero::GradientCompression::kTopK}));
  EXPECT_EQ(greatest.zero.gradient_compression->method, zero::GradientCompression::kTopK);
  EXPECT_EQ(greatest.zero.gradient_compression->density, 0.25);
  // Signs, and no others, go in two hops where nodes are known.
  const auto nodes_of = [&](const std::string& keys) {
    return other(absl::StrCat(R"("ranks_per_node": 2, "gradient_compression": )", keys))
        .value()
        .zero.node_ranks;
  };
  EXPECT_EQ(nodes_of(R"("one_bit")"), 2);
  EXPECT_EQ(nodes_of(R"("top_k", "algorithm": "hierarchical", "reduction": "fp32_partials")"), 0);
  EXPECT_FALSE(other(R"("ranks_per_node": 2, "gradient_compression": "power_sgd")").ok());
  ASSERT_OK_AND_ASSIGN(const TrainConfig moments,
                       ParseConfig(R"({"train_batch_size": 4, "brigade": {"ranks_per_node": 2},
                                       "optimizer": {"type": "OneBitAdam"}})",
                                   4));
  EXPECT_EQ(moments.zero.node_ranks, 2);
  EXPECT_FALSE(other(R"("gradient_compression_density": 0)").ok());
  EXPECT_FALSE(other(R"("gradient_compression_rank": 129)").ok());
  EXPECT_FALSE(ParseConfig(R"({"train_batch_size": 4, "zero_optimization": {"stage": 3},
                      "optimizer": {"type": "AdamW", "params": {"lr": 0.1}},
                      "brigade": {"gradient_compression": "one_bit"}})",
                           4)
                   .ok());
}

TEST(ConfigTest, ReadsZeroOneAdamWithDeepSpeedsDefaults) {
  const auto config = [](int stage, const char* params) {
    return ParseConfig(
        absl::StrCat(R"({"train_batch_size": 4, "zero_optimization": {"stage": )", stage,
                     R"(}, "optimizer": {"type": "ZeroOneAdam", "params": {)", params, "}}}"),
        4);
  };
  const optim::OptimizerOptions plain = config(0, "").value().zero.optimizer;
  EXPECT_EQ(plain.kind, OptimizerKind::kZeroOneAdam);
  EXPECT_EQ(plain.zero_one.var_freeze_step, 100000);
  EXPECT_EQ(plain.zero_one.var_update_scaler, 16);
  EXPECT_EQ(plain.zero_one.local_step_scaler, 32678);
  EXPECT_EQ(plain.zero_one.local_step_clipper, 16);
  const optim::OptimizerOptions own =
      config(2, R"("var_freeze_step": 40, "var_update_scaler": 8, "local_step_scaler": 20,
                   "local_step_clipper": 1, "weight_decay": 0.5, "cuda_aware": false,
                   "comm_backend_name": "nccl")")
          .value()
          .zero.optimizer;
  EXPECT_EQ(own.zero_one.var_freeze_step, 40);
  EXPECT_EQ(own.zero_one.var_update_scaler, 8);
  EXPECT_EQ(own.zero_one.local_step_scaler, 20);
  EXPECT_EQ(own.zero_one.local_step_clipper, 1);
  EXPECT_EQ(own.groups[0].weight_decay, 0.5);
  for (const int stage : {1, 2}) {
    EXPECT_THAT(
        config(stage, "").status().message(),
        ::testing::HasSubstr(absl::StrCat("optimizer.type is \"ZeroOneAdam\", but "
                                          "zero_optimization.stage is ",
                                          stage, " and local_step_clipper 16; local steps need")));
  }
  EXPECT_FALSE(config(0, R"("freeze_step": 3)").ok());
  EXPECT_FALSE(config(0, R"("var_update_scaler": 0)").ok());
}

TEST(ConfigTest, ReadsOneBitLambWithDeepSpeedsDefaults) {
  const auto optimizer = [](const char* params) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 4, "zero_optimization": {"stage": 1},
                       "optimizer": {"type": "OneBitLamb", "params": {)",
                                    params, "}}}"),
                       4)
        .value()
        .zero.optimizer;
  };
  const optim::OptimizerOptions plain = optimizer("");
  EXPECT_EQ(plain.kind, OptimizerKind::kOneBitLamb);
  EXPECT_EQ(plain.freeze_step, 100000);
  EXPECT_EQ(plain.groups[0].max_trust, 10.0);
  EXPECT_EQ(plain.groups[0].min_trust, 0.01);
  EXPECT_EQ(plain.one_bit_lamb.coeff_beta, 0.9);
  EXPECT_EQ(plain.one_bit_lamb.factor_max, 4.0);
  EXPECT_EQ(plain.one_bit_lamb.factor_min, 0.5);
  EXPECT_EQ(plain.one_bit_lamb.factor_threshold, 0.1);
  const optim::OptimizerOptions own = optimizer(
      R"("freeze_step": 40, "weight_decay": 0.5, "max_coeff": 0.3, "min_coeff": 0.02,
         "coeff_beta": 0.8, "factor_max": 3.0, "factor_min": 0.25, "factor_threshold": 0.05)");
  EXPECT_EQ(own.freeze_step, 40);
  EXPECT_EQ(own.groups[0].weight_decay, 0.5);
  EXPECT_EQ(own.groups[0].max_trust, 0.3);
  EXPECT_EQ(own.groups[0].min_trust, 0.02);
  EXPECT_EQ(own.one_bit_lamb.coeff_beta, 0.8);
  EXPECT_EQ(own.one_bit_lamb.factor_max, 3.0);
  EXPECT_EQ(own.one_bit_lamb.factor_min, 0.25);
  EXPECT_EQ(own.one_bit_lamb.factor_threshold, 0.05);
}

TEST(ConfigTest, ReadsLambWithBoundsOfItsRatio) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig lamb,
                       ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "Lamb",
                      "params": {"lr": 0.002, "weight_decay": 0.5, "max_coeff": 0.3,
                      "min_coeff": 0.02, "betas": [0.8, 0.9], "eps": 1e-6,
                      "bias_correction": true}}})",
                                   1));
  const optim::ParameterGroup& group = lamb.zero.optimizer.groups[0];
  EXPECT_EQ(lamb.zero.optimizer.kind, OptimizerKind::kLamb);
  EXPECT_EQ(group.lr, 0.002);
  EXPECT_EQ(group.weight_decay, 0.5);
  EXPECT_EQ(group.max_trust, 0.3);
  EXPECT_EQ(group.min_trust, 0.02);
  EXPECT_EQ(group.beta1, 0.8);
  EXPECT_EQ(group.beta2, 0.9);
  EXPECT_EQ(group.eps, 1e-6);
  ASSERT_OK_AND_ASSIGN(const TrainConfig plain,
                       ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "Lamb"}})", 1));
  EXPECT_EQ(plain.zero.optimizer.groups[0].max_trust, 10.0);
  EXPECT_EQ(plain.zero.optimizer.groups[0].min_trust, 0.01);
}

TEST(ConfigTest, ReadsSgdAndTheOtherWayOfAdam) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig sgd,
                       ParseConfig(R"({"train_batch_size": 4, "zero_allow_untested_optimizer": true,
                      "optimizer": {"type": "sgd", "params": {"lr": 0.1, "momentum": 0.5,
                      "nesterov": true, "weight_decay": 0.25, "dampening": 0}}})",
                                   1));
  EXPECT_EQ(sgd.zero.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_TRUE(sgd.zero.optimizer.groups[0].nesterov);
  EXPECT_EQ(sgd.zero.optimizer.groups[0].weight_decay, 0.25);
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig adam,
      ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {
                      "adam_w_mode": true, "torch_adam": false}}})",
                  1));
  EXPECT_EQ(adam.zero.optimizer.kind, OptimizerKind::kAdamW);
}

TEST(ConfigTest, ReadsAllThatLossScalingHas) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig dynamic, With(R"(, "fp16": {"enabled": true,
      "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 3,
      "consecutive_hysteresis": true, "min_loss_scale": 4, "auto_cast": false},
      "bf16": {"enabled": false}, "brigade": {"at_minimum_loss_scale": "clamp"})"));
  const optim::LossScaler& scaler = dynamic.zero.loss_scaler;
  EXPECT_TRUE(scaler.dynamic());
  EXPECT_EQ(scaler.initial_scale_power, 12);
  EXPECT_EQ(scaler.loss_scale_window, 500);
  EXPECT_EQ(scaler.hysteresis, 3);
  EXPECT_TRUE(scaler.consecutive_hysteresis);
  EXPECT_EQ(scaler.min_loss_scale, 4.0f);
  EXPECT_EQ(scaler.at_minimum, kernels::AtMinimum::kClamp);

  ASSERT_OK_AND_ASSIGN(const TrainConfig constant,
                       With(R"(, "fp16": {"enabled": true, "loss_scale": 128})"));
  EXPECT_EQ(constant.zero.loss_scaler.loss_scale, 128.0f);

  ASSERT_OK_AND_ASSIGN(const TrainConfig off,
                       With(R"(, "fp16": {"enabled": false, "loss_scale": 128, "hysteresis": 2},
                               "bf16": {"enabled": true, "check_grad_overflow": false})"));
  EXPECT_EQ(off.zero.dtype, DType::kBFloat16);
  EXPECT_EQ(off.zero.loss_scaler.loss_scale, 1.0f);
  EXPECT_FALSE(off.zero.loss_scaler.check_overflow);
}

// The usual section, whose scale somebody has made a constant.
TEST(ConfigTest, TakesWhatAConstantLossScaleDoesNotAsk) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(R"(, "fp16": {"enabled": true,
      "loss_scale": 128, "initial_scale_power": 2, "loss_scale_window": 1000, "hysteresis": 2,
      "consecutive_hysteresis": false, "min_loss_scale": 8})"));
  EXPECT_FALSE(config.zero.loss_scaler.dynamic());
  EXPECT_EQ(config.zero.loss_scaler.loss_scale, 128.0f);
  constexpr char kConstant[] = ": fp16.loss_scale is not 0, so the scale never changes";
  EXPECT_THAT(config.without_effect,
              ::testing::UnorderedElementsAre(
                  absl::StrCat("fp16.initial_scale_power is 2", kConstant),
                  absl::StrCat("fp16.loss_scale_window is 1000", kConstant),
                  absl::StrCat("fp16.hysteresis is 2", kConstant),
                  absl::StrCat("fp16.consecutive_hysteresis is false", kConstant),
                  absl::StrCat("fp16.min_loss_scale is 8", kConstant)));
}

TEST(ConfigTest, TakesARateThatTheScheduleDoesNotAsk) {
  const auto with_rate = [](const char* scheduler) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "scheduler": {"type": )", scheduler,
                                    R"(}, "optimizer": {"type": "Adam", "params": {"lr": 0.5}}})"),
                       4);
  };
  for (const char* const own :
       {R"("WarmupLR", "params": {"warmup_max_lr": 0.25})",
        R"("WarmupDecayLR", "params": {"warmup_max_lr": 0.25, "total_num_steps": 2000})",
        R"("OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 0.25,
                                  "cycle_momentum": false})"}) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, with_rate(own));
    const optim::ParameterGroup& group = config.zero.optimizer.groups[0];
    EXPECT_EQ(optim::LearningRates(group.schedule, group.lr),
              optim::LearningRates(group.schedule, 0.125));
    EXPECT_THAT(config.without_effect,
                ::testing::ElementsAre("optimizer.params.lr is 0.5: the schedule has rates of its "
                                       "own, up to 0.25"));
  }
  for (const char* const none : {R"("WarmupLR")", R"("WarmupLR", "params": {"warmup_max_lr": 0.5})",
                                 R"("WarmupCosineLR", "params": {"total_num_steps": 2000})"}) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, with_rate(none));
    EXPECT_THAT(config.without_effect, ::testing::ElementsAre());
  }
}

TEST(ConfigTest, TakesSectionsOfPrecisionThatAreOff) {
  for (const char* const off :
       {R"("fp16": {})", R"("bf16": {})", R"("fp16": {"loss_scale": 0})", R"("scheduler": {})",
        R"("fp16": {"enabled": false, "loss_scale": "x", "unknown": 1})",
        R"("bfloat16": {"enabled": false, "min_loss_scale": []})",
        R"("scheduler": {"type": null})"}) {
    SCOPED_TRACE(off);
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(absl::StrCat(", ", off)));
    EXPECT_EQ(config.zero.dtype, DType::kFloat32);
    EXPECT_TRUE(
        std::holds_alternative<optim::ConstantLR>(config.zero.optimizer.groups[0].schedule));
    EXPECT_THAT(config.without_effect, ::testing::IsEmpty());
  }
  const std::string copied = R"("loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2,
      "loss_scale_window": 1000, "min_loss_scale": "auto", "auto_cast": true)";
  ASSERT_OK_AND_ASSIGN(const TrainConfig on,
                       With(absl::StrCat(R"(, "bf16": {"enabled": true, )", copied, "}")));
  EXPECT_EQ(on.zero.dtype, DType::kBFloat16);
  EXPECT_EQ(on.zero.loss_scaler.loss_scale, 1.0f);
  EXPECT_EQ(on.without_effect.size(), 6u);
  EXPECT_EQ(on.without_effect[1], "bf16.hysteresis is 2: it is of fp16; bf16 has no loss scale");
  const std::string both = absl::StrCat(
      R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, "fp16": {"enabled": "auto", )",
      copied, R"(}, "bf16": {"enabled": "auto", )", copied, "}}");
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, ParseConfig(both, 4, ".", {}, {.dtype = dtype}));
    EXPECT_EQ(config.zero.dtype, dtype);
  }
}

TEST(ConfigTest, ReadsEverySchedule) {
  const auto schedule = [](const std::string& text) {
    const auto config = With(absl::StrCat(R"(, "scheduler": )", text));
    EXPECT_OK(config);
    return config.ok() ? config->zero.optimizer.groups[0].schedule : optim::Schedule();
  };
  const auto warmup = std::get<optim::WarmupLR>(schedule(
      R"({"type": "WarmupLR", "params": {"warmup_min_lr": 0.1, "warmup_max_lr": 0.2,
          "warmup_num_steps": 7, "warmup_type": "log", "last_batch_iteration": -1}})"));
  EXPECT_EQ(warmup.warmup_min_lr, 0.1);
  EXPECT_EQ(warmup.warmup_max_lr, 0.2);
  EXPECT_EQ(warmup.warmup_num_steps, 7);
  EXPECT_EQ(std::get<optim::WarmupLR>(schedule(R"({"type": "WarmupLR"})")).warmup_num_steps, 1000);
  const auto decay = std::get<optim::WarmupDecayLR>(schedule(
      R"({"type": "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_max_lr": 0.2,
          "warmup_min_lr": 0.1, "warmup_num_steps": 7, "warmup_type": "linear"}})"));
  EXPECT_EQ(decay.total_num_steps, 9);
  EXPECT_EQ(decay.warmup_min_lr, 0.1);
  EXPECT_EQ(decay.warmup_max_lr, 0.2);
  EXPECT_EQ(decay.warmup_num_steps, 7);
  EXPECT_EQ(decay.warmup_type, optim::WarmupType::kLinear);
  const auto cosine = std::get<optim::WarmupCosineLR>(schedule(
      R"({"type": "WarmupCosineLR", "params": {"total_num_steps": 9, "warmup_min_ratio": 0.1,
          "cos_min_ratio": 0.2, "warmup_num_steps": 7, "warmup_type": "linear"}})"));
  EXPECT_EQ(cosine.warmup_min_ratio, 0.1);
  EXPECT_EQ(cosine.cos_min_ratio, 0.2);
  EXPECT_EQ(cosine.warmup_type, optim::WarmupType::kLinear);
  const auto cycle = std::get<optim::OneCycle>(schedule(
      R"({"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2,
          "decay_lr_rate": 0.5, "cycle_first_step_size": 3, "cycle_second_step_size": 4,
          "decay_step_size": 5, "total_num_steps": 60, "cycle_momentum": false}})"));
  EXPECT_EQ(cycle.cycle_min_lr, 0.1);
  EXPECT_EQ(cycle.cycle_max_lr, 0.2);
  EXPECT_EQ(cycle.decay_lr_rate, 0.5);
  EXPECT_EQ(cycle.cycle_first_step_size, 3);
  EXPECT_EQ(cycle.cycle_second_step_size, 4);
  EXPECT_EQ(cycle.decay_step_size, 5);
  EXPECT_EQ(cycle.total_num_steps, 60);
  const auto range = std::get<optim::LRRangeTest>(schedule(
      R"({"type": "LRRangeTest", "params": {"lr_range_test_min_lr": 0.1, "total_num_steps": 9,
          "lr_range_test_step_size": 3, "lr_range_test_step_rate": 2,
          "lr_range_test_staircase": true}})"));
  EXPECT_EQ(range.lr_range_test_min_lr, 0.1);
  EXPECT_EQ(range.lr_range_test_step_size, 3);
  EXPECT_EQ(range.lr_range_test_step_rate, 2.0);
  EXPECT_TRUE(range.lr_range_test_staircase);
  EXPECT_EQ(range.total_num_steps, 9);
}

TEST(ConfigTest, ReadsEveryScheduleOfTransformers) {
  // Numbers are in the order of the names of keys in `params`.
  const auto schedule = [](const std::string& type, const std::string& params) {
    const auto config =
        With(absl::StrCat(R"(, "scheduler": {"type": ")", type, R"(", "params": {)", params, "}}"));
    EXPECT_OK(config) << type;
    return config.ok() ? config->zero.optimizer.groups[0].schedule : optim::Schedule();
  };
  const std::string phases = R"("num_warmup_steps": 3, "num_training_steps": 20)";
  EXPECT_TRUE(std::holds_alternative<optim::ConstantLR>(schedule("constant", "")));
  EXPECT_EQ(std::get<optim::ConstantWithWarmup>(
                schedule("constant_with_warmup", R"("num_warmup_steps": 3)"))
                .num_warmup_steps,
            3);
  const auto linear = std::get<optim::LinearWithWarmup>(schedule("linear", phases));
  EXPECT_EQ(linear.num_warmup_steps, 3);
  EXPECT_EQ(linear.num_training_steps, 20);
  const auto cosine =
      std::get<optim::CosineWithWarmup>(schedule("cosine", phases + R"(, "num_cycles": 1.5)"));
  EXPECT_EQ(cosine.num_training_steps, 20);
  EXPECT_EQ(cosine.num_cycles, 1.5);
  EXPECT_EQ(cosine.min_lr_rate, 0.0);
  const auto least = std::get<optim::CosineWithWarmup>(
      schedule("cosine_with_min_lr", phases + R"(, "min_lr_rate": 0.25)"));
  EXPECT_EQ(least.num_warmup_steps, 3);
  EXPECT_EQ(least.min_lr_rate, 0.25);
  EXPECT_EQ(std::get<optim::CosineWithRestarts>(
                schedule("cosine_with_restarts", phases + R"(, "num_cycles": 4)"))
                .num_cycles,
            4);
  const auto polynomial = std::get<optim::PolynomialDecay>(
      schedule("polynomial", phases + R"(, "lr_end": 1e-5, "power": 2)"));
  EXPECT_EQ(polynomial.lr_end, 1e-5);
  EXPECT_EQ(polynomial.power, 2.0);
  EXPECT_EQ(std::get<optim::InverseSqrt>(schedule("inverse_sqrt", phases + R"(, "timescale": 7)"))
                .timescale,
            7);
  const auto stable = std::get<optim::WarmupStableDecay>(
      schedule("warmup_stable_decay",
               phases + R"(, "num_decay_steps": 5, "warmup_type": "cosine", "decay_type": "1-sqrt",
                           "min_lr_ratio": 0.1, "num_cycles": 2)"));
  EXPECT_EQ(stable.num_warmup_steps, 3);
  EXPECT_EQ(stable.num_training_steps, 20);
  EXPECT_EQ(stable.num_decay_steps, 5);
  EXPECT_EQ(stable.warmup_type, optim::RampType::kCosine);
  EXPECT_EQ(stable.decay_type, optim::RampType::kOneMinusSqrt);
  EXPECT_EQ(stable.min_lr_ratio, 0.1);
  EXPECT_EQ(stable.num_cycles, 2.0);
  EXPECT_THAT(
      With(R"(, "scheduler": {"type": "warmup_stable_decay", "params": {
                      "num_warmup_steps": 6, "num_training_steps": 10, "num_decay_steps": 5}})"),
      testing::StatusIs(absl::StatusCode::kInvalidArgument,
                        "scheduler.params.num_training_steps is 10, but warm-up and decay have 6 "
                        "and 5 steps"));
  EXPECT_THAT(
      With(R"(, "scheduler": {"type": "polynomial", "params": {
                      "num_training_steps": 10, "lr_end": 5}})"),
      testing::StatusIs(absl::StatusCode::kInvalidArgument,
                        ::testing::HasSubstr("scheduler.params.lr_end is 5, but the optimizer's")));
}

TEST(ConfigTest, ReadsTheKeysOfZeroAndOfBrigade) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig first,
                       With(R"(, "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8,
      "overlap_comm": false, "contiguous_gradients": true, "reduce_scatter": true,
      "allgather_partitions": true}, "data_types": {"grad_accum_dtype": "bf16"},
      "gradient_clipping": 0, "gradient_accumulation_steps": 2, "communication_data_type": "fp16",
      "brigade": {"accumulation": "at_boundary", "algorithm": "ring",
                  "reduction": "rounded_per_hop"})"));
  EXPECT_EQ(first.zero.stage, 1);
  EXPECT_EQ(first.zero.bucket_elements, 500'000'000);
  EXPECT_FALSE(first.zero.overlap_comm);
  EXPECT_EQ(first.zero.accumulation, zero::Accumulation::kAtBoundary);
  EXPECT_EQ(first.zero.accumulator, DType::kBFloat16);
  EXPECT_EQ(first.zero.communication_dtype, DType::kFloat16);
  EXPECT_EQ(first.zero.algorithm, collectives::Algorithm::kRing);
  EXPECT_EQ(first.zero.reduction, collectives::Reduction::kRoundedPerHop);
  EXPECT_EQ(first.zero.max_grad_norm, std::numeric_limits<double>::infinity());
  EXPECT_EQ(first.zero.micro_batches, 2);
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig third,
      With(R"(, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0})"));
  EXPECT_EQ(first.communicator.topology, std::nullopt);
  EXPECT_EQ(third.zero.live_units, 1);
  EXPECT_EQ(third.zero.communication_dtype, std::nullopt);
  EXPECT_EQ(third.zero.algorithm, collectives::Algorithm::kAuto);
}

TEST(ConfigTest, TakesWhatChangesNoResultAndSaysSo) {
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  ASSERT_OK_AND_ASSIGN(const TrainConfig second,
                       With(R"(, "zero_optimization": {"stage": 2, "allgather_bucket_size": 100,
                "contiguous_gradients": false, "round_robin_gradients": true,
                "stage3_param_persistence_threshold": 9, "stage3_prefetch_bucket_size": 0,
                "sub_group_size": 1e9, "max_reuse_distance": 5,
                "offload_optimizer": {"device": "none", "pin_memory": false, "nvme_path": "/d"}},
              "aio": {"block_size": 5000, "thread_count": 2}, "memory_breakdown": true)"));
  EXPECT_THAT(
      second.without_effect,
      ElementsAre(
          "aio.thread_count is 2: queue_depth says how much is in flight",
          "memory_breakdown is true: the report at the end has it, always",
          "zero_optimization.contiguous_gradients is false: gradients are written into buckets, "
          "always",
          "zero_optimization.max_reuse_distance is 5: brigade.live_units says how many units are "
          "gathered at a time",
          "zero_optimization.offload_optimizer.pin_memory is false: for a GPU host memory is "
          "page-locked, always",
          "zero_optimization.round_robin_gradients is true: a bucket's slices are what a rank owns",
          HasSubstr("aio is {\"block_size\":5000,\"thread_count\":2}, an object: no state is in a "
                    "file: offload_optimizer.device is not \"nvme\""),
          HasSubstr("zero_optimization.sub_group_size is 1000000000.0: no state is in a file"),
          HasSubstr("zero_optimization.offload_optimizer.nvme_path is \"/d\", a string: no state"),
          "zero_optimization.stage3_param_persistence_threshold is 9: zero_optimization.stage is 2",
          "zero_optimization.stage3_prefetch_bucket_size is 0: zero_optimization.stage is 2",
          "zero_optimization.allgather_bucket_size is 100: parameters are gathered in the buckets "
          "of their gradients, and reduce_bucket_size is 16777216"));
  // All as if it were not given.
  ASSERT_OK_AND_ASSIGN(const TrainConfig plain, With(R"(, "zero_optimization": {"stage": 2})"));
  EXPECT_EQ(plain.without_effect, std::vector<std::string>());
  EXPECT_EQ(second.zero.live_units, plain.zero.live_units);
  EXPECT_EQ(second.zero.persistence_threshold, plain.zero.persistence_threshold);
  EXPECT_EQ(second.zero.bucket_elements, plain.zero.bucket_elements);

  // What has a meaning keeps it.
  ASSERT_OK_AND_ASSIGN(const TrainConfig third,
                       With(R"(, "zero_optimization": {"stage": 3, "param_persistence_threshold": 9,
                "stage3_prefetch_bucket_size": 5e7, "sub_group_size": 1000,
                "offload_optimizer": {"device": "nvme", "nvme_path": "/d", "buffer_count": 8,
                                      "pipeline_write": false}},
              "aio": {"queue_depth": 8})"));
  EXPECT_EQ(third.zero.persistence_threshold, 9);
  EXPECT_EQ(third.zero.live_units, plain.zero.live_units);
  EXPECT_EQ(third.zero.offload.chunk_elements, 1000);
  EXPECT_EQ(third.zero.offload.chunk_buffers, 2);
  EXPECT_EQ(third.zero.offload.file.queue_depth, 8);
  EXPECT_THAT(third.without_effect,
              ElementsAre(HasSubstr("offload_optimizer.pipeline_write is false: the last"),
                          HasSubstr("stage3_prefetch_bucket_size is 50000000.0: units are")));
}

// DeepSpeed's names for how it saves memory and prints, and what one stage makes of all methods.
TEST(ConfigTest, TakesOtherWaysOfMemoryAndPrinting) {
  using ::testing::ElementsAre;
  ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                       With(R"(, "dump_state": true, "activation_checkpointing": {
      "contiguous_memory_optimization": true, "number_checkpoints": 4, "profile": true,
      "synchronize_checkpoint_boundary": true, "partition_activations": true},
      "fp16": {"enabled": true, "auto_cast": true},
      "pipeline": {"stages": 1, "partition": "type:Block", "pipe_partitioned": true,
                   "grad_partitioned": false, "seed_layers": false},
      "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "none", "ratio": 0.5}})"));
  EXPECT_THAT(
      config.without_effect,
      ElementsAre(
          "activation_checkpointing.contiguous_memory_optimization is true: activations lie in one "
          "piece, always",
          "activation_checkpointing.number_checkpoints is 4: activations lie in one piece, always",
          "activation_checkpointing.profile is true: a trace has the times of operations (--trace)",
          "activation_checkpointing.synchronize_checkpoint_boundary is true: a step does not wait "
          "on the host",
          "dump_state is true: the first lines say what is trained, always",
          "fp16.auto_cast is true: inputs are token numbers",
          "activation_checkpointing.partition_activations is true: the model has one tensor rank",
          "pipeline.partition is \"type:Block\", a string: the model has one stage",
          "pipeline.pipe_partitioned is true: the model has one stage",
          "pipeline.grad_partitioned is false: the model has one stage",
          "zero_optimization.offload_optimizer.ratio is 0.5: offload_optimizer.device is "
          "\"none\""));
  EXPECT_EQ(config.zero.offload.host_share, 1);
  // Neutral values say nothing.
  ASSERT_OK_AND_ASSIGN(const TrainConfig neutral,
                       ParseConfig(R"({"train_batch_size": 8, "dump_state": false,
      "optimizer": {"type": "AdamW", "params": {"fp32_optimizer_states": true,
                                                "torch_adam": false}, "legacy_fusion": false},
      "activation_checkpointing": {"contiguous_memory_optimization": false, "profile": false,
                                   "number_checkpoints": null,
                                   "synchronize_checkpoint_boundary": false},
      "pipeline": {"seed_layers": true}})",
                                   4));
  EXPECT_THAT(neutral.without_effect, ElementsAre());
}

TEST(ConfigTest, TakesTypesByAllTheirNames) {
  const std::pair<const char*, DType> names[] = {
      {"fp32", DType::kFloat32},  {"float32", DType::kFloat32},  {"float", DType::kFloat32},
      {"fp16", DType::kFloat16},  {"float16", DType::kFloat16},  {"half", DType::kFloat16},
      {"bf16", DType::kBFloat16}, {"bfloat16", DType::kBFloat16}};
  for (const auto& [name, dtype] : names) {
    ASSERT_OK_AND_ASSIGN(
        const TrainConfig config,
        With(absl::StrCat(R"(, "communication_data_type": ")", name,
                          R"(", "data_types": {"grad_accum_dtype": ")", name, "\"}")));
    EXPECT_EQ(config.zero.accumulator, dtype) << name;
    EXPECT_EQ(config.zero.communication_dtype, dtype) << name;
  }
  for (const char* key : {"seq_parallel_communication_data_type", "seq_parallel_comm_data_type"}) {
    EXPECT_OK(With(absl::StrCat(", \"", key, R"(": "float32")")));
  }
  ASSERT_OK_AND_ASSIGN(const TrainConfig older, With(R"(, "communication_data_type": "bfp16")"));
  EXPECT_EQ(older.zero.communication_dtype, DType::kBFloat16);
  EXPECT_OK(
      With(R"(, "tensor_parallel": {"autotp_size": 2}, "brigade": {"tensor_sums": "float"})"));
  // What fp16 and bf16 say already may be said again.
  EXPECT_OK(With(R"(, "bf16": {"enabled": true}, "data_types": {"param_dtype": "bfloat16"})"));
  EXPECT_OK(With(R"(, "data_types": {"param_dtype": "fp32"})"));
}

TEST(ConfigTest, TakesNullAsNothing) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(R"(, "bf16": null,
      "bfloat16": {"enabled": true}, "fp16": null, "scheduler": null, "zero_optimization": {
        "stage": null, "overlap_comm": null, "offload_optimizer": null, "offload_param": null,
        "reduce_bucket_size": null, "zenflow": null, "cpu_offload": null, "sub_group_size": null},
      "activation_checkpointing": null, "aio": null, "checkpoint": null, "pipeline": null,
      "tensor_parallel": null, "data_types": {"grad_accum_dtype": null, "param_dtype": null},
      "brigade": null, "gradient_clipping": null, "gradient_accumulation_steps": null,
      "train_micro_batch_size_per_gpu": null, "communication_data_type": null, "wandb": null,
      "dump_state": null, "vocabulary_size": null, "data_parallel_size": null)"));
  ASSERT_OK_AND_ASSIGN(const TrainConfig plain, With(R"(, "bf16": {"enabled": true})"));
  EXPECT_THAT(config.without_effect, ::testing::IsEmpty());
  EXPECT_EQ(config.zero.dtype, DType::kBFloat16);
  EXPECT_EQ(config.zero.stage, plain.zero.stage);
  EXPECT_EQ(config.zero.accumulator, plain.zero.accumulator);
  EXPECT_EQ(config.zero.bucket_elements, plain.zero.bucket_elements);
  EXPECT_EQ(config.zero.offload, plain.zero.offload);
  EXPECT_EQ(config.recompute, plain.recompute);
  EXPECT_EQ(config.batch, plain.batch);
  EXPECT_OK(With(R"(, "wandb": {"enabled": null}, "activation_checkpointing": null,
                      "pipeline": {"activation_checkpoint_interval": 0})"));
}

TEST(ConfigTest, TakesWhatIsOffWhateverIsInside) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                       With(R"(, "data_efficiency": {"enabled": false, "seed": 1234,
      "data_routing": {"enabled": true, "random_ltd": {"enabled": false}},
      "data_sampling": {"enabled": false, "curriculum_learning": {"enabled": false}}})"));
  ASSERT_EQ(config.without_effect.size(), 1u);
  EXPECT_THAT(config.without_effect[0],
              ::testing::AllOf(
                  ::testing::StartsWith("data_efficiency is {\"data_routing\""),
                  ::testing::EndsWith(": \"enabled\": false switches off what is inside too")));
  ASSERT_OK_AND_ASSIGN(const TrainConfig off, With(R"(, "data_efficiency": {"enabled": false,
      "data_sampling": {"enabled": false}})"));
  EXPECT_THAT(off.without_effect, ::testing::IsEmpty());
  EXPECT_EQ(With(R"(, "data_efficiency": {"data_routing": {"enabled": true}})").status().code(),
            absl::StatusCode::kUnimplemented);
  // Of types too.
  for (const char* sections :
       {R"("fp16": {"enabled": false, "fp16_master_weights_and_grads": true})",
        R"("bf16": {"enabled": false, "bf16_master_weights_and_grads": true,
                    "bf16_optimizer_states": true})"}) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig types, With(absl::StrCat(", ", sections)));
    EXPECT_THAT(types.without_effect, ::testing::IsEmpty());
    EXPECT_EQ(types.zero.dtype, DType::kFloat32);
  }
}

TEST(ConfigTest, KeepsParametersOnTheDeviceBelowStage3) {
  using ::testing::ElementsAre;
  const auto offload = [](const char* stage, const char* device, const char* more = "") {
    return With(absl::StrCat(R"(, "zero_optimization": {"stage": )", stage,
                             R"(, "offload_optimizer": {"device": "cpu", "ratio": 1},
                                  "offload_param": {"device": ")",
                             device, "\"", more, "}}"));
  };
  ASSERT_OK_AND_ASSIGN(const TrainConfig second, offload("2", "cpu"));
  EXPECT_EQ(second.zero.offload.parameters, device::Tier::kDevice);
  EXPECT_EQ(second.zero.offload.optimizer_state, device::Tier::kHost);
  EXPECT_THAT(second.without_effect,
              ElementsAre("zero_optimization.offload_param.device is \"cpu\", a string: stage 2 "
                          "keeps all parameters on the device; stage 3 does not"));
  ASSERT_OK_AND_ASSIGN(const TrainConfig first, offload("1", "nvme", R"(, "nvme_path": "/d")"));
  EXPECT_EQ(first.zero.offload.parameters, device::Tier::kDevice);
  EXPECT_EQ(first.without_effect.size(), 2u);
  EXPECT_THAT(offload("1", "none")->without_effect, ElementsAre());
  EXPECT_EQ(offload("3", "cpu")->zero.offload.parameters, device::Tier::kHost);
}

TEST(ConfigTest, TakesAPathThatNoDeviceAsksForOnlyForAStash) {
  using ::testing::ElementsAre;
  ASSERT_OK_AND_ASSIGN(const TrainConfig path, With(R"(, "zero_optimization": {"stage": 1,
      "offload_optimizer": {"device": "cpu", "nvme_path": "/d"}},
      "brigade": {"recompute": "block", "stash": "file", "file_directory": "/e"})"));
  EXPECT_EQ(path.zero.offload.file.directory, "/e");
  EXPECT_THAT(path.without_effect,
              ElementsAre("zero_optimization.offload_optimizer.nvme_path is \"/d\", a string: no "
                          "state is in a file: offload_optimizer.device is not \"nvme\""));
  ASSERT_OK_AND_ASSIGN(const TrainConfig stash, With(R"(, "zero_optimization": {"stage": 1,
      "offload_optimizer": {"device": "cpu", "nvme_path": "/d"}},
      "brigade": {"recompute": "block", "stash": "file"})"));
  EXPECT_EQ(stash.zero.offload.file.directory, "/d");
  EXPECT_THAT(stash.without_effect, ElementsAre());
}

TEST(ConfigTest, TakesTagValidationInUpperAndLowerCase) {
  for (const char* mode : {"WARN", "ignore", "Fail"}) {
    EXPECT_OK(With(absl::StrCat(R"(, "checkpoint": {"tag_validation": ")", mode, "\"}")));
  }
}

TEST(ConfigTest, TheShortestWarmUpHasTwoSteps) {
  const auto rates = [](const char* steps) {
    const auto config = With(absl::StrCat(
        R"(, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": )", steps, "}}"));
    EXPECT_OK(config);
    return config.ok() ? optim::LearningRates(config->zero.optimizer.groups[0].schedule, 1.0)
                       : std::vector<float>();
  };
  EXPECT_EQ(rates("0"), rates("2"));
  EXPECT_EQ(rates("1"), rates("2"));
}

TEST(ConfigTest, ReadsStepsPerPrint) {
  EXPECT_EQ(With("")->steps_per_print, 0);
  EXPECT_EQ(With(R"(, "steps_per_print": null)")->steps_per_print, 0);
  EXPECT_EQ(With(R"(, "steps_per_print": "auto")")->steps_per_print, 0);
  EXPECT_EQ(With(R"(, "steps_per_print": 2000)")->steps_per_print, 2000);
}

TEST(ConfigTest, ReadsMonitorsAsDeepSpeedDoes) {
  const MonitorConfig none = With("")->monitor;
  EXPECT_EQ(none.tensorboard, "");
  EXPECT_EQ(none.csv, "");
  EXPECT_FALSE(none.wall_clock_breakdown);
  // A section that does not say so is off.
  EXPECT_EQ(With(R"(, "tensorboard": {"output_path": "logs"})")->monitor.tensorboard, "");
  const MonitorConfig both =
      With(R"(, "wall_clock_breakdown": true, "tensorboard": {"enabled": true},
              "csv_monitor": {"enabled": true, "output_path": "out/logs/", "job_name": "bert"})")
          ->monitor;
  EXPECT_EQ(both.tensorboard, "DeepSpeedJobName");
  EXPECT_EQ(both.csv, "out/logs/bert");
  EXPECT_TRUE(both.wall_clock_breakdown);
  EXPECT_FALSE(With(R"(, "wall_clock_breakdown": "auto")")->monitor.wall_clock_breakdown);
  const std::string off = R"(, "csv_monitor": {"enabled": false, "job_name": 7})";
  EXPECT_EQ(With(off)->monitor.csv, "");
}

TEST(ConfigTest, FlagsOfAStepComeFirst) {
  const std::string file = R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
                               "optimizer": {"type": "SGD", "params": {"lr": 0.25}}})";
  ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                       ParseConfig(file, 4, ".", {}, {.batch = 24, .lr = 0.5}));
  EXPECT_EQ(config.batch, (zero::BatchSizes{24, 2, 3}));
  EXPECT_EQ(config.zero.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(config.zero.optimizer.groups[0].lr, 0.5);
  // Without an optimizer, and with "auto" for all that flags say.
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig rest,
      ParseConfig(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                      "gradient_accumulation_steps": "auto",
                      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto",
                                    "total_num_steps": "auto", "warmup_num_steps": 2}}})",
                  4, ".", {}, {.batch = 8, .lr = 0.5, .steps = 20}));
  EXPECT_EQ(rest.batch, (zero::BatchSizes{8, 2, 1}));
  const optim::ParameterGroup& group = rest.zero.optimizer.groups[0];
  EXPECT_EQ(rest.zero.optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(group.lr, 0.5);
  const auto& schedule = std::get<optim::WarmupDecayLR>(group.schedule);
  EXPECT_EQ(schedule.warmup_max_lr, 0.5);
  EXPECT_EQ(schedule.total_num_steps, 20);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const char* sections : {R"("fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"})",
                                 dtype == DType::kBFloat16 ? R"("bfloat16": {"enabled": true})"
                                                           : R"("fp16": {"enabled": "auto"})"}) {
      ASSERT_OK_AND_ASSIGN(const TrainConfig typed,
                           ParseConfig(absl::StrCat("{", sections, "}"), 4, ".", {},
                                       {.batch = 4, .lr = 0.5, .dtype = dtype}));
      EXPECT_EQ(typed.zero.dtype, dtype) << sections;
    }
  }
  // What changes memory or speed alone is ours to choose.
  ASSERT_OK_AND_ASSIGN(const TrainConfig ours,
                       With(R"(, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
                "overlap_comm": "auto", "stage3_param_persistence_threshold": "auto"})"));
  EXPECT_EQ(ours.zero.bucket_elements, zero::ZeroOptions().bucket_elements);
  EXPECT_EQ(ours.without_effect, std::vector<std::string>());
}

TEST(ConfigTest, ReadsEveryPolicyOfRecomputation) {
  using Kind = recompute::Policy::Kind;
  const struct {
    const char* keys;
    recompute::Policy policy;
  } kCases[] = {
      {"", {.kind = Kind::kNone}},
      {R"(, "brigade": {"recompute": "none"})", {.kind = Kind::kNone}},
      {R"(, "brigade": {"recompute": "block"})", {.kind = Kind::kBlock}},
      {R"(, "brigade": {"recompute": "selective"})", {.kind = Kind::kSelective}},
      {R"(, "brigade": {"recompute": "segments:3"})",
       {.kind = Kind::kSegments, .stages_per_segment = 3}},
      {R"(, "brigade": {"recompute": "budget:12345"})",
       {.kind = Kind::kBudget, .budget_bytes = 12345}},
      {R"(, "brigade": {"recompute": "budget:3MiB"})",
       {.kind = Kind::kBudget, .budget_bytes = 3 << 20}},
      // DeepSpeed's section asks for it by being there; brigade.recompute says it better.
      {R"(, "activation_checkpointing": {})", {.kind = Kind::kBlock}},
      {R"(, "activation_checkpointing": {}, "brigade": {"recompute": "none"})",
       {.kind = Kind::kNone}},
      {R"(, "activation_checkpointing": {}, "brigade": {"recompute": "selective"})",
       {.kind = Kind::kSelective}},
  };
  for (const auto& [keys, policy] : kCases) {
    SCOPED_TRACE(keys);
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(keys));
    EXPECT_EQ(config.recompute, policy);
  }
}

TEST(ConfigTest, TakesWhatChangesNothingOfActivationCheckpointing) {
  for (const char* key : {R"("partition_activations": false)", R"("cpu_checkpointing": false)",
                          R"("contiguous_memory_optimization": false)",
                          R"("number_checkpoints": null)", R"("number_checkpoints": false)",
                          R"("synchronize_checkpoint_boundary": false)", R"("profile": false)"}) {
    SCOPED_TRACE(key);
    ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                         With(absl::StrCat(R"(, "activation_checkpointing": {)", key, "}")));
    EXPECT_EQ(config.recompute, recompute::Policy{.kind = recompute::Policy::Kind::kBlock});
  }
}

TEST(ConfigTest, ReadsWhatTensorRanksExchangeBesideProducts) {
  struct Case {
    const char* keys;
    int flag;
    int pieces;
    bool overlap;
  };
  for (const Case& c :
       {Case{R"("tensor_parallel": {"autotp_size": 2})", 0, 1, false},
        Case{R"("tensor_parallel": {"autotp_size": 2, "tp_overlap_comm": true})", 0, 4, true},
        Case{R"("tensor_parallel": {"autotp_size": 2, "tp_overlap_comm": true},
                "brigade": {"tensor_pieces": 8})",
             0, 8, true},
        Case{R"("tensor_parallel": {"autotp_size": 2}, "brigade": {"tensor_pieces": 8})", 0, 8,
             false},
        Case{R"("tensor_parallel": {"autotp_size": 2}, "brigade": {"tensor_pieces": 8})", 2, 2,
             true},
        Case{R"("tensor_parallel": {"autotp_size": 1, "tp_overlap_comm": true},
                "brigade": {"tensor_shards": 2})",
             0, 4, true}}) {
    SCOPED_TRACE(absl::StrCat(c.keys, ", flag ", c.flag));
    ASSERT_OK_AND_ASSIGN(
        const TrainConfig config,
        ParseConfig(
            absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, )", c.keys, "}"),
            4, ".", {.tensor_overlap = c.flag == 0 ? std::nullopt : std::optional<int>(c.flag)}));
    EXPECT_EQ(config.tensor_pieces, c.pieces);
    EXPECT_EQ(config.tensor_overlap, c.overlap);
  }
}

TEST(ConfigTest, ReadsByWhatTimesAreCounted) {
  const std::pair<const char*, RecomputeTimes> sections[] = {
      {R"("recompute": "block")", RecomputeTimes::kOperations},
      {R"("recompute": "block", "recompute_times": "operations")", RecomputeTimes::kOperations},
      {R"("recompute": "block", "recompute_times": "measured")", RecomputeTimes::kMeasured},
  };
  for (const auto& [section, times] : sections) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                         With(absl::StrCat(R"(, "brigade": {)", section, "}")));
    EXPECT_EQ(config.recompute_times, times) << section;
  }
  EXPECT_EQ(ParseRecomputeTimes("operations").value(), RecomputeTimes::kOperations);
  EXPECT_EQ(ParseRecomputeTimes("measured").value(), RecomputeTimes::kMeasured);
  EXPECT_THAT(ParseRecomputeTimes("flops").status(),
              brigade::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                         "\"flops\" is neither operations nor measured"));
}

TEST(ConfigTest, ReadsHowContextRanksAttend) {
  const std::pair<const char*, ContextExchange> values[] = {
      {R"("ulysses")", ContextExchange::kUlysses},
      {R"("ring")", ContextExchange::kRing},
      {R"("a2a")", ContextExchange::kUlysses},
      {R"("p2p")", ContextExchange::kRing}};
  for (const auto& [value, exchange] : values) {
    ASSERT_OK_AND_ASSIGN(
        const TrainConfig config,
        With(absl::StrCat(R"(, "sequence_parallel_size": 2, "brigade": {"context_exchange": )",
                          value, "}")));
    EXPECT_EQ(config.grid.context, 2);
    EXPECT_EQ(config.context_exchange, exchange);
    EXPECT_EQ(ParseContextExchange(ToString(exchange)), exchange);
  }
  ASSERT_OK_AND_ASSIGN(const TrainConfig none, With(R"(, "sequence_parallel_size": 2)"));
  EXPECT_EQ(none.context_exchange, ContextExchange::kUlysses);
  // A flag comes first.
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig flagged,
      ParseConfig(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"},
                      "brigade": {"context_exchange": "ulysses"}})",
                  4, ".", {.context = 4, .context_exchange = ContextExchange::kRing}));
  EXPECT_EQ(flagged.context_exchange, ContextExchange::kRing);
  EXPECT_THAT(
      With(R"(, "sequence_parallel_size": 2, "brigade": {"context_exchange": "mesh"})").status(),
      brigade::testing::StatusIs(
          absl::StatusCode::kInvalidArgument,
          "brigade.context_exchange is \"mesh\", a string; it must be \"ulysses\" or "
          "\"ring\" or \"a2a\" or \"p2p\""));
}

TEST(ConfigTest, ReadsTheRanksThatShareAState) {
  const auto shards_of = [](const std::string& keys, const ModelParallelism& flags = {}) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, )",
                                    keys, "}"),
                       8, ".", flags)
        .value()
        .zero.shard_ranks;
  };
  EXPECT_EQ(shards_of(R"("bf16": {"enabled": true})"), 0);
  EXPECT_EQ(shards_of(R"("zero_optimization": {"stage": 1, "mics_shard_size": -1})"), 0);
  EXPECT_EQ(shards_of(R"("zero_optimization": {"stage": 1, "mics_shard_size": 4})"), 4);
  EXPECT_EQ(shards_of(R"("brigade": {"shard_ranks": 2})"), 2);
  EXPECT_EQ(shards_of(R"("brigade": {"shard_ranks": 2},
                         "zero_optimization": {"mics_shard_size": 2})"),
            2);
  EXPECT_EQ(shards_of(R"("brigade": {"shard_ranks": 2})", {.shard_ranks = 8}), 8);
  // Of 4 ranks with the same weights, of which 2 share a text.
  EXPECT_EQ(
      shards_of(R"("brigade": {"shard_ranks": 4}, "sequence_parallel_size": 2)", {.tensor = 2}), 4);
}

TEST(ConfigTest, ReadsTheNearRanks) {
  const auto near_of = [](const std::string& keys) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"},
                                        "zero_optimization": {)",
                                    keys, "}}"),
                       8)
        .value()
        .zero.hpz_ranks;
  };
  EXPECT_EQ(near_of(R"("stage": 3)"), 0);
  EXPECT_EQ(near_of(R"("stage": 3, "zero_hpz_partition_size": 1)"), 0);
  EXPECT_EQ(near_of(R"("stage": 3, "zero_hpz_partition_size": 4)"), 4);
  EXPECT_EQ(near_of(R"("stage": 3, "zero_hpz_partition_size": 2, "mics_shard_size": 4)"), 2);
  EXPECT_EQ(near_of(R"("stage": 2, "zero_hpz_partition_size": 4)"), 0);
}

TEST(ConfigTest, ReadsWhatCrossesTheWireAsCodes) {
  using kernels::QuantFormat;
  const auto zero_of = [](const std::string& keys, const std::string& others = "") {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, )",
                                    others, R"("zero_optimization": {)", keys, "}}"),
                       8)
        .value()
        .zero;
  };
  const zero::ZeroOptions none = zero_of(R"("stage": 3)");
  EXPECT_EQ(none.quantized_weights, std::nullopt);
  EXPECT_EQ(none.quantized_frozen_weights, std::nullopt);
  EXPECT_EQ(none.quantized_gradients, std::nullopt);
  const char* const all = R"("zero_quantized_weights": true, "zero_quantized_gradients": true,
                             "zero_quantized_nontrainable_weights": true)";
  const auto staged = [&](int stage) { return absl::StrCat("\"stage\": ", stage, ", ", all); };
  for (int stage = 0; stage < zero::kStages; ++stage) {
    const zero::ZeroOptions zero = zero_of(staged(stage));
    EXPECT_EQ(zero.quantized_gradients, QuantFormat::kInt4);
    EXPECT_EQ(zero.quantized_weights.has_value(), stage > 0);
    EXPECT_EQ(zero.quantized_frozen_weights.has_value(), stage == 3);
    EXPECT_EQ(zero.node_ranks, 0);
  }
  // The flags say the same.
  const auto by_flags = [](int stage) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"},
                                        "zero_optimization": {"stage": )",
                                    stage, "}}"),
                       8, "", {}, {.quantized_weights = true, .quantized_gradients = true})
        .value();
  };
  EXPECT_EQ(by_flags(1).zero.quantized_weights, QuantFormat::kInt8);
  EXPECT_EQ(by_flags(0).zero.quantized_weights, std::nullopt);
  EXPECT_EQ(by_flags(0).zero.quantized_gradients, QuantFormat::kInt4);
  // With error feedback, where its key is an object.
  const auto loco_of = [&](const std::string& key) {
    return zero_of(absl::StrCat("\"zero_quantized_gradients\": true", key)).loco;
  };
  EXPECT_FALSE(loco_of("").has_value());
  EXPECT_FALSE(loco_of(R"(, "zeropp_loco_param": null)").has_value());
  EXPECT_EQ(loco_of(R"(, "zeropp_loco_param": {})").value().err_beta, 0.8);
  EXPECT_EQ(loco_of(R"(, "zeropp_loco_param": {})").value().reset_steps, 1024);
  const auto loco = loco_of(R"(, "zeropp_loco_param": {"err_beta": 0.5, "reset_T": 7})").value();
  EXPECT_EQ(loco.err_beta, 0.5);
  EXPECT_EQ(loco.reset_steps, 7);
  EXPECT_FALSE(zero_of(R"("stage": 1, "zeropp_loco_param": {})").loco.has_value());
  EXPECT_TRUE(ParseConfig(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}})", 8, "", {},
                          {.quantized_gradients = true, .loco = true})
                  .value()
                  .zero.loco.has_value());
  const auto nodes_of = [&](const std::string& others) {
    return zero_of(staged(3), others).node_ranks;
  };
  EXPECT_EQ(nodes_of(R"("brigade": {"ranks_per_node": 4}, )"), 4);
  EXPECT_EQ(nodes_of(R"("brigade": {"ranks_per_node": 8}, )"), 0);
  EXPECT_EQ(nodes_of(R"("brigade": {"ranks_per_node": 2, "shard_ranks": 4}, )"), 2);
  EXPECT_EQ(nodes_of(R"("brigade": {"ranks_per_node": 2, "shard_ranks": 2}, )"), 0);
  EXPECT_EQ(
      nodes_of(R"("brigade": {"ranks_per_node": 2}, "tensor_parallel": {"autotp_size": 2}, )"), 0);
}

// A machine's file says as well which ranks are on one node.
TEST(ConfigTest, TakesTheNodesOfCodesAndSignsFromTheTopology) {
  using ::testing::AllOf;
  using ::testing::EndsWith;
  using ::testing::StartsWith;
  const std::string path = absl::StrCat(::testing::TempDir(), "/nodes.json");
  const auto with = [&path](const char* nodes, const char* keys, const char* brigade = "") {
    std::ofstream(path) << R"({"inside": {"latency_us": 1, "gigabytes_per_s": 2},
        "between": {"latency_us": 3, "gigabytes_per_s": 4}, "ranks_of_node": )"
                        << nodes << "}";
    return ParseConfig(
               absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, )", keys,
                            R"("brigade": {"topology": ")", path, "\"", brigade, "}}"),
               8)
        .value();
  };
  constexpr char kCodes[] = R"("zero_optimization": {"stage": 2,
                                                     "zero_quantized_gradients": true}, )";
  constexpr char kSigns[] = R"(, "gradient_compression": "one_bit")";
  for (const char* const algorithm : {"", R"(, "algorithm": "direct")"}) {
    const TrainConfig codes = with("[4, 4]", kCodes, algorithm);
    EXPECT_EQ(codes.zero.node_ranks, 4);
    EXPECT_THAT(codes.without_effect, ::testing::ElementsAre());
  }
  EXPECT_EQ(with("[2, 2, 2, 2]", "", kSigns).zero.node_ranks, 2);
  EXPECT_EQ(with("[4, 4]", kCodes, R"(, "ranks_per_node": 2)").zero.node_ranks, 2);
  // One hop is all there is to do; and where nothing is sent in fewer bytes.
  for (const char* const nodes : {"[8]", "[1, 1, 1, 1, 1, 1, 1, 1]"}) {
    const TrainConfig one = with(nodes, kCodes);
    EXPECT_EQ(one.zero.node_ranks, 0) << nodes;
    EXPECT_THAT(one.without_effect, ::testing::ElementsAre()) << nodes;
  }
  EXPECT_EQ(with("[4, 4]", kCodes, R"(, "shard_ranks": 4)").zero.node_ranks, 0);
  EXPECT_EQ(with("[4, 4]", "").zero.node_ranks, 0);
  // It says why, where there might be two.
  const auto why = [](const TrainConfig& config) {
    EXPECT_EQ(config.zero.node_ranks, 0);
    return config.without_effect.empty() ? "" : config.without_effect.back();
  };
  constexpr char kHop[] = "a string: codes of gradients, and signs, go in one hop: two need ";
  EXPECT_THAT(why(with("[4, 2, 2]", kCodes)),
              AllOf(StartsWith("brigade.topology is \"/"),
                    EndsWith(absl::StrCat(kHop, "nodes of one size, and they have 2 to 4 ranks"))));
  EXPECT_THAT(why(with("[5, 3]", "", kSigns)),
              EndsWith(absl::StrCat(kHop, "nodes of one size, and they have 3 to 5 ranks")));
  EXPECT_THAT(why(with("[4, 4]", R"("tensor_parallel": {"autotp_size": 2}, )", kSigns)),
              EndsWith(absl::StrCat(kHop, "ranks with the whole model")));
  EXPECT_EQ(why(with("[4, 4]", kCodes, R"(, "ranks_per_node": 3)")),
            "brigade.ranks_per_node is 3: codes of gradients, and signs, go in one hop: two need "
            "nodes of one size, and they have 2 to 3 ranks");
}

// Ranks, the batch and the pipeline of a config with these keys, for 8 ranks.
absl::StatusOr<TrainConfig> OfPipeline(const std::string& keys,
                                       const ModelParallelism& flags = {}) {
  return ParseConfig(absl::StrCat(R"({"train_micro_batch_size_per_gpu": 2,
                                      "gradient_accumulation_steps": 8,
                                      "optimizer": {"type": "Adam"})",
                                  keys, "}"),
                     8, ".", flags);
}

TEST(ConfigTest, WithoutAPipelineThereIsOneStage) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, OfPipeline(""));
  EXPECT_EQ(config.grid, (parallel::GridShape{.data = 8}));
  EXPECT_EQ(config.pipeline_shape(), (parallel::PipelineShape{.micro_batches = 8}));
  EXPECT_EQ(config.zero.model_ranks, 1);
  EXPECT_TRUE(config.zero.tied_apart);
  for (const char* const keys : {R"(, "pipeline": {})", R"(, "pipeline": {"stages": "auto"})",
                                 R"(, "pipeline": {"stages": 1, "seed_layers": true})",
                                 R"(, "pipeline": {"use_reentrant": false})"}) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig same, OfPipeline(keys));
    EXPECT_EQ(same.grid, config.grid) << keys;
  }
}

TEST(ConfigTest, ReadsThePipeline) {
  using By = parallel::PartitionChoice::By;
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig plain,
      OfPipeline(
          R"(, "pipeline": {"stages": 4, "partition": "parameters", "use_reentrant": true})"));
  EXPECT_EQ(plain.grid, (parallel::GridShape{.data = 2, .pipeline = 4}));
  EXPECT_EQ(plain.pipeline_shape(), (parallel::PipelineShape{.stages = 4, .micro_batches = 8}));
  EXPECT_EQ(plain.partition, parallel::PartitionChoice{});
  EXPECT_EQ(plain.zero.model_ranks, 4);
  EXPECT_TRUE(plain.zero.tied_apart);
  // The ranks that are left share the batch.
  EXPECT_EQ(plain.batch, (zero::BatchSizes{32, 2, 8}));
  ASSERT_OK_AND_ASSIGN(const TrainConfig grid,
                       OfPipeline(R"(, "pipeline": {"stages": 2, "pipe_partitioned": true,
                                                    "grad_partitioned": true},
                                     "tensor_parallel": {"autotp_size": 2},
                                     "sequence_parallel_size": 2,
                                     "brigade": {"sequence_parallel": true,
                                                 "schedule": "interleaved:3", "partition": "0,3,6",
                                                 "tied_gradients": "apart"},
                                     "zero_optimization": {"stage": 3})"));
  EXPECT_EQ(grid.grid, (parallel::GridShape{.tensor = 2, .context = 2, .data = 1, .pipeline = 2}));
  EXPECT_EQ(grid.schedule, (parallel::ScheduleChoice{parallel::ScheduleKind::kInterleaved, 3}));
  EXPECT_EQ(grid.partition, (parallel::PartitionChoice{By::kBoundaries, {0, 3, 6}}));
  EXPECT_EQ(grid.zero.model_ranks, 4);
  EXPECT_EQ(grid.zero.stage, 3);
  ASSERT_OK_AND_ASSIGN(const TrainConfig together,
                       OfPipeline(R"(, "brigade": {"tied_gradients": "together"})"));
  EXPECT_FALSE(together.zero.tied_apart);
}

TEST(ConfigTest, ReadsEveryScheduleOfAPipelineAndPartition) {
  for (const char* const name :
       {"gpipe", "1f1b", "interleaved:2", "interleaved:8", "zb-h1", "zb-v"}) {
    ASSERT_OK_AND_ASSIGN(
        const TrainConfig config,
        OfPipeline(absl::StrCat(R"(, "pipeline": {"stages": 2}, "brigade": {"schedule": ")", name,
                                "\"}")));
    EXPECT_EQ(parallel::ToString(config.schedule), name);
  }
  for (const char* const name : {"parameters", "flops", "time", "0,1,6"}) {
    ASSERT_OK_AND_ASSIGN(
        const TrainConfig config,
        OfPipeline(absl::StrCat(R"(, "pipeline": {"stages": 2}, "brigade": {"partition": ")", name,
                                "\"}")));
    EXPECT_EQ(parallel::ToString(config.partition), name);
  }
}

TEST(ConfigTest, FlagsOfThePipelineComeFirst) {
  const std::string keys =
      R"(, "pipeline": {"stages": 2, "partition": "parameters"}, "brigade": {"schedule": "gpipe"})";
  ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                       OfPipeline(keys, {.pipeline = 8,
                                         .schedule = parallel::ParseSchedule("zb-h1").value(),
                                         .partition = parallel::ParsePartition("time").value()}));
  EXPECT_EQ(config.grid, (parallel::GridShape{.pipeline = 8}));
  EXPECT_EQ(parallel::ToString(config.schedule), "zb-h1");
  EXPECT_EQ(parallel::ToString(config.partition), "time");
  // What the file says has an effect with the flag's stages.
  ASSERT_OK_AND_ASSIGN(const TrainConfig flagged,
                       OfPipeline(R"(, "brigade": {"schedule": "gpipe"})", {.pipeline = 4}));
  EXPECT_EQ(parallel::ToString(flagged.schedule), "gpipe");
  EXPECT_EQ(flagged.grid, (parallel::GridShape{.data = 2, .pipeline = 4}));
}

TEST(ConfigTest, ReadsHowManyLayersMakeTheirActivationsAgain) {
  using Kind = recompute::Policy::Kind;
  const std::pair<const char*, recompute::Policy> sections[] = {
      {R"(, "pipeline": {"activation_checkpoint_interval": 0})", {}},
      {R"(, "pipeline": {"activation_checkpoint_interval": 1})",
       {.kind = Kind::kSegments, .stages_per_segment = 1}},
      {R"(, "pipeline": {"activation_checkpoint_interval": 3},
           "activation_checkpointing": {"cpu_checkpointing": true})",
       {.kind = Kind::kSegments, .stages_per_segment = 3, .stash = recompute::StashTier::kHost}}};
  for (const auto& [section, policy] : sections) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(section));
    EXPECT_EQ(config.recompute, policy) << section;
  }
}

TEST(ConfigTest, ReadsDropout) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig without, With(""));
  EXPECT_EQ(without.dropout, 0);
  ASSERT_OK_AND_ASSIGN(const TrainConfig none, With(R"(, "brigade": {"dropout": 0})"));
  EXPECT_EQ(none.dropout, 0);
  ASSERT_OK_AND_ASSIGN(const TrainConfig with, With(R"(, "brigade": {"dropout": 0.1})"));
  EXPECT_EQ(with.dropout, 0.1);
}

TEST(ConfigTest, ReadsWhatIsMadeAgainAndWhatIsStashed) {
  using Kind = recompute::Policy::Kind;
  constexpr auto kHost = recompute::StashTier::kHost;
  constexpr auto kFile = recompute::StashTier::kFile;
  const std::pair<const char*, recompute::Policy> sections[] = {
      {"", {}},
      {R"(, "activation_checkpointing": {})", {.kind = Kind::kBlock}},
      {R"(, "activation_checkpointing": {"cpu_checkpointing": false})", {.kind = Kind::kBlock}},
      {R"(, "activation_checkpointing": {"cpu_checkpointing": true})",
       {.kind = Kind::kBlock, .stash = kHost}},
      {R"(, "activation_checkpointing": {"cpu_checkpointing": true},
            "brigade": {"recompute": "segments:3"})",
       {.kind = Kind::kSegments, .stages_per_segment = 3, .stash = kHost}},
      {R"(, "activation_checkpointing": {}, "brigade": {"stash": "host"})",
       {.kind = Kind::kBlock, .stash = kHost}},
      {R"(, "brigade": {"recompute": "block", "stash": "host"})",
       {.kind = Kind::kBlock, .stash = kHost}},
      {R"(, "brigade": {"recompute": "selective", "stash": "none"})", {.kind = Kind::kSelective}},
      {R"(, "aio": {"queue_depth": 8}, "brigade": {"recompute": "block", "stash": "file",
            "file_directory": "/d", "file_checksums": true})",
       {.kind = Kind::kBlock, .stash = kFile}},
      {R"(, "activation_checkpointing": {"cpu_checkpointing": true},
            "brigade": {"stash": "file", "file_directory": "/d"})",
       {.kind = Kind::kBlock, .stash = kFile}},
  };
  for (const auto& [section, policy] : sections) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(section));
    EXPECT_EQ(config.recompute, policy) << section;
    EXPECT_EQ(config.zero.offload.file.directory, policy.stash == kFile ? "/d" : "") << section;
  }
}

TEST(ConfigTest, ReadsEveryAlgorithmAndReduction) {
  using collectives::Algorithm;
  using collectives::Reduction;
  const auto read = [](Algorithm algorithm, Reduction reduction) {
    return With(
        absl::StrCat(R"(, "brigade": {"algorithm": ")", std::string(collectives::Name(algorithm)),
                     R"(", "reduction": ")", std::string(collectives::Name(reduction)), "\"",
                     algorithm == Algorithm::kHierarchical ? R"(, "ranks_per_node": 2)" : "", "}"));
  };
  for (const Algorithm algorithm :
       {Algorithm::kAuto, Algorithm::kDirect, Algorithm::kRing, Algorithm::kBidirectionalRing,
        Algorithm::kHalvingDoubling, Algorithm::kHierarchical, Algorithm::kDoubleTree,
        Algorithm::kParameterServer, Algorithm::kNative}) {
    for (const Reduction reduction :
         {Reduction::kRoundedOnce, Reduction::kFp32Partials, Reduction::kRoundedPerHop}) {
      if (!collectives::Exists(reduction, algorithm)) continue;
      ASSERT_OK_AND_ASSIGN(const TrainConfig config, read(algorithm, reduction));
      EXPECT_EQ(config.zero.algorithm, algorithm);
      EXPECT_EQ(config.zero.reduction, reduction);
    }
  }
}

TEST(ConfigTest, ReadsTheTopology) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig nodes,
                       With(R"(, "brigade": {"algorithm": "double_tree", "reduction":
                               "fp32_partials", "ranks_per_node": 3})"));
  EXPECT_EQ(nodes.communicator.topology->ranks_of_node, (std::vector<int>{3, 1}));
  const std::string h100 =
      R"(, "brigade": {"topology": "collectives/tuning/topologies/hgx_h100.json")";
  ASSERT_OK_AND_ASSIGN(const TrainConfig machine,
                       With(absl::StrCat(h100, R"(, "ranks_per_node": 2})")));
  EXPECT_EQ(machine.communicator.topology->ranks_of_node, (std::vector<int>{2, 2}));
  EXPECT_EQ(machine.communicator.topology->between.ports, 8);
  // The nodes of the machine itself.
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig two_nodes,
      ParseConfig(
          absl::StrCat(R"({"train_batch_size": 16, "optimizer": {"type": "Adam"})", h100, "}}"),
          16));
  EXPECT_EQ(two_nodes.communicator.topology->ranks_of_node, (std::vector<int>{8, 8}));

  // Paths begin at the config's folder.
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "/machine.json") << R"({"inside": {"latency_us": 1, "gigabytes_per_s": 2},
      "between": {"latency_us": 3, "gigabytes_per_s": 4}, "ranks_of_node": [1, 2]})";
  std::ofstream(folder + "/config.json") << R"({"train_batch_size": 3, "optimizer": {"type": "SGD"},
      "brigade": {"topology": "machine.json"}})";
  ASSERT_OK_AND_ASSIGN(const TrainConfig beside, ReadConfig(folder + "/config.json", 3));
  EXPECT_EQ(beside.communicator.topology->ranks_of_node, (std::vector<int>{1, 2}));
  EXPECT_EQ(beside.communicator.topology->inside.bytes_per_s, 2e9);
}

}  // namespace
}  // namespace brigade::train
