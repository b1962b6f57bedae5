#include "brigade/device/stream.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

std::unique_ptr<Context> DelayedContext(uint64_t seed, std::string name = "rank 0") {
  ContextOptions options = CpuOptions(std::move(name));
  options.random_delay = {seed, 100};
  return CreateContext(options);
}

TEST(StreamTest, HasAnIdOfItsOwnAlsoWhereAnotherStreamWas) {
  auto context = CreateContext(CpuOptions());
  std::vector<uint64_t> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(context->CreateStream("short-lived").value()->id());
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

TEST(StreamTest, RunsWorkInTheOrderOfEnqueuing) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto context = DelayedContext(seed);
    auto stream = context->CreateStream("compute").value();
    std::vector<int> order;
    for (int i = 0; i < 50; ++i) {
      ASSERT_OK(stream->Enqueue({"append", {}}, [&order, i](ThreadPool&) {
        order.push_back(i);
        return absl::OkStatus();
      }));
    }
    ASSERT_OK(stream->Synchronize());
    ASSERT_EQ(order.size(), 50u);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(StreamTest, RunsWorkApartFromTheHost) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  Gate gate;
  ASSERT_OK(Block(*stream, gate));
  bool ran = false;
  ASSERT_OK(stream->Enqueue({"set", {}}, [&ran](ThreadPool&) {
    ran = true;
    return absl::OkStatus();
  }));
  gate.AwaitArrival();
  EXPECT_FALSE(ran);  // the host is here while the stream is held
  gate.Open();
  ASSERT_OK(stream->Synchronize());
  EXPECT_TRUE(ran);
}

// Each of three streams appends in turn to one list: only events put the appends in order.
TEST(StreamTest, OrdersStreamsByEventsUnderRandomDelays) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    auto context = DelayedContext(seed, "rank 0");
    auto other = DelayedContext(seed + 1000, "rank 1");
    std::vector<std::unique_ptr<Stream>> streams;
    streams.push_back(context->CreateStream("a").value());
    streams.push_back(context->CreateStream("b").value());
    streams.push_back(other->CreateStream("c").value());
    std::vector<std::unique_ptr<Event>> done;
    for (int i = 0; i < 3; ++i) done.push_back(context->CreateEvent("done").value());

    std::vector<int> order;
    for (int i = 0; i < 30; ++i) {
      Stream& stream = *streams[static_cast<size_t>(i % 3)];
      if (i > 0) {
        ASSERT_OK(stream.Wait(*done[static_cast<size_t>((i - 1) % 3)]));
      }
      ASSERT_OK(stream.Enqueue({"append", {}}, [&order, i](ThreadPool&) {
        order.push_back(i);
        return absl::OkStatus();
      }));
      ASSERT_OK(stream.Record(*done[static_cast<size_t>(i % 3)]));
    }
    ASSERT_OK(streams[2]->Synchronize());
    ASSERT_EQ(order.size(), 30u);
    for (int i = 0; i < 30; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i) << "seed " << seed;
    ASSERT_OK(streams[0]->Synchronize());
    ASSERT_OK(streams[1]->Synchronize());
  }
}

TEST(StreamTest, HandsACopyOfTheListToTheWork) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  Gate gate;
  ASSERT_OK(Block(*stream, gate));
  struct Segment {
    int64_t begin, end;
  };
  std::vector<int64_t> lengths;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{3}, size_t{20000}}) {
    std::vector<Segment> list;
    for (size_t i = 0; i < size; ++i) list.push_back({0, static_cast<int64_t>(i)});
    ASSERT_OK(stream->Enqueue({"sum", {}}, absl::MakeConstSpan(list),
                              [&lengths](absl::Span<const Segment> segments, ThreadPool&) {
                                int64_t sum = 0;
                                for (const Segment& s : segments) sum += s.end - s.begin;
                                lengths.push_back(sum);
                                return absl::OkStatus();
                              }));
    list.assign(list.size(), Segment{-1, 1'000'000});  // the work must not see this
  }
  gate.Open();
  ASSERT_OK(stream->Synchronize());
  EXPECT_THAT(lengths, ::testing::ElementsAre(0, 0, 3, 20000LL * 19999 / 2));
}

