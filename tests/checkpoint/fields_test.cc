#include "brigade/checkpoint/fields.h"

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

kernels::StepState State() {
  return {.step = 3,
          .iteration = 5,
          .last_overflow = 4,
          .grad_norm = 0.1,
          .loss_scale = 65536.0f,
          .grad_multiplier = 0.1f,
          .hysteresis = 2,
          .skip = 0,
          .stuck_at_minimum = 0,
          .reserved = 0};
}

// A change of a struct, the field that shows it, and how it reads before and after.
template <typename Struct>
struct Change {
  std::string field;
  std::string before;
  std::string after;
  std::function<void(Struct&)> change;
};

// Each change is seen, as one of this field alone, and the table has all fields.
template <typename Struct>
void ExpectChangesAreSeen(const Struct& original, const std::vector<Change<Struct>>& changes,
                          const std::function<Fields(const Struct&)>& fields_of) {
  const Fields before = fields_of(original);
  Fields untouched = before;
  for (const Change<Struct>& each : changes) {
    Struct changed = original;
    each.change(changed);
    const Fields after = fields_of(changed);
    EXPECT_THAT(CheckSame(before, after),
                StatusIs(kInvalid, absl::StrCat(each.field, " is ", each.before,
                                                " in the checkpoint, ", each.after, " here")));
    EXPECT_OK(CheckSame(before, after, {each.field})) << each.field;
    untouched.erase(each.field);
  }
  EXPECT_EQ(untouched, Fields()) << "fields that no change is made of";
}

TEST(StateFieldsTest, HaveEveryFieldOfTheState) {
  using S = kernels::StepState;
  ExpectChangesAreSeen<S>(
      State(),
      {{"step", "3", "4", [](S& s) { s.step = 4; }},
       {"iteration", "5", "9223372036854775807",
        [](S& s) { s.iteration = std::numeric_limits<int64_t>::max(); }},
       {"last_overflow", "4", "-1", [](S& s) { s.last_overflow = -1; }},
       {"grad_norm", "0.1", "inf", [](S& s) { s.grad_norm = kInfinity; }},
       {"loss_scale", "65536", "0.5", [](S& s) { s.loss_scale = 0.5f; }},
       {"grad_multiplier", "0.1", "0.10000001", [](S& s) { s.grad_multiplier = 0.10000001f; }},
       {"hysteresis", "2", "1", [](S& s) { s.hysteresis = 1; }},
       {"skip", "0", "1", [](S& s) { s.skip = 1; }},
       {"stuck_at_minimum", "0", "1", [](S& s) { s.stuck_at_minimum = 1; }}},
      StateFields);
}

// The number of its bits.
template <typename T>
T Bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

TEST(StateFieldsTest, KeepEveryBit) {
  using F = std::numeric_limits<float>;
  using D = std::numeric_limits<double>;
  using I = std::numeric_limits<int64_t>;
  const auto expect_same = [](const kernels::StepState& state) {
    ASSERT_OK_AND_ASSIGN(const kernels::StepState read, StateOf(StateFields(state)));
    EXPECT_EQ(std::memcmp(&read, &state, sizeof(state)), 0)
        << ::testing::PrintToString(StateFields(state));
  };
  kernels::StepState state = State();
  for (const double value :
       {0.0, -0.0, 1.0, 0.1, 1e22, 1e23, 5e-324, D::denorm_min(), D::min(), D::max(), D::lowest(),
        kInfinity, -kInfinity, 0x1.fffffffffffffp-1023, 123456789012345678.0, 1.0 / 3.0}) {
    state.grad_norm = value;
    expect_same(state);
  }
  for (const float value : {0.0f, -0.0f, 1.0f, 0.1f, F::denorm_min(), F::min(), F::max(),
                            F::lowest(), F::infinity(), 16777216.0f, 1.0f / 3.0f}) {
    state.loss_scale = value;
    state.grad_multiplier = -value;
    expect_same(state);
  }
  for (const int64_t value : {I::min(), I::max(), int64_t{0}, int64_t{-1}}) {
    state.step = value;
    state.iteration = -(value + 1);
    state.last_overflow = value;
    expect_same(state);
  }
  state.hysteresis = std::numeric_limits<int32_t>::min();
  state.skip = std::numeric_limits<int32_t>::max();
  expect_same(state);
  // Numbers of any size.
  uint64_t bits = 1;
  for (int i = 0; i < 20'000; ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    const auto large = Bits<double>(bits);
    const auto small = Bits<float>(bits >> 32);
    if (large != large || small != small) continue;
    state.grad_norm = large;
    state.loss_scale = small;
    expect_same(state);
    if (HasFailure()) return;
  }
}

