// What a pipeline asks of a models::Model: models of one's own that are cut between their units,
// and those that a stage refuses.

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "brigade/data/samples.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/examples/mlp.h"
#include "brigade/nn/random.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/trainings.h"
#include "brigade/tests/train/wrapped_model.h"
#include "brigade/train/decoder_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// Images of 4 numbers in 3 classes.
class Points final : public data::Samples {
 public:
  int64_t size() const override { return 19; }
  int64_t input_bytes() const override { return 4 * sizeof(float); }
  int64_t target_bytes() const override { return sizeof(int32_t); }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    nn::Random random(7, static_cast<uint64_t>(sample));
    float image[4];
    for (float& value : image) value = static_cast<float>(random.Uniform());
    const int32_t label = image[0] > image[1] ? 0 : image[2] > image[3] ? 1 : 2;
    std::memcpy(input, image, sizeof(image));
    std::memcpy(target, &label, sizeof(label));
    return absl::OkStatus();
  }
};

ModelFactory Classifier() {
  return [](const ModelPlace& place) {
    // What crosses is of several widths.
    return examples::Mlp::Create(place, {4, 9, 5, 7, 3}, examples::Loss::kCrossEntropy);
  };
}

TrainingData Images() {
  return {
      .training = std::make_shared<Points>(), .held_out = std::make_shared<Points>(), .epochs = 2};
}

TEST(PipelineModelTest, AModelOfOnesOwnIsCutBetweenItsUnits) {
  for (const Case& of : {Case{.pipeline = 2, .schedule = "gpipe"},
                         Case{.pipeline = 2, .schedule = "interleaved:2", .stage = 3},
                         Case{.pipeline = 4, .stage = 1, .partition = "flops"},
                         Case{.data = 2, .pipeline = 2, .stage = 2}}) {
    SCOPED_TRACE(Config(of));
    ExpectSame(TrainAll(Make(of, Classifier(), Images()), of.ranks()),
               TrainAll(Make({.data = of.data}, Classifier(), Images()), of.data));
  }
}

// What only tells what it would be has no memory.
TEST(PipelineModelTest, AModelOfOnesOwnWithoutUnitsAllocatesNothing) {
  const auto context = device::Context::Create({}).value();
  const TrainConfig config = ParseConfig(Config({.pipeline = 2}), 2).value();
  const int64_t before = context->memory_stats().current_bytes();
  const auto model = Classifier()({.config = config,
                                   .context = *context,
                                   .samples = 4,
                                   .input_bytes = 4 * sizeof(float),
                                   .stage = models::StageUnits()});
  ASSERT_OK(model);
  EXPECT_EQ(context->memory_stats().current_bytes(), before);
  EXPECT_EQ((*model)->bytes().activations + (*model)->bytes().scratch, 0);
  EXPECT_EQ((*model)->spec().size(), 4u);
}

TEST(PipelineModelTest, RefusesAModelThatIsNotWhatTheStageNeeds) {
  const auto refused = [](const Case& of, const ModelFactory& model, const TrainingData& data,
                          const auto& text) {
    SCOPED_TRACE(Config(of));
    EXPECT_THAT(TrainAll(Make(of, model, data), of.ranks()).status, StatusIs(kInvalid, text));
  };
  // Of micro-batches in flight one is kept; and nothing between halves.
  const auto with = [](const ModelFactory& model, int slots, int deferred) -> ModelFactory {
    return [=](const ModelPlace& place) {
      ModelPlace few = place;
      if (few.stage.has_value() && few.stage->slots > 0) few.stage->slots = slots;
      if (few.stage.has_value()) few.stage->deferred = deferred;
      return model(few);
    };
  };
  refused({.pipeline = 2, .schedule = "gpipe"}, with(Classifier(), 1, 0), Images(),
          AllOf(HasSubstr("keeps 1 passes"), HasSubstr("\"gpipe\" needs 8 and 0"),
                HasSubstr("Model::slots")));
  refused({.pipeline = 2, .schedule = "zb-h1"}, with(DecoderModel(TinyLlama()), 8, 0), DataOf(),
          AllOf(HasSubstr("0 halves"), HasSubstr("\"zb-h1\" needs"), HasSubstr("Model::deferred")));
  // The units of the stage alone, as if they were a model; and another model.
  const auto of_stage = [](std::vector<int64_t> widths) -> ModelFactory {
    return [=](const ModelPlace& place) {
      const bool has_units = place.stage.has_value() && !place.stage->chunks.empty();
      return has_units ? examples::Mlp::Create(place, widths, examples::Loss::kCrossEntropy)
                       : Classifier()(place);
    };
  };
  refused({.pipeline = 2}, of_stage({4, 9, 5}), Images(), HasSubstr("it has 2 units, not 4"));
  refused({.pipeline = 2}, of_stage({4, 9, 6, 7, 3}), Images(),
          HasSubstr("54 elements, not 45, in the parameter \"layers.1.weight\""));
}