TEST(StreamTest, KeepsClosuresWithStricterAlignment) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  struct alignas(16) Wide {
    char bytes[16];
  };
  bool aligned = true;
  for (int i = 0; i < 10; ++i) {
    ASSERT_OK(stream->Enqueue({"odd name"}, [wide = Wide{}, &aligned](ThreadPool&) {
      aligned = aligned && reinterpret_cast<uintptr_t>(&wide) % 16 == 0;
      return absl::OkStatus();
    }));
  }
  ASSERT_OK(stream->Synchronize());
  EXPECT_TRUE(aligned);
}

TEST(StreamTest, TakesWorkFromManyThreads) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  int sum = 0;  // only the stream's worker touches it
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto event = context->CreateEvent("mine").value();
      for (int i = 0; i < 500; ++i) {
        EXPECT_OK(stream->Enqueue({"add", {}}, [&sum](ThreadPool&) {
          ++sum;
          return absl::OkStatus();
        }));
        EXPECT_OK(stream->Record(*event));
        if (i % 100 == 0) {
          EXPECT_OK(event->Synchronize());
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(sum, 2000);
}

TEST(StreamTest, CopiesAndFillsSmallAndLargeMemory) {
  ContextOptions options = CpuOptions();
  options.compute_threads = 2;
  auto context = CreateContext(options);
  auto stream = context->CreateStream("copy").value();
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4097}, (int64_t{5} << 20) + 3}) {
    auto from = context->Allocate(bytes, Purpose::kScratch, "from").value();
    auto to = context->Allocate(bytes, Purpose::kScratch, "to").value();
    ASSERT_OK(stream->FillBytes(from.data(), 0x5A, bytes));
    ASSERT_OK(stream->Copy(to.data(), from.data(), bytes));
    ASSERT_OK(stream->Synchronize());
    for (const uint8_t byte : to.as<uint8_t>()) ASSERT_EQ(byte, 0x5A);
  }
}

// What does not cross is as fast as ever, and another stream copies meanwhile.
TEST(StreamTest, CopiesOverALinkTakeItsTime) {
  constexpr int64_t kBytes = 30'000;
  ContextOptions options;
  // 0.1 s for each.
  options.link_bytes_per_second = 10 * kBytes;
  const auto context = CreateContext(options);
  const Buffer device = context->Allocate(2 * kBytes, Purpose::kScratch).value();
  const Buffer host = context->AllocateHost(2 * kBytes, Purpose::kScratch).value();
  std::vector<char> own(kBytes);
  char* const on_device = device.as<char>().data();
  char* const on_host = host.as<char>().data();
  const auto down = context->CreateStream("down").value();
  const auto up = context->CreateStream("up").value();
  const auto seconds = [&](const auto& enqueue) {
    const auto begin = std::chrono::steady_clock::now();
    enqueue();
    EXPECT_OK(down->Synchronize());
    EXPECT_OK(up->Synchronize());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  EXPECT_GE(seconds([&] { EXPECT_OK(down->Copy(on_host, on_device, kBytes)); }), 0.1);
  EXPECT_GE(seconds([&] { EXPECT_OK(up->Copy(on_device, on_host, kBytes)); }), 0.1);
  EXPECT_GE(seconds([&] { EXPECT_OK(up->Copy(on_device, own.data(), kBytes)); }), 0.1);
  EXPECT_GE(seconds([&] {
              EXPECT_OK(down->Copy(on_host, on_device, kBytes));
              EXPECT_OK(down->Copy(on_host + kBytes, on_device, kBytes));
            }),
            0.2);
  // The least of many, on a machine that does other things too.
  double within = 1, both = 1;
  for (int i = 0; i < 20; ++i) {
    within = std::min(within, seconds([&] {
                        EXPECT_OK(down->Copy(on_device + kBytes, on_device, kBytes));
                        EXPECT_OK(down->Copy(on_host + kBytes, on_host, kBytes));
                        EXPECT_OK(down->Copy(own.data(), on_host, kBytes));
                      }));
    if (i >= 5) continue;
    both = std::min(both, seconds([&] {
                      EXPECT_OK(down->Copy(on_host, on_device, kBytes));
                      EXPECT_OK(up->Copy(on_device + kBytes, on_host + kBytes, kBytes));
                    }));
  }
  EXPECT_LT(within, 0.1);
  EXPECT_LT(both, 0.2);
}

TEST(StreamTest, RefusesBadCopiesAndFills) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("copy").value();
  char memory[16] = {};
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(stream->Copy(memory, memory + 8, -1), StatusIs(invalid, HasSubstr("-1 bytes")));
  EXPECT_THAT(stream->Copy(nullptr, memory, 4),
              StatusIs(invalid, HasSubstr("destination is null")));
  EXPECT_THAT(stream->Copy(memory, nullptr, 4), StatusIs(invalid, HasSubstr("source is null")));
  EXPECT_THAT(stream->Copy(memory, memory + 7, 8),
              StatusIs(invalid, HasSubstr("8 bytes, 7 apart")));
  EXPECT_THAT(stream->FillBytes(memory, 0, -2), StatusIs(invalid, HasSubstr("-2 bytes")));
  EXPECT_THAT(stream->FillBytes(nullptr, 0, 2), StatusIs(invalid, HasSubstr("null")));
  EXPECT_OK(stream->Copy(memory, memory + 8, 8));
  EXPECT_OK(stream->Copy(nullptr, nullptr, 0));
  EXPECT_OK(stream->FillBytes(nullptr, 0, 0));
  EXPECT_OK(stream->Synchronize());
}