TEST(StateFieldsTest, RefusalsNameTheField) {
  const Fields fields = StateFields(State());
  for (const auto& [name, value] : fields) {
    Fields missing = fields;
    missing.erase(name);
    EXPECT_THAT(StateOf(missing), StatusIs(kInvalid, name + " is missing"));
    for (const char* wrong :
         {"",     " ",      "1 ",  " 1",  "\t1",      "1\n",  "+1",    "++1",    "-",
          ".",    "1.",     ".5",  "1x",  "0x10",     "x",    "1e999", "-1e999", "1e-999",
          "1e",   "01",     "00",  "1.0", "1e0",      "1,5",  "1_000", "nan",    "NaN",
          "-nan", "nan(1)", "Inf", "INF", "infinity", "+inf", "--1",   "true",   "none"}) {
      Fields changed = fields;
      changed[name] = wrong;
      EXPECT_THAT(StateOf(changed),
                  StatusIs(kInvalid, HasSubstr(absl::StrCat(name, " cannot be \""))))
          << wrong;
    }
    Fields changed = fields;
    changed[name] = std::string("1\0", 2);
    EXPECT_THAT(StateOf(changed), StatusIs(kInvalid, name + " cannot be \"1\\x00\""));
  }
  for (const char* name : {"step", "iteration", "last_overflow", "hysteresis", "skip"}) {
    for (const char* wrong : {"1.5", "inf", "-0", "9223372036854775808", "-9223372036854775809"}) {
      Fields changed = fields;
      changed[name] = wrong;
      EXPECT_THAT(StateOf(changed),
                  StatusIs(kInvalid, absl::StrCat(name, " cannot be \"", wrong, "\"")));
    }
  }
  for (const char* name : {"hysteresis", "skip", "stuck_at_minimum"}) {
    Fields changed = fields;
    changed[name] = "2147483648";
    EXPECT_THAT(StateOf(changed),
                StatusIs(kInvalid, absl::StrCat(name, " cannot be \"2147483648\"")));
  }
  for (const char* name : {"reserved", "", "Step", "step ", "groups[0].lr"}) {
    Fields more = fields;
    more[name] = "0";
    EXPECT_THAT(StateOf(more), StatusIs(kInvalid, absl::StrCat("\"", name, "\" is not known")));
  }
}

zero::ZeroOptions Options() {
  zero::ZeroOptions options;
  options.optimizer.groups = {{.lr = 0.5}, {.lr = 0.25}};
  return options;
}

