// Steady state allocates nothing: docs/device.md, rule 18. Operator new is counted.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "brigade/device/address_registry.h"
#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

struct Segment {
  float* data;
  int64_t size;
};

// What a training step does, without its arithmetic: a list launch, copies, records, waits,
// parallel loops, address lookups, and a host that follows by an event.
class Step {
 public:
  explicit Step(Context& context) {
    compute_ = context.CreateStream("compute").value();
    comm_ = context.CreateStream("comm").value();
    ready_ = context.CreateEvent("ready").value();
    reduced_ = context.CreateEvent("reduced").value();
    buffer_ = context.Allocate(int64_t{3} << 20, Purpose::kScratch).value();
    segments_.assign(3000, Segment{buffer_.as<float>().data(), 1});
  }

  absl::Status Hold(Gate& gate) { return Block(*compute_, gate); }

  void Run() {
    AddressRegistry::Lookup lookup;
    for (const Segment& segment : segments_) ok_ &= lookup.Find(segment.data) != nullptr;
    char* const data = buffer_.as<char>().data();
    ok_ &= compute_
               ->Enqueue({"adam", {Writes(data, 1 << 20)}}, absl::MakeConstSpan(segments_),
                         [this](absl::Span<const Segment> segments, ThreadPool& pool) {
                           pool.ParallelFor(static_cast<int64_t>(segments.size()),
                                            [this](int64_t) { ++chunks_; });
                           return absl::OkStatus();
                         })
               .ok();
    ok_ &= compute_->Record(*ready_).ok();
    ok_ &= comm_->Wait(*ready_).ok();
    ok_ &= comm_->Copy(data + (2 << 20), data, 1 << 20).ok();
    ok_ &= comm_->Record(*reduced_).ok();
    ok_ &= compute_->Wait(*reduced_).ok();
    ok_ &= compute_->FillBytes(data, 0, 1 << 10).ok();
  }

  bool Finish() { return reduced_->Synchronize().ok() && compute_->Synchronize().ok() && ok_; }

 private:
  std::unique_ptr<Stream> compute_, comm_;
  std::unique_ptr<Event> ready_, reduced_;
  Buffer buffer_;
  std::vector<Segment> segments_;
  std::atomic<int64_t> chunks_{0};
  bool ok_ = true;
};

TEST(NoAllocationTest, AStepInSteadyStateAllocatesNothing) {
  ContextOptions options = CpuOptions();
  options.compute_threads = 2;
  auto context = CreateContext(options);
  Gate gate;
  Step step(*context);
  // Warm up with the queues at their deepest, so that the high-water mark does not depend on
  // timing.
  ASSERT_OK(step.Hold(gate));
  for (int i = 0; i < 20; ++i) step.Run();
  gate.Open();
  ASSERT_TRUE(step.Finish());

  const int64_t before = brigade::testing::CountedAllocations();
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 10; ++i) step.Run();
    ASSERT_TRUE(step.Finish());
  }
  EXPECT_EQ(brigade::testing::CountedAllocations() - before, 0);
  EXPECT_GT(before, 0);  // the counter counts
}

}  // namespace
}  // namespace brigade::device
