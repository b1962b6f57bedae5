// One rank of MPI's own all-reduce, for the table: rank 0 reads turns, one a line, and answers with
// what came out.
//
//   whole, in place, times, check  ->  seconds, elements of all ranks that are wrong
//
// The first line says "ready", or why not.

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "brigade/benchmarks/collectives/arrays.h"
#include "brigade/device/command_line.h"

namespace brigade::benchmarks {
namespace {

// Prints help if asked to, and refuses whatever else is on the command line.
void ReadCommandLine(int argc, char** argv) {
  if (argc < 2) return;
  if (!device::AsksForHelp(argc, argv)) {
    std::fprintf(stderr, "mpi_all_reduce: \"%s\": it takes nothing but --help\n", argv[1]);
    std::exit(2);
  }
  std::fputs(device::HelpText("mpi_all_reduce",
                              "A rank of MPI's own all-reduce; benchmarks/collectives:all_reduce "
                              "starts it by mpirun.")
                 .c_str(),
             stdout);
  std::exit(0);
}

}  // namespace
}  // namespace brigade::benchmarks

#ifdef BRIGADE_HAS_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi/mpi.h>

namespace brigade::benchmarks {
namespace {

// Of the host, the same in all processes.
using Clock = std::chrono::steady_clock;

struct Order {
  int64_t whole = 0;  // 0: the end
  int64_t in_place = 0;
  int64_t times = 0;
  int64_t check = 0;
};

// The others wait for it asleep: MPI's own waits would take cores from the contestant whose turn it
// is.
Order Receive(int rank) {
  Order order;
  if (rank == 0 && std::scanf("%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &order.whole,
                              &order.in_place, &order.times, &order.check) != 4) {
    order.whole = 0;
  }
  MPI_Request request;
  MPI_Ibcast(&order, 4, MPI_INT64_T, 0, MPI_COMM_WORLD, &request);
  for (int arrived = 0; arrived == 0;) {
    MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
    if (arrived == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return order;
}

void Main() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> input, output;
  if (rank == 0) {
    std::puts("ready");
    std::fflush(stdout);
  }
  for (Order order = Receive(rank); order.whole > 0; order = Receive(rank)) {
    const auto size = static_cast<size_t>(order.whole);
    if (input.size() < size) {
      input.resize(size);
      output.resize(size);
    }
    if (order.in_place != 0 || order.check != 0) {
      for (size_t i = 0; i < size; ++i) {
        input[i] = rank == 0 ? RankZeroValue(static_cast<int64_t>(i)) : 0.0f;
      }
      std::fill_n(output.begin(), size, -1.0f);
    }
    const void* const from = order.in_place != 0 ? MPI_IN_PLACE : input.data();
    float* const to = order.in_place != 0 ? input.data() : output.data();
    MPI_Barrier(MPI_COMM_WORLD);
    double span[2];  // minus the begin, and the end: the largest of both count
    span[0] = -std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    for (int64_t i = 0; i < order.times; ++i) {
      MPI_Allreduce(from, to, static_cast<int>(size), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    span[1] = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    int64_t wrong = 0;
    for (size_t i = 0; i < size && order.check != 0; ++i) {
      wrong += to[i] != RankZeroValue(static_cast<int64_t>(i));
    }
    MPI_Allreduce(MPI_IN_PLACE, span, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
      std::printf("%.9g %" PRId64 "\n", span[0] + span[1], wrong);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  brigade::benchmarks::ReadCommandLine(argc, argv);
  MPI_Init(&argc, &argv);
  brigade::benchmarks::Main();
  MPI_Finalize();
}
#else
int main(int argc, char** argv) {
  brigade::benchmarks::ReadCommandLine(argc, argv);
  std::puts("libopenmpi-dev was not installed when this was built");
}
#endif