TEST(OptionFieldsTest, HaveEveryOptionThatValuesDependOn) {
  using O = zero::ZeroOptions;
  std::vector<Change<O>> changes = {
      {"dtype", "bfloat16", "float16", [](O& o) { o.dtype = precision::DType::kFloat16; }},
      {"optimizer", "AdamW", "SGD", [](O& o) { o.optimizer.kind = optim::OptimizerKind::kSgd; }},
      {"optimizer", "AdamW", "Adam", [](O& o) { o.optimizer.kind = optim::OptimizerKind::kAdam; }},
      {"max_grad_norm", "inf", "1", [](O& o) { o.max_grad_norm = 1.0; }},
      {"average_gradients", "true", "false", [](O& o) { o.average_gradients = false; }},
      {"accumulation", "every_micro_batch", "at_boundary",
       [](O& o) { o.accumulation = zero::Accumulation::kAtBoundary; }},
      {"accumulator", "float32", "bfloat16",
       [](O& o) { o.accumulator = precision::DType::kBFloat16; }},
      {"communication_dtype", "none", "float16",
       [](O& o) { o.communication_dtype = precision::DType::kFloat16; }},
      {"reduction", "rounded_once", "fp32_partials by auto",
       [](O& o) { o.reduction = collectives::Reduction::kFp32Partials; }},
      {"loss_scaler.loss_scale", "1", "0", [](O& o) { o.loss_scaler.loss_scale = 0; }},
      {"loss_scaler.initial_scale_power", "16", "8",
       [](O& o) { o.loss_scaler.initial_scale_power = 8; }},
      {"loss_scaler.loss_scale_window", "1000", "500",
       [](O& o) { o.loss_scaler.loss_scale_window = 500; }},
      {"loss_scaler.hysteresis", "2", "1", [](O& o) { o.loss_scaler.hysteresis = 1; }},
      {"loss_scaler.consecutive_hysteresis", "false", "true",
       [](O& o) { o.loss_scaler.consecutive_hysteresis = true; }},
      {"loss_scaler.min_loss_scale", "1", "0.5", [](O& o) { o.loss_scaler.min_loss_scale = 0.5f; }},
      {"loss_scaler.max_loss_scale", "8.507059e+37", "2",
       [](O& o) { o.loss_scaler.max_loss_scale = 2; }},
      {"loss_scaler.at_minimum", "error", "clamp",
       [](O& o) { o.loss_scaler.at_minimum = kernels::AtMinimum::kClamp; }},
      {"loss_scaler.check_overflow", "true", "false",
       [](O& o) { o.loss_scaler.check_overflow = false; }}};
  for (const size_t g : {0, 1}) {
    const std::string name = absl::StrCat("groups[", g, "].");
    const auto add = [&](const std::string& field, const std::string& before,
                         const std::string& after, auto change) {
      changes.push_back(
          {name + field, before, after, [=](O& o) { change(o.optimizer.groups[g]); }});
    };
    using G = optim::ParameterGroup;
    add("lr", g == 0 ? "0.5" : "0.25", "0.1", [](G& group) { group.lr = 0.1; });
    add("weight_decay", "0", "0.01", [](G& group) { group.weight_decay = 0.01; });
    add("beta1", "0.9", "0.8", [](G& group) { group.beta1 = 0.8; });
    add("beta2", "0.999", "0.95", [](G& group) { group.beta2 = 0.95; });
    add("eps", "1e-08", "1e-06", [](G& group) { group.eps = 1e-6; });
    add("momentum", "0", "0.9", [](G& group) { group.momentum = 0.9; });
    add("dampening", "0", "0.1", [](G& group) { group.dampening = 0.1; });
    add("nesterov", "false", "true", [](G& group) { group.nesterov = true; });
  }
  // The schedule's other fields have a test below.
  ExpectChangesAreSeen<O>(Options(), changes, [](const O& options) {
    Fields fields = OptionFields(options);
    EXPECT_EQ(fields.erase("groups[0].schedule") + fields.erase("groups[1].schedule"), 2u);
    return fields;
  });
  zero::ZeroOptions other = Options();
  other.optimizer.groups[1].schedule = optim::WarmupLR();
  EXPECT_THAT(
      CheckSame(OptionFields(Options()), OptionFields(other)),
      StatusIs(kInvalid, "groups[1].schedule is ConstantLR in the checkpoint, WarmupLR here"));
  other = Options();
  other.optimizer.groups.pop_back();
  EXPECT_THAT(CheckSame(OptionFields(Options()), OptionFields(other)),
              StatusIs(kInvalid, "groups[1].beta1 is 0.9 in the checkpoint, and not known here"));
}

TEST(OptionFieldsTest, HaveTheCoefficientsOfOneBitLambWhereThereAreSome) {
  zero::ZeroOptions lamb = Options();
  lamb.optimizer.kind = optim::OptimizerKind::kOneBitLamb;
  EXPECT_EQ(OptionFields(lamb).at("optimizer"), "OneBitLamb");
  const auto names = {"coeff_beta", "factor_max", "factor_min", "factor_threshold"};
  for (const char* name : names) EXPECT_FALSE(OptionFields(Options()).contains(name)) << name;
  for (double kernels::OneBitLambCoefficients::*each :
       {&kernels::OneBitLambCoefficients::coeff_beta, &kernels::OneBitLambCoefficients::factor_max,
        &kernels::OneBitLambCoefficients::factor_min,
        &kernels::OneBitLambCoefficients::factor_threshold}) {
    zero::ZeroOptions other = lamb;
    other.optimizer.one_bit_lamb.*each = 0.25;
    EXPECT_THAT(CheckSame(OptionFields(lamb), OptionFields(other)),
                StatusIs(kInvalid, HasSubstr("in the checkpoint, 0.25 here")));
  }
  for (const char* name : names) EXPECT_TRUE(OptionFields(lamb).contains(name)) << name;
}

