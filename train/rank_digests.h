#ifndef BRIGADE_TRAIN_RANK_DIGESTS_H_
#define BRIGADE_TRAIN_RANK_DIGESTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/context.h"
#include "brigade/digests/copies.h"
#include "brigade/digests/digest_file.h"
#include "brigade/digests/step_digests.h"
#include "brigade/digests/tensor_dump.h"
#include "brigade/train/job.h"
#include "brigade/train/observers/observer.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::train {

// Digests of one rank's steps, as Job::digests says, and its config's brigade.verify_replicas where
// verify_every is 0: into a file, and compared between ranks. They travel with the steps' metrics,
// so that nothing waits but the step that is dumped.
class RankDigests {
 public:
  // What of the job it needs more; all must outlive it.
  struct Parts {
    zero::ZeroOptimizer& zero;
    // The ranks that train one model: with replicas this one's replica.
    collectives::Communicator& ranks;
    device::Context& context;
    // Steps whose digests may be in memory at a time.
    int in_flight = 1;
    // Of all: it writes the file.
    bool is_first_rank = false;
    // Of replicas: tensors are dumped here.
    bool is_first_replica = false;
  };

  // A call of all ranks; waits. Null where the job has no digests. InvalidArgument, on all ranks,
  // for a comparison where nothing has a second copy, or weights that cannot be seen.
  static absl::StatusOr<std::unique_ptr<RankDigests>> Create(const Job& job,
                                                             const checkpoint::ModelPart& part,
                                                             const Parts& parts);

  // The training goes on behind so many steps. What is to be said about it, or nothing.
  // InvalidArgument if the step to dump is one of them.
  absl::StatusOr<std::string> Start(int64_t steps);
  // Before the passes of a step, and behind its update. The first step is 0.
  absl::Status Begin(int64_t step);
  absl::Status Enqueue(int64_t step);
  // The step is done. DataLoss of digests::CheckCopies, on all ranks, and errors of the dump. A
  // step that cannot be written to the file is missing there: of the first one `observer`, which
  // may be null, is told.
  absl::Status Collect(int64_t step, bool skipped, Observer* observer);
  // How many steps are missing in the file, and why; Ok if none is. `waits`: until the disk has
  // them.
  absl::Status Incomplete(bool waits);

  // What this rank sends in a step with digests, and of all steps so far.
  int64_t sent_bytes() const { return sent_bytes_; }
  // Of the memory of the device and of the host, and the all-gather.
  digests::DigestBytes bytes() const;
  collectives::CollectiveSignature signature() const { return digests_->signature(); }

 private:
  RankDigests(const Job& job, Digests wanted, const Parts& parts)
      : job_(job), wanted_(std::move(wanted)), parts_(parts) {}

  bool IsWritten(int64_t step) const;
  bool IsCompared(int64_t step) const;
  bool IsDumped(int64_t step) const { return step + 1 == wanted_.dump_step; }
  absl::Status WriteRecord(int64_t step, bool skipped, const digests::DigestTable& table);

  const Job& job_;
  const Digests wanted_;
  const Parts parts_;
  std::unique_ptr<digests::StepDigests> digests_;
  std::vector<digests::Comparison> comparisons_;
  std::unique_ptr<digests::DigestFile> file_;
  std::unique_ptr<digests::TensorDump> dump_;
  // Steps that the file does not have, and the error of the first one.
  int64_t missing_steps_ = 0;
  absl::Status file_error_;
  int64_t of_step_ = 0;
  int64_t sent_bytes_ = 0;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_RANK_DIGESTS_H_
