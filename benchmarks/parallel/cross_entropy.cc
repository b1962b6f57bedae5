// Cross entropy of logits whose vocabulary tensor ranks share: what it sends, and its time beside
// its parts. benchmarks/parallel/README.md says how to read it.

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/common/turns.h"
#include "brigade/benchmarks/parallel/rank.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/token_ids.h"
#include "brigade/parallel/tensor/cross_entropy.h"
#include "brigade/parallel/tensor/embedding.h"

ABSL_FLAG(std::vector<std::string>, ranks, (std::vector<std::string>{"2", "4"}),
          "of each case: how many tensor ranks, as threads");
ABSL_FLAG(int64_t, rows, 512, "of logits");
ABSL_FLAG(int64_t, vocabulary, 32768, "which the ranks divide");
ABSL_FLAG(int, rounds, 11, "turns of each contestant; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

constexpr precision::DType kFloat = precision::DType::kFloat32;

enum { kWhole, kPart, kExchange };

// A rank's part of the logits, and what it does with them.
struct State {
  std::unique_ptr<ParallelRank> rank;
  std::unique_ptr<parallel::VocabularyCrossEntropy> layer;
  std::unique_ptr<CollectivesAlone> exchange;
  device::Buffer logits, losses, statistics, ids, part_ids, seed;
};

absl::StatusOr<device::Buffer> Ids(int64_t rows, int64_t vocabulary, ParallelRank& rank) {
  BRIGADE_ASSIGN_OR_RETURN(
      device::Buffer buffer,
      rank.context().Allocate((rows + 1) * static_cast<int64_t>(sizeof(int32_t)),
                              device::Purpose::kScratch, "ids"));
  int64_t next = 0;
  for (int32_t& id : buffer.as<int32_t>()) {
    id = static_cast<int32_t>(next);
    next = (next + 7919) % vocabulary;
  }
  return buffer;
}

absl::Status Measure(int ranks, Figures& figures) {
  const int64_t rows = absl::GetFlag(FLAGS_rows), vocabulary = absl::GetFlag(FLAGS_vocabulary);
  std::vector<int64_t> sent(static_cast<size_t>(ranks));
  const auto create = [&](int self,
                          collectives::ThreadGroup& group) -> absl::StatusOr<std::vector<Turn>> {
    const auto state = std::make_shared<State>();
    BRIGADE_ASSIGN_OR_RETURN(state->rank, ParallelRank::Create(self, group));
    State* const at = state.get();
    ParallelRank& rank = *state->rank;
    const parallel::TensorShards shards = {ranks, ranks, self};
    const parallel::VocabularyCrossEntropyOptions options = {shards, kFloat, rows};
    BRIGADE_ASSIGN_OR_RETURN(state->layer, parallel::VocabularyCrossEntropy::Create(
                                               options, &rank.communicator(), rank.context()));
    BRIGADE_ASSIGN_OR_RETURN(
        state->exchange, CollectivesAlone::Create(
                             {parallel::VocabularyCrossEntropy::SignatureOf(options, rows)}, rank));
    BRIGADE_ASSIGN_OR_RETURN(state->logits, rank.Noise(rows * vocabulary / ranks, kFloat, 4));
    BRIGADE_ASSIGN_OR_RETURN(state->losses, rank.Noise(rows, kFloat, 1));
    BRIGADE_ASSIGN_OR_RETURN(state->statistics, rank.Noise(3 * rows, kFloat, 1));
    BRIGADE_ASSIGN_OR_RETURN(state->seed, rank.Noise(1, kFloat, 1));
    BRIGADE_ASSIGN_OR_RETURN(state->ids, Ids(rows, vocabulary, rank));
    BRIGADE_ASSIGN_OR_RETURN(state->part_ids, Ids(rows, vocabulary / ranks, rank));
    const nn::TokenIds whole(state->ids.as<int32_t>().data(), 1, rows, vocabulary);
    BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds window, parallel::VocabularyWindow(whole, shards));
    // The same passes over as many logits without the others.
    const nn::TokenIds part(state->part_ids.as<int32_t>().data(), 1, rows, vocabulary / ranks);
    const auto wait = [at] { return at->rank->communicator().Synchronize(at->rank->stream()); };
    const float* const seed = state->seed.as<float>().data();
    return std::vector<Turn>{
        {"cross entropy",
         [=, &sent]() -> absl::Status {
           device::Stream& stream = at->rank->stream();
           const int64_t before = at->rank->sent_bytes();
           BRIGADE_RETURN_IF_ERROR(at->layer->Forward(
               window, at->logits.data(), at->statistics.data(), at->losses.data(), stream));
           BRIGADE_RETURN_IF_ERROR(
               at->layer->Backward(window, at->logits.data(), at->statistics.data(), seed, stream));
           BRIGADE_RETURN_IF_ERROR(wait());
           sent[static_cast<size_t>(self)] = at->rank->sent_bytes() - before;
           return absl::OkStatus();
         },
         {},
         {},
         state},
        {"part",
         [=]() -> absl::Status {
           device::Stream& stream = at->rank->stream();
           BRIGADE_RETURN_IF_ERROR(
               nn::CrossEntropy(part, kFloat, at->logits.data(), at->losses.data(), stream));
           BRIGADE_RETURN_IF_ERROR(
               nn::CrossEntropyBackward(part, kFloat, at->logits.data(), seed, stream));
           return wait();
         }},
        {"exchange", [=]() -> absl::Status {
           BRIGADE_RETURN_IF_ERROR(at->exchange->Enqueue());
           return wait();
         }}};
  };
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<TurnTimes> times,
                           TakeTurns(ranks, absl::GetFlag(FLAGS_rounds), create));
  for (const int64_t each : sent) {
    if (each != sent[0]) return absl::InternalError("ranks have sent different numbers of bytes");
  }
  const double floats = static_cast<double>(sent[0]) / sizeof(float) / static_cast<double>(rows);
  Seconds sum;
  for (size_t round = 0; round < times[kPart].wall.size(); ++round) {
    sum.push_back(times[kPart].wall[round] + times[kExchange].wall[round]);
  }
  const double of_parts = MedianRatio(times[kWhole].wall, sum);
  std::cout << absl::StrFormat("%5d", ranks);
  for (const TurnTimes& each : times) {
    std::cout << absl::StrFormat(" %9.3f", Median(each.wall) * 1e3);
  }
  std::cout << absl::StrFormat(" %9.3f %8.2f %8d\n", of_parts, floats, 3 * (ranks - 1));
  const std::string name = absl::StrCat("t", ranks);
  figures.Add(absl::StrCat(name, "_floats_per_row"), floats);
  figures.Add(absl::StrCat(name, "_of_parts"), of_parts);
  return absl::OkStatus();
}

absl::Status Main() {
  std::vector<int> cases;
  for (const std::string& text : absl::GetFlag(FLAGS_ranks)) {
    int ranks = 0;
    if (!absl::SimpleAtoi(text, &ranks) || ranks < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--ranks has \"", text, "\"; it must be whole numbers from 1 on, as 2,4"));
    }
    cases.push_back(ranks);
  }
  Figures figures;
  std::cout << absl::StrFormat(
      "# %d rows of %d logits, fp32: ms of the two passes, of nn's over a rank's logits, and of "
      "the exchange; time of the sum of these; floats that a rank sends for each row, and "
      "3 (t-1)\n%5s %9s %9s %9s %9s %8s %8s\n",
      absl::GetFlag(FLAGS_rows), absl::GetFlag(FLAGS_vocabulary), "ranks", "whole", "part",
      "exchange", "of_parts", "sent", "formula");
  for (const int ranks : cases) BRIGADE_RETURN_IF_ERROR(Measure(ranks, figures));
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "cross entropy on tensor ranks",
                                      brigade::benchmarks::Main);
}