TEST(OptionFieldsTest, HaveTheScheduleOfZeroOneAdam) {
  zero::ZeroOptions saved = Options();
  saved.optimizer.kind = optim::OptimizerKind::kZeroOneAdam;
  EXPECT_EQ(OptionFields(saved).at("optimizer"), "ZeroOneAdam");
  EXPECT_FALSE(OptionFields(saved).contains("freeze_step"));
  using Schedule = optim::ZeroOneSchedule;
  for (const auto& [name, field] :
       {std::pair("var_freeze_step", &Schedule::var_freeze_step),
        std::pair("var_update_scaler", &Schedule::var_update_scaler),
        std::pair("local_step_scaler", &Schedule::local_step_scaler),
        std::pair("local_step_clipper", &Schedule::local_step_clipper)}) {
    EXPECT_FALSE(OptionFields(Options()).contains(name)) << name;
    zero::ZeroOptions other = saved;
    other.optimizer.zero_one.*field = 7;
    EXPECT_THAT(CheckSame(OptionFields(saved), OptionFields(other)),
                StatusIs(kInvalid, HasSubstr("in the checkpoint, 7 here")));
  }
}

TEST(OptionFieldsTest, LeaveOutStageMemoryAndTraffic) {
  zero::ZeroOptions other = Options();
  other.stage = 3;
  other.bucket_elements = 7;
  other.overlap_comm = false;
  other.live_units = 5;
  other.persistence_threshold = 9;
  other.backward_units = {1, 0, 1, 0};
  other.micro_batches = 4;
  other.algorithm = collectives::Algorithm::kRing;
  EXPECT_OK(CheckSame(OptionFields(Options()), OptionFields(other)));
  // Where the way that sums go decides where they are rounded.
  zero::ZeroOptions rounded = Options();
  rounded.reduction = other.reduction = collectives::Reduction::kRoundedPerHop;
  EXPECT_THAT(
      CheckSame(OptionFields(rounded), OptionFields(other)),
      StatusIs(
          kInvalid,
          "reduction is rounded_per_hop by auto in the checkpoint, rounded_per_hop by ring here"));
}

// A checkpoint that was made before there were codes says nothing of them.
TEST(OptionFieldsTest, NameTheCodesThatCrossTheWireWhereThereAreSome) {
  using O = zero::ZeroOptions;
  for (auto O::*const codes :
       {&O::quantized_weights, &O::quantized_frozen_weights, &O::quantized_gradients}) {
    O other = Options(), another = Options();
    EXPECT_EQ(OptionFields(other).size(), OptionFields(Options()).size());
    other.*codes = kernels::QuantFormat::kInt8;
    another.*codes = kernels::QuantFormat::kInt4;
    EXPECT_EQ(OptionFields(other).size(), OptionFields(Options()).size() + 1);
    EXPECT_THAT(CheckSame(OptionFields(other), OptionFields(another)),
                StatusIs(kInvalid, HasSubstr(" is int8 in the checkpoint, int4 here")));
    EXPECT_THAT(CheckSame(OptionFields(Options()), OptionFields(other)),
                StatusIs(kInvalid, HasSubstr("not in the checkpoint")));
  }
}

TEST(OptionFieldsTest, NameTheErrorFeedbackOfCodesWhereThereIsSome) {
  zero::ZeroOptions other = Options(), another = Options();
  other.loco.emplace();
  EXPECT_EQ(OptionFields(other).size(), OptionFields(Options()).size() + 2);
  another.loco = zero::LocoOptions{.err_beta = 0.5};
  EXPECT_THAT(CheckSame(OptionFields(other), OptionFields(another)),
              StatusIs(kInvalid, HasSubstr("loco.err_beta is 0.8")));
  another.loco = zero::LocoOptions{.reset_steps = 7};
  EXPECT_THAT(CheckSame(OptionFields(other), OptionFields(another)),
              StatusIs(kInvalid, HasSubstr("loco.reset_steps is 1024 in the checkpoint, 7 here")));
}

