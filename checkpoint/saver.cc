#include "brigade/checkpoint/saver.h"

#include <chrono>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "brigade/checkpoint/check_part.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/joint_work.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/rank_files.h"
#include "brigade/checkpoint/staging.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/task_thread.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/step_controller.h"

namespace brigade::checkpoint {
namespace {

using collectives::AgreeOnStatus;
using collectives::AllGatherBytes;

std::string NewToken() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

absl::Status InFlight() { return absl::FailedPreconditionError("checkpoint: a save is in flight"); }

absl::Status Validate(const SaverOptions& options) {
  const auto wrong = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint: ", what...));
  };
  if (options.root.empty()) return wrong("no folder is named");
  if (options.keep < 0) return wrong("keep is ", options.keep);
  if (options.chunk_bytes < 1) return wrong("chunk_bytes is ", options.chunk_bytes);
  if (options.staging_bytes < 1) return wrong("staging_bytes is ", options.staging_bytes);
  if (options.file_bytes < 1) return wrong("file_bytes is ", options.file_bytes);
  return absl::OkStatus();
}

}  // namespace

class Saver::Impl {
 public:
  Impl(const SaverOptions& options, zero::ZeroOptimizer& zero, const ModelPart& part,
       device::SystemCalls& system)
      : options_(options), zero_(zero), part_(part), system_(system) {}

  // `model`: all its parameters.
  absl::Status Allocate(absl::Span<const zero::Parameter> model, device::Context& context, int rank,
                        int ranks) {
    BRIGADE_ASSIGN_OR_RETURN(layout_,
                             Layout::Create(model, zero_.state_arrays(), options_.file_bytes,
                                            zero_.options().optimizer.kind));
    std::vector<Piece> pieces =
        layout_.PiecesOf(zero_.plan(), zero_.rank(), part_, zero_.shard_group());
    std::erase_if(pieces, [](const Piece& piece) { return !piece.is_saved; });
    files_.emplace(options_.mode, options_.root, layout_, pieces, rank, ranks, system_);
    BRIGADE_ASSIGN_OR_RETURN(staging_,
                             Staging::Create(std::move(pieces), layout_, options_.staging_bytes,
                                             options_.chunk_bytes, zero_, context));
    BRIGADE_ASSIGN_OR_RETURN(coordinator_, device::TaskThread::Create());
    return absl::OkStatus();
  }

  // What ranks do together.
  absl::Status Prepare(collectives::Communicator& communicator);

  ~Impl() {
    if (coordinator_ == nullptr || coordinator_->is_idle()) return;
    work_->Cancel();
    coordinator_->Wait();
  }

  absl::Status Begin(const Fields& training);
  bool in_flight() const { return in_flight_; }
  absl::StatusOr<std::optional<SaveReport>> Poll();
  absl::StatusOr<SaveReport> Wait();

  int64_t staging_bytes() const { return staging_->ring_bytes(); }

 private:
  absl::Status Refuse() ABSL_LOCKS_EXCLUDED(mutex_);
  void TellRefused() ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeRefused() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<SaveReport> Save();
  absl::StatusOr<kernels::StepState> TakeState();
  absl::Status TakeFieldsOfRank0();
  absl::Status WriteFiles(const kernels::StepState& state);
  absl::Status Commit(const std::string& manifest);
  Manifest ManifestOf(const kernels::StepState& state) const;
  absl::StatusOr<std::string> CreateManifest(const kernels::StepState& state);

  const SaverOptions options_;
  zero::ZeroOptimizer& zero_;
  const ModelPart part_;
  device::SystemCalls& system_;
  // Of the whole model.
  Layout layout_;
  std::unique_ptr<Staging> staging_;
  std::optional<RankFiles> files_;
  std::unique_ptr<JointWork> work_;

  // Of the save in flight. Its fields are the coordinator's until it is idle.
  bool in_flight_ = false;
  std::chrono::steady_clock::time_point begin_;
  Fields training_;
  Fields rates_;
  absl::StatusOr<SaveReport> report_;

  device::Mutex mutex_;
  // The coordinator has work, and looks for refused calls before it ends.
  bool is_busy_ ABSL_GUARDED_BY(mutex_) = false;
  // Calls of Begin that were refused here and have not been told.
  int refused_ ABSL_GUARDED_BY(mutex_) = 0;

  // Last: it uses the others.
  std::unique_ptr<device::TaskThread> coordinator_;
};

absl::Status Saver::Impl::Prepare(collectives::Communicator& communicator) {
  const std::vector<int64_t> mine = {static_cast<int64_t>(options_.mode), options_.keep,
                                     options_.file_bytes};
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, communicator.AllGatherHost(mine));
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == all[i % mine.size()]) continue;
    return absl::InvalidArgumentError(absl::StrCat("checkpoint: mode, keep or file_bytes of rank ",
                                                   i / mine.size(),
                                                   " are others than those of rank 0"));
  }
  if (options_.mode == WriteMode::kPieceFiles) {
    BRIGADE_RETURN_IF_ERROR(files_->ExchangeExtents(communicator));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto channel, communicator.CreateHostChannel());
  auto work = JointWork::Create(std::move(channel));
  BRIGADE_RETURN_IF_ERROR(AgreeOnStatus(work.status(), communicator));
  work_ = *std::move(work);
  BRIGADE_ASSIGN_OR_RETURN(const auto tokens, AllGatherBytes(NewToken(), communicator));
  // In place rank 0 makes what the others look at.
  const bool is_first = communicator.rank() == 0 || options_.mode == WriteMode::kPieceFiles;
  for (const bool is_turn : {is_first, !is_first}) {
    BRIGADE_RETURN_IF_ERROR(
        AgreeOnStatus(is_turn ? files_->Prepare(tokens[0]) : absl::OkStatus(), communicator));
  }
  return absl::OkStatus();
}

