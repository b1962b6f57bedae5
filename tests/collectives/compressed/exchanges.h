#ifndef BRIGADE_TESTS_COLLECTIVES_COMPRESSED_EXCHANGES_H_
#define BRIGADE_TESTS_COLLECTIVES_COMPRESSED_EXCHANGES_H_

// What tests of collectives of codes share: arrays on any device, inputs, and one rank's calls.

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/compressed/node_groups.h"
#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/collectives/compressed/quantized_all_gather.h"
#include "brigade/collectives/compressed/quantized_reduce_scatter.h"
#include "brigade/device/buffer.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/kernels/quant_testing.h"
#include "brigade/tests/spec/exchanges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {

using kernels::BitsOf;
using kernels::kQuantFormats;
using kernels::QuantFormat;
using precision::DType;
using Values = std::vector<float>;
using ValuesOfRanks = std::vector<Values>;

inline constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

inline spec::Format FormatOf(DType dtype) {
  if (dtype == DType::kFloat32) return spec::Format::kFloat32;
  return dtype == DType::kFloat16 ? spec::Format::kFloat16 : spec::Format::kBFloat16;
}

// NaN have the same bits here, whatever their payload.
inline ::testing::AssertionResult AreSame(const Values& actual, const Values& wanted) {
  if (actual.size() != wanted.size()) {
    return ::testing::AssertionFailure() << actual.size() << " values, not " << wanted.size();
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(actual[i]) && std::isnan(wanted[i])) continue;
    if (std::bit_cast<uint32_t>(actual[i]) == std::bit_cast<uint32_t>(wanted[i])) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " is " << actual[i] << ", not " << wanted[i];
  }
  return ::testing::AssertionSuccess();
}

// Values of several magnitudes and zeros, the same in the type and in float.
inline ValuesOfRanks MakeValues(int ranks, int64_t count, DType dtype, uint32_t seed = 0) {
  ValuesOfRanks all;
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937 random(static_cast<uint32_t>(7919 * rank + count) + 104729 * seed);
    std::normal_distribution<float> normal;
    Values& values = all.emplace_back();
    for (int64_t i = 0; i < count; ++i) {
      const int exponent = -static_cast<int>(random() % 6);
      const float x = i % 10 == 9 ? 0.0f : std::ldexp(normal(random), exponent);
      values.push_back(spec::Round(FormatOf(dtype), x));
    }
  }
  return all;
}

// An array of a type in the memory of a rank's device, `offset` elements past its beginning.
class TypedArray {
 public:
  TypedArray(Rank& self, int64_t count, DType dtype, int64_t offset = 0)
      : self_(self),
        count_(count),
        dtype_(dtype),
        offset_(offset * precision::SizeOf(dtype)),
        memory_(
            self.context
                ->Allocate(offset_ + count * precision::SizeOf(dtype), device::Purpose::kScratch)
                .value()) {}

  char* at(int64_t element) const {
    return memory_.as<char>().data() + offset_ + element * precision::SizeOf(dtype_);
  }
  void* data() const { return at(0); }

  void Put(const Values& values, int64_t first = 0) {
    precision::VisitFloat(dtype_, [&](auto tag) {
      using T = decltype(tag);
      std::vector<T> typed;
      for (const float x : values) typed.push_back(static_cast<T>(x));
      const auto bytes = static_cast<int64_t>(typed.size() * sizeof(T));
      EXPECT_OK(self_.stream->Copy(at(first), typed.data(), bytes));
      EXPECT_OK(self_.stream->Synchronize());
    });
  }
  Values Get() {
    Values values;
    precision::VisitFloat(dtype_, [&](auto tag) {
      using T = decltype(tag);
      std::vector<T> typed(static_cast<size_t>(count_));
      const auto bytes = static_cast<int64_t>(typed.size() * sizeof(T));
      EXPECT_OK(self_.stream->Copy(typed.data(), data(), bytes));
      EXPECT_OK(self_.communicator->Synchronize(*self_.stream));
      for (const T x : typed) values.push_back(static_cast<float>(x));
    });
    return values;
  }

 private:
  Rank& self_;
  const int64_t count_;
  const DType dtype_;
  const int64_t offset_;
  const device::Buffer memory_;
};

