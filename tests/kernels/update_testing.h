#ifndef BRIGADE_TESTS_KERNELS_UPDATE_TESTING_H_
#define BRIGADE_TESTS_KERNELS_UPDATE_TESTING_H_

// What tests of the optimizers that share kernels/internal/update_tile.h have in common.

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/update_types.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/kernels/testing.h"
#include "gtest/gtest.h"

namespace brigade::kernels {

// What the CUDA kernel's launches do, thread by thread.
template <typename Policy, typename Grad, typename Copy>
void RunUpdateThreads(const typename Policy::Parameters& parameters,
                      const std::vector<typename Policy::Segment>& segments) {
  auto arguments = std::make_unique<UpdateArguments<Policy>>();
  arguments->parameters = parameters;
  const auto tiles_of = [](const typename Policy::Segment& s) {
    return UpdateLayout<Policy, Grad, Copy>(s).Tiles(s.size);
  };
  ForEachBatch(segments.data(), segments.size(), kMaxGridBlocks, tiles_of, arguments->batch, true,
               [&](int64_t) {
                 ForEachGpuThread(arguments->batch.tiles(), kTileThreads,
                                  [&](int64_t tile, int thread) {
                                    UpdateThread<Policy, Grad, Copy>(*arguments, tile, thread);
                                  });
                 return true;
               });
}

// All types of gradients with all of copies.
using UpdateTypePairs = ::testing::Types<
    std::pair<float, NoCopy>, std::pair<float, precision::BFloat16>,
    std::pair<float, precision::Half>, std::pair<precision::Half, NoCopy>,
    std::pair<precision::Half, precision::Half>, std::pair<precision::Half, precision::BFloat16>,
    std::pair<precision::BFloat16, NoCopy>, std::pair<precision::BFloat16, precision::Half>,
    std::pair<precision::BFloat16, precision::BFloat16>>;

// A list of segments of an optimizer with one moment, in groups 0 and 1 by turns, and what the
// specification says becomes of it.
template <typename Segment, typename Grad, typename Copy>
class MomentList {
 public:
  static constexpr bool kHasCopy = !std::is_same_v<Copy, NoCopy>;
  using CopyArray = std::conditional_t<kHasCopy, Copy, float>;
  struct Arrays {
    GuardedArray<float> param, moment;
    GuardedArray<Grad> grad;
    GuardedArray<CopyArray> copy;
    std::vector<float> wanted_param, wanted_moment, wanted_copy;
  };

  // Segments of the first `groups_with_moments` groups have theirs. Arrays of a segment lie
  // `spread` elements apart, beside their distance from a boundary.
  MomentList(const std::vector<int64_t>& sizes, uint32_t seed, int spread,
             int32_t groups_with_moments = 2) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t n = sizes[i];
      const int64_t offset = i % 9;
      arrays.push_back({GuardedArray<float>(n, offset),
                        GuardedArray<float>(n, offset + spread),
                        GuardedArray<Grad>(n, offset + 2 * spread),
                        GuardedArray<CopyArray>(kHasCopy ? n : 0, offset + 5 * spread),
                        {},
                        {},
                        {}});
      Arrays& a = arrays.back();
      FillTypical(a.param, random);
      FillTypical(a.moment, random);
      FillTypical(a.grad, random, 10.0f);
      a.wanted_param = Values(a.param);
      a.wanted_moment = Values(a.moment);
      a.wanted_copy = Values(a.copy);
      const int32_t group = i % 2;
      segments.push_back({a.param.data(), group < groups_with_moments ? a.moment.data() : nullptr,
                          a.grad.data(), kHasCopy ? static_cast<void*>(a.copy.data()) : nullptr, n,
                          group});
    }
  }

  // One step of the specification: update(group, gradient, param, moment) changes the last two.
  template <typename Update>
  void SpecifyEach(const Update& update) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      Arrays& a = arrays[i];
      for (int64_t j = 0; j < a.param.size(); ++j) {
        update(segments[i].group, static_cast<float>(a.grad[j]), a.wanted_param[j],
               a.wanted_moment[j]);
        if (kHasCopy) a.wanted_copy[j] = spec::Round(kFormat<CopyArray>, a.wanted_param[j]);
      }
    }
  }

  void ExpectMatch(const std::string& how) const {
    for (size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_TRUE(Matches(arrays[i].param, arrays[i].wanted_param)) << how << ", param " << i;
      EXPECT_TRUE(Matches(arrays[i].moment, arrays[i].wanted_moment)) << how << ", m " << i;
      EXPECT_TRUE(Matches(arrays[i].copy, arrays[i].wanted_copy)) << how << ", copy " << i;
    }
  }

  std::deque<Arrays> arrays;  // do not move
  std::vector<Segment> segments;
};

}  // namespace brigade::kernels

#endif  // BRIGADE_TESTS_KERNELS_UPDATE_TESTING_H_
