// The model cut over the stages of a pipeline, on ranks that share its shards, rows and texts: each
// has the bits that the whole model gives it, and sends what the formula says.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/parallel/grid.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/examples/gpt/staged_passes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using collectives::Rank;
using parallel::ScheduleKind;

constexpr int kMicroBatches = 3;

struct SharedCase {
  const char* name;
  int tensor = 1;
  int context = 1;
  bool sequence_parallel = false;
  bool keep_gathered = false;
  int tensor_pieces = 1;
  bool overlap = false;
  train::ContextExchange exchange = train::ContextExchange::kUlysses;
};

std::vector<StagedCase> Cases() {
  using Kind = recompute::Policy::Kind;
  const auto cut = [](ScheduleKind kind, int chunks, int stages, std::vector<int> boundaries,
                      Kind policy) {
    return StagedCase{.pipeline = {{kind, chunks}, stages, kMicroBatches},
                      .boundaries = std::move(boundaries),
                      .policy = {.kind = policy}};
  };
  std::vector<StagedCase> cases;
  for (const Kind policy : {Kind::kNone, Kind::kSelective, Kind::kBlock}) {
    cases.push_back(cut(ScheduleKind::kOneForwardOneBackward, 1, 3, {0, 1, 3, 5}, policy));
    cases.push_back(cut(ScheduleKind::kZeroBubbleH1, 1, 2, {0, 3, 5}, policy));
    cases.push_back(cut(ScheduleKind::kZeroBubbleV, 2, 2, {0, 1, 2, 4, 5}, policy));
  }
  return cases;
}

// Every option of a backward pass that is split, saved in the forward pass, or, of what is made
// again, in the backward pass.
std::vector<StagedCase> CasesOfOptions() {
  using Kind = recompute::Policy::Kind;
  std::vector<StagedCase> cases;
  for (int option = 0; option < kBlockSaveOptionCount; ++option) {
    for (const Kind policy : {Kind::kNone, Kind::kSegments}) {
      cases.push_back({.pipeline = {{ScheduleKind::kZeroBubbleH1, 1}, 2, kMicroBatches},
                       .boundaries = {0, 3, 5},
                       .policy = {.kind = policy, .stages_per_segment = 2},
                       .option = option});
    }
  }
  return cases;
}

template <typename T>
void ExpectTheBitsOfTheWholeModel(const SharedCase& shared, const std::vector<StagedCase>& cases,
                                  double dropout = 0.2) {
  const int64_t heads = 4;
  const ModelOptions model = {.layers = 3,
                              .heads = heads,
                              .width = 4 * heads,
                              .context = 8,
                              .tensor_shards = shared.tensor,
                              .sequence_parallel = shared.sequence_parallel,
                              .tensor_pieces = shared.tensor_pieces};
  const collectives::RanksOptions ranks = {.size = shared.tensor * shared.context};
  collectives::OnThreads(ranks, [&](Rank& self) {
    const auto grid = parallel::Grid::Create({.tensor = shared.tensor, .context = shared.context},
                                             *self.communicator)
                          .value();
    const PassShape shape = {.model = model,
                             .batch = 2,
                             .dtype = precision::kDType<T>,
                             .tensor_ranks = shared.tensor,
                             .tensor_rank = grid->coordinates().tensor,
                             .context_ranks = shared.context,
                             .context_rank = grid->coordinates().context,
                             .context_exchange = shared.exchange,
                             .keep_gathered = shared.keep_gathered,
                             .tensor_overlap = shared.overlap};
    const StagedLab lab = {
        *self.context, *self.stream, shape, {&grid->tensor(), &grid->context()}, dropout};
    const auto wanted = RunStaged<T>(lab, OneStage(model, kMicroBatches));
    for (const StagedCase& staged : cases) {
      SCOPED_TRACE(absl::StrCat(shared.name, ", ", staged.Name(), ", rank ", self.rank));
      ExpectSameBits(RunStaged<T>(lab, staged), wanted);
    }
    self.AwaitOthers();
  });
}

TEST(GridStagePassesTest, RanksThatShareTheModelHaveTheBitsOfTheWholeModel) {
  ExpectTheBitsOfTheWholeModel<float>({"matrices", 2}, Cases());
  ExpectTheBitsOfTheWholeModel<precision::BFloat16>(
      {.name = "rows", .tensor = 2, .sequence_parallel = true}, Cases());
  ExpectTheBitsOfTheWholeModel<float>(
      {.name = "rows kept", .tensor = 2, .sequence_parallel = true, .keep_gathered = true},
      Cases());
  ExpectTheBitsOfTheWholeModel<precision::Half>({.name = "pieces",
                                                 .tensor = 2,
                                                 .sequence_parallel = true,
                                                 .tensor_pieces = 2,
                                                 .overlap = true},
                                                Cases());
}

TEST(GridStagePassesTest, RanksThatShareTextsHaveTheBitsOfTheWholeModel) {
  ExpectTheBitsOfTheWholeModel<float>({.name = "heads", .context = 2}, Cases());
  ExpectTheBitsOfTheWholeModel<precision::BFloat16>(
      {.name = "ring", .context = 2, .exchange = train::ContextExchange::kRing}, Cases());
  ExpectTheBitsOfTheWholeModel<float>(
      {.name = "rows and heads", .tensor = 2, .context = 2, .sequence_parallel = true}, Cases());
}

TEST(GridStagePassesTest, EveryOptionHasTheBitsOfTheWholeModel) {
  const std::vector<StagedCase> cases = CasesOfOptions();
  ExpectTheBitsOfTheWholeModel<precision::BFloat16>(
      {.name = "rows", .tensor = 2, .sequence_parallel = true}, cases);
  ExpectTheBitsOfTheWholeModel<float>(
      {.name = "ring", .context = 2, .exchange = train::ContextExchange::kRing}, cases);
}

// With and without rows of their own, kept gathered, in pieces, beside sums, and all exchanges of
// texts.
TEST(GridStagePassesSoakTest, EveryOptionOfEveryShapeHasTheBitsOfTheWholeModel) {
  const std::vector<StagedCase> cases = CasesOfOptions();
  for (const double dropout : {0.0, 0.2}) {
    for (const auto& [has_rows, keeps] : {std::pair(false, false), {true, false}, {true, true}}) {
      SharedCase shared = {.name = "tensor ranks",
                           .tensor = 2,
                           .sequence_parallel = has_rows,
                           .keep_gathered = keeps};
      ExpectTheBitsOfTheWholeModel<float>(shared, cases, dropout);
      shared.tensor_pieces = 2;
      for (const bool overlap : {false, true}) {
        shared.overlap = overlap;
        ExpectTheBitsOfTheWholeModel<float>(shared, cases, dropout);
      }
      shared.name = "tensor and context ranks";
      shared.context = 2;
      for (const auto exchange :
           {train::ContextExchange::kUlysses, train::ContextExchange::kRing}) {
        shared.exchange = exchange;
        ExpectTheBitsOfTheWholeModel<precision::BFloat16>(shared, cases, dropout);
      }
    }
  }
}

}  // namespace
}  // namespace brigade::gpt
