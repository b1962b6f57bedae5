// Gradients that cross the wire in another type than their own: what their sums are in every stage,
// by every algorithm and in groups of several sizes. A step of SGD at rate 1 from zero shows them.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/compressed/wire.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/spec/wire.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using collectives::Algorithm;
using collectives::Rank;
using collectives::Reduction;
using precision::DType;
using Sums = std::vector<std::vector<float>>;  // [parameter][i]

// The gradient of a parameter on a rank.
using GradientOf = std::function<float(int rank, int parameter, int64_t i)>;

struct WireCase {
  int ranks = 2;
  DType dtype = DType::kFloat32;
  DType wire = DType::kFloat16;
  Reduction reduction = Reduction::kRoundedOnce;
  Algorithm algorithm = Algorithm::kDirect;
  bool over_gloo = false;
};

std::string ToString(const WireCase& c) {
  return absl::StrCat("ranks_", c.ranks, "_", precision::Name(c.dtype), "_over_",
                      precision::Name(c.wire), "_", std::string(Name(c.reduction)), "_",
                      std::string(Name(c.algorithm)), c.over_gloo ? "_gloo" : "");
}

// Parameters in two buckets, whose gradients differ in magnitude.
ModelSpec TwoBuckets() { return {{"a", {{"a.w", 700}, {"a.v", 130}}}, {"b", {{"b.w", 900}}}}; }

ZeroOptions OptionsOf(const WireCase& c, int stage) {
  ZeroOptions options;
  options.stage = stage;
  options.dtype = c.dtype;
  options.optimizer.kind = optim::OptimizerKind::kSgd;
  options.optimizer.groups[0].lr = 1.0;
  options.optimizer.groups[0].momentum = 0.0;
  options.optimizer.groups[0].weight_decay = 0.0;
  options.average_gradients = false;
  options.communication_dtype = c.wire;
  options.reduction = c.reduction;
  options.algorithm = c.algorithm;
  return options;
}

int RanksPerNode(const WireCase& c) { return c.ranks % 2 == 0 ? 2 : 1; }

void OnRanksOf(const WireCase& c, const std::function<void(Rank&)>& body) {
  const collectives::RanksOptions options = {
      .size = c.ranks, .ranks_of_node = collectives::RanksOfNodes(c.ranks, RanksPerNode(c))};
  collectives::OnRanks(options,
                       c.over_gloo ? collectives::testing::GlooEngines(options)
                                   : collectives::ThreadEngines(options),
                       body);
}

struct Outcome {
  Sums sums;
  bool skipped = false;
};

// One step of a rank from zero; what the update has subtracted are the sums.
absl::StatusOr<Outcome> Step(Rank& self, const ZeroOptions& options,
                             const GradientOf& gradient_of) {
  BRIGADE_ASSIGN_OR_RETURN(auto zero, CreateZero(TwoBuckets(), options, self));
  BRIGADE_RETURN_IF_ERROR(zero->InitializeParameters([](int, absl::Span<float> values) {
    std::fill(values.begin(), values.end(), 0.0f);
    return absl::OkStatus();
  }));
  const Plan& plan = zero->plan();
  std::vector<std::vector<char>> gradients;  // until the stream has read them
  for (int unit = static_cast<int>(plan.units().size()); unit-- > 0;) {
    BRIGADE_RETURN_IF_ERROR(zero->Acquire(unit, Pass::kBackward));
    for (const int p : plan.unit(unit).parameters) {
      const int64_t size = plan.parameter(p).spec.size;
      std::vector<char>& bytes = gradients.emplace_back();
      bytes.resize(static_cast<size_t>(size * precision::SizeOf(options.dtype)));
      for (int64_t i = 0; i < size; ++i) {
        Store(bytes.data(), options.dtype, i, gradient_of(self.rank, p, i));
      }
      BRIGADE_ASSIGN_OR_RETURN(const GradientTarget target, zero->Gradient(unit, p));
      BRIGADE_RETURN_IF_ERROR(
          self.stream->Copy(target.data, bytes.data(), static_cast<int64_t>(bytes.size())));
    }
    BRIGADE_RETURN_IF_ERROR(zero->Release(unit));
    BRIGADE_RETURN_IF_ERROR(zero->GradientsReady(unit));
  }
  BRIGADE_RETURN_IF_ERROR(zero->FinishBackward());
  BRIGADE_RETURN_IF_ERROR(zero->Step());
  BRIGADE_RETURN_IF_ERROR(zero->controller().RequestState(zero->step_stream()));
  BRIGADE_RETURN_IF_ERROR(zero->step_stream().Synchronize());
  BRIGADE_RETURN_IF_ERROR(self.stream->Synchronize());
  Outcome outcome;
  BRIGADE_ASSIGN_OR_RETURN(const auto state, zero->controller().TakeState());
  outcome.skipped = state->skip != 0;
  BRIGADE_ASSIGN_OR_RETURN(outcome.sums, Exported(*zero));
  for (std::vector<float>& sums : outcome.sums) {
    for (float& sum : sums) sum = -sum;
  }
  return outcome;
}

