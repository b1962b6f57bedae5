// Documents that share samples, beside the same documents alone, through both models.

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/random.h"
#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

constexpr int64_t kPositions = 9;
// Of the documents of two samples.
const std::vector<std::vector<int64_t>> kLengths = {{4, 5}, {1, 6, 2}};

std::vector<int32_t> Ids(int64_t size, uint64_t seed) {
  nn::Random random(seed, 0);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < size; ++i) ids.push_back(static_cast<int32_t>(random.Next() % 23));
  return ids;
}

// What a model computes of a batch: logits, losses and the gradients of the sum of the losses.
struct Answer {
  std::vector<double> logits, losses;
  std::vector<std::vector<double>> gradients;
};

Answer Compute(ModelLab& lab, const Batch& batch) {
  Answer answer;
  answer.losses = lab.Losses(batch);
  answer.logits = lab.Read(lab.model().logits(), batch.rows() * lab.model().config().vocabulary);
  const auto seed = lab.Filled<float>({1.0f});
  EXPECT_OK(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()));
  for (int p = 0; p < lab.arrays().size(); ++p) {
    const void* const gradient = lab.arrays().gradient(p);
    answer.gradients.push_back(gradient == nullptr ? std::vector<double>()
                                                   : lab.Read(gradient, lab.arrays().size_of(p)));
  }
  return answer;
}

// Ids, positions and ends of samples whose documents have these lengths.
std::vector<int32_t> Inputs(const std::vector<int32_t>& ids,
                            const std::vector<std::vector<int64_t>>& lengths) {
  std::vector<int32_t> inputs;
  for (size_t sample = 0; sample < lengths.size(); ++sample) {
    const auto first = ids.begin() + static_cast<int64_t>(sample) * kPositions;
    inputs.insert(inputs.end(), first, first + kPositions);
    std::vector<int32_t> ends;
    int64_t begin = 0;
    for (const int64_t length : lengths[sample]) {
      for (int64_t t = 0; t < length; ++t) {
        inputs.push_back(static_cast<int32_t>(t));
        ends.push_back(static_cast<int32_t>(begin + length));
      }
      begin += length;
    }
    inputs.insert(inputs.end(), ends.begin(), ends.end());
  }
  return inputs;
}

void ExpectNear(const std::vector<double>& a, const std::vector<double>& b, double relative,
                const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double largest = 0, farthest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    farthest = std::max(farthest, std::abs(a[i] - b[i]));
  }
  EXPECT_LE(farthest, relative * largest) << what;
}

struct Case {
  const char* name;
  DecoderConfig config;
  bool lora = false;
  bool recompute = false;
};

DecoderOptions OptionsOf(const Case& test, DType dtype, int64_t samples) {
  DecoderOptions options = {
      .dtype = dtype, .samples = samples, .positions = kPositions, .recompute = test.recompute};
  // All layers that there are, a table of positions among them.
  if (test.lora) options.lora = LoraOptions{.rank = 3, .alpha = 5, .pattern = ".*"};
  return options;
}

// The same weights in all models, of adapters too.
void Fill(ModelLab& lab) {
  lab.Initialize(3, 20);
  for (int p = 0; p < lab.arrays().size(); ++p) {
    if (!lab.model().roles()[static_cast<size_t>(p)].is_adapter()) continue;
    nn::Random random(11, static_cast<uint64_t>(p));
    std::vector<double> values(static_cast<size_t>(lab.arrays().size_of(p)));
    for (double& value : values) value = random.Uniform() - 0.5;
    lab.Write(values, lab.arrays().weights(p));
  }
}

class ModelSegmentsTest : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Models, ModelSegmentsTest,
                         ::testing::Values(Case{"Llama", TinyLlama()}, Case{"Gpt2", TinyGpt2()},
                                           Case{"LlamaRecomputed", TinyLlama(), false, true},
                                           Case{"LlamaWithAdapters", TinyLlama(), true},
                                           Case{"Gpt2WithAdapters", TinyGpt2(), true, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ModelSegmentsTest, DocumentsAreWhatTheyAreAlone) {
  const auto samples = static_cast<int64_t>(kLengths.size());
  const std::vector<int32_t> ids = Ids(samples * kPositions, 1), labels = Ids(ids.size(), 2);
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    // Products of double are the CPU's.
    if (kOnGpu && dtype == DType::kFloat64) continue;
    SCOPED_TRACE(static_cast<int>(dtype));
    const double within = dtype == DType::kFloat64 ? 1e-12 : dtype == DType::kFloat32 ? 1e-4 : 0.06;
    DecoderOptions options = OptionsOf(GetParam(), dtype, samples);
    options.segments = true;
    ModelLab lab(GetParam().config, options);
    Fill(lab);
    const Answer packed = Compute(lab, {lab.Filled(Inputs(ids, kLengths)).data(),
                                        lab.Filled(labels).data(), samples, kPositions});

    ModelLab of_one(GetParam().config, OptionsOf(GetParam(), dtype, 1));
    Fill(of_one);
    std::vector<std::vector<double>> sums;
    int64_t row = 0;
    for (const auto& lengths : kLengths) {
      for (const int64_t length : lengths) {
        const std::vector<int32_t> own(ids.begin() + row, ids.begin() + row + length);
        const std::vector<int32_t> targets(labels.begin() + row, labels.begin() + row + length);
        const Answer alone =
            Compute(of_one, {of_one.Filled(own).data(), of_one.Filled(targets).data(), 1, length});
        const auto rows = [&](const std::vector<double>& all, int64_t columns) {
          return std::vector<double>(all.begin() + row * columns,
                                     all.begin() + (row + length) * columns);
        };
        const std::string what = absl::StrCat(length, " rows from ", row);
        ExpectNear(rows(packed.losses, 1), alone.losses, within, what);
        ExpectNear(rows(packed.logits, 23), alone.logits, within, what);
        // Arrays add up what backward passes give.
        sums = alone.gradients;
        row += length;
      }
    }
    for (size_t p = 0; p < sums.size(); ++p) {
      // Of weights that several documents have in common, sums in another order.
      ExpectNear(packed.gradients[p], sums[p], 4 * within, lab.parameters()[p].name);
    }
  }
}