TEST(StreamTest, RefusesLaunchOnTheCpu) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  EXPECT_THAT(stream->Launch({"adam", {}}, [](void*) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("\"adam\": stream \"compute\" is on cpu:0")));
  EXPECT_THAT(context->BorrowStream(nullptr, "theirs"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stream \"theirs\"")));
}

TEST(StreamTest, RefusesToWaitForItself) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  auto event = context->CreateEvent("done").value();
  ASSERT_OK(stream->Record(*event));
  absl::Status synchronized, reset, waited;
  ASSERT_OK(stream->Enqueue({"confused", {}}, [&](ThreadPool&) {
    synchronized = stream->Synchronize();
    reset = stream->Reset();
    waited = event->Synchronize();
    return absl::OkStatus();
  }));
  ASSERT_OK(stream->Synchronize());
  for (const absl::Status& status : {synchronized, reset, waited}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("must not wait for a device")));
  }
}

// Work whose way into the queue blocks until the gate opens.
class SlowToEnqueue {
 public:
  explicit SlowToEnqueue(Gate& gate) : gate_(gate) {}
  SlowToEnqueue(SlowToEnqueue&& other) noexcept : gate_(other.gate_) { gate_.Pass(); }

  absl::Status operator()(ThreadPool&) { return absl::OkStatus(); }

 private:
  Gate& gate_;
};

TEST(StreamTest, StatusDoesNotWaitForACallThatBlocks) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  Gate gate;
  auto enqueued = std::async(std::launch::async, [&] {
    return stream->Enqueue({"slow", {}}, SlowToEnqueue(gate));
  });
  gate.AwaitArrival();
  auto status = std::async(std::launch::async, [&] { return stream->status(); });
  EXPECT_EQ(status.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  gate.Open();
  EXPECT_OK(status.get());
  EXPECT_OK(enqueued.get());
  EXPECT_OK(stream->Synchronize());
}

TEST(StreamTest, CountsHostWaits) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("compute").value();
  auto event = context->CreateEvent("done").value();
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(stream->FillBytes(nullptr, 0, 0));
    ASSERT_OK(stream->Record(*event));
    ASSERT_OK(stream->Wait(*event));
    ASSERT_OK(event->Query());
  }
  EXPECT_EQ(context->host_waits(), 0);
  ASSERT_OK(event->Synchronize());
  EXPECT_EQ(context->host_waits(), 1);
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(context->host_waits(), 2);
  ASSERT_OK(stream->Reset());
  EXPECT_EQ(context->host_waits(), 3);
}

}  // namespace
}  // namespace brigade::device
