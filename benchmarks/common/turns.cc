#include "brigade/benchmarks/common/turns.h"

#include <time.h>

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {
namespace {

double ProcessorSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

absl::StatusOr<std::vector<TurnTimes>> TakeTurns(int ranks, int rounds, const CreateTurns& create) {
  BRIGADE_ASSIGN_OR_RETURN(auto group, collectives::ThreadGroup::Create({.size = ranks}));
  std::barrier meet(ranks);
  std::vector<TurnTimes> times;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<Turn> turns;
      const auto take = [&](const Turn& turn, bool counts, TurnTimes* of_turn) -> absl::Status {
        if (turn.before) BRIGADE_RETURN_IF_ERROR(turn.before());
        meet.arrive_and_wait();
        const double processor = ProcessorSeconds();
        const auto begin = std::chrono::steady_clock::now();
        BRIGADE_RETURN_IF_ERROR(turn.run());
        meet.arrive_and_wait();
        const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
        if (rank == 0 && counts) {
          of_turn->wall.push_back(wall.count());
          of_turn->processor.push_back(ProcessorSeconds() - processor);
        }
        if (turn.after) BRIGADE_RETURN_IF_ERROR(turn.after());
        meet.arrive_and_wait();
        return absl::OkStatus();
      };
      const auto all = [&]() -> absl::Status {
        BRIGADE_ASSIGN_OR_RETURN(turns, create(rank, *group));
        if (rank == 0) times.resize(turns.size());
        meet.arrive_and_wait();
        for (int round = -1; round < rounds; ++round) {
          for (size_t k = 0; k < turns.size(); ++k) {
            const size_t i = round % 2 == 0 ? turns.size() - 1 - k : k;
            BRIGADE_RETURN_IF_ERROR(take(turns[i], round >= 0, &times[i]));
          }
        }
        return absl::OkStatus();
      };
      // A rank that fails ends the process, because the others would wait for it.
      if (const absl::Status status = all(); !status.ok()) {
        std::cerr << "rank " << rank << ": " << status << "\n";
        std::exit(1);
      }
      // No rank frees its memory while others still use it.
      meet.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return times;
}

}  // namespace brigade::benchmarks
