#include "brigade/profile/ceilings.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::profile {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const Machine kMachine = {.device = "cpu", .dtype = "fp32", .ranks = 2};

std::string NewFolder() {
  const std::string folder = absl::StrCat(
      ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(CeilingsTest, JsonIsTheSameMachine) {
  const Ceilings ceilings = {.flops_per_second = 989e12,
                             .memory_bytes_per_second = 3.35e12,
                             .network_bytes_per_second = 4.5e11,
                             .collective_bytes_per_second = {{"all_reduce", 4e11}, {"shift", 5e9}}};
  const std::string text = CeilingsJson(ceilings, kMachine);
  EXPECT_EQ(text,
            "{\"device\": \"cpu\", \"dtype\": \"fp32\", \"ranks\": 2, \"matmul_tflops\": 989, "
            "\"memory_gigabytes_per_s\": 3350, \"network_gigabytes_per_s\": 450, "
            "\"all_reduce_gigabytes_per_s\": 400, \"shift_gigabytes_per_s\": 5}\n");
  ASSERT_OK_AND_ASSIGN(const Ceilings read, CeilingsFromJson(text, kMachine));
  EXPECT_DOUBLE_EQ(read.flops_per_second, 989e12);
  EXPECT_DOUBLE_EQ(read.memory_bytes_per_second, 3.35e12);
  EXPECT_DOUBLE_EQ(read.network_bytes_per_second, 4.5e11);
  EXPECT_EQ(read.collective_bytes_per_second, ceilings.collective_bytes_per_second);
  ASSERT_OK_AND_ASSIGN(const Ceilings one, CeilingsFromJson("{\"matmul_tflops\": 2}", kMachine));
  EXPECT_EQ(one.memory_bytes_per_second, 0);
}

TEST(CeilingsTest, WhatIsWrongIsNamed) {
  const auto refuses = [](const char* text, const char* message) {
    EXPECT_THAT(CeilingsFromJson(text, kMachine),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  refuses("3", "ceilings are no JSON object");
  refuses("{", "ceilings are no JSON object");
  refuses("{\"matmul_tflops\": -1}", "\"matmul_tflops\" is -1; it must be a number, 0 to 1e9");
  refuses("{\"matmul_tflops\": \"9\"}",
          "\"matmul_tflops\" is \"9\"; it must be a number, 0 to 1e9");
  refuses("{\"device\": \"cuda\"}",
          "\"device\" is \"cuda\"; it must be \"cpu\" as in this training");
  refuses("{\"ranks\": 4}", "\"ranks\" is 4; it must be 2 as in this training");
  refuses("{\"all_reduce_gigabytes_per_s\": null}",
          "\"all_reduce_gigabytes_per_s\" is null; it must be a number, 0 to 1e9");
  refuses("{\"tflops\": 4}",
          "\"tflops\" is no key of ceilings: these have device, dtype, ranks, matmul_tflops, "
          "memory_gigabytes_per_s, network_gigabytes_per_s, and of collectives "
          "all_reduce_gigabytes_per_s and the like");
}

TEST(CeilingsTest, AFileIsWrittenOnceAndThenRead) {
  const std::string path = absl::StrCat(NewFolder(), "/ceilings.json");
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& rank) {
    ASSERT_OK_AND_ASSIGN(const Ceilings measured,
                         CeilingsOf(path, precision::DType::kFloat32, {}, *rank.communicator,
                                    *rank.context, *rank.stream));
    EXPECT_EQ(measured.source, "measured");
    // Of any machine: between a million and a billion of millions.
    for (const double each : {measured.flops_per_second, measured.memory_bytes_per_second,
                              measured.network_bytes_per_second}) {
      EXPECT_GT(each, 1e6);
      EXPECT_LT(each, 1e15);
    }
    for (const char* const name :
         {"all_gather", "all_reduce", "reduce_scatter", "all_to_all", "shift", "send"}) {
      EXPECT_GT(measured.OfCollective(name), 1e6) << name;
      EXPECT_LT(measured.OfCollective(name), 1e15) << name;
    }
    EXPECT_EQ(measured.OfCollective("all_gather"), measured.network_bytes_per_second);
    // Only the root sends.
    EXPECT_EQ(measured.OfCollective("broadcast") > 0, rank.rank == 0);
    EXPECT_EQ(measured.OfCollective("barrier"), 0);
    // Nothing of it stays.
    EXPECT_EQ(rank.context->memory_stats().current_bytes(), 0);
  });
  const std::string hand_written = "{\"matmul_tflops\": 7}";
  ASSERT_OK(device::ReadFile(path));
  std::ofstream(path) << hand_written;
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& rank) {
    ASSERT_OK_AND_ASSIGN(const Ceilings read,
                         CeilingsOf(path, precision::DType::kFloat32, {}, *rank.communicator,
                                    *rank.context, *rank.stream));
    EXPECT_EQ(read.flops_per_second, 7e12);
    EXPECT_EQ(read.network_bytes_per_second, 0);
    EXPECT_THAT(read.source, StartsWith("from "));
  });
  EXPECT_EQ(device::ReadFile(path).value(), hand_written);
}

