// Bytes of a CRC-32C in a cycle of the processor: by its instruction on one stream and on three,
// and in the way that is the fastest here, from the caches and from memory.

#include <time.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/device/byte_count.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/file/crc32c_methods.h"

ABSL_FLAG(brigade::device::ByteCount, bytes, {int64_t{256} << 20}, "of a turn");
ABSL_FLAG(int, rounds, 25, "turns of each contestant; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

// Of this thread, without the time in which others had its processor.
double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Work>
double SecondsOf(const Work& work) {
  const double begin = ThreadSeconds();
  work();
  return ThreadSeconds() - begin;
}

// Additions each of which needs the one before take a cycle each: what the clock is now. (Of a
// register: newer processors add a constant before they execute anything.)
double SecondsOfCycle(int64_t cycles) {
  const double seconds = SecondsOf([cycles] {
    int64_t sum = 1;
    for (int64_t i = 0; i < cycles; i += 16) {
      for (int k = 0; k < 16; ++k) {
#if defined(__x86_64__)
        __asm__ volatile("add %0, %0" : "+r"(sum));
#else
        __asm__ volatile("add %0, %0, %0" : "+r"(sum));
#endif
      }
    }
  });
  return seconds / static_cast<double>(cycles);
}

struct Contestant {
  const char* name;
  const char* figure;
  uint32_t (*sum)(absl::string_view bytes, uint32_t sum);
  // How many bytes the sum is asked for at once.
  size_t block;
  // Over how many of them it goes.
  size_t of;
};

absl::Status Main() {
  const auto bytes = static_cast<size_t>(absl::GetFlag(FLAGS_bytes).value);
  std::vector<char> data(bytes);
  std::minstd_rand random(1);
  std::generate(data.begin(), data.end(), [&] { return static_cast<char>(random() >> 8); });
  std::vector<Contestant> contestants;
  for (const device::Crc32cMethod& method : device::Crc32cMethods()) {
    if (!method.is_there() || method.name != absl::string_view("instruction")) continue;
    // It takes three streams for blocks from 24 KiB on.
    contestants.push_back(
        {"one stream, first cache", "one_stream", method.sum, 16 << 10, 16 << 10});
    contestants.push_back(
        {"three streams, second cache", "three_streams", method.sum, 384 << 10, 384 << 10});
  }
  contestants.push_back({"Crc32c, second cache", "cache", device::Crc32c, 384 << 10, 384 << 10});
  contestants.push_back({"Crc32c, memory", "memory", device::Crc32c, 4 << 20, bytes});
  std::vector<Seconds> cycles(contestants.size()), seconds(contestants.size());
  uint32_t sum = 0;
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t c = 0; c < contestants.size(); ++c) {
      const size_t block = std::min(contestants[c].block, bytes);
      const size_t of = std::min(contestants[c].of, bytes);
      const double before = SecondsOfCycle(1 << 22);
      const double took = SecondsOf([&] {
        for (size_t done = 0; done < bytes; done += block) {
          sum = contestants[c].sum({data.data() + done % of, std::min(block, of - done % of)}, sum);
        }
      });
      const double cycle = std::min(before, SecondsOfCycle(1 << 22));
      if (round < 0) continue;
      seconds[c].push_back(took);
      cycles[c].push_back(took / cycle);
    }
  }
  std::cout << absl::StrFormat("# CRC-32C of %d bytes (%08x)\n%-32s %12s %9s\n", bytes, sum, "",
                               "bytes/cycle", "GB/s");
  Figures figures;
  for (size_t c = 0; c < contestants.size(); ++c) {
    const double each = static_cast<double>(bytes) / Median(cycles[c]);
    const double speed = static_cast<double>(bytes) * 1e-9 / Median(seconds[c]);
    std::cout << absl::StrFormat("%-32s %12.2f %9.2f\n", contestants[c].name, each, speed);
    figures.Add(contestants[c].figure, each);
    figures.Add(absl::StrCat(contestants[c].figure, "_gbs"), speed);
  }
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "the checksum", brigade::benchmarks::Main);
}
