#include "brigade/train/rank_digests.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/counted.h"
#include "brigade/device/status_macros.h"
#include "brigade/parallel/grid.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/train/comparisons.h"

namespace brigade::train {
namespace {

// For people who read the file.
std::string DescribeRun(const Job& job) {
  const zero::ZeroOptions& zero = job.config.zero;
  return absl::StrCat("stage ", zero.stage, ", ", std::string(precision::ShortName(zero.dtype)),
                      ", ", parallel::ToString(job.config.grid), ", seed ", job.seed);
}

Digests WantedOf(const Job& job) {
  Digests wanted = job.digests;
  wanted.verify_every = VerifyEvery(job);
  return wanted;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankDigests>> RankDigests::Create(const Job& job,
                                                                 const checkpoint::ModelPart& part,
                                                                 const Parts& parts) {
  const Digests wanted = WantedOf(job);
  if (!wanted.any()) return nullptr;
  BRIGADE_RETURN_IF_ERROR(CheckComparisons(job));
  std::unique_ptr<RankDigests> self(new RankDigests(job, wanted, parts));
  BRIGADE_ASSIGN_OR_RETURN(
      self->digests_,
      digests::StepDigests::Create(part, parts.in_flight, parts.zero, parts.ranks, parts.context));
  BRIGADE_ASSIGN_OR_RETURN(const auto gather, parts.ranks.Resolve(self->signature()));
  self->of_step_ = collectives::WireBytes(gather, parts.ranks.rank(), parts.ranks.size());
  if (wanted.verify_every == 0) return self;
  self->comparisons_ =
      digests::ComparisonsOf(self->digests_->map().tensors(), self->digests_->shares());
  if (self->comparisons_.empty()) return NothingAlike(job);
  return self;
}

absl::StatusOr<std::string> RankDigests::Start(int64_t steps) {
  if (wanted_.dump_step > 0 && wanted_.dump_step <= steps) {
    return absl::InvalidArgumentError(
        absl::StrCat("--digest_dump_step is ", wanted_.dump_step,
                     ", but the training that is resumed goes on behind step ", steps));
  }
  const std::vector<digests::TensorName>& tensors = digests_->map().tensors();
  if (parts_.is_first_rank && !wanted_.file.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(
        file_, digests::DigestFile::Create(wanted_.file, {tensors, DescribeRun(job_)}, steps));
  }
  if (comparisons_.empty()) return std::string();
  return absl::StrFormat(
      "Every %d steps ranks compare digests: %.4g %% of their weights have a copy on another rank.",
      wanted_.verify_every, 100 * digests::Covered(tensors, digests_->shares(), comparisons_));
}

bool RankDigests::IsWritten(int64_t step) const {
  return !wanted_.file.empty() && (step + 1) % wanted_.every == 0;
}

bool RankDigests::IsCompared(int64_t step) const {
  return wanted_.verify_every > 0 && (step + 1) % wanted_.verify_every == 0;
}

absl::Status RankDigests::Begin(int64_t step) {
  if (!IsWritten(step) && !IsCompared(step) && !IsDumped(step)) return absl::OkStatus();
  if (IsDumped(step)) {
    dump_ = std::make_unique<digests::TensorDump>(
        wanted_.dump, digests_->map(), parts_.is_first_replica && parts_.zero.shard_group() == 0,
        parts_.context);
  }
  return digests_->Begin(IsCompared(step), IsWritten(step), IsDumped(step) ? dump_.get() : nullptr);
}

absl::Status RankDigests::Enqueue(int64_t step) {
  if (!IsWritten(step) && !IsCompared(step)) return absl::OkStatus();
  sent_bytes_ += of_step_;
  return digests_->Enqueue(static_cast<int>(step % parts_.in_flight));
}

absl::Status RankDigests::Collect(int64_t step, bool skipped, Observer* observer) {
  if (IsDumped(step)) {
    const absl::Status written = dump_->Write();
    if (!written.ok()) {
      return absl::Status(written.code(), absl::StrCat("--digest_dump: ", written.message()));
    }
  }
  if (!IsWritten(step) && !IsCompared(step)) return absl::OkStatus();
  const digests::DigestTable table = digests_->Table(static_cast<int>(step % parts_.in_flight));
  if (IsWritten(step) && file_ != nullptr) {
    const absl::Status written = WriteRecord(step, skipped, table);
    if (!written.ok() && missing_steps_++ == 0) {
      file_error_ = written;
      if (observer != nullptr) BRIGADE_RETURN_IF_ERROR(observer->OnTrouble(written));
    }
  }
  if (!IsCompared(step)) return absl::OkStatus();
  return digests::CheckCopies(step + 1, skipped, digests_->map().tensors(), comparisons_, table);
}

absl::Status RankDigests::WriteRecord(int64_t step, bool skipped,
                                      const digests::DigestTable& table) {
  using digests::DigestKind;
  digests::StepRecord record = {
      .step = step + 1, .skipped = skipped, .gradients = {}, .weights = {}};
  // Gradients that are exchanged are not summed anywhere.
  const bool has_gradients = !parts_.zero.options().exchanges();
  for (int t = 0; t < static_cast<int>(digests_->map().tensors().size()); ++t) {
    if (has_gradients) {
      record.gradients.push_back(digests_->Sum(table, DigestKind::kGradients, t));
    }
    record.weights.push_back(digests_->Sum(table, DigestKind::kUpdated, t));
  }
  return file_->Write(record);
}

absl::Status RankDigests::Incomplete(bool waits) {
  if (missing_steps_ == 0) {
    return waits && file_ != nullptr ? file_->Sync() : absl::OkStatus();
  }
  return absl::Status(file_error_.code(),
                      absl::StrCat("the digests of ", device::Counted(missing_steps_, "step"),
                                   " are missing: ", file_error_.message()));
}

digests::DigestBytes RankDigests::bytes() const {
  return digests::StepDigestBytes(static_cast<int64_t>(digests_->map().tensors().size()),
                                  parts_.ranks.size(), parts_.in_flight);
}

}  // namespace brigade::train
