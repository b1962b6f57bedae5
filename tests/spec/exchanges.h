#ifndef BRIGADE_TESTS_SPEC_EXCHANGES_H_
#define BRIGADE_TESTS_SPEC_EXCHANGES_H_

// The executable specification of collectives whose messages are codes (codecs.h).
//
// A gather gives all ranks what the codes of each rank's array keep of it, also to that rank.
//
// A reduce-scatter gives rank r what the ranks' codes keep of their part r, added in float in
// ascending order of ranks, times a factor. In two hops a node's ranks add up first, and codes of
// these sums cross between nodes and are added in ascending order of nodes.
//
// With the error feedback of LoCo (codecs.h) each part has an error of its own, and in two hops so
// has each sum of a node.
//
// A 1-bit all-reduce gives the mean: each rank sends the signs of its array with one scale, and
// keeps what they leave out; the owner of a part adds the mean of what it got to what it had left
// out, sends the signs of that with one scale, and keeps what these leave out. Rank r owns the
// elements r * ceil(count / ranks) to (r + 1) * ceil(count / ranks) - 1 that there are. Where a
// scale is not a number, or the step is skipped, all that was left out stays as it was.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "brigade/tests/spec/codecs.h"
#include "brigade/tests/spec/formats.h"

namespace brigade::spec {

inline std::vector<float> KeptByCodes(const std::vector<float>& values, int bits) {
  return Dequantize(Quantize(values, bits), values.size(), bits);
}

inline std::vector<float> QuantizedGather(const std::vector<std::vector<float>>& of_rank, int bits,
                                          Format format) {
  std::vector<float> all;
  for (const std::vector<float>& values : of_rank) {
    for (const float x : KeptByCodes(values, bits)) all.push_back(Round(format, x));
  }
  return all;
}

inline std::vector<float> QuantizedSum(const std::vector<std::vector<float>>& of_rank, int bits,
                                       float factor) {
  std::vector<std::vector<uint8_t>> messages;
  for (const auto& values : of_rank) messages.push_back(Quantize(values, bits));
  return DequantReduce(messages, of_rank[0].size(), bits, factor);
}

// Part `rank` of the sum of arrays that have a part for each rank. `ranks_per_node` 0: one hop.
inline std::vector<float> QuantizedReduce(const std::vector<std::vector<float>>& of_rank,
                                          size_t rank, int bits, float factor, Format format,
                                          size_t ranks_per_node = 0) {
  const size_t size = of_rank[0].size() / of_rank.size();
  std::vector<std::vector<float>> parts;
  for (const std::vector<float>& values : of_rank) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(rank * size);
    parts.emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
  }
  if (ranks_per_node > 0) {
    std::vector<std::vector<float>> of_nodes;
    for (size_t first = 0; first < parts.size(); first += ranks_per_node) {
      const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(first);
      of_nodes.push_back(
          QuantizedSum({begin, begin + static_cast<std::ptrdiff_t>(ranks_per_node)}, bits, 1.0f));
    }
    parts = of_nodes;
  }
  std::vector<float> sum = QuantizedSum(parts, bits, factor);
  for (float& x : sum) x = Round(format, x);
  return sum;
}

// What messages of a reduce-scatter leave out, itself as messages.
struct LocoState {
  LocoState(size_t ranks, size_t part, size_t ranks_per_node = 0)
      : part(part), ranks_per_node(ranks_per_node) {
    const std::vector<uint8_t> none(CodesBegin(part) + BlocksOf(part) * kBlock);
    local.assign(ranks, {ranks, none});
    if (ranks_per_node > 0) sum.assign(ranks, {ranks / ranks_per_node, none});
  }

  // Elements of a part.
  size_t part, ranks_per_node;
  // [rank][part], and [rank][node] for which its node's sum is.
  std::vector<std::vector<std::vector<uint8_t>>> local, sum;
};