// The group of a test.
struct Group {
  const char* name;
  CreateEngineFn (*engines)(const RanksOptions&);
  int size;
  std::vector<int> nodes = {};
  device::Device device = device::Cpu();

  // 0: there are no two hops, as of nodes of different sizes.
  size_t ranks_per_node() const {
    const bool has_two = nodes.size() > 1 && nodes[0] > 1 && nodes.front() == nodes.back();
    return has_two ? static_cast<size_t>(nodes[0]) : 0;
  }
};

inline std::string NameOf(const Group& group) {
  return absl::StrCat(group.name, group.size, group.nodes.empty() ? "" : "_nodes_of_",
                      group.nodes.empty() ? "" : absl::StrCat(group.nodes[0]));
}

inline void PrintTo(const Group& group, std::ostream* out) { *out << NameOf(group); }

inline void OnGroup(const Group& group, RanksOptions options,
                    const std::function<void(Rank&)>& body) {
  options.size = group.size;
  options.ranks_of_node = group.nodes;
  options.device = group.device;
  OnRanks(options, group.engines(options), [&](Rank& self) {
    body(self);
    // So that no rank leaves while another one's call goes on.
    EXPECT_OK(self.communicator->Barrier(*self.stream));
    EXPECT_OK(self.communicator->Synchronize(*self.stream));
  });
}

// Bytes to each rank, of one call.
inline std::vector<int64_t> SentBy(Rank& self, Communicator& communicator,
                                   const std::function<void()>& call) {
  std::vector<int64_t> bytes;
  const auto add = [&](int64_t sign) {
    EXPECT_OK(self.communicator->Barrier(*self.stream));
    EXPECT_OK(self.communicator->Synchronize(*self.stream));
    bytes.resize(static_cast<size_t>(communicator.size()));
    for (int to = 0; to < communicator.size(); ++to) {
      bytes[static_cast<size_t>(to)] += sign * communicator.sent_bytes(to);
    }
  };
  add(-1);
  call();
  add(1);
  return bytes;
}

// The step's state on a rank's device; none: a call without one.
inline device::Buffer StepOf(Rank& self, std::optional<bool> skip) {
  kernels::StepState host = {};
  host.skip = skip.value_or(false) ? 1 : 0;
  auto state = self.context->Allocate(sizeof(host), device::Purpose::kScratch).value();
  EXPECT_OK(self.stream->Copy(state.data(), &host, sizeof(host)));
  EXPECT_OK(self.stream->Synchronize());
  return state;
}

// Calls body(self, other, result) on the ranks of thread groups that are held up at random, with a
// second stream; it waits for both. Results have the same bits, and nothing races.
inline void ExpectSameWhateverTheDelays(
    RanksOptions options,
    const std::function<void(Rank& self, device::Stream& other, Values& result)>& body) {
  device::RaceChecker checker;
  options.race_checker = &checker;
  const auto trajectory = [&](uint64_t seed) {
    options.random_delay = {.seed = seed, .max_delay_us = seed == 0 ? 0 : 150};
    ValuesOfRanks results(static_cast<size_t>(options.size));
    OnThreads(options, [&](Rank& self) {
      auto other = self.context->CreateStream("other").value();
      body(self, *other, results[static_cast<size_t>(self.rank)]);
    });
    return results;
  };
  const ValuesOfRanks wanted = trajectory(0);
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const ValuesOfRanks actual = trajectory(seed);
    for (size_t rank = 0; rank < wanted.size(); ++rank) {
      ASSERT_TRUE(AreSame(actual[rank], wanted[rank])) << "seed " << seed << ", rank " << rank;
    }
  }
  EXPECT_THAT(checker.reports(), ::testing::IsEmpty());
}

// Rank `self`'s call of a gather of `parts`.
inline Values Gather(Rank& self, QuantizedAllGather& gather, const ValuesOfRanks& parts,
                     DType dtype, bool in_place) {
  const auto count = static_cast<int64_t>(parts[0].size());
  const Values& mine = parts[static_cast<size_t>(self.rank)];
  // At an address with no other alignment than the type's.
  TypedArray input(self, count, dtype, 3), output(self, self.size * count, dtype, 1);
  if (in_place) {
    output.Put(mine, self.rank * count);
  } else {
    input.Put(mine);
  }
  EXPECT_OK(gather.AllGather(in_place ? output.at(self.rank * count) : input.data(), output.data(),
                             count, dtype, {}, *self.stream));
  return output.Get();
}

