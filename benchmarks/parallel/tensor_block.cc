// A block of a transformer whose matrices tensor ranks share, beside the sum of its parts, each
// measured alone in the same rounds. benchmarks/parallel/README.md says how to read it.

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/common/turns.h"
#include "brigade/benchmarks/parallel/block.h"
#include "brigade/benchmarks/parallel/rank.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype_names.h"

ABSL_FLAG(std::vector<std::string>, ranks, (std::vector<std::string>{"2", "4"}),
          "of each case: how many tensor ranks, as threads");
ABSL_FLAG(int64_t, batch, 2, "texts");
ABSL_FLAG(int64_t, context, 512, "positions of a text");
ABSL_FLAG(int64_t, width, 512, "of the block");
ABSL_FLAG(int64_t, heads, 8, "of the block");
ABSL_FLAG(std::vector<std::string>, types, (std::vector<std::string>{"fp32"}), "fp32, fp16, bf16");
ABSL_FLAG(int, pieces, 1, "into which rows are cut where ranks exchange them");
ABSL_FLAG(bool, overlap, false, "exchange pieces beside products");
ABSL_FLAG(int, runs, 2, "forward and backward passes of a turn");
ABSL_FLAG(int, rounds, 11, "turns of each contestant; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

enum { kWhole, kProducts, kExchange, kContestants };

absl::Status Measure(const BlockShape& shape, const std::string& name, Figures& figures) {
  const int runs = absl::GetFlag(FLAGS_runs);
  std::vector<int64_t> sent(static_cast<size_t>(shape.ranks));
  const auto create = [&](int self,
                          collectives::ThreadGroup& group) -> absl::StatusOr<std::vector<Turn>> {
    struct State {
      std::unique_ptr<ParallelRank> rank;
      std::unique_ptr<Block> whole, products;
      std::unique_ptr<CollectivesAlone> exchange;
    };
    const auto state = std::make_shared<State>();
    BRIGADE_ASSIGN_OR_RETURN(state->rank, ParallelRank::Create(self, group));
    ParallelRank& rank = *state->rank;
    BRIGADE_ASSIGN_OR_RETURN(state->whole, Block::Create(shape, true, rank));
    BRIGADE_ASSIGN_OR_RETURN(state->products, Block::Create(shape, false, rank));
    BRIGADE_ASSIGN_OR_RETURN(state->exchange,
                             CollectivesAlone::Create(Block::Collectives(shape, self), rank));
    const auto turn = [&](const char* what, auto enqueue) {
      return Turn{
          what,
          [=, &rank, &sent]() -> absl::Status {
            const int64_t before = rank.sent_bytes();
            for (int i = 0; i < runs; ++i) BRIGADE_RETURN_IF_ERROR(enqueue());
            BRIGADE_RETURN_IF_ERROR(rank.communicator().Synchronize(rank.stream()));
            const int64_t bytes = (rank.sent_bytes() - before) / runs;
            // The block sends what its collectives do.
            int64_t& expected = sent[static_cast<size_t>(rank.rank())];
            if (bytes != 0 && expected != 0 && bytes != expected) {
              return absl::InternalError(absl::StrCat("sent ", bytes, " bytes and ", expected));
            }
            if (bytes != 0) expected = bytes;
            return absl::OkStatus();
          },
          {},
          {},
          state};
    };
    State* const at = state.get();
    return std::vector<Turn>{turn("block", [at] { return at->whole->Run(); }),
                             turn("products", [at] { return at->products->Run(); }),
                             turn("exchange", [at] { return at->exchange->Enqueue(); })};
  };
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<TurnTimes> times,
                           TakeTurns(shape.ranks, absl::GetFlag(FLAGS_rounds), create));
  Seconds sum, processor_sum;
  for (size_t round = 0; round < times[kWhole].wall.size(); ++round) {
    sum.push_back(times[kProducts].wall[round] + times[kExchange].wall[round]);
    processor_sum.push_back(times[kProducts].processor[round] + times[kExchange].processor[round]);
  }
  const double of_parts = MedianRatio(times[kWhole].wall, sum);
  const double processor = MedianRatio(times[kWhole].processor, processor_sum);
  std::cout << absl::StrFormat("%-18s", name);
  for (const TurnTimes& each : times) {
    std::cout << absl::StrFormat(" %9.2f", Median(each.wall) * 1e3 / runs);
  }
  std::cout << absl::StrFormat(
      " %9.1f %10.3f %10.3f %9.2f\n",
      shape.ranks * shape.ProductOperations() * 1e-9 * runs / Median(times[kWhole].wall), of_parts,
      processor, static_cast<double>(sent[0]) * 1e-6);
  figures.Add(absl::StrCat(name, "_of_parts"), of_parts);
  figures.Add(absl::StrCat(name, "_processor_of_parts"), processor);
  figures.Add(absl::StrCat(name, "_seconds"), Median(times[kWhole].wall) / runs);
  return absl::OkStatus();
}

// What the flags ask for, without sequence parallelism.
absl::StatusOr<std::vector<BlockShape>> Shapes() {
  std::vector<BlockShape> shapes;
  for (const std::string& type : absl::GetFlag(FLAGS_types)) {
    const auto dtype = precision::ParseTrainingFormat(type);
    if (!dtype.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--types has \"", type, "\"; it must be of fp32, fp16 and bf16"));
    }
    for (const std::string& text : absl::GetFlag(FLAGS_ranks)) {
      BlockShape shape;
      if (!absl::SimpleAtoi(text, &shape.ranks) || shape.ranks < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("--ranks has \"", text, "\"; it must be whole numbers from 1 on, as 2,4"));
      }
      shape.dtype = *dtype;
      shape.batch = absl::GetFlag(FLAGS_batch);
      shape.context = absl::GetFlag(FLAGS_context);
      shape.width = absl::GetFlag(FLAGS_width);
      shape.heads = absl::GetFlag(FLAGS_heads);
      shape.pieces = absl::GetFlag(FLAGS_pieces);
      shape.overlap = absl::GetFlag(FLAGS_overlap);
      shapes.push_back(shape);
    }
  }
  return shapes;
}

absl::Status Main() {
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<BlockShape> shapes, Shapes());
  Figures figures;
  std::cout << absl::StrFormat(
      "# %d x %d rows of width %d, %d heads, rows in %d pieces, exchanged %s products: ms of a "
      "block's two passes; all ranks' GFLOP/s; its "
      "time of the sum of its parts, and its processor time of theirs; MB that a rank sends\n"
      "%-18s %9s %9s %9s %9s %10s %10s %9s\n",
      absl::GetFlag(FLAGS_batch), absl::GetFlag(FLAGS_context), absl::GetFlag(FLAGS_width),
      absl::GetFlag(FLAGS_heads), absl::GetFlag(FLAGS_pieces),
      absl::GetFlag(FLAGS_overlap) ? "beside" : "between", "case", "block", "products", "exchange",
      "GFLOP/s", "of_parts", "processor", "sent");
  for (BlockShape shape : shapes) {
    for (const bool sequence_parallel : {false, true}) {
      shape.sequence_parallel = sequence_parallel;
      BRIGADE_RETURN_IF_ERROR(Measure(shape,
                                      absl::StrCat(precision::ShortName(shape.dtype), "_t",
                                                   shape.ranks, sequence_parallel ? "_rows" : ""),
                                      figures));
    }
  }
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "a block on tensor ranks",
                                      brigade::benchmarks::Main);
}