// An Mlp that is on one rank as a whole, or has `alive` as long as it is there.
class WholeModel final : public WrappedModel {
 public:
  explicit WholeModel(std::unique_ptr<models::Model> model,
                      std::shared_ptr<const int> alive = nullptr)
      : WrappedModel(std::move(model)), alive_(std::move(alive)) {}

  std::optional<models::Boundary> BoundaryOf(const models::Batch& batch) const override {
    return alive_ == nullptr ? std::nullopt : wrapped().BoundaryOf(batch);
  }
  int slots() const override { return wrapped().slots(); }

 private:
  const std::shared_ptr<const int> alive_;
};

// A model that has all its memory, whatever its place is, would not be there twice.
TEST(PipelineModelTest, ARankHasOneModelAtATime) {
  device::Mutex mutex;
  std::map<const device::Context*, std::weak_ptr<const int>> of_rank;
  int second = 0;
  const ModelFactory model =
      [&](const ModelPlace& place) -> absl::StatusOr<std::unique_ptr<models::Model>> {
    auto alive = std::make_shared<const int>(0);
    {
      device::MutexLock lock(mutex);
      const auto [one, is_first] = of_rank.try_emplace(&place.context, alive);
      if (!is_first) {
        ++second;
        EXPECT_TRUE(one->second.expired());
      }
    }
    auto made = Classifier()(place);
    if (!made.ok()) return made.status();
    return std::make_unique<WholeModel>(*std::move(made), std::move(alive));
  };
  ASSERT_OK(TrainAll(Make({.pipeline = 2}, model, Images()), 2).status);
  EXPECT_EQ(second, 2);
}

TEST(PipelineModelTest, RefusesWhatAModelDoesNotDoAllAtOnce) {
  const auto refused = [&](const std::string& config, int ranks, const ModelFactory& model,
                           const TrainingData& data, const auto& text) {
    Training training = Make({}, model, data);
    training.job.config = ParseConfig(config, ranks).value();
    EXPECT_THAT(TrainAll(training, ranks).status, StatusIs(kInvalid, text));
  };
  const ModelFactory whole =
      [](const ModelPlace& place) -> absl::StatusOr<std::unique_ptr<models::Model>> {
    auto model = Classifier()(place);
    if (!model.ok()) return model.status();
    return std::make_unique<WholeModel>(*std::move(model));
  };
  refused(Config({.pipeline = 2}), 2, whole, Images(), HasSubstr("by Model::BoundaryOf"));
  refused(
      Config({.pipeline = 2, .schedule = "zb-h1", .partition = "time"}), 2, Classifier(), Images(),
      AllOf(HasSubstr("zb-h1"), HasSubstr("no halves"), HasSubstr("brigade.partition \"time\"")));
  refused(Config({.pipeline = 4, .schedule = "interleaved:2"}), 4, Classifier(), Images(),
          HasSubstr("into 8 parts, but its units are only 4"));
  refused(Config({.pipeline = 2, .partition = "0,3,6"}), 2, DecoderModel(TinyLlama()), DataOf(),
          HasSubstr("brigade.partition"));
}

}  // namespace
}  // namespace brigade::train