// What all ranks get, in every stage.
Outcome ExpectTheSameOfAllStages(const WireCase& c, const GradientOf& gradient_of) {
  Outcome first;
  for (int stage = 0; stage < kStages; ++stage) {
    std::vector<Outcome> outcomes(static_cast<size_t>(c.ranks));
    OnRanksOf(c, [&](Rank& self) {
      auto outcome = Step(self, OptionsOf(c, stage), gradient_of);
      ASSERT_OK(outcome);
      outcomes[static_cast<size_t>(self.rank)] = *std::move(outcome);
    });
    if (stage == 0) first = outcomes[0];
    for (int rank = 0; rank < c.ranks; ++rank) {
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(outcome.skipped, first.skipped) << "stage " << stage << ", rank " << rank;
      EXPECT_EQ(outcome.sums.size(), first.sums.size());
      for (size_t p = 0; p < std::min(outcome.sums.size(), first.sums.size()); ++p) {
        EXPECT_TRUE(collectives::SameBits(outcome.sums[p], first.sums[p]))
            << "stage " << stage << ", rank " << rank << ", parameter " << p;
      }
    }
  }
  return first;
}

spec::Format FormatOf(DType dtype) {
  return dtype == DType::kFloat16    ? spec::Format::kFloat16
         : dtype == DType::kBFloat16 ? spec::Format::kBFloat16
                                     : spec::Format::kFloat32;
}

// Normal variables of several magnitudes, of which the largest are of the size `magnitude`.
GradientOf Spread(const WireCase& c, float magnitude) {
  const auto inputs = collectives::MakeInputs(c.ranks, 2000, magnitude);
  return [=](int rank, int parameter, int64_t i) {
    const float x = inputs[static_cast<size_t>(rank)][static_cast<size_t>(i + 100 * parameter)];
    return parameter == 2 ? x / 1024 : x;
  };
}

class WireTest : public ::testing::TestWithParam<WireCase> {};

