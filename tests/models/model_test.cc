#include "brigade/models/model.h"

#include <utility>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;

// With a spec, and no passes.
class NamedModel final : public Model {
 public:
  explicit NamedModel(zero::ModelSpec spec) : Model(std::move(spec)) {}

  int64_t LossesOf(const Batch& /*batch*/) const override { return 0; }
  void Initialize(int, uint64_t, absl::Span<float>) const override {}
  absl::Status ForwardUnit(int, const Batch&, void*, UnitParameters&, device::Stream&) override {
    return absl::OkStatus();
  }
  absl::Status BackwardUnit(int, const Batch&, const float*, UnitParameters&,
                            device::Stream&) override {
    return absl::OkStatus();
  }
};

zero::Plan PlanOf(const zero::ModelSpec& spec) { return zero::Plan::Create(spec, {}).value(); }

TEST(NumbersInTest, AreThoseOfTheModelWhateverThePlansOrderIs) {
  const zero::UnitSpec first = {"first", {{"a", 4}, {"b", 2}}}, last = {"last", {{"c", 3}}};
  const NamedModel model({first, last});
  const auto numbers = NumbersIn(model, PlanOf({first, last}), /*is_shared=*/false);
  ASSERT_OK(numbers);
  EXPECT_THAT(*numbers, ElementsAre(0, 1, 2));
  // A stage with its own part, which takes them in another order.
  const zero::Plan part = PlanOf({last, {"again", {{"b", 2}}}});
  const auto of_part = NumbersIn(model, part, /*is_shared=*/true);
  ASSERT_OK(of_part);
  EXPECT_THAT(*of_part, ElementsAre(2, 1));
  EXPECT_THAT(NumbersIn(model, part, /*is_shared=*/false),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "an optimizer of 2 parameters for a model of 3"));
  EXPECT_THAT(NumbersIn(model, PlanOf({{"other", {{"a", 4}, {"d", 2}}}}), /*is_shared=*/true),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "an optimizer with the parameter \"d\", which the model does not have"));
}

}  // namespace
}  // namespace brigade::models
