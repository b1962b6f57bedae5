// What memory gives to one core that reads: how long a load takes that waits for the one before it,
// and how fast loops read that go through several parts of an array side by side, as kernels over
// several arrays do. Speed times latency is what the core has in flight (Little's law). On pages of
// 2 MiB and of 4 KiB.

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/simd.h"

ABSL_FLAG(int64_t, mib, 256, "the size of the memory that is read");
ABSL_FLAG(int, rounds, 7, "how often everything is timed");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kWords = kLine / static_cast<int64_t>(sizeof(uint64_t));

// Memory with pages of 2 MiB where the system has them to give, or of 4 KiB.
class Pages {
 public:
  static absl::StatusOr<Pages> Create(int64_t bytes, bool huge) {
    constexpr int64_t kHugePage = 2 << 20;
    const auto mapped = static_cast<size_t>(bytes + kHugePage);
    void* const data =
        mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return absl::ResourceExhaustedError(absl::StrCat("no ", mapped, " bytes of memory"));
    }
    madvise(data, mapped, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    const auto begin = reinterpret_cast<uintptr_t>(data);
    Pages pages(data, mapped);
    pages.words_ =
        absl::MakeSpan(reinterpret_cast<uint64_t*>((begin + kHugePage - 1) / kHugePage * kHugePage),
                       static_cast<size_t>(bytes) / sizeof(uint64_t));
    return pages;
  }

  absl::Span<uint64_t> words() const { return words_; }

 private:
  struct Unmap {
    size_t bytes;
    void operator()(void* data) const { munmap(data, bytes); }
  };

  Pages(void* data, size_t bytes) : mapping_(data, Unmap{bytes}) {}

  std::unique_ptr<void, Unmap> mapping_;
  absl::Span<uint64_t> words_;
};

// Makes the first word of each line the number of another line, in one cycle over all of them.
void LinkLines(absl::Span<uint64_t> words) {
  std::vector<uint64_t> order(words.size() / kWords);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  for (size_t i = 0; i < order.size(); ++i) {
    words[order[i] * kWords] = order[(i + 1) % order.size()] * kWords;
  }
}

// What is read goes here, so that it is read.
volatile uint64_t sink;

constexpr int64_t kLoads = 1 << 20;

Work Chase(absl::Span<const uint64_t> words) {
  return [=](device::Stream& stream) {
    return stream.Enqueue({"chase"}, [=](device::ThreadPool&) {
      uint64_t at = 0;
      for (int64_t i = 0; i < kLoads; ++i) at = words[at];
      sink = at;
      return absl::OkStatus();
    });
  };
}

// The words of each of `streams` parts: a line less than their share, so that parts do not lie
// alike in the sets of a cache.
int64_t PartOf(absl::Span<const uint64_t> words, int streams) {
  return (static_cast<int64_t>(words.size()) / kWords / streams - 1) * kWords;
}

// Reads the parts side by side, a line of each in turn.
Work Read(absl::Span<const uint64_t> words, int streams) {
  return [=](device::Stream& stream) {
    return stream.Enqueue({"read"}, [=](device::ThreadPool&) {
      const int64_t part = PartOf(words, streams);
      kernels::RunSimd([&]() BRIGADE_SIMD_BODY {
        uint64_t sums[kWords] = {};
        for (int64_t i = 0; i + kWords <= part; i += kWords) {
          for (int s = 0; s < streams; ++s) {
            const uint64_t* const line = words.data() + s * part + i;
            for (int64_t j = 0; j < kWords; ++j) sums[j] += line[j];
          }
        }
        for (const uint64_t sum : sums) sink = sum;
      });
      return absl::OkStatus();
    });
  };
}

absl::Status Main() {
  const int64_t mib = absl::GetFlag(FLAGS_mib);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  const int64_t bytes = mib << 20;
  BRIGADE_ASSIGN_OR_RETURN(
      const auto context, device::Context::Create({.device = device::Cpu(), .compute_threads = 1}));
  BRIGADE_ASSIGN_OR_RETURN(const auto stream, context->CreateStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(const Pages huge, Pages::Create(bytes, true));
  BRIGADE_ASSIGN_OR_RETURN(const Pages small, Pages::Create(bytes, false));
  for (const Pages* const pages : {&huge, &small}) LinkLines(pages->words());

  const int streams[] = {1, 2, 4, 8, 16, 32, 64};
  std::vector<Work> contestants = {Chase(huge.words()), Chase(small.words())};
  for (const int count : streams) {
    contestants.push_back(Read(huge.words(), count));
    contestants.push_back(Read(small.words(), count));
  }
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<Seconds> seconds,
                           Interleave(contestants, 1, rounds, *stream));

  Figures figures;
  const char* const kinds[] = {"2 MiB", "4 KiB"};
  double latency[2];
  for (size_t k = 0; k < 2; ++k) {
    latency[k] = Median(seconds[k]) / static_cast<double>(kLoads);
    std::cout << absl::StrFormat("# pages of %s: a load takes %.0f ns\n", kinds[k],
                                 latency[k] * 1e9);
    figures.Add(k == 0 ? "latency_2_MiB" : "latency_4_KiB", latency[k]);
  }
  std::cout << absl::StrFormat("%7s %12s %10s %12s %10s\n", "streams", "2 MiB, GB/s", "in_flight",
                               "4 KiB, GB/s", "in_flight");
  for (size_t i = 0; i < std::size(streams); ++i) {
    std::cout << absl::StrFormat("%7d", streams[i]);
    for (size_t k = 0; k < 2; ++k) {
      const double read = static_cast<double>(PartOf(huge.words(), streams[i])) * streams[i] * 8;
      const double speed = read / Median(seconds[2 + 2 * i + k]);
      std::cout << absl::StrFormat(" %12.1f %10.0f", speed * 1e-9, speed * latency[k]);
      figures.Add(absl::StrCat("read_", streams[i], k == 0 ? "_2_MiB" : "_4_KiB"), speed);
    }
    std::cout << "\n";
  }
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "loads, and loops over several parts of an array",
                                      brigade::benchmarks::Main);
}
