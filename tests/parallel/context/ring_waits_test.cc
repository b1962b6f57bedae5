// Each wait between the streams of a ring is needed: without it the race checker reports a race,
// whatever the timing.

#include <cstdint>
#include <string>
#include <vector>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/parallel/context/ring_attention.h"
#include "brigade/tests/parallel/tensor/tensor_lab.h"
#include "gtest/gtest.h"

namespace brigade::parallel {

class RingAttentionTestPeer {
 public:
  static void OmitWait(RingAttention& ring, internal::RingWait point) { ring.omitted_ = point; }
};

namespace {

using internal::RingWait;

struct Case {
  RingWait point;
  const char* name;
  // In which pass the race is.
  bool backward;
};

size_t Races(const Case& c, bool omit) {
  device::RaceChecker checker;
  collectives::OnThreads({.size = 3, .race_checker = &checker}, [&](collectives::Rank& self) {
    TensorLab lab(self, {3, 3, self.rank});
    const nn::AttentionShape shape = {precision::DType::kBFloat16, 1, 12, 2, 8};
    auto ring = RingAttention::Create(shape, *self.communicator, *self.context).value();
    const int64_t size = shape.rows() / 3 * shape.width;
    using T = precision::BFloat16;
    const auto qkv = lab.Array(Noise<T>(3 * size, 1)), dout = lab.Array(Noise<T>(size, 2));
    const auto out = lab.Raw<T>(size), dqkv = lab.Raw<T>(3 * size);
    const auto lse = lab.Raw<float>(ring->local_shape().statistics());
    const auto forward = [&] {
      return ring->Forward(qkv.data(), out.data(), lse.data(), lab.stream());
    };
    const auto backward = [&] {
      return ring->Backward(qkv.data(), out.data(), lse.data(), dout.data(), dqkv.data(),
                            lab.stream());
    };
    // A call or a stream may fail because of the race; the checker has the report in any case.
    absl::Status status;
    if (!c.backward && omit) RingAttentionTestPeer::OmitWait(*ring, c.point);
    status.Update(forward());
    if (c.backward && omit) RingAttentionTestPeer::OmitWait(*ring, c.point);
    if (c.backward || !omit) status.Update(backward());
    status.Update(lab.stream().Synchronize());
    EXPECT_TRUE(omit || status.ok()) << status;
    self.AwaitOthers();
    // What others wait for in vain ends.
    if (omit) self.communicator->Abort(absl::CancelledError("over"));
    ring.reset();
    lab.stream().Reset().IgnoreError();
    self.AwaitOthers();
  });
  return checker.reports().size();
}

class RingWaitsTest : public ::testing::TestWithParam<Case> {};

TEST_P(RingWaitsTest, AnOmittedWaitIsReported) {
  EXPECT_EQ(Races(GetParam(), false), 0u);
  EXPECT_GT(Races(GetParam(), true), 0u);
}

const Case kCases[] = {{RingWait::kPacked, "Packed", false},
                       {RingWait::kReceived, "Received", false},
                       {RingWait::kRead, "Read", false},
                       {RingWait::kPacked, "PackedBackward", true},
                       {RingWait::kReceived, "ReceivedBackward", true},
                       {RingWait::kAdded, "Added", true},
                       {RingWait::kSumsReceived, "SumsReceived", true}};

INSTANTIATE_TEST_SUITE_P(Points, RingWaitsTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace brigade::parallel
