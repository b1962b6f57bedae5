// Ring attention beside its parts: a rank's share of the attention, and the hops, each alone.
// benchmarks/parallel/README.md says how to read it.

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
#include "brigade/benchmarks/parallel/rank.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/attention.h"
#include "brigade/parallel/context/ring_attention.h"
#include "brigade/precision/dtype_names.h"

ABSL_FLAG(int, ranks, 4, "how many context ranks, as threads");
ABSL_FLAG(int64_t, context, 4096, "positions of the text");
ABSL_FLAG(int64_t, heads, 8, "which the ranks divide here");
ABSL_FLAG(int64_t, head_width, 64, "of each");
ABSL_FLAG(brigade::precision::DType, type, brigade::precision::DType::kFloat32,
          "fp32, fp16 or bf16");
ABSL_FLAG(double, link, 0,
          "how long the link takes for a hop of keys and values, in times of a forward step's "
          "computation; 0: no link");
ABSL_FLAG(int, rounds, 11, "turns of each contestant; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

// A forward and a backward pass of attention by one rank.
class Passes {
 public:
  // `ring` is null for attention by nn.
  static absl::StatusOr<std::unique_ptr<Passes>> Create(
      const nn::AttentionShape& shape, std::unique_ptr<parallel::RingAttention> ring,
      ParallelRank& rank) {
    auto made = std::make_unique<Passes>(shape, std::move(ring), rank);
    const int64_t out = shape.rows() * shape.width;
    constexpr precision::DType kFloat = precision::DType::kFloat32;
    BRIGADE_ASSIGN_OR_RETURN(made->qkv_, rank.Noise(3 * out, shape.dtype, 2));
    BRIGADE_ASSIGN_OR_RETURN(made->dqkv_, rank.Noise(3 * out, shape.dtype, 1));
    BRIGADE_ASSIGN_OR_RETURN(made->out_, rank.Noise(out, shape.dtype, 1));
    BRIGADE_ASSIGN_OR_RETURN(made->dout_, rank.Noise(out, shape.dtype, 1));
    BRIGADE_ASSIGN_OR_RETURN(made->log_sum_exp_, rank.Noise(shape.statistics(), kFloat, 1));
    if (made->ring_ == nullptr) {
      const int64_t bytes = nn::AttentionWorkspaceBytes(shape, rank.context().device());
      BRIGADE_ASSIGN_OR_RETURN(made->workspace_, rank.Noise(bytes / 4 + 1, kFloat, 1));
    }
    return made;
  }

  Passes(const nn::AttentionShape& shape, std::unique_ptr<parallel::RingAttention> ring,
         ParallelRank& rank)
      : shape_(shape), ring_(std::move(ring)), rank_(rank) {}

  absl::Status Forward() {
    return ring_ != nullptr
               ? ring_->Forward(qkv_.data(), out_.data(), log_sum_exp_.data(), rank_.stream())
               : nn::Attention(shape_, qkv_.data(), out_.data(), log_sum_exp_.data(),
                               rank_.stream());
  }
  absl::Status Run() {
    BRIGADE_RETURN_IF_ERROR(Forward());
    return ring_ != nullptr ? ring_->Backward(qkv_.data(), out_.data(), log_sum_exp_.data(),
                                              dout_.data(), dqkv_.data(), rank_.stream())
                            : nn::AttentionBackward(
                                  shape_, qkv_.data(), out_.data(), log_sum_exp_.data(),
                                  dout_.data(), workspace_.data(), dqkv_.data(), rank_.stream());
  }

 private:
  const nn::AttentionShape shape_;
  const std::unique_ptr<parallel::RingAttention> ring_;
  ParallelRank& rank_;
  device::Buffer qkv_, dqkv_, out_, dout_, log_sum_exp_, workspace_;
};

struct State {
  std::unique_ptr<ParallelRank> rank;
  std::unique_ptr<Passes> ring, share;
  std::unique_ptr<CollectivesAlone> hops, last_hop;
};
enum { kRing, kShare, kHops, kLastHop, kShareForward };

absl::StatusOr<std::vector<TurnTimes>> Contest(const nn::AttentionShape& shape,
                                               double bytes_per_second, int rounds) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  return TakeTurns(
      ranks, rounds,
      [&, ranks](int self, collectives::ThreadGroup& group) -> absl::StatusOr<std::vector<Turn>> {
        const auto state = std::make_shared<State>();
        BRIGADE_ASSIGN_OR_RETURN(state->rank, ParallelRank::Create(self, group, bytes_per_second));
        ParallelRank& rank = *state->rank;
        BRIGADE_ASSIGN_OR_RETURN(
            auto ring, parallel::RingAttention::Create(shape, rank.communicator(), rank.context()));
        const nn::AttentionShape local = ring->local_shape();
        BRIGADE_ASSIGN_OR_RETURN(state->ring, Passes::Create(local, std::move(ring), rank));
        // As many pairs of positions as the ring gives each rank: the whole text's, of some heads.
        const nn::AttentionShape of_heads = {shape.dtype, shape.batch, shape.context,
                                             shape.heads / ranks, shape.width / ranks};
        BRIGADE_ASSIGN_OR_RETURN(state->share, Passes::Create(of_heads, nullptr, rank));
        const auto keys = parallel::RingAttention::SignatureOf(shape, ranks);
        const auto sums = parallel::RingAttention::SignatureOfSums(shape, ranks);
        std::vector<collectives::CollectiveSignature> hops(static_cast<size_t>(2 * (ranks - 1)),
                                                           keys);
        hops.insert(hops.end(), static_cast<size_t>(ranks), sums);
        BRIGADE_ASSIGN_OR_RETURN(state->hops, CollectivesAlone::Create(hops, rank));
        BRIGADE_ASSIGN_OR_RETURN(state->last_hop, CollectivesAlone::Create({sums}, rank));
        State* const at = state.get();
        const auto turn = [&](const char* name, auto enqueue) {
          return Turn{name,
                      [=]() -> absl::Status {
                        BRIGADE_RETURN_IF_ERROR(enqueue());
                        return at->rank->communicator().Synchronize(at->rank->stream());
                      },
                      {},
                      {},
                      state};
        };
        return std::vector<Turn>{
            turn("ring", [at] { return at->ring->Run(); }),
            turn("share", [at] { return at->share->Run(); }),
            turn("hops", [at] { return at->hops->Enqueue(); }),
            turn("last hop", [at] { return at->last_hop->Enqueue(); }),
            turn("forward", [at] { return at->share->Forward(); }),
        };
      });
}

