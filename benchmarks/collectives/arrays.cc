#include "brigade/benchmarks/collectives/arrays.h"

#include <algorithm>
#include <utility>

#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {

using collectives::CollectiveKind;

absl::StatusOr<Arrays> Arrays::Create(int ranks, int64_t elements, device::Context& context) {
  Arrays arrays(ranks, elements);
  for (int i = 0; i < 2 * ranks; ++i) {
    BRIGADE_ASSIGN_OR_RETURN(auto buffer,
                             context.Allocate(elements * 4, device::Purpose::kCommunication));
    (i < ranks ? arrays.input_ : arrays.output_).push_back(buffer.as<float>().data());
    arrays.buffers_.push_back(std::move(buffer));
  }
  return arrays;
}

void Arrays::Fill(int64_t whole) {
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int64_t i = 0; i < whole; ++i) input_[rank][i] = rank == 0 ? RankZeroValue(i) : 0.0f;
    std::fill_n(output_[rank], whole, -1.0f);
  }
}

Round Arrays::MakeRound(int rank, const Turn& turn) {
  const int64_t part = turn.whole / ranks_;
  float* const input = input_[rank];
  float* const output = output_[rank];
  if (turn.kind == CollectiveKind::kAllReduce) {
    return {turn.kind, input, turn.in_place ? input : output, turn.whole, turn.times};
  }
  if (turn.kind == CollectiveKind::kReduceScatter) {
    return {turn.kind, input, turn.in_place ? input + rank * part : output, part, turn.times};
  }
  return {turn.kind, turn.in_place ? input + rank * part : input, turn.in_place ? input : output,
          part, turn.times};
}

int64_t Arrays::CountWrong(const Turn& turn) const {
  const int64_t part = turn.whole / ranks_;
  const bool scattered = turn.kind == CollectiveKind::kReduceScatter;
  const bool gathered = turn.kind == CollectiveKind::kAllGather;
  int64_t wrong = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const float* const result = turn.in_place ? input_[rank] : output_[rank];
    const int64_t at = scattered && turn.in_place ? rank * part : 0;
    const int64_t elements = scattered ? part : gathered ? part * ranks_ : turn.whole;
    for (int64_t i = 0; i < elements; ++i) {
      float wanted = RankZeroValue(scattered ? rank * part + i : i);
      if (gathered && i >= part) wanted = 0.0f;
      wrong += result[at + i] != wanted;
    }
  }
  return wrong;
}

}  // namespace brigade::benchmarks