TEST(CeilingsTest, AnEmptyFileIsThereAndStays) {
  const std::string path = absl::StrCat(NewFolder(), "/ceilings.json");
  std::ofstream(path) << "";
  collectives::OnThreads({.size = 1}, [&](collectives::Rank& rank) {
    EXPECT_THAT(CeilingsOf(path, precision::DType::kFloat32, {}, *rank.communicator, *rank.context,
                           *rank.stream),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat(path, ": ceilings are no JSON object")));
  });
  EXPECT_EQ(device::ReadFile(path).value(), "");
}

// Where a training has left little, less is measured with.
TEST(CeilingsTest, AFullDeviceHasCeilings) {
  constexpr int64_t kLeft = 1 << 20;
  collectives::OnThreads({.size = 1}, [&](collectives::Rank& rank) {
    ASSERT_OK_AND_ASSIGN(
        const auto context,
        device::Context::Create({.compute_threads = 1, .memory_limit_bytes = kLeft}));
    ASSERT_OK_AND_ASSIGN(const auto stream, context->CreateStream("compute"));
    ASSERT_OK_AND_ASSIGN(
        const Ceilings measured,
        MeasureCeilings(precision::DType::kFloat32, {}, *rank.communicator, *context, *stream));
    EXPECT_GT(measured.flops_per_second, 0);
    EXPECT_GT(measured.memory_bytes_per_second, 0);
    EXPECT_GT(context->memory_stats().peak_bytes(), 0);
    EXPECT_LE(context->memory_stats().peak_bytes(), kLeft);
  });
}

// Some algorithms have all-reduces alone.
TEST(CeilingsTest, WhatAnAlgorithmDoesNotHaveIsNotKnown) {
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& rank) {
    ASSERT_OK_AND_ASSIGN(const Ceilings measured,
                         MeasureCeilings(precision::DType::kBFloat16,
                                         {.algorithm = collectives::Algorithm::kParameterServer},
                                         *rank.communicator, *rank.context, *rank.stream));
    EXPECT_GT(measured.OfCollective("all_reduce"), 0);
    EXPECT_GT(measured.OfCollective("all_gather"), 0);
    EXPECT_EQ(measured.OfCollective("reduce_scatter"), 0);
  });
}

// A training that fits to the byte goes on; ranks that have memory measure.
TEST(CeilingsTest, WhatHasNoMemoryIsNotKnown) {
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& rank) {
    const bool is_full = rank.rank == 1;
    ASSERT_OK_AND_ASSIGN(
        const auto context,
        device::Context::Create({.compute_threads = 1, .memory_limit_bytes = is_full ? 100 : 0}));
    ASSERT_OK_AND_ASSIGN(const auto stream, context->CreateStream("compute"));
    ASSERT_OK_AND_ASSIGN(
        const Ceilings measured,
        MeasureCeilings(precision::DType::kFloat32, {}, *rank.communicator, *context, *stream));
    EXPECT_EQ(measured.flops_per_second > 0, !is_full);
    EXPECT_EQ(measured.memory_bytes_per_second > 0, !is_full);
    EXPECT_EQ(measured.network_bytes_per_second, 0);
  });
}

TEST(CeilingsTest, AFileThatIsWrongIsAnErrorOfAllRanks) {
  const std::string folder = NewFolder();
  const std::string path = absl::StrCat(folder, "/ceilings.json");
  std::ofstream(path) << "{\"ranks\": 5}";
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& rank) {
    EXPECT_THAT(CeilingsOf(path, precision::DType::kFloat32, {}, *rank.communicator, *rank.context,
                           *rank.stream),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat(path, ": \"ranks\" is 5; it must be 2 as in this training")));
    // The folder.
    EXPECT_THAT(CeilingsOf(folder, precision::DType::kFloat32, {}, *rank.communicator,
                           *rank.context, *rank.stream)
                    .status()
                    .ToString(),
                HasSubstr("is a folder, not a file"));
  });
}

}  // namespace
}  // namespace brigade::profile
