#include "brigade/device/context.h"

#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ContextTest, NamesTheBadOptionAndItsValue) {
  const auto expect = [](const ContextOptions& options, const std::string& text) {
    EXPECT_THAT(Context::Create(options),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  ContextOptions options;
  options.device.ordinal = -1;
  expect(options, "device.ordinal is -1");
  options = {};
  options.device.kind = static_cast<DeviceKind>(9);
  expect(options, "device.kind is 9");
  options = {};
  options.compute_threads = -2;
  expect(options, "compute_threads is -2");
  options = {};
  options.memory_limit_bytes = -3;
  expect(options, "memory_limit_bytes is -3");
  options = {};
  options.random_delay.max_delay_us = -4;
  expect(options, "random_delay.max_delay_us is -4");
  options = {};
  options.link_bytes_per_second = -5;
  expect(options, "link_bytes_per_second is -5");
  options.link_bytes_per_second = 5;
  options.device = Cuda();
  expect(options, "link_bytes_per_second is 5; a GPU has a link of its own");
}

TEST(ContextTest, TakesItsNameAndThreadsFromOptionsOrDefaults) {
  ContextOptions options;
  options.device = Cpu(2);
  const auto by_default = CreateContext(options);
  EXPECT_EQ(by_default->name(), "cpu:2");
  EXPECT_EQ(by_default->device(), Cpu(2));
  EXPECT_GE(by_default->compute_threads(), 1);
  options.name = "rank 3";
  options.compute_threads = 3;
  const auto named = CreateContext(options);
  EXPECT_EQ(named->name(), "rank 3");
  EXPECT_EQ(named->compute_threads(), 3);
}

TEST(ContextTest, SwitchesChecksByOptionBeforeEnvironment) {
  const char* const before = std::getenv("BRIGADE_CHECKS");
  const std::string kept = before == nullptr ? "" : before;
  ContextOptions options;
  setenv("BRIGADE_CHECKS", "1", 1);
  EXPECT_EQ(CreateContext(options)->race_checker(), &RaceChecker::Default());
  options.checks = false;
  EXPECT_EQ(CreateContext(options)->race_checker(), nullptr);
  options.checks = std::nullopt;
  setenv("BRIGADE_CHECKS", "0", 1);
  EXPECT_EQ(CreateContext(options)->race_checker(), nullptr);
  options.checks = true;
  RaceChecker checker;
  options.race_checker = &checker;
  EXPECT_EQ(CreateContext(options)->race_checker(), &checker);
  EXPECT_TRUE(CreateContext(options)->CreateStream("s").value()->checks_races());
  setenv("BRIGADE_CHECKS", kept.c_str(), 1);
}

TEST(ContextTest, RefusesBadSizesAndBorrows) {
  auto context = CreateContext(CpuOptions());
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(context->Allocate(-1, Purpose::kScratch, "odd"),
              StatusIs(invalid, "\"rank 0\": buffer \"odd\" of -1 bytes"));
  int x = 0;
  EXPECT_THAT(context->Borrow(&x, -4, "odd"), StatusIs(invalid, HasSubstr("\"odd\" of -4 bytes")));
  EXPECT_THAT(context->Borrow(nullptr, 4, "odd"), StatusIs(invalid, HasSubstr("at null")));
  EXPECT_OK(context->Borrow(nullptr, 0, "nothing"));
}

TEST(ContextTest, ServesManyThreads) {
  RaceChecker checker;
  auto context = CreateContext(CheckedOptions(checker));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&context] {
      for (int i = 0; i < 30; ++i) {
        auto stream = context->CreateStream("stream").value();
        auto event = context->CreateEvent("event").value();
        auto buffer = context->Allocate(5000, Purpose::kActivations, "mine").value();
        EXPECT_OK(stream->FillBytes(buffer.data(), 1, buffer.bytes()));
        EXPECT_OK(stream->Record(*event));
        EXPECT_OK(event->Synchronize());
        EXPECT_EQ(buffer.as<uint8_t>()[4999], 1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(context->memory_stats().current_bytes(), 0);
  EXPECT_TRUE(checker.reports().empty());
}

}  // namespace
}  // namespace brigade::device
