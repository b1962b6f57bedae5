#ifndef BRIGADE_TESTS_DEVICE_RACE_CHECKER_FIXTURE_H_
#define BRIGADE_TESTS_DEVICE_RACE_CHECKER_FIXTURE_H_

#include <memory>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "gtest/gtest.h"

namespace brigade::device {

// Operations only declare what they touch: what races physically is ThreadSanitizer's business.
inline absl::Status Touch(Stream& stream, absl::string_view name, std::vector<Access> accesses) {
  return stream.Enqueue({name, accesses}, [](ThreadPool&) { return absl::OkStatus(); });
}

class RaceCheckerTest : public ::testing::Test {
 protected:
  // Freeing the buffer is no race then.
  ~RaceCheckerTest() override { comm_->Synchronize().IgnoreError(); }

  RaceChecker checker_;
  std::unique_ptr<Context> rank0_ = CreateContext(CheckedOptions(checker_, "rank 0"));
  std::unique_ptr<Context> rank1_ = CreateContext(CheckedOptions(checker_, "rank 1"));
  std::unique_ptr<Stream> compute_ = rank0_->CreateStream("compute").value();
  std::unique_ptr<Stream> comm_ = rank1_->CreateStream("comm").value();
  std::unique_ptr<Event> event_ = rank0_->CreateEvent("ready").value();
  Buffer buffer_ = rank0_->Allocate(4096, Purpose::kGradients, "grads").value();
  char* const data_ = buffer_.as<char>().data();
};

}  // namespace brigade::device

#endif  // BRIGADE_TESTS_DEVICE_RACE_CHECKER_FIXTURE_H_
