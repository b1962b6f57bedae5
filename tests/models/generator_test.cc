#include "brigade/models/generator.h"

#include <algorithm>
#include <string>
#include <vector>

#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

class GeneratorTest : public ::testing::TestWithParam<DecoderConfig> {
 protected:
  GeneratorTest()
      : lab(GetParam(),
            {.dtype = DType::kFloat32, .samples = 1, .positions = 32, .trains = false}) {
    lab.Initialize(5, 20);
  }

  std::vector<int32_t> Generate(const GenerateOptions& options, int64_t positions = 64,
                                int64_t capacity = 0) {
    auto generator = Generator::Create(
        GetParam(), {.dtype = DType::kFloat32, .capacity = capacity, .positions = positions},
        lab.context());
    EXPECT_OK(generator);
    auto tokens = generator->Generate(prompt, options, lab.arrays());
    EXPECT_OK(tokens);
    return tokens.value_or(std::vector<int32_t>{});
  }

  ModelLab lab;
  const std::vector<int32_t> prompt = {3, 1, 4, 1, 5};
};
INSTANTIATE_TEST_SUITE_P(Models, GeneratorTest, ::testing::Values(TinyLlama(), TinyGpt2()),
                         [](const auto& info) {
                           return std::string(NameOf(info.param.architecture));
                         });

TEST_P(GeneratorTest, WithoutTemperatureItIsWhatWholePassesSay) {
  std::vector<int32_t> text = prompt;
  while (text.size() < 17) {
    const auto size = static_cast<int64_t>(text.size());
    ASSERT_OK(Forward(lab.model(), {lab.Filled(text).data(), nullptr, 1, size}, nullptr,
                      lab.arrays(), lab.stream()));
    const auto logits = lab.Read(lab.model().logits(), size * GetParam().vocabulary);
    const auto last = logits.end() - GetParam().vocabulary;
    text.push_back(static_cast<int32_t>(std::max_element(last, logits.end()) - last));
  }
  const std::vector<int32_t> wanted(text.begin() + 5, text.end());
  for (const int64_t positions : {1, 2, 5, 64}) {
    EXPECT_THAT(Generate({.sampling = {.temperature = 0}, .new_tokens = 12}, positions),
                ElementsAreArray(wanted));
  }
}

TEST_P(GeneratorTest, ASeedHasItsText) {
  const auto text = [&](uint64_t seed) {
    return Generate({.sampling = {.temperature = 2, .seed = seed}, .new_tokens = 20});
  };
  const std::vector<int32_t> first = text(1);
  EXPECT_EQ(first.size(), 20u);
  EXPECT_EQ(text(1), first);
  EXPECT_NE(text(2), first);
}

TEST_P(GeneratorTest, EndsAtAStopTokenOrWhereItIsTold) {
  const GenerateOptions options = {.sampling = {.temperature = 2, .seed = 1}, .new_tokens = 20};
  const std::vector<int32_t> all = Generate(options);
  GenerateOptions stops = options;
  stops.stop_tokens = {-1, all[4]};
  const auto first = std::find(all.begin(), all.end(), all[4]);
  EXPECT_THAT(Generate(stops), ElementsAreArray(all.begin(), first + 1));

  auto generator = Generator::Create(GetParam(), {.dtype = DType::kFloat32}, lab.context()).value();
  std::vector<int32_t> seen;
  const auto tokens = generator.Generate(prompt, options, lab.arrays(), [&](int32_t token) {
    seen.push_back(token);
    return seen.size() < 3;
  });
  ASSERT_OK(tokens);
  EXPECT_EQ(*tokens, seen);
  EXPECT_THAT(seen, ElementsAreArray(all.begin(), all.begin() + 3));
}

TEST_P(GeneratorTest, RefusesWhatThereIsNoRoomFor) {
  // The last token is not read: five and six fill ten positions.
  EXPECT_EQ(Generate({.new_tokens = 6}, 64, 10).size(), 6u);
  EXPECT_TRUE(Generate({.new_tokens = 0}).empty());
  auto generator =
      Generator::Create(GetParam(), {.dtype = DType::kFloat32, .capacity = 10}, lab.context())
          .value();
  const auto refused = [&](const std::vector<int32_t>& text, const GenerateOptions& options,
                           const char* says) {
    EXPECT_THAT(generator.Generate(text, options, lab.arrays()),
                StatusIs(kInvalid, HasSubstr(says)));
  };
  refused(prompt, {.new_tokens = 7}, "5 tokens and 7 new ones; there is room for 10");
  refused({}, {.new_tokens = 1}, "a prompt of 0 tokens");
  refused({1, 23}, {.new_tokens = 1}, "token 23 of the prompt is none of the 23");
  refused({-1}, {.new_tokens = 1}, "token -1");
  refused(prompt, {.new_tokens = -1}, "new_tokens is -1");
  refused(prompt, {.sampling = {.top_p = 2}}, "top_p is 2");
  EXPECT_THAT(Generator::Create(GetParam(), {.capacity = 33}, lab.context()),
              StatusIs(kInvalid, HasSubstr("33 positions; it must be 1 to 32")));
  EXPECT_THAT(Generator::Create(GetParam(), {.positions = 0}, lab.context()),
              StatusIs(kInvalid, HasSubstr("0 tokens at a time")));
}

}  // namespace
}  // namespace brigade::models
