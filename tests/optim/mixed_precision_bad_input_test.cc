// What a MixedPrecisionOptimizer refuses.

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "brigade/optim/mixed_precision_optimizer.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class BadInputTest : public ::testing::Test {
 protected:
  absl::Status Create(const std::function<void(ParameterArrays&)>& spoil,
                      const MixedPrecisionOptions& options = {}) {
    ParameterArrays bad = good_[1];
    spoil(bad);
    const ParameterArrays parameters[] = {good_[0], bad};
    return MixedPrecisionOptimizer::Create(parameters, options, *context_, *stream_).status();
  }

  std::unique_ptr<device::Context> context_ = device::CreateContext(device::CpuOptions());
  std::unique_ptr<device::Stream> stream_ = context_->CreateStream("compute").value();
  std::vector<precision::BFloat16> arrays_ = std::vector<precision::BFloat16>(400);
  const ParameterArrays good_[2] = {
      {.name = "wte", .weights = &arrays_[0], .grad = &arrays_[100], .size = 100},
      {.name = "wpe", .weights = &arrays_[200], .grad = &arrays_[300], .size = 90}};
};

TEST_F(BadInputTest, NamesParameterAndValueAndLeavesNothingBehind) {
  const struct {
    std::function<void(ParameterArrays&)> spoil;
    const char* text;
  } cases[] = {
      {[](ParameterArrays& p) { p.size = -1; }, "negative size -1; parameter 1, \"wpe\""},
      {[](ParameterArrays& p) { p.weights = nullptr; },
       "weights of segment 1 is null with 90 elements; parameter 1, \"wpe\""},
      {[](ParameterArrays& p) { p.grad = nullptr; }, "grad of segment 1 is null"},
      {[](ParameterArrays& p) { p.weights = static_cast<char*>(p.weights) + 1; }, "not a multiple"},
      {[](ParameterArrays& p) { p.group = 1; }, "group is 1, must be 0 to 0; parameter 1, \"wpe\""},
      {[](ParameterArrays& p) { p.group = -1; }, "group is -1"},
      {[](ParameterArrays& p) { p.weight_dtype = DType::kInt32; }, "weights is int32, must be"},
      {[](ParameterArrays& p) { p.grad_dtype = DType::kFloat64; }, "grad is fp64, must be"},
      {[this](ParameterArrays& p) { p.weights = &arrays_[30]; }, "overlap in"},
      {[this](ParameterArrays& p) { p.grad = &arrays_[30]; }, "overlap in"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Create(c.spoil), StatusIs(kInvalid, HasSubstr(c.text)));
  }
  EXPECT_THAT(MixedPrecisionOptimizer::Create({}, {}, *context_, *stream_),
              StatusIs(kInvalid, HasSubstr("no parameters")));
  EXPECT_EQ(context_->memory_stats().peak_bytes(), 0);
  EXPECT_OK(Create([](ParameterArrays&) {}));
}

TEST_F(BadInputTest, NamesOptionAndValue) {
  const struct {
    MixedPrecisionOptions options;
    const char* text;
  } cases[] = {
      {{.optimizer = {.groups = {{.lr = -1}}}}, "lr of group 0 is -1"},
      {{.loss_scaler = {.loss_scale = -1}}, "loss_scale is -1"},
      {{.max_grad_norm = 0}, "max_grad_norm is 0"},
      {{.max_grad_norm = NAN}, "max_grad_norm is nan"},
      {{.micro_batches = 0}, "micro_batches is 0"},
      {{.grad_divisor = 0.0}, "grad_divisor is 0"},
      {{.accumulator_dtype = DType::kUint8}, "accumulator is uint8"},
      {{.lr_table_size = 0}, "lr_table_size is 0, must be in [1, 2^26]"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Create([](ParameterArrays&) {}, c.options), StatusIs(kInvalid, HasSubstr(c.text)));
  }
}

}  // namespace
}  // namespace brigade::optim
