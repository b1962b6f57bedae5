#ifndef BRIGADE_BENCHMARKS_COLLECTIVES_CONTESTANTS_H_
#define BRIGADE_BENCHMARKS_COLLECTIVES_CONTESTANTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/call.h"

namespace brigade::benchmarks {

// One rank's call, made `times` in a row and waited for. `count` as in CallShape; fp32 sums.
struct Round {
  collectives::CallKind kind;
  const float* input;
  float* output;
  int64_t count;
  int times;
};

// Somebody who can run collectives between ranks that are threads of this process.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual const std::string& name() const = 0;
  virtual bool can(collectives::CallKind kind) const = 0;
  // On every rank's thread at the same time.
  virtual absl::Status Run(int rank, const Round& round) = 0;
};

struct ContestantOptions {
  int ranks = 2;
  collectives::Algorithm algorithm = collectives::Algorithm::kDirect;
};

// Ours, over engine "threads" or "gloo" (on the loopback). Its ranks are made on threads of their own.
absl::StatusOr<std::unique_ptr<Contestant>> NewBrigade(const std::string& engine,
                                                       const ContestantOptions& options);

// Gloo's own ring, on the loopback: the rival.
absl::StatusOr<std::unique_ptr<Contestant>> NewGlooRing(int ranks);

// Runs fn(rank) on a thread for each rank and waits; returns the first error.
absl::Status OnRanks(int ranks, const std::function<absl::Status(int rank)>& fn);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COLLECTIVES_CONTESTANTS_H_