absl::Status Saver::Impl::Begin(const Fields& training) {
  if (in_flight_) return Refuse();
  BRIGADE_RETURN_IF_ERROR(staging_->Begin());
  begin_ = std::chrono::steady_clock::now();
  training_ = training;
  std::vector<Rate> rates;
  for (size_t g = 0; g < zero_.options().optimizer.groups.size(); ++g) {
    const optim::ParameterGroup& group = zero_.controller().group(static_cast<int>(g));
    rates.push_back({group.lr, group.schedule});
  }
  rates_ = RateFields(rates);
  work_->BeginAnew();
  in_flight_ = true;
  {
    const device::MutexLock lock(mutex_);
    is_busy_ = true;
  }
  coordinator_->Start([this] {
    report_ = Save();
    // Of one that has failed: what others wait for must not wait for it.
    staging_->End().IgnoreError();
    files_->End();
    TellRefused();
  });
  return absl::OkStatus();
}

// Other ranks may have seen the end of the last save, and have begun: they wait for this one.
absl::Status Saver::Impl::Refuse() {
  const device::MutexLock lock(mutex_);
  ++refused_;
  if (!std::exchange(is_busy_, true)) coordinator_->Start([this] { TellRefused(); });
  return InFlight();
}

void Saver::Impl::TellRefused() {
  while (TakeRefused()) {
    work_->BeginAnew();
    work_->Run(InFlight).IgnoreError();
  }
}

bool Saver::Impl::TakeRefused() {
  const device::MutexLock lock(mutex_);
  is_busy_ = refused_ > 0;
  if (is_busy_) --refused_;
  return is_busy_;
}

absl::StatusOr<std::optional<SaveReport>> Saver::Impl::Poll() {
  if (!in_flight_ || !coordinator_->is_idle()) return std::optional<SaveReport>();
  BRIGADE_ASSIGN_OR_RETURN(SaveReport report, Wait());
  return std::optional<SaveReport>(std::move(report));
}

absl::StatusOr<SaveReport> Saver::Impl::Wait() {
  if (!in_flight_) return absl::FailedPreconditionError("checkpoint: no save is in flight");
  coordinator_->Wait();
  in_flight_ = false;
  return std::move(report_);
}

absl::StatusOr<SaveReport> Saver::Impl::Save() {
  BRIGADE_ASSIGN_OR_RETURN(const kernels::StepState state, TakeState());
  BRIGADE_RETURN_IF_ERROR(TakeFieldsOfRank0());
  BRIGADE_RETURN_IF_ERROR(WriteFiles(state));
  SaveReport report = {.iteration = state.iteration,
                       .path = files_->path(),
                       .bytes = layout_.bytes() + static_cast<int64_t>(layout_.index().size())};
  report.older_removed = work_->Run([&]() -> absl::Status {
    if (options_.keep == 0 || !files_->leads()) return absl::OkStatus();
    return RemoveOldCheckpoints(system_, options_.root, state.iteration, options_.keep);
  });
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  return report;
}

absl::StatusOr<kernels::StepState> Saver::Impl::TakeState() {
  kernels::StepState state = {};
  BRIGADE_RETURN_IF_ERROR(work_->Run([&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(state, staging_->TakeState());
    // What cannot be loaded, and what cannot be written, is found before anything is.
    BRIGADE_RETURN_IF_ERROR(zero_.controller().CheckState(state));
    return ManifestText(ManifestOf(state)).status();
  }));
  const std::string mine(reinterpret_cast<const char*>(&state), sizeof(state));
  BRIGADE_ASSIGN_OR_RETURN(const auto all, AllGatherBytes(mine, work_->channel()));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint: rank ", rank, " is not at the step of rank 0"));
  }
  return state;
}

// So that every rank that leads writes the same manifest.
absl::Status Saver::Impl::TakeFieldsOfRank0() {
  std::string text;
  absl::Status written;
  if (work_->channel().rank() == 0) {
    absl::StatusOr<std::string> fields = ManifestText({.rates = rates_, .training = training_});
    written = fields.status();
    if (fields.ok()) text = *std::move(fields);
  }
  BRIGADE_RETURN_IF_ERROR(AgreeOnStatus(written, work_->channel()));
  BRIGADE_ASSIGN_OR_RETURN(const auto all, AllGatherBytes(text, work_->channel()));
  BRIGADE_ASSIGN_OR_RETURN(Manifest fields, ParseManifest(all[0]));
  rates_ = std::move(fields.rates);
  training_ = std::move(fields.training);
  return absl::OkStatus();
}