// Its method, first step, and the numbers of that method alone.
TEST(OptionFieldsTest, NameTheExchangeOfGradientsWhereThereIsOne) {
  using zero::GradientCompression;
  const auto fields_of = [](const zero::CompressionOptions& compression) {
    zero::ZeroOptions options = Options();
    options.gradient_compression = compression;
    return OptionFields(options);
  };
  const auto differs = [&](const zero::CompressionOptions& saved,
                           const zero::CompressionOptions& here, const char* text) {
    EXPECT_THAT(CheckSame(fields_of(saved), fields_of(here)), StatusIs(kInvalid, HasSubstr(text)));
  };
  EXPECT_EQ(fields_of({}).size(), OptionFields(Options()).size() + 2);
  EXPECT_OK(CheckSame(fields_of({.rank = 4}), fields_of({.rank = 5, .density = 0.5})));
  differs({}, {.start_step = 3}, "gradient_compression.start_step is 0 in the checkpoint, 3 here");
  differs({}, {.method = GradientCompression::kTopK},
          "gradient_compression is one_bit in the checkpoint, top_k here");
  differs({.method = GradientCompression::kPowerSgd, .rank = 4},
          {.method = GradientCompression::kPowerSgd, .rank = 5},
          "gradient_compression.rank is 4 in the checkpoint, 5 here");
  differs({.method = GradientCompression::kPowerSgd},
          {.method = GradientCompression::kPowerSgd, .iterations = 2},
          "gradient_compression.iterations is not in the checkpoint, 2 here");
  // Not of 1, which most checkpoints without it are of: older ones do not say.
  EXPECT_EQ(fields_of({.method = GradientCompression::kPowerSgd, .iterations = 1}).size(),
            OptionFields(Options()).size() + 3);
  differs({.method = GradientCompression::kTopK, .density = 0.5},
          {.method = GradientCompression::kTopK, .density = 0.25},
          "gradient_compression.density is 0.5 in the checkpoint, 0.25 here");
  // The hops of signs are no other training.
  zero::ZeroOptions in_nodes = Options();
  in_nodes.gradient_compression.emplace();
  in_nodes.node_ranks = 2;
  EXPECT_OK(CheckSame(fields_of({}), OptionFields(in_nodes)));
}

// Changes of every field of a schedule, from its defaults.
template <typename Schedule>
void ExpectScheduleIsSeen(std::vector<Change<Schedule>> changes) {
  for (Change<Schedule>& each : changes) each.field = "groups[0].schedule." + each.field;
  ExpectChangesAreSeen<Schedule>({}, changes, [](const Schedule& schedule) {
    const Fields rates = RateFields({{Rate{.lr = 0.5, .schedule = schedule}}});
    zero::ZeroOptions options;
    options.optimizer.groups = {{.lr = 0.5, .schedule = schedule}};
    const Fields as_options = OptionFields(options);
    Fields fields;
    for (const auto& field : rates) {
      EXPECT_EQ(as_options.at(field.first), field.second);
      if (field.first != "groups[0].lr" && field.first != "groups[0].schedule")
        fields.insert(field);
    }
    return fields;
  });
}

