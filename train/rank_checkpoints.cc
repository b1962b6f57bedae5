#include "brigade/train/rank_checkpoints.h"

#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/device/status_macros.h"
#include "brigade/replicas/options.h"
#include "brigade/train/times/clock.h"

namespace brigade::train {
namespace {

using checkpoint::SaveReport;
using device::SystemCalls;

std::string FolderOfReplica(const std::string& folder, int replica) {
  return folder.empty() ? folder : absl::StrCat(folder, "/replica-", replica);
}

// Whose folder this replica resumes from.
int SavedReplica(const std::string& folder, int replica) {
  int saved = 0;
  std::error_code error;
  while (saved <= replica && std::filesystem::is_directory(FolderOfReplica(folder, saved), error)) {
    ++saved;
  }
  return saved == 0 ? replica : replica % saved;
}

double SecondsSince(int64_t begin_ns) { return 1e-9 * static_cast<double>(SteadyNs() - begin_ns); }

}  // namespace

absl::StatusOr<std::unique_ptr<RankCheckpoints>> RankCheckpoints::Create(
    const Job& job, const checkpoint::Fields& training, const checkpoint::ModelPart& part,
    zero::ZeroOptimizer& zero, collectives::Communicator& communicator, device::Context& context,
    const std::optional<Replica>& replica) {
  std::unique_ptr<RankCheckpoints> self(new RankCheckpoints(job, part, zero, communicator));
  self->training_ = training;
  Checkpoints& options = self->checkpoints_;
  if (replica.has_value()) {
    self->all_ = replica->all;
    // Where there is no folder, nor can be one, the saver says so.
    std::error_code error;
    if (!options.save.empty()) std::filesystem::create_directory(options.save, error);
    options.save = FolderOfReplica(options.save, replica->number);
    options.resume = FolderOfReplica(options.resume, SavedReplica(options.resume, replica->number));
  }
  if (options.save.empty()) return self;
  BRIGADE_ASSIGN_OR_RETURN(
      self->saver_,
      checkpoint::Saver::Create({.root = options.save,
                                 .mode = job.config.write_mode,
                                 .keep = options.keep,
                                 .staging_bytes = job.config.staging_bytes},
                                zero, communicator, context, SystemCalls::Real(), self->part_));
  return self;
}

absl::StatusOr<Start> RankCheckpoints::Resume() {
  Start start;
  const std::string& from = checkpoints_.resume;
  if (!from.empty()) {
    // A checkpoint itself, or a folder of them.
    int64_t is_checkpoint = 0;
    absl::Status looked;
    if (communicator_.rank() == 0) {
      const auto found = checkpoint::IsCheckpoint(device::SystemCalls::Real(), from);
      looked = found.status();
      is_checkpoint = found.ok() && *found ? 1 : 0;
    }
    BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(looked, communicator_));
    BRIGADE_ASSIGN_OR_RETURN(const auto all, communicator_.AllGatherHost({is_checkpoint}));
    BRIGADE_ASSIGN_OR_RETURN(start, all[0] == 1 ? Load(from) : ResumeNewest());
  }
  BRIGADE_RETURN_IF_ERROR(CheckNothingLater(start.step));
  return start;
}

absl::StatusOr<Start> RankCheckpoints::Load(const std::string& folder) {
  BRIGADE_ASSIGN_OR_RETURN(
      const kernels::StepState state,
      checkpoint::Load(folder, training_, zero_, communicator_,
                       {.may_differ = checkpoints_.may_differ}, SystemCalls::Real(), part_));
  // Elsewhere it is not saved yet.
  const bool is_own = folder == checkpoint::CheckpointPath(checkpoints_.save, state.iteration);
  saved_step_ = is_own ? state.iteration : -1;
  return Start{state.iteration, true,
               absl::StrCat("Resumed after step ", state.iteration, " from ", folder)};
}

absl::Status RankCheckpoints::BeforeChange(int64_t step, Observer* observer) {
  if (saver_ != nullptr) BRIGADE_RETURN_IF_ERROR(Await(step, observer));
  saved_step_ = -1;
  return absl::OkStatus();
}

absl::StatusOr<Start> RankCheckpoints::GoOnFrom(const std::string& folder, int64_t step,
                                                Observer* observer) {
  BRIGADE_RETURN_IF_ERROR(BeforeChange(step, observer));
  BRIGADE_ASSIGN_OR_RETURN(Start start, Load(folder));
  if (saved_step_ >= 0) {
    BRIGADE_RETURN_IF_ERROR(
        checkpoint::SetAsideLater(checkpoints_.save, start.step, *all_).status());
  } else {
    BRIGADE_RETURN_IF_ERROR(CheckNothingLater(start.step));
  }
  return start;
}

