// Makes memory slow for others: threads that copy between arrays far larger than the caches.
// benchmarks/slow_memory runs a command beside it.

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/benchmarks/common/numbers.h"
#include "brigade/device/command_line.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/kernels/nontemporal_store.h"

ABSL_FLAG(int, threads, 1, "how many threads copy");
ABSL_FLAG(int, mib, 256, "the size of each of a thread's two arrays");
ABSL_FLAG(double, seconds, 0, "ends by itself after so long; 0 goes on until SIGTERM or SIGINT");

namespace brigade::benchmarks {
namespace {

std::atomic<bool> ending = false;
std::atomic<int64_t> moved = 0;

void Copy(int64_t bytes) {
  // Bytes between two looks at `ending`.
  constexpr int64_t kPiece = 4 << 20;
  std::vector<char> from(static_cast<size_t>(bytes), 1), to(from);
  while (!ending) {
    for (int64_t i = 0; i < bytes && !ending; i += kPiece) {
      const int64_t piece = std::min(kPiece, bytes - i);
      kernels::NontemporalStore(&to[static_cast<size_t>(i)], &from[static_cast<size_t>(i)], piece);
      moved += 2 * piece;
    }
  }
}

absl::Status Main() {
  const int threads = absl::GetFlag(FLAGS_threads);
  const int mib = absl::GetFlag(FLAGS_mib);
  const double seconds = absl::GetFlag(FLAGS_seconds);
  BRIGADE_RETURN_IF_ERROR(CheckNumbers());
  // Not outlive who started it, however that ends.
  const pid_t parent = getppid();
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, [](int) { ending = true; });
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) ending = true;  // It ended just before.

  std::vector<std::thread> copying;
  for (int i = 0; i < threads; ++i) copying.emplace_back(Copy, int64_t{mib} << 20);
  // The arrays are there.
  while (moved == 0 && !ending) absl::SleepFor(absl::Milliseconds(1));
  std::cout << "copying" << std::endl;
  const device::SteadyTime begin = device::SteadyTime::Now();
  const int64_t before = moved;
  while (!ending) {
    absl::SleepFor(absl::Milliseconds(10));
    if (seconds > 0 && device::SteadyTime::Now() - begin >= absl::Seconds(seconds)) ending = true;
  }
  const double passed = absl::ToDoubleSeconds(device::SteadyTime::Now() - begin);
  for (std::thread& thread : copying) thread.join();
  std::cerr << absl::StrFormat("memory_neighbour: copied at %.1f GB/s, read and written\n",
                               static_cast<double>(moved - before) / passed * 1e-9);
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv, "Copies between large arrays, so that memory is slow for everybody else.",
      brigade::benchmarks::Main);
}
