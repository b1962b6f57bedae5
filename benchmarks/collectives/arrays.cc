#include "brigade/benchmarks/collectives/arrays.h"

#include <algorithm>
#include <utility>

#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {

using collectives::CollectiveKind;

absl::StatusOr<Arrays> Arrays::Create(int ranks, int64_t bytes, device::Context& context) {
  Arrays arrays(ranks, bytes);
  for (int i = 0; i < 2 * ranks; ++i) {
    BRIGADE_ASSIGN_OR_RETURN(auto buffer, context.Allocate(bytes, device::Purpose::kCommunication));
    (i < ranks ? arrays.input_ : arrays.output_).push_back(buffer.as<char>().data());
    arrays.buffers_.push_back(std::move(buffer));
  }
  return arrays;
}

void Arrays::Fill(int64_t whole, precision::DType dtype) {
  precision::VisitFloat(dtype, [&](auto tag) {
    using T = decltype(tag);
    for (int rank = 0; rank < ranks_; ++rank) {
      T* const input = reinterpret_cast<T*>(input_[rank]);
      for (int64_t i = 0; i < whole; ++i) input[i] = T(rank == 0 ? RankZeroValue(i) : 0.0f);
      std::fill_n(reinterpret_cast<T*>(output_[rank]), whole, T(-1.0f));
    }
  });
}

Round Arrays::MakeRound(int rank, const Turn& turn) {
  const int64_t part = turn.whole / ranks_;
  char* const input = input_[rank];
  char* const output = output_[rank];
  char* const mine = input + rank * part * precision::SizeOf(turn.dtype);
  const auto round = [&](const char* from, char* in_place, int64_t count) -> Round {
    return {turn.kind, turn.dtype, from, turn.in_place ? in_place : output, count, turn.times};
  };
  if (turn.kind == CollectiveKind::kAllReduce) return round(input, input, turn.whole);
  if (turn.kind == CollectiveKind::kReduceScatter) return round(input, mine, part);
  return round(turn.in_place ? mine : input, input, part);
}

int64_t Arrays::CountWrong(const Turn& turn) const {
  const int64_t part = turn.whole / ranks_;
  const bool scattered = turn.kind == CollectiveKind::kReduceScatter;
  const bool gathered = turn.kind == CollectiveKind::kAllGather;
  int64_t wrong = 0;
  precision::VisitFloat(turn.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto* const result =
          reinterpret_cast<const T*>(turn.in_place ? input_[rank] : output_[rank]);
      const int64_t at = scattered && turn.in_place ? rank * part : 0;
      const int64_t elements = scattered ? part : gathered ? part * ranks_ : turn.whole;
      for (int64_t i = 0; i < elements; ++i) {
        float wanted = RankZeroValue(scattered ? rank * part + i : i);
        if (gathered && i >= part) wanted = 0.0f;
        wrong += static_cast<float>(result[at + i]) != wanted;
      }
    }
  });
  return wrong;
}

}  // namespace brigade::benchmarks
