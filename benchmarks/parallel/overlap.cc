// Linear layers whose exchange runs beside their products, behind a link that is as slow as one
// likes: how much of what can be hidden is. benchmarks/parallel/README.md says how to read it.

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/common/turns.h"
#include "brigade/benchmarks/parallel/layer_case.h"
#include "brigade/benchmarks/parallel/rank.h"
#include "brigade/device/status_macros.h"

ABSL_FLAG(int, ranks, 2, "how many tensor ranks, as threads");
ABSL_FLAG(int, pieces, 4, "into which rows are cut");
ABSL_FLAG(int64_t, rows, 2048, "of the layers");
ABSL_FLAG(int64_t, width, 512, "of the layers, between products of 4 times it");
ABSL_FLAG(double, product_ms, 0, "how long a product waits, instead of computing; 0: it computes");
ABSL_FLAG(double, link, 0.7, "how long the link takes for an exchange, in times of a product");
ABSL_FLAG(int, rounds, 11, "turns of each contestant; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

// A rank's contestants.
struct State {
  std::unique_ptr<ParallelRank> rank;
  std::unique_ptr<LayerCase> beside, after, products;
  std::unique_ptr<CollectivesAlone> gather, sum;
};

absl::StatusOr<std::vector<TurnTimes>> Contest(const LayerShape& shape, double bytes_per_second,
                                               int rounds, int64_t* sent) {
  return TakeTurns(
      shape.ranks, rounds,
      [&](int self, collectives::ThreadGroup& group) -> absl::StatusOr<std::vector<Turn>> {
        const auto state = std::make_shared<State>();
        BRIGADE_ASSIGN_OR_RETURN(state->rank, ParallelRank::Create(self, group, bytes_per_second));
        ParallelRank& rank = *state->rank;
        BRIGADE_ASSIGN_OR_RETURN(state->beside, LayerCase::Create(shape, true, true, rank));
        BRIGADE_ASSIGN_OR_RETURN(state->after, LayerCase::Create(shape, true, false, rank));
        BRIGADE_ASSIGN_OR_RETURN(state->products, LayerCase::Create(shape, false, false, rank));
        BRIGADE_ASSIGN_OR_RETURN(state->gather,
                                 CollectivesAlone::Create(LayerCase::Gathers(shape), rank));
        BRIGADE_ASSIGN_OR_RETURN(state->sum,
                                 CollectivesAlone::Create(LayerCase::Sums(shape), rank));
        State* const at = state.get();
        const auto turn = [&](const char* name, auto enqueue) {
          return Turn{
              name,
              [=]() -> absl::Status {
                const int64_t before = at->rank->sent_bytes();
                BRIGADE_RETURN_IF_ERROR(enqueue());
                BRIGADE_RETURN_IF_ERROR(at->rank->communicator().Synchronize(at->rank->stream()));
                const int64_t bytes = at->rank->sent_bytes() - before;
                if (self == 0) *sent = std::max(*sent, bytes);
                return absl::OkStatus();
              },
              {},
              {},
              state};
        };
        return std::vector<Turn>{turn("beside", [at] { return at->beside->Run(); }),
                                 turn("after", [at] { return at->after->Run(); }),
                                 turn("products", [at] { return at->products->Run(); }),
                                 turn("gather", [at] { return at->gather->Enqueue(); }),
                                 turn("sum", [at] { return at->sum->Enqueue(); })};
      });
}
enum { kBeside, kAfter, kProducts, kGather, kSum };

absl::Status Measure(const LayerShape& shape, Figures& figures) {
  int64_t sent = 0;
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<TurnTimes> calm, Contest(shape, kFastLink, 3, &sent));
  // Of one rank's pass; where it both gathers and sums, each takes as long.
  const double product = Median(calm[kProducts].wall) / shape.products();
  const int exchanges = (shape.gathers() ? 1 : 0) + (shape.sums() ? 1 : 0);
  const double link =
      static_cast<double>(sent) / (absl::GetFlag(FLAGS_link) * product * std::max(exchanges, 1));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<TurnTimes> times,
                           Contest(shape, link, absl::GetFlag(FLAGS_rounds), &sent));
  Seconds hidden, can_be;
  for (size_t round = 0; round < times[kBeside].wall.size(); ++round) {
    const double products = times[kProducts].wall[round], gather = times[kGather].wall[round],
                 sum = times[kSum].wall[round];
    hidden.push_back(times[kAfter].wall[round] - times[kBeside].wall[round]);
    can_be.push_back(products + gather + sum - ShortestSeconds(shape, products, gather, sum));
  }
  const double share = MedianRatio(hidden, can_be);
  const std::string name = ToString(shape);
  std::cout << absl::StrFormat("%-26s", name);
  for (const size_t each : {kProducts, kGather, kSum, kAfter, kBeside}) {
    std::cout << absl::StrFormat(" %9.2f", Median(times[each].wall) * 1e3);
  }
  std::cout << absl::StrFormat(" %9.2f %9.2f %8.3f\n", Median(can_be) * 1e3, Median(hidden) * 1e3,
                               share);
  figures.Add(absl::StrCat(name, "_hidden"), share);
  return absl::OkStatus();
}

absl::Status Main() {
  Figures figures;
  LayerShape shape;
  shape.ranks = absl::GetFlag(FLAGS_ranks);
  shape.pieces = absl::GetFlag(FLAGS_pieces);
  shape.rows = absl::GetFlag(FLAGS_rows);
  shape.width = absl::GetFlag(FLAGS_width);
  shape.product_seconds = absl::GetFlag(FLAGS_product_ms) * 1e-3;
  std::cout << absl::StrFormat(
      "# %d ranks, %d rows of %d and %d columns, fp32, in %d pieces; products %s, and the "
      "link takes %.2f of one: ms of products, gather and sum alone, of a pass that exchanges "
      "after them and beside them; what can be hidden, what is, and its share\n"
      "%-26s %9s %9s %9s %9s %9s %9s %9s %8s\n",
      shape.ranks, shape.rows, shape.width, 4 * shape.width, shape.pieces,
      shape.product_seconds > 0 ? "wait" : "compute", absl::GetFlag(FLAGS_link), "", "products",
      "gather", "sum", "after", "beside", "can_be", "hidden", "share");
  for (const parallel::SumPart part : {parallel::SumPart::kAll, parallel::SumPart::kOwn}) {
    shape.part = part;
    for (const LayerPass pass : {LayerPass::kColumnForward, LayerPass::kRowForward,
                                 LayerPass::kRowBackward, LayerPass::kColumnBackward}) {
      shape.pass = pass;
      if (!shape.gathers() && !shape.sums()) continue;
      BRIGADE_RETURN_IF_ERROR(Measure(shape, figures));
    }
  }
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "exchange beside products",
                                      brigade::benchmarks::Main);
}
