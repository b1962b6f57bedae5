#ifndef BRIGADE_BENCHMARKS_COLLECTIVES_CONTESTANTS_H_
#define BRIGADE_BENCHMARKS_COLLECTIVES_CONTESTANTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/benchmarks/collectives/arrays.h"
#include "brigade/collectives/collective.h"

namespace brigade::benchmarks {

struct Outcome {
  double seconds = 0;  // from when all ranks begin to when the last has ended
  int64_t wrong = 0;   // elements, if the turn checks
};

// Somebody who can run collectives.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual const std::string& name() const = 0;  // "engine/algorithm", or the rival's
  virtual bool can(collectives::CollectiveKind kind, precision::DType dtype) const = 0;
  // Fills `arrays`, or its own, before a turn that checks or is in place: sums would grow.
  virtual absl::StatusOr<Outcome> Run(const Turn& turn, Arrays& arrays) = 0;
};

// Ours, over engine "threads" or "gloo" (on the loopback), by an algorithm; by "hierarchical":
// nodes of two ranks, direct inside and between; or by "fp16_wire": CompressedReduction with a
// dynamic scale, of turns of up to `elements`. Its ranks are made on threads of their own.
// InvalidArgument naming what is unknown.
absl::StatusOr<std::unique_ptr<Contestant>> CreateBrigade(const std::string& engine,
                                                          const std::string& algorithm, int ranks,
                                                          int64_t elements);

// Gloo's own ring, on the loopback: the rival.
absl::StatusOr<std::unique_ptr<Contestant>> CreateGlooRing(int ranks);

// MPI's, between processes. NotFound, saying what is missing, where it cannot be run.
absl::StatusOr<std::unique_ptr<Contestant>> CreateMpi(int ranks);

// Runs fn(rank) on a thread for each rank and waits; returns the first error.
absl::Status OnRanks(int ranks, const std::function<absl::Status(int rank)>& fn);

// Seconds from when all ranks begin fn(rank) to when the last has ended.
absl::StatusOr<double> TimeOnRanks(int ranks, const std::function<absl::Status(int rank)>& fn);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COLLECTIVES_CONTESTANTS_H_