TEST_P(WireTest, EveryStageHasTheSpecifiedSums) {
  const WireCase& c = GetParam();
  const Plan plan = Plan::Create(TwoBuckets(), {.ranks = c.ranks, .dtype = c.dtype}).value();
  ASSERT_EQ(plan.buckets().size(), 2u);
  const spec::Format format = FormatOf(c.dtype), wire = FormatOf(c.wire);
  for (const float magnitude : {1.0f, 1e5f, 1e-9f}) {
    SCOPED_TRACE(magnitude);
    const GradientOf gradient_of = Spread(c, magnitude);
    const Outcome outcome = ExpectTheSameOfAllStages(c, gradient_of);
    ASSERT_FALSE(outcome.skipped);
    for (const Bucket& bucket : plan.buckets()) {
      collectives::Inputs inputs;
      for (int rank = 0; rank < c.ranks; ++rank) {
        std::vector<float>& of_rank = inputs.emplace_back();
        for (const BucketEntry& entry : bucket.entries) {
          for (int64_t i = 0; i < entry.range.size; ++i) {
            of_rank.push_back(spec::Round(format, gradient_of(rank, entry.parameter, i)));
          }
        }
      }
      const float scale = spec::ScaleForWire(inputs, format, wire);
      if (c.wire == DType::kBFloat16) {
        EXPECT_EQ(scale, 1.0f);
      }
      std::vector<float> sums;
      for (const BucketEntry& entry : bucket.entries) {
        const auto& of_parameter = outcome.sums[static_cast<size_t>(entry.parameter)];
        sums.insert(sums.end(), of_parameter.begin(), of_parameter.end());
      }
      const bool hierarchical = c.algorithm == Algorithm::kHierarchical;
      if (c.algorithm == Algorithm::kDirect || hierarchical) {
        spec::SumOrder order;
        if (hierarchical) {
          order = {static_cast<size_t>(RanksPerNode(c)), c.reduction == Reduction::kRoundedPerHop};
        }
        std::vector<float> wanted = spec::SumOverWire(inputs, wire, scale, 0, sums.size(), order);
        for (float& x : wanted) x = spec::Round(format, x);
        EXPECT_TRUE(std::equal(sums.begin(), sums.end(), wanted.begin(), wanted.end()));
      } else {
        // Other orders of additions have no specification of their own, but a bound.
        const collectives::WireOptions on_wire = {.wire = c.wire, .reduction = c.reduction};
        for (size_t i = 0; i < sums.size(); ++i) {
          ASSERT_TRUE(collectives::IsWithinBound(sums[i], on_wire, inputs, scale, i));
        }
      }
    }
  }
}

TEST_P(WireTest, AGradientThatIsNotFiniteSkipsTheStep) {
  const WireCase& c = GetParam();
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const GradientOf good = Spread(c, 1.0f);
    const Outcome outcome = ExpectTheSameOfAllStages(c, [&](int rank, int parameter, int64_t i) {
      const bool here = rank == c.ranks - 1 && parameter == 1 && i == 77;
      return here ? bad : good(rank, parameter, i);
    });
    EXPECT_TRUE(outcome.skipped) << bad;
  }
}

std::vector<WireCase> Cases() {
  std::vector<WireCase> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
      cases.push_back({ranks, DType::kFloat32, wire});
      for (const Algorithm algorithm :
           {Algorithm::kRing, Algorithm::kBidirectionalRing, Algorithm::kHalvingDoubling,
            Algorithm::kHierarchical, Algorithm::kDoubleTree, Algorithm::kParameterServer}) {
        for (const Reduction reduction : {Reduction::kRoundedPerHop, Reduction::kFp32Partials}) {
          cases.push_back({ranks, DType::kFloat32, wire, reduction, algorithm});
        }
      }
    }
    cases.push_back({ranks, DType::kBFloat16, DType::kFloat16});
  }
  for (const Algorithm algorithm :
       {Algorithm::kRing, Algorithm::kHierarchical, Algorithm::kDoubleTree}) {
    cases.push_back({4, DType::kFloat32, DType::kFloat16, Reduction::kFp32Partials, algorithm,
                     /*over_gloo=*/true});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, WireTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return ToString(info.param); });

// Without a scale float16 has infinity in place of 1e5, and 0 in place of 1e-9.
TEST(WireRangeTest, Float16CarriesGradientsOutOfItsRange) {
  for (const float magnitude : {1e5f, 1e-9f}) {
    const float plain = spec::Round(spec::Format::kFloat16, magnitude);
    ASSERT_TRUE(plain == 0.0f || std::isinf(plain));
    for (const int ranks : {1, 2, 5}) {
      const Outcome outcome =
          ExpectTheSameOfAllStages({.ranks = ranks}, [&](int, int, int64_t) { return magnitude; });
      EXPECT_FALSE(outcome.skipped);
      for (const auto& of_parameter : outcome.sums) {
        for (const float sum : of_parameter) {
          ASSERT_NEAR(sum / magnitude, ranks, 1e-3 * ranks);
        }
      }
    }
  }
}

}  // namespace
}  // namespace brigade::zero
