// The model cut over the stages of a pipeline: losses and gradients have the bits of the whole
// model, whatever is in flight, made again, deferred or dropped.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/context.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/examples/gpt/staged_passes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using parallel::ScheduleKind;

constexpr int kMicroBatches = 6;
constexpr ModelOptions kModel = {.layers = 5, .heads = 2, .width = 12, .context = 10};

// Cuts into 1 to 4 parts, several of them on a stage; some have an embedding or a head alone.
std::vector<StagedCase> Cuts(int micro_batches = kMicroBatches) {
  const auto cut = [&](ScheduleKind kind, int chunks, int stages, std::vector<int> boundaries) {
    return StagedCase{.pipeline = {{kind, chunks}, stages, micro_batches},
                      .boundaries = std::move(boundaries)};
  };
  return {cut(ScheduleKind::kGpipe, 1, 1, {0, 7}),
          cut(ScheduleKind::kZeroBubbleH1, 1, 1, {0, 7}),
          cut(ScheduleKind::kZeroBubbleV, 2, 1, {0, 3, 7}),
          cut(ScheduleKind::kOneForwardOneBackward, 1, 2, {0, 3, 7}),
          cut(ScheduleKind::kZeroBubbleH1, 1, 3, {0, 1, 5, 7}),
          cut(ScheduleKind::kInterleaved, 2, 2, {0, 2, 3, 6, 7}),
          cut(ScheduleKind::kZeroBubbleV, 2, 2, {0, 2, 4, 5, 7}),
          cut(ScheduleKind::kGpipe, 1, 4, {0, 1, 3, 6, 7})};
}

std::vector<StagedCase> PoliciesOf(const StagedCase& cut) {
  using Kind = recompute::Policy::Kind;
  using recompute::StashTier;
  std::vector<StagedCase> cases(8, cut);
  cases[1].policy = {.kind = Kind::kBlock};
  cases[2].policy = {.kind = Kind::kSelective};
  cases[3].policy = {.kind = Kind::kSegments, .stages_per_segment = 2};
  cases[4].policy = {.kind = Kind::kBlock, .stash = StashTier::kHost};
  cases[5].policy = {.kind = Kind::kSegments, .stages_per_segment = 2, .stash = StashTier::kHost};
  cases[6].policy = {.kind = Kind::kBlock, .stash = StashTier::kFile};
  cases[7].has_budget = true;
  return cases;
}

class StagePassesTest : public ::testing::TestWithParam<double> {
 protected:
  StagedLab Lab(const ModelOptions& model, precision::DType dtype) {
    return {*context_, *stream_, {model, 2, dtype}, {}, GetParam(), ::testing::TempDir()};
  }

  const std::unique_ptr<device::Context> context_ = device::Context::Create({}).value();
  const std::unique_ptr<device::Stream> stream_ = context_->CreateStream("compute").value();
};
INSTANTIATE_TEST_SUITE_P(Dropout, StagePassesTest, ::testing::Values(0, 0.2),
                         [](const auto& info) { return info.param == 0 ? "Without" : "With"; });

TEST_P(StagePassesTest, EveryCutAndPolicyGivesTheBitsOfTheWholeModel) {
  const StagedLab lab = Lab(kModel, precision::DType::kFloat32);
  const auto wanted = RunStaged<float>(lab, OneStage(kModel, kMicroBatches));
  for (const StagedCase& cut : Cuts()) {
    for (const StagedCase& staged : PoliciesOf(cut)) {
      SCOPED_TRACE(staged.Name());
      const auto result = RunStaged<float>(lab, staged);
      ExpectSameBits(result, wanted);
    }
  }
}

template <typename T>
void ExpectTheSameBits(StagedLab lab) {
  const auto wanted = RunStaged<T>(lab, OneStage(lab.shape.model, kMicroBatches));
  for (const StagedCase& cut : Cuts()) {
    const std::vector<StagedCase> cases = PoliciesOf(cut);
    for (const size_t policy : {0, 1, 7}) {
      SCOPED_TRACE(cases[policy].Name());
      ExpectSameBits(RunStaged<T>(lab, cases[policy]), wanted);
    }
  }
}

TEST_P(StagePassesTest, AllTypesAndTensorShardsGiveTheBitsOfTheWholeModel) {
  ModelOptions shards = kModel;
  shards.tensor_shards = 2;
  ModelOptions rows = shards;
  rows.sequence_parallel = true;
  ModelOptions pieces = rows;
  pieces.tensor_pieces = 2;
  for (const ModelOptions& model : {kModel, shards, rows, pieces}) {
    ExpectTheSameBits<precision::BFloat16>(Lab(model, precision::DType::kBFloat16));
  }
  ExpectTheSameBits<precision::Half>(Lab(pieces, precision::DType::kFloat16));
  ExpectTheSameBits<float>(Lab(rows, precision::DType::kFloat32));
  ExpectTheSameBits<double>(Lab(shards, precision::DType::kFloat64));
}

// The gradients of inputs of a micro-batch come before those of weights of the one before.
TEST_P(StagePassesTest, MicroBatchesAddToOneGradientInTheirOrder) {
  StagedLab lab = Lab(kModel, precision::DType::kFloat32);
  lab.accumulates = true;
  const auto wanted = RunStaged<float>(lab, OneStage(kModel, kMicroBatches));
  for (const StagedCase& cut : Cuts()) {
    SCOPED_TRACE(cut.Name());
    ExpectSameBits(RunStaged<float>(lab, cut), wanted);
  }
}

}  // namespace
}  // namespace brigade::gpt
