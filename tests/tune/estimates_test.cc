// Others' estimators, by answers that are known of them.

#include "brigade/tune/estimates.h"

#include "brigade/zero/plan/memory_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::tune {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kModel = 7'500'000'000;
constexpr EstimatedModel kPaper = {.total_params = kModel,
                                   .largest_layer_params = 200'000'000,
                                   .num_gpus_per_node = 64,
                                   .num_nodes = 1};

TEST(EstimatesTest, Zero2HasAGradientInFp32ThatThePaperHasNot) {
  // 17.1 GB for 16.6: 2 P + 18 P / 64, and 2 P + 14 P / 64.
  const EstimatedBytes theirs = estimate_zero2_model_states_mem_needs(kPaper, {});
  EXPECT_EQ(theirs.gpu, 17'109'375'000);
  EXPECT_EQ(theirs.cpu, 2'880'000'000'000);
  EXPECT_DOUBLE_EQ(zero::PaperBytes(7.5e9, 64, 2), 16.640625e9);
  EXPECT_EQ(estimate_zero2_model_states_mem_needs(kPaper, {.cpu_offload = true}),
            (EstimatedBytes{.cpu = 2'880'000'000'000, .gpu = 15'000'000'000}));
}

TEST(EstimatesTest, Zero3HasTheLargestLayerWhole) {
  const auto of = [](bool optimizer, bool parameters, bool zero_init) {
    return estimate_zero3_model_states_mem_needs(
        kPaper,
        {.cpu_offload = optimizer, .cpu_offload_params = parameters, .zero_init = zero_init});
  };
  // 4 L + 18 P / N, 4 L + 2 P / N, 4 L.
  EXPECT_EQ(of(false, false, true).gpu, int64_t{800} * 1000 * 1000 + 2'109'375'000);
  EXPECT_EQ(of(true, false, true).gpu, 800'000'000 + 234'375'000);
  EXPECT_EQ(of(true, true, true).gpu, 800'000'000);
  // 1.5 times 4 L for each GPU, 4 P for each GPU, 16 P, 18 P.
  EXPECT_EQ(of(false, false, true).cpu, 76'800'000'000);
  EXPECT_EQ(of(false, false, false).cpu, 2'880'000'000'000);
  EXPECT_EQ(of(true, false, true).cpu, 180'000'000'000);
  EXPECT_EQ(of(true, true, true).cpu, 202'500'000'000);
  EXPECT_EQ(of(true, true, false).cpu, 2'880'000'000'000);
}

TEST(EstimatesTest, TablesAreThoseOfDeepSpeedsDocumentation) {
  // T5-3B on a node of 8 GPUs, as its page "Memory requirements" prints it for stage 3; it has
  // 2851 million parameters, of which some digits are not printed.
  const EstimatedModel t5 = {.total_params = 2'851'598'336,
                             .largest_layer_params = 32'899'072,
                             .num_gpus_per_node = 8,
                             .num_nodes = 1};
  const std::string table = estimate_zero3_model_states_mem_needs_all_cold(t5);
  EXPECT_THAT(table, HasSubstr("SW: Model with 2852M total params, 33M largest layer params."));
  for (const char* const row :
       {"   71.71GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1",
        "  127.48GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , zero_init=0",
        "   63.74GB |   0.79GB | offload_param=none, offload_optimizer=cpu , zero_init=1",
        "  127.48GB |   0.79GB | offload_param=none, offload_optimizer=cpu , zero_init=0",
        "    1.47GB |   6.10GB | offload_param=none, offload_optimizer=none, zero_init=1",
        "  127.48GB |   6.10GB | offload_param=none, offload_optimizer=none, zero_init=0"}) {
    EXPECT_THAT(table, HasSubstr(row));
  }
  EXPECT_THAT(estimate_zero2_model_states_mem_needs_all_cold(t5),
              HasSubstr("offload_optimizer=none"));
}

TEST(EstimatesTest, LiveCountsLayersFirst) {
  const LiveModel model = {{10'000'000, 30'000'000, 20'000'000}};
  const EstimatedModel counted = CountOf(model, 4, 2);
  EXPECT_EQ(counted.total_params, 60'000'000);
  EXPECT_EQ(counted.largest_layer_params, 30'000'000);
  EXPECT_EQ(counted.total_gpus(), 8);
  EXPECT_EQ(estimate_zero3_model_states_mem_needs_all_live(model, 4, 2),
            estimate_zero3_model_states_mem_needs_all_cold(counted));
  EXPECT_EQ(estimate_zero2_model_states_mem_needs_all_live(model, 4, 2),
            estimate_zero2_model_states_mem_needs_all_cold(counted));
  EXPECT_EQ(CountOf({}, 1, 1).largest_layer_params, 0);
}

TEST(EstimatesTest, AccelerateAndTheAutotunerKnowNoShares) {
  EXPECT_EQ(AccelerateBytes(kModel), 8 * kModel);
  EXPECT_EQ(AutotunerBytes(kModel, 64, 0), 150'000'000'000);  // for 120
  EXPECT_EQ(AutotunerBytes(kModel, 64, 1), 4 * kModel + 16 * kModel / 64);
  EXPECT_EQ(AutotunerBytes(kModel, 64, 2), 2 * kModel + 18 * kModel / 64);
  EXPECT_EQ(AutotunerBytes(kModel, 64, 3), 20 * kModel / 64);
}

}  // namespace
}  // namespace brigade::tune