TEST(RateFieldsTest, HaveEveryFieldOfEachSchedule) {
  ExpectScheduleIsSeen<optim::ConstantLR>({});
  using W = optim::WarmupLR;
  ExpectScheduleIsSeen<W>(
      {{"warmup_min_lr", "0", "0.1", [](W& s) { s.warmup_min_lr = 0.1; }},
       {"warmup_max_lr", "none", "0", [](W& s) { s.warmup_max_lr = 0.0; }},
       {"warmup_num_steps", "1000", "10", [](W& s) { s.warmup_num_steps = 10; }},
       {"warmup_type", "log", "linear", [](W& s) { s.warmup_type = optim::WarmupType::kLinear; }}});
  using D = optim::WarmupDecayLR;
  ExpectScheduleIsSeen<D>(
      {{"total_num_steps", "0", "10", [](D& s) { s.total_num_steps = 10; }},
       {"warmup_min_lr", "0", "0.1", [](D& s) { s.warmup_min_lr = 0.1; }},
       {"warmup_max_lr", "0.001", "0", [](D& s) { s.warmup_max_lr = 0.0; }},
       {"warmup_num_steps", "1000", "10", [](D& s) { s.warmup_num_steps = 10; }},
       {"warmup_type", "log", "linear", [](D& s) { s.warmup_type = optim::WarmupType::kLinear; }}});
  using C = optim::WarmupCosineLR;
  ExpectScheduleIsSeen<C>(
      {{"total_num_steps", "0", "10", [](C& s) { s.total_num_steps = 10; }},
       {"warmup_min_ratio", "0", "0.1", [](C& s) { s.warmup_min_ratio = 0.1; }},
       {"warmup_num_steps", "1000", "10", [](C& s) { s.warmup_num_steps = 10; }},
       {"cos_min_ratio", "1e-04", "0.1", [](C& s) { s.cos_min_ratio = 0.1; }},
       {"warmup_type", "log", "linear", [](C& s) { s.warmup_type = optim::WarmupType::kLinear; }}});
  using O = optim::OneCycle;
  ExpectScheduleIsSeen<O>(
      {{"cycle_min_lr", "0", "0.1", [](O& s) { s.cycle_min_lr = 0.1; }},
       {"cycle_max_lr", "0", "0.1", [](O& s) { s.cycle_max_lr = 0.1; }},
       {"decay_lr_rate", "0", "0.1", [](O& s) { s.decay_lr_rate = 0.1; }},
       {"cycle_first_step_size", "2000", "10", [](O& s) { s.cycle_first_step_size = 10; }},
       {"cycle_second_step_size", "none", "0", [](O& s) { s.cycle_second_step_size = 0; }},
       {"decay_step_size", "0", "10", [](O& s) { s.decay_step_size = 10; }},
       {"total_num_steps", "0", "10", [](O& s) { s.total_num_steps = 10; }},
       {"cycle_momentum", "false", "true", [](O& s) { s.cycle_momentum = true; }}});
  using T = optim::LRRangeTest;
  ExpectScheduleIsSeen<T>(
      {{"lr_range_test_min_lr", "0.001", "0.1", [](T& s) { s.lr_range_test_min_lr = 0.1; }},
       {"lr_range_test_step_size", "2000", "10", [](T& s) { s.lr_range_test_step_size = 10; }},
       {"lr_range_test_step_rate", "1", "0.1", [](T& s) { s.lr_range_test_step_rate = 0.1; }},
       {"lr_range_test_staircase", "false", "true", [](T& s) { s.lr_range_test_staircase = true; }},
       {"total_num_steps", "0", "10", [](T& s) { s.total_num_steps = 10; }}});
}

// The fields that all of them have, and `more`.
template <typename S>
std::vector<Change<S>> OfPhases(std::vector<Change<S>> more) {
  more.push_back({"num_warmup_steps", "0", "10", [](S& s) { s.num_warmup_steps = 10; }});
  more.push_back({"num_training_steps", "0", "10", [](S& s) { s.num_training_steps = 10; }});
  return more;
}

TEST(RateFieldsTest, HaveEveryFieldOfTransformersSchedules) {
  using W = optim::ConstantWithWarmup;
  ExpectScheduleIsSeen<W>({{"num_warmup_steps", "0", "10", [](W& s) { s.num_warmup_steps = 10; }}});
  ExpectScheduleIsSeen<optim::LinearWithWarmup>(OfPhases<optim::LinearWithWarmup>({}));
  using C = optim::CosineWithWarmup;
  ExpectScheduleIsSeen<C>(
      OfPhases<C>({{"num_cycles", "0.5", "0.1", [](C& s) { s.num_cycles = 0.1; }},
                   {"min_lr_rate", "0", "0.1", [](C& s) { s.min_lr_rate = 0.1; }}}));
  using R = optim::CosineWithRestarts;
  ExpectScheduleIsSeen<R>(OfPhases<R>({{"num_cycles", "1", "2", [](R& s) { s.num_cycles = 2; }}}));
  using P = optim::PolynomialDecay;
  ExpectScheduleIsSeen<P>(OfPhases<P>({{"lr_end", "1e-07", "0.1", [](P& s) { s.lr_end = 0.1; }},
                                       {"power", "1", "2", [](P& s) { s.power = 2; }}}));
  using I = optim::InverseSqrt;
  ExpectScheduleIsSeen<I>(OfPhases<I>({{"timescale", "none", "7", [](I& s) { s.timescale = 7; }}}));
  using S = optim::WarmupStableDecay;
  ExpectScheduleIsSeen<S>(OfPhases<S>(
      {{"num_decay_steps", "0", "10", [](S& s) { s.num_decay_steps = 10; }},
       {"warmup_type", "linear", "cosine", [](S& s) { s.warmup_type = optim::RampType::kCosine; }},
       {"decay_type", "cosine", "1-sqrt",
        [](S& s) { s.decay_type = optim::RampType::kOneMinusSqrt; }},
       {"min_lr_ratio", "0", "0.1", [](S& s) { s.min_lr_ratio = 0.1; }},
       {"num_cycles", "0.5", "0.1", [](S& s) { s.num_cycles = 0.1; }}}));
}