// Of other gradients, `factor` times as large.
inline void ScaleErrors(LocoState& state, float factor) {
  for (auto* const messages : {&state.local, &state.sum}) {
    for (auto& of_rank : *messages) {
      for (std::vector<uint8_t>& message : of_rank) {
        for (size_t b = 0; b < BlocksOf(state.part); ++b) {
          float maximum;
          std::memcpy(&maximum, &message[b * 4], 4);
          maximum *= factor;
          std::memcpy(&message[b * 4], &maximum, 4);
        }
      }
    }
  }
}

// Adds to `values`, of all parts, what the rank's messages have left out, and then those of sums.
inline void AddErrors(const LocoState& state, size_t rank, std::vector<float>& values) {
  const auto add = [&](const std::vector<uint8_t>& message, size_t part) {
    const std::vector<float> errors = Dequantize(message, state.part, 8);
    for (size_t i = 0; i < errors.size(); ++i) values[part * state.part + i] += errors[i];
  };
  for (size_t part = 0; part < state.local[rank].size(); ++part) add(state.local[rank][part], part);
  for (size_t node = 0; !state.sum.empty() && node < state.sum[rank].size(); ++node) {
    add(state.sum[rank][node], node * state.ranks_per_node + rank % state.ranks_per_node);
  }
}

// The parts of all ranks of a sum with error feedback.
inline std::vector<std::vector<float>> LocoReduce(const std::vector<std::vector<float>>& of_rank,
                                                  int bits, float factor, Format format, float beta,
                                                  bool forget, LocoState& state,
                                                  size_t ranks_per_node = 0) {
  using Messages = std::vector<std::vector<uint8_t>>;
  const size_t ranks = of_rank.size(), size = of_rank[0].size() / ranks;
  // By part.
  std::vector<Messages> received(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t part = 0; part < ranks; ++part) {
      const auto first = of_rank[rank].begin() + static_cast<std::ptrdiff_t>(part * size);
      received[part].push_back(LocoQuantize({first, first + static_cast<std::ptrdiff_t>(size)},
                                            state.local[rank][part], bits, beta, forget));
    }
  }
  for (size_t part = 0; part < ranks && ranks_per_node > 0; ++part) {
    Messages of_nodes;
    for (size_t node = 0; node < ranks / ranks_per_node; ++node) {
      const auto first =
          received[part].begin() + static_cast<std::ptrdiff_t>(node * ranks_per_node);
      const auto sum = DequantReduce({first, first + static_cast<std::ptrdiff_t>(ranks_per_node)},
                                     size, bits, 1.0f);
      const size_t adder = node * ranks_per_node + part % ranks_per_node;
      of_nodes.push_back(
          LocoQuantize(sum, state.sum[adder][part / ranks_per_node], bits, beta, forget));
    }
    received[part] = of_nodes;
  }
  std::vector<std::vector<float>> sums;
  for (const Messages& messages : received) {
    sums.push_back(DequantReduce(messages, size, bits, factor));
    for (float& x : sums.back()) x = Round(format, x);
  }
  return sums;
}

// What is left out, of all ranks.
struct OneBitState {
  OneBitState(size_t ranks, size_t count)
      : local(ranks, std::vector<float>(count)),
        sum(ranks, std::vector<float>((count + ranks - 1) / ranks)) {}

  std::vector<std::vector<float>> local;
  // Of the part that a rank owns.
  std::vector<std::vector<float>> sum;
};