absl::StatusOr<Start> RankCheckpoints::ResumeNewest() {
  const std::string& root = checkpoints_.resume;
  std::string damaged;
  int64_t before = std::numeric_limits<int64_t>::max();
  while (true) {
    BRIGADE_ASSIGN_OR_RETURN(const auto newest, checkpoint::FindLatest(root, *all_, before));
    if (!newest.has_value()) break;
    absl::StatusOr<Start> start = Load(checkpoint::CheckpointPath(root, *newest));
    if (start.ok()) {
      start->resumed += damaged;
      if (root != checkpoints_.save) return start;
      // Out of the way of the training, which will come to these steps again.
      BRIGADE_ASSIGN_OR_RETURN(const auto later, checkpoint::SetAsideLater(root, *newest, *all_));
      if (later.has_value() && damaged.empty()) {
        absl::StrAppend(&start->resumed, "\nSet aside: step ", *later,
                        ", which not all ranks have saved");
      }
      return start;
    }
    // What one rank finds damaged is damaged for all, whatever the others have found.
    const absl::Status damage = collectives::AgreeOnStatus(
        absl::IsDataLoss(start.status()) ? start.status() : absl::OkStatus(), *all_);
    if (!absl::IsDataLoss(damage)) return start;
    if (!checkpoints_.fall_back) {
      return absl::DataLossError(
          absl::StrCat(damage.message(), "; --fall_back resumes from the one before it"));
    }
    absl::StrAppend(&damaged, "\nDamaged: ", damage.message());
    before = *newest;
  }
  if (!damaged.empty()) {
    return absl::DataLossError(absl::StrCat("no checkpoint in ", root, " is whole", damaged));
  }
  if (root != checkpoints_.save) {
    return absl::NotFoundError(absl::StrCat("no checkpoint in ", root));
  }
  return Start{0, false, absl::StrCat("No checkpoint in ", root, ": a new training begins")};
}

absl::Status RankCheckpoints::CheckNothingLater(int64_t step) {
  const std::string& root = checkpoints_.save;
  if (root.empty()) return absl::OkStatus();
  const auto check = [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> found,
                             checkpoint::ListCheckpoints(device::SystemCalls::Real(), root));
    if (found.empty() || found.back() <= step) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        root, " has a checkpoint of step ", found.back(), ", but this training begins after step ",
        step, ": --resume goes on from the newest; else move it away, or save elsewhere"));
  };
  // Of hosts with disks of their own not all may have it.
  return collectives::AgreeOnStatus(check(), *all_);
}

absl::Status RankCheckpoints::Tell(int64_t step, const absl::StatusOr<SaveReport>& report,
                                   Observer* observer) {
  last_ = report.status();
  if (report.ok()) {
    ++summary_.saves;
    summary_.saved_bytes = report->bytes;
    summary_.save_seconds += report->seconds;
  } else {
    ++summary_.failed_saves;
  }
  return observer == nullptr ? absl::OkStatus() : observer->OnSave({step, report});
}

absl::Status RankCheckpoints::TellIfEnded(int64_t step, Observer* observer) {
  const auto report = saver_->Poll();
  if (!report.ok()) return Tell(step, report.status(), observer);
  return report->has_value() ? Tell(step, **report, observer) : absl::OkStatus();
}

absl::Status RankCheckpoints::Await(int64_t step, Observer* observer) {
  return saver_->in_flight() ? Tell(step, saver_->Wait(), observer) : absl::OkStatus();
}

absl::Status RankCheckpoints::SaveIfDue(int64_t step, Observer* observer) {
  if (saver_ == nullptr) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(TellIfEnded(step, observer));
  const int64_t every = checkpoints_.save_every;
  if (every == 0 || step == 0 || step % every != 0 || step == saved_step_) {
    return absl::OkStatus();
  }
  const int64_t begin = SteadyNs();
  BRIGADE_RETURN_IF_ERROR(Await(step, observer));
  BRIGADE_RETURN_IF_ERROR(zero_.ShareErrors());
  BRIGADE_RETURN_IF_ERROR(saver_->Begin(training_));
  saved_step_ = step;
  summary_.held_up_seconds += SecondsSince(begin);
  return absl::OkStatus();
}

absl::Status RankCheckpoints::SaveAtEnd(int64_t step, Observer* observer) {
  if (saver_ == nullptr) return absl::OkStatus();
  const int64_t begin = SteadyNs();
  BRIGADE_RETURN_IF_ERROR(Await(step, observer));
  // Once more, if it was this state that could not be saved.
  if (step != saved_step_ || !last_.ok()) {
    BRIGADE_RETURN_IF_ERROR(zero_.ShareErrors());
    BRIGADE_RETURN_IF_ERROR(saver_->Begin(training_));
    saved_step_ = step;
    BRIGADE_RETURN_IF_ERROR(Await(step, observer));
  }
  summary_.last_save_seconds += SecondsSince(begin);
  return last_;
}

int64_t RankCheckpoints::staging_bytes() const {
  constexpr int64_t kState = sizeof(kernels::StepState);
  return saver_ == nullptr ? 0 : saver_->staging_bytes() + kState;
}

void RankCheckpoints::AddTo(RankSummary& summary) const {
  summary.saves = summary_.saves;
  summary.failed_saves = summary_.failed_saves;
  summary.saved_bytes = summary_.saved_bytes;
  summary.save_seconds = summary_.save_seconds;
  summary.held_up_seconds =
      summary_.held_up_seconds + 1e-9 * static_cast<double>(zero_.state_wait_ns());
  summary.last_save_seconds = summary_.last_save_seconds;
}

}  // namespace brigade::train