std::vector<Rate> Rates() {
  return {{.lr = 0.1},
          {.lr = 5e-324, .schedule = optim::WarmupLR{.warmup_min_lr = 1.0 / 3.0}},
          {.lr = 0,
           .schedule = optim::WarmupLR{.warmup_max_lr = 0.25,
                                       .warmup_num_steps = 1,
                                       .warmup_type = optim::WarmupType::kLinear}},
          {.lr = 1, .schedule = optim::WarmupDecayLR{.total_num_steps = 1 << 24}},
          {.lr = 2, .schedule = optim::WarmupCosineLR{.total_num_steps = 9, .cos_min_ratio = 1}},
          {.lr = 3e38, .schedule = optim::OneCycle{.cycle_min_lr = 0.1, .cycle_max_lr = 0.2}},
          {.lr = 4,
           .schedule = optim::OneCycle{.decay_lr_rate = 1e-300,
                                       .cycle_first_step_size = 7,
                                       .cycle_second_step_size = 3,
                                       .decay_step_size = 2,
                                       .total_num_steps = 11}},
          {.lr = 7},
          {.lr = 8},
          {.lr = 9},
          {.lr = 10, .schedule = optim::WarmupLR()},
          {.lr = 11, .schedule = optim::InverseSqrt{.num_training_steps = 5}},
          {.lr = 12,
           .schedule = optim::WarmupStableDecay{
               .num_warmup_steps = 2, .num_training_steps = 9, .num_decay_steps = 3}}};
}

TEST(RatesOfTest, GivesTheRatesThatWereWritten) {
  for (const std::vector<Rate>& rates : {std::vector<Rate>(), Rates()}) {
    const Fields fields = RateFields(rates);
    ASSERT_OK_AND_ASSIGN(const std::vector<Rate> read, RatesOf(fields));
    ASSERT_EQ(read.size(), rates.size());
    for (size_t g = 0; g < rates.size(); ++g) {
      EXPECT_EQ(read[g].lr, rates[g].lr) << g;
      EXPECT_EQ(read[g].schedule.index(), rates[g].schedule.index()) << g;
    }
    // Of which the tests above say that they have everything.
    EXPECT_EQ(RateFields(read), fields);
  }
}

TEST(RatesOfTest, RefusalsNameTheField) {
  const Fields fields = RateFields(Rates());
  for (const auto& [name, value] : fields) {
    Fields changed = fields;
    changed.erase(name);
    EXPECT_THAT(RatesOf(changed), StatusIs(kInvalid, name + " is missing"));
    for (const char* wrong : {"", " ", "x", "1x", "+1", " 1", "1e999", "nan", "0x1", "None", "True",
                              "Linear", "constantLR", "01"}) {
      changed[name] = wrong;
      EXPECT_THAT(RatesOf(changed),
                  StatusIs(kInvalid, absl::StrCat(name, " cannot be \"", wrong, "\"")));
    }
  }
  for (const char* name : {"", "lr", "groups", "groups[0]", "groups[0].", "groups[0].beta1",
                           "groups[0].schedule.lr", "groups[00].lr", "groups[14].lr",
                           "groups[-1].lr", "groups[13]", "groups[3].schedule.cos_min_ratio"}) {
    Fields more = fields;
    more[name] = "1";
    EXPECT_THAT(RatesOf(more), StatusIs(kInvalid, absl::StrCat("\"", name, "\" is not known")));
  }
  // A group in between.
  Fields without = fields;
  without.erase("groups[7].lr");
  without.erase("groups[7].schedule");
  EXPECT_THAT(RatesOf(without), StatusIs(kInvalid, "\"groups[10].lr\" is not known"));
}

