// Optimizers and schedules of learning rates, and what their keys mean.

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/config/small_config.h"
#include "brigade/train/config/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
namespace brigade::train {
namespace {

using optim::OptimizerKind;

TEST(OptimizerKeysTest, ReadsMomentsOf8BitsWithTheDefaultsOfBitsandbytes) {
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

TEST(OptimizerKeysTest, ReadsLionWithItsOwnBetas) {
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

TEST(OptimizerKeysTest, ReadsMuonWithDeepSpeedsNames) {
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

TEST(OptimizerKeysTest, ReadsAdafactorWithTransformersNames) {
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

TEST(OptimizerKeysTest, ReadsWhatRanksExchangeAsSigns) {
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

TEST(OptimizerKeysTest, ReadsZeroOneAdamWithDeepSpeedsDefaults) {
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

TEST(OptimizerKeysTest, ReadsOneBitLambWithDeepSpeedsDefaults) {
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

TEST(OptimizerKeysTest, ReadsLambWithBoundsOfItsRatio) {
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

TEST(OptimizerKeysTest, ReadsSgdAndTheOtherWayOfAdam) {
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

TEST(OptimizerKeysTest, TakesARateThatTheScheduleDoesNotAsk) {
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

TEST(OptimizerKeysTest, ReadsEverySchedule) {
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

TEST(OptimizerKeysTest, ReadsEveryScheduleOfTransformers) {
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

TEST(OptimizerKeysTest, TheShortestWarmUpHasTwoSteps) {
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

}  // namespace
}  // namespace brigade::train