absl::Status Saver::Impl::WriteFiles(const kernels::StepState& state) {
  BRIGADE_ASSIGN_OR_RETURN(const auto tokens, AllGatherBytes(NewToken(), work_->channel()));
  BRIGADE_RETURN_IF_ERROR(work_->Run([&] { return files_->Begin(state.iteration, tokens[0]); }));
  BRIGADE_RETURN_IF_ERROR(work_->Run([&] { return files_->TakeRoom(); }));
  BRIGADE_RETURN_IF_ERROR(work_->Run([&]() -> absl::Status {
    BRIGADE_RETURN_IF_ERROR(files_->Write(*staging_, [&] { return work_->is_cancelled(); }));
    return staging_->End();
  }));
  BRIGADE_ASSIGN_OR_RETURN(const std::string manifest, CreateManifest(state));
  return Commit(manifest);
}

absl::Status Saver::Impl::Commit(const std::string& manifest) {
  absl::Status committed = work_->Run([&] { return files_->Commit(manifest); });
  if (committed.ok()) committed = work_->Run([&] { return files_->CheckIsThere(); });
  // Of hosts with disks of their own some may have committed. But where the ranks cannot speak with
  // each other, another one may take it for done, and remove older ones: so it stays.
  if (committed.ok() || !work_->channel().status().ok()) return committed;
  const absl::Status withdrawn = work_->Run([&] { return files_->Withdraw(); });
  if (withdrawn.ok()) return committed;
  return absl::Status(committed.code(),
                      absl::StrCat(committed.message(), "; it is there: ", withdrawn.message()));
}

// Without files.
Manifest Saver::Impl::ManifestOf(const kernels::StepState& state) const {
  return {.state = StateFields(state),
          .rates = rates_,
          .options = OptionFields(zero_.options()),
          .parameters = ParameterFields(layout_.parameters()),
          .training = training_,
          .file_bytes = options_.file_bytes};
}

// From the checksums of what all ranks have written.
absl::StatusOr<std::string> Saver::Impl::CreateManifest(const kernels::StepState& state) {
  BRIGADE_ASSIGN_OR_RETURN(const auto tensors, files_->sums().Gather(work_->channel()));
  Manifest manifest = ManifestOf(state);
  if (options_.mode == WriteMode::kPieceFiles) {
    BRIGADE_ASSIGN_OR_RETURN(const auto sums,
                             work_->channel().AllGatherHost({int64_t{files_->piece_file_sum()}}));
    manifest.pieces = files_->piece_files();
    for (size_t rank = 0; rank < sums.size(); ++rank) {
      manifest.pieces[rank].crc32c = static_cast<uint32_t>(sums[rank]);
    }
  }
  for (const TensorFile& file : layout_.files()) {
    Manifest::File& entry = manifest.files.emplace_back();
    entry.name = file.name;
    entry.bytes = file.bytes;
    entry.crc32c = device::Crc32c(file.header);
    for (int t = file.first; t < file.first + file.count; ++t) {
      const auto i = static_cast<size_t>(t);
      const Tensor& tensor = layout_.tensors()[i];
      entry.crc32c =
          device::CombineCrc32c(entry.crc32c, tensors[i], static_cast<uint64_t>(tensor.bytes));
      entry.tensors.push_back(
          {layout_.parameters()[static_cast<size_t>(tensor.parameter)].spec.name, tensors[i]});
    }
  }
  manifest.files.push_back({.name = kWeightIndexName,
                            .bytes = static_cast<int64_t>(layout_.index().size()),
                            .crc32c = device::Crc32c(layout_.index())});
  return ManifestText(manifest);
}

absl::StatusOr<std::unique_ptr<Saver>> Saver::Create(
    const SaverOptions& options, zero::ZeroOptimizer& zero, collectives::Communicator& communicator,
    device::Context& context, device::SystemCalls& system, const ModelPart& part) {
  BRIGADE_RETURN_IF_ERROR(AgreeOnStatus(Validate(options), communicator));
  auto impl = std::make_unique<Impl>(options, zero, part, system);
  BRIGADE_ASSIGN_OR_RETURN(const auto model, CheckPart(part, zero, communicator));
  BRIGADE_RETURN_IF_ERROR(AgreeOnStatus(
      impl->Allocate(model, context, communicator.rank(), communicator.size()), communicator));
  BRIGADE_RETURN_IF_ERROR(impl->Prepare(communicator));
  return std::unique_ptr<Saver>(new Saver(std::move(impl)));
}

Saver::Saver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Saver::~Saver() = default;

absl::Status Saver::Begin(const Fields& training) { return impl_->Begin(training); }
bool Saver::in_flight() const { return impl_->in_flight(); }
absl::StatusOr<std::optional<SaveReport>> Saver::Poll() { return impl_->Poll(); }
absl::StatusOr<SaveReport> Saver::Wait() { return impl_->Wait(); }
int64_t Saver::staging_bytes() const { return impl_->staging_bytes(); }

}  // namespace brigade::checkpoint