TEST(RatesOfTest, RefusesRatesThatNoRunCanHave) {
  const auto expect = [](const Rate& rate, const std::string& why) {
    EXPECT_THAT(RatesOf(RateFields({{Rate{.lr = 1}, rate}})), StatusIs(kInvalid, HasSubstr(why)));
  };
  expect({.lr = -1}, "lr");
  expect({.lr = kInfinity}, "lr");
  expect({.lr = 1, .schedule = optim::WarmupDecayLR()}, "schedule of group 1");
  expect({.lr = 1, .schedule = optim::OneCycle{.cycle_momentum = true}}, "schedule of group 1");
  expect({.lr = 1, .schedule = optim::WarmupLR{.warmup_min_lr = -1}}, "schedule of group 1");
  expect({.lr = 1, .schedule = optim::PolynomialDecay{.num_training_steps = 5, .lr_end = 2}},
         "schedule of group 1: polynomial: lr_end is 2");
}

TEST(ParameterFieldsTest, SayShapeTypeAndGroup) {
  const zero::ModelSpec model = {
      {.name = "u",
       .parameters = {{.name = "w", .size = 6, .group = 1, .shape = {2, 3}},
                      {.name = "b", .size = 0, .dtype = precision::DType::kFloat32},
                      {.name = "f", .size = 4, .trainable = false}}}};
  const zero::Plan plan = zero::Plan::Create(model, {}).value();
  EXPECT_EQ(ParameterFields(plan.parameters()), (Fields{{"w", "[2, 3] bfloat16, group 1"},
                                                        {"b", "[0] float32, group 0"},
                                                        {"f", "[4] bfloat16, frozen"}}));
  EXPECT_EQ(ParameterFields({}), Fields());
}

TEST(CheckSameTest, NamesTheFirstFieldThatDiffers) {
  EXPECT_OK(CheckSame({}, {}));
  EXPECT_OK(CheckSame({{"a", "1"}}, {{"a", "1"}}));
  EXPECT_THAT(CheckSame({{"a", "1"}, {"b", "2"}, {"c", "3"}}, {{"a", "1"}, {"b", "4"}, {"c", "5"}}),
              StatusIs(kInvalid, "b is 2 in the checkpoint, 4 here"));
  EXPECT_THAT(CheckSame({{"b", "2"}}, {{"a", "1"}, {"b", "3"}}),
              StatusIs(kInvalid, "a is not in the checkpoint, 1 here"));
  EXPECT_THAT(CheckSame({{"a", "1"}}, {}),
              StatusIs(kInvalid, "a is 1 in the checkpoint, and not known here"));
  // Whatever the text is.
  const std::string odd = std::string(5000, '\xff') + "\x1b";
  const absl::Status status = CheckSame({{odd, odd}}, {{odd, ""}});
  EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("\\xff")));
  EXPECT_LE(status.message().size(), 2000u);
}

TEST(CheckSameTest, PassesOverWhatMayDiffer) {
  const Fields one = {{"groups[0].lr", "1"}, {"groups[0].schedule.total_num_steps", "1"}},
               other = {{"groups[0].lr", "2"}, {"groups[0].schedule", "x"}};
  for (const char* name : {"groups[0]", "groups"}) EXPECT_OK(CheckSame(one, other, {name}));
  EXPECT_OK(CheckSame(one, other, {"groups[0].lr", "groups[0].schedule"}));
  for (const char* name : {"groups[0].l", "group", "groups[0", "groups[0].", "", "groups[0].lr",
                           "groups[0].schedule", "groups[0].lr.x", "roups[0]"}) {
    EXPECT_THAT(CheckSame(one, other, {name}), StatusIs(kInvalid)) << name;
  }
  for (const char* field : {"groups[01]", "groups[01].lr", "groups[10]", "groups[10].lr",
                            "groups[0]x", "groups[0] .lr", "xgroups[0]"}) {
    EXPECT_THAT(CheckSame({{field, "1"}}, {{field, "2"}}, {"groups[0]"}),
                StatusIs(kInvalid, absl::StrCat(field, " is 1 in the checkpoint, 2 here")));
    EXPECT_THAT(CheckSame({}, {{field, "2"}}, {"groups[0]"}), StatusIs(kInvalid));
  }
}

}  // namespace
}  // namespace brigade::checkpoint