// `total`: the ranks that what each has is the sum of, in all; 0: one each.
inline std::vector<float> OneBitMean(const std::vector<std::vector<float>>& of_rank, bool skip,
                                     Format format, OneBitState& state, size_t total = 0) {
  using Lists = std::vector<std::vector<float>>;
  const OneBitState before = state;
  const size_t ranks = of_rank.size(), count = of_rank[0].size();
  const size_t part = (count + ranks - 1) / ranks;
  const auto parts_of = [&](const std::vector<float>& values) {
    Lists parts;
    for (size_t owner = 0; owner < ranks; ++owner) {
      const size_t begin = std::min(count, owner * part), end = std::min(count, begin + part);
      parts.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(begin),
                         values.begin() + static_cast<std::ptrdiff_t>(end));
    }
    return parts;
  };
  std::vector<Signs> sent;
  for (size_t rank = 0; rank < ranks; ++rank) {
    Lists errors = parts_of(state.local[rank]);
    sent.push_back(PackSigns(parts_of(of_rank[rank]), errors));
    state.local[rank].clear();
    for (const auto& each : errors) {
      state.local[rank].insert(state.local[rank].end(), each.begin(), each.end());
    }
  }
  bool counts = !skip;
  std::vector<float> output;
  for (size_t owner = 0; owner < ranks; ++owner) {
    const size_t size = parts_of(of_rank[0])[owner].size();
    if (size == 0) continue;
    std::vector<std::vector<uint8_t>> messages;
    for (const Signs& signs : sent) messages.push_back(signs.messages[owner]);
    const auto mean = UnpackSigns(
        messages, size, static_cast<float>(1.0 / static_cast<double>(total == 0 ? ranks : total)));
    const auto end = state.sum[owner].begin() + static_cast<std::ptrdiff_t>(size);
    Lists error = {{state.sum[owner].begin(), end}};
    const Signs signs = PackSigns({mean}, error);
    std::copy(error[0].begin(), error[0].end(), state.sum[owner].begin());
    counts = counts && !std::isnan(signs.scale);
    for (const float x : UnpackSigns(signs.messages, size, 1.0f)) {
      output.push_back(Round(format, x));
    }
  }
  if (!counts) state = before;
  return output;
}

// In two hops: places in nodes of so many ranks, with a state each between the nodes. The sum of a
// node is fp32, in the order of ranks, and rounded once.
inline std::vector<OneBitState> OneBitPlaces(size_t ranks, size_t count, size_t ranks_per_node) {
  const size_t part = (count + ranks_per_node - 1) / ranks_per_node;
  return {ranks_per_node, OneBitState(ranks / ranks_per_node, part)};
}
inline std::vector<float> OneBitMeanOfNodes(const std::vector<std::vector<float>>& of_rank,
                                            bool skip, Format format,
                                            std::vector<OneBitState>& places) {
  const size_t ranks = of_rank.size(), count = of_rank[0].size(), per_node = places.size();
  const size_t part = (count + per_node - 1) / per_node;
  std::vector<float> output;
  for (size_t place = 0; place < per_node; ++place) {
    const size_t begin = std::min(count, place * part), end = std::min(count, begin + part);
    std::vector<std::vector<float>> sums;
    for (size_t first = 0; first < ranks; first += per_node) {
      std::vector<float>& sum = sums.emplace_back();
      for (size_t i = begin; i < end; ++i) {
        sum.push_back(of_rank[first][i]);
        for (size_t r = first + 1; r < first + per_node; ++r) sum.back() += of_rank[r][i];
        sum.back() = Round(format, sum.back());
      }
    }
    OneBitState state(ranks / per_node, end - begin);
    const auto copy = [&](std::vector<float>& to, const std::vector<float>& from) {
      std::copy_n(from.begin(), std::min(to.size(), from.size()), to.begin());
    };
    for (size_t node = 0; node < ranks / per_node; ++node) {
      copy(state.local[node], places[place].local[node]);
      copy(state.sum[node], places[place].sum[node]);
    }
    for (const float x : OneBitMean(sums, skip, format, state, ranks)) output.push_back(x);
    for (size_t node = 0; node < ranks / per_node; ++node) {
      copy(places[place].local[node], state.local[node]);
      copy(places[place].sum[node], state.sum[node]);
    }
  }
  return output;
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_EXCHANGES_H_