// Behind it padding, which is a segment that no loss counts of.
TEST_P(ModelSegmentsTest, OneDocumentHasTheBitsOfASampleWithoutSegments) {
  const std::vector<int32_t> ids = Ids(2 * kPositions, 1);
  for (const int64_t length : {kPositions, int64_t{6}}) {
    std::vector<int32_t> labels = Ids(2 * kPositions, 2);
    for (int64_t t = length; t < kPositions; ++t) labels[t] = labels[kPositions + t] = kIgnored;
    std::vector<int64_t> lengths = {length};
    if (length < kPositions) lengths.push_back(kPositions - length);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const auto compute = [&](bool segments, bool restart) {
        DecoderOptions options = OptionsOf(GetParam(), dtype, 2);
        options.segments = segments;
        options.restart_positions = restart;
        ModelLab lab(GetParam().config, options);
        Fill(lab);
        const std::vector<int32_t> inputs = segments ? Inputs(ids, {lengths, lengths}) : ids;
        return Compute(lab, {lab.Filled(inputs).data(), lab.Filled(labels).data(), 2, kPositions});
      };
      const Answer answers[] = {compute(false, true), compute(true, true)};
      // Positions that go on are those of the sample, adapters of their table included.
      const Answer goes_on = compute(true, false);
      EXPECT_EQ(goes_on.losses, answers[0].losses);
      EXPECT_EQ(goes_on.gradients, answers[0].gradients);
      if (GetParam().lora && GetParam().config.architecture == Architecture::kGpt2) {
        // An adapter of a table of positions is then applied to rows that were looked up.
        ExpectNear(answers[1].losses, answers[0].losses, dtype == DType::kFloat32 ? 1e-4 : 0.06,
                   "losses");
        continue;
      }
      EXPECT_EQ(answers[0].losses, answers[1].losses);
      EXPECT_EQ(answers[0].gradients, answers[1].gradients);
    }
  }
}

// Those of GPT-2 are then rows of the table from the document's place on; rotations are the same
// but for rounding, since only differences of positions matter.
TEST(ModelSegmentsTest, PositionsMayGoOnOverDocuments) {
  if (kOnGpu) GTEST_SKIP() << "products of double are the CPU's";
  const std::vector<int32_t> ids = Ids(kPositions, 1), labels = Ids(kPositions, 2);
  for (const DecoderConfig& config : {TinyGpt2(), TinyLlama()}) {
    DecoderOptions options = {.dtype = DType::kFloat64, .positions = kPositions};
    ModelLab of_one(config, options);
    of_one.Initialize(3, 20);
    options.segments = true;
    options.restart_positions = false;
    ModelLab lab(config, options);
    lab.Initialize(3, 20);
    const Answer packed = Compute(
        lab, {lab.Filled(Inputs(ids, {{4, 5}})).data(), lab.Filled(labels).data(), 1, kPositions});
    if (config.architecture == Architecture::kGpt2) {
      std::vector<double> table = of_one.Read(of_one.arrays().weights(1), 32 * 12);
      std::rotate(table.begin(), table.begin() + 4 * 12, table.end());
      of_one.Write(table, of_one.arrays().weights(1));
    }
    const Answer alone = Compute(
        of_one,
        {of_one.Filled(std::vector<int32_t>(ids.begin() + 4, ids.end())).data(),
         of_one.Filled(std::vector<int32_t>(labels.begin() + 4, labels.end())).data(), 1, 5});
    ExpectNear({packed.logits.begin() + 4 * 23, packed.logits.end()}, alone.logits, 1e-12,
               "logits");
  }
}

TEST(ModelSegmentsTest, AreNotKept) {
  EXPECT_THAT(Validate(TinyLlama(), {.positions = 8, .cached_positions = 8, .segments = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("several segments")));
}

TEST(ModelSegmentsTest, MemoryIsAsSaid) {
  for (const DecoderConfig& config : {TinyGpt2(), TinyLlama()}) {
    const DecoderOptions options = {.dtype = DType::kFloat32, .positions = 32, .segments = true};
    auto context = device::Context::Create({.device = BRIGADE_LAB_DEVICE}).value();
    const auto memory = Decoder::MemoryOf(config, options, *context);
    ASSERT_OK(memory);
    const auto decoder = Decoder::Create(config, options, *context);
    ASSERT_OK(decoder);
    EXPECT_EQ(context->memory_stats().current_bytes(device::Purpose::kScratch), memory->scratch);
  }
}

}  // namespace
}  // namespace brigade::models