// Rank `self`'s call of a reduce-scatter of `inputs`.
inline Values Scatter(Rank& self, QuantizedReduceScatter& scatter, const ValuesOfRanks& inputs,
                      DType dtype, float factor, bool in_place,
                      const QuantizedFeedback* feedback = nullptr) {
  const Values& mine = inputs[static_cast<size_t>(self.rank)];
  const int64_t count = static_cast<int64_t>(mine.size()) / self.size;
  TypedArray input(self, self.size * count, dtype, 1), output(self, count, dtype, 3);
  input.Put(mine);
  EXPECT_OK(scatter.ReduceScatter(input.data(),
                                  in_place ? input.at(self.rank * count) : output.data(), count,
                                  dtype, factor, feedback, *self.stream));
  if (!in_place) return output.Get();
  const Values all = input.Get();
  const auto first = all.begin() + self.rank * count;
  return {first, first + count};
}

// A rank's errors of a reduce-scatter with feedback, on its device.
class ScatterErrors {
 public:
  using Messages = std::vector<std::vector<uint8_t>>;

  ScatterErrors(Rank& self, int64_t count, int nodes)
      : self_(self),
        each_(kernels::QuantBytes(count, kernels::kLocoErrors)),
        local_(Zeros(QuantizedErrorBytesOf(count, self.size, nodes).local)),
        sum_(Zeros(QuantizedErrorBytesOf(count, self.size, nodes).sum)) {}

  QuantizedFeedback feedback(const kernels::LocoParameters& parameters) const {
    return {local_.data(), sum_.data(), parameters};
  }
  Messages local() const { return Get(local_); }
  Messages sum() const { return Get(sum_); }

 private:
  device::Buffer Zeros(int64_t bytes) const {
    auto buffer = self_.context->Allocate(bytes, device::Purpose::kScratch).value();
    EXPECT_OK(self_.stream->FillBytes(buffer.data(), 0, bytes));
    return buffer;
  }
  Messages Get(const device::Buffer& buffer) const {
    std::vector<uint8_t> bytes(static_cast<size_t>(buffer.bytes()));
    EXPECT_OK(self_.stream->Copy(bytes.data(), buffer.data(), buffer.bytes()));
    EXPECT_OK(self_.communicator->Synchronize(*self_.stream));
    Messages messages;
    for (int64_t at = 0; at < buffer.bytes(); at += each_) {
      messages.emplace_back(bytes.begin() + at, bytes.begin() + at + each_);
    }
    return messages;
  }

  Rank& self_;
  const int64_t each_;
  const device::Buffer local_, sum_;
};

// A rank's errors, on its device.
struct Errors {
  Errors(Rank& self, int64_t count, int nodes = 1)
      : Errors(self, OneBitErrorCountsOf(count, self.size, nodes)) {}
  Errors(Rank& self, OneBitErrorCounts counts)
      : local(self, counts.local, DType::kFloat32), sum(self, counts.sum, kFloat32) {
    local.Put(Values(static_cast<size_t>(counts.local)));
    sum.Put(Values(static_cast<size_t>(counts.sum)));
  }
  OneBitErrors pointers() const {
    return {static_cast<float*>(local.data()), static_cast<float*>(sum.data())};
  }

  TypedArray local, sum;
};

// Rank `self`'s call of a mean of `inputs`. `skip`: none for a call without a step's state.
inline Values OneBit(Rank& self, OneBitAllReduce& mean, const ValuesOfRanks& inputs, DType dtype,
                     const Errors& errors, std::optional<bool> skip, bool in_place) {
  const Values& mine = inputs[static_cast<size_t>(self.rank)];
  const auto count = static_cast<int64_t>(mine.size());
  TypedArray input(self, count, dtype, 1), output(self, count, dtype, 3);
  input.Put(mine);
  const device::Buffer state = StepOf(self, skip);
  EXPECT_OK(mean.AllReduce(
      input.data(), in_place ? input.data() : output.data(), count, dtype, errors.pointers(),
      skip.has_value() ? static_cast<const kernels::StepState*>(state.data()) : nullptr, {},
      *self.stream));
  return in_place ? input.Get() : output.Get();
}

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_COMPRESSED_EXCHANGES_H_