absl::Status Main() {
  const int ranks = absl::GetFlag(FLAGS_ranks), rounds = absl::GetFlag(FLAGS_rounds);
  const int64_t heads = absl::GetFlag(FLAGS_heads);
  if (ranks < 1 || heads % ranks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("heads is ", heads, ", which ", ranks, " ranks do not divide"));
  }
  const nn::AttentionShape shape = {absl::GetFlag(FLAGS_type), 1, absl::GetFlag(FLAGS_context),
                                    heads, heads * absl::GetFlag(FLAGS_head_width)};
  double bytes_per_second = kFastLink;
  if (absl::GetFlag(FLAGS_link) > 0) {
    BRIGADE_ASSIGN_OR_RETURN(const std::vector<TurnTimes> calm, Contest(shape, kFastLink, 3));
    const double step = Median(calm[kShareForward].wall) / ranks;
    const auto keys = parallel::RingAttention::SignatureOf(shape, ranks);
    bytes_per_second = static_cast<double>(keys.count * precision::SizeOf(keys.dtype)) /
                       (absl::GetFlag(FLAGS_link) * step);
  }
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<TurnTimes> times,
                           Contest(shape, bytes_per_second, rounds));
  Seconds parts, processor, shortest;
  for (size_t round = 0; round < times[kRing].wall.size(); ++round) {
    parts.push_back(times[kShare].wall[round] + times[kHops].wall[round]);
    processor.push_back(times[kShare].processor[round] + times[kHops].processor[round]);
    // Each hop is beside a step, but the one by which the sums come home.
    shortest.push_back(times[kShare].wall[round] + times[kLastHop].wall[round]);
  }
  const double of_parts = MedianRatio(times[kRing].wall, parts);
  const double processor_of_parts = MedianRatio(times[kRing].processor, processor);
  const double of_shortest = MedianRatio(times[kRing].wall, shortest);
  std::cout << absl::StrFormat(
      "# %d ranks, a text of %d, %d heads of %d, %s, a hop takes %.2f of a step: ms of the two "
      "passes, of attention to the whole text by 1/%d of the heads, of all hops, of the last one; "
      "time of attention and hops, processor time of theirs; time of attention and the last hop\n"
      "%9s %9s %9s %9s %9s %10s %12s\n",
      ranks, shape.context, shape.heads, shape.head_width(),
      std::string(precision::ShortName(shape.dtype)), absl::GetFlag(FLAGS_link), ranks, "ring",
      "attention", "hops", "last_hop", "of_parts", "processor", "of_shortest");
  for (const size_t each : {kRing, kShare, kHops, kLastHop}) {
    std::cout << absl::StrFormat("%9.2f ", Median(times[each].wall) * 1e3);
  }
  std::cout << absl::StrFormat("%9.3f %10.3f %12.3f\n", of_parts, processor_of_parts, of_shortest);
  Figures figures;
  const std::string name = absl::StrCat("c", ranks);
  figures.Add(absl::StrCat(name, "_of_parts"), of_parts);
  figures.Add(absl::StrCat(name, "_processor_of_parts"), processor_of_parts);
  figures.Add(absl::StrCat(name, "_of_shortest"), of_shortest);
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "ring attention", brigade::benchmarks::Main);
}
