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
  ContextExchange exchange = ContextExchange::kUlysses;
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

template <typename T>
void ExpectTheBitsOfTheWholeModel(const SharedCase& shared) {
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
    const StagedLab lab = {*self.context,
                           *self.stream,
                           shape,
                           {&grid->tensor(), &grid->context()},
                           /*dropout=*/0.2};
    const auto wanted = RunStaged<T>(lab, OneStage(model, kMicroBatches));
    for (const StagedCase& staged : Cases()) {
      SCOPED_TRACE(absl::StrCat(shared.name, ", ", staged.Name(), ", rank ", self.rank));
      ExpectSameBits(RunStaged<T>(lab, staged), wanted);
    }
    self.AwaitOthers();
  });
}

TEST(GridStagePassesTest, RanksThatShareTheModelHaveTheBitsOfTheWholeModel) {
  ExpectTheBitsOfTheWholeModel<float>({"matrices", 2});
  ExpectTheBitsOfTheWholeModel<precision::BFloat16>(
      {.name = "rows", .tensor = 2, .sequence_parallel = true});
  ExpectTheBitsOfTheWholeModel<float>(
      {.name = "rows kept", .tensor = 2, .sequence_parallel = true, .keep_gathered = true});
  ExpectTheBitsOfTheWholeModel<precision::Half>({.name = "pieces",
                                                 .tensor = 2,
                                                 .sequence_parallel = true,
                                                 .tensor_pieces = 2,
                                                 .overlap = true});
}

TEST(GridStagePassesTest, RanksThatShareTextsHaveTheBitsOfTheWholeModel) {
  ExpectTheBitsOfTheWholeModel<float>({.name = "heads", .context = 2});
  ExpectTheBitsOfTheWholeModel<precision::BFloat16>(
      {.name = "ring", .context = 2, .exchange = ContextExchange::kRing});
  ExpectTheBitsOfTheWholeModel<float>(
      {.name = "rows and heads", .tensor = 2, .context = 2, .sequence_parallel = true});
}

}  // namespace
}  // namespace brigade::gpt
