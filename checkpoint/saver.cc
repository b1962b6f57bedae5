#include "brigade/checkpoint/saver.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/crc32c.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/staging.h"
#include "brigade/checkpoint/tensor_sums.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/start_thread.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/step_controller.h"

namespace brigade::checkpoint {
namespace {

using collectives::AgreeOnStatus;
using collectives::AllGatherBytes;

// How often ranks that still work tell each other so: at first, and at most.
constexpr absl::Duration kFirstInterval = absl::Milliseconds(1);
constexpr absl::Duration kLastInterval = absl::Milliseconds(100);

std::string NewToken() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

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

int64_t BytesOf(const std::vector<PieceFile::Extent>& extents) {
  int64_t bytes = 0;
  for (const PieceFile::Extent& extent : extents) bytes += extent.bytes;
  return bytes;
}

std::string PieceFileName(int rank, int ranks) {
  return absl::StrFormat("pieces-%05d-of-%05d.bin", rank + 1, ranks);
}

}  // namespace

class Saver::Impl {
 public:
  Impl(const SaverOptions& options, zero::ZeroOptimizer& zero, SystemCalls& system)
      : options_(options), zero_(zero), system_(system) {}

  absl::Status Allocate(device::Context& context, int rank, int ranks) {
    rank_ = rank;
    ranks_ = ranks;
    BRIGADE_RETURN_IF_ERROR(Validate(options_));
    BRIGADE_ASSIGN_OR_RETURN(layout_, Layout::Create(zero_.plan().parameters(),
                                                     zero_.state_arrays(), options_.file_bytes));
    pieces_ = layout_.PiecesOf(zero_.plan(), rank);
    BRIGADE_ASSIGN_OR_RETURN(staging_, Staging::Create(pieces_, layout_, options_.staging_bytes,
                                                       options_.chunk_bytes, zero_, context));
    return absl::OkStatus();
  }

  ~Impl() {
    if (!coordinator_.joinable()) return;
    // First: no rank may take what this one leaves undone for done.
    channel_->Abort(absl::CancelledError("the saver is gone"));
    cancelled_ = true;
    coordinator_.join();
  }

  absl::Status Begin(const Fields& training) ABSL_LOCKS_EXCLUDED(mutex_);
  bool in_flight() const { return coordinator_.joinable(); }
  absl::StatusOr<std::optional<SaveReport>> Poll() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<SaveReport> Wait();

  int64_t staging_bytes() const { return staging_->ring_bytes(); }

  // For exchanges of the coordinators.
  std::unique_ptr<collectives::Communicator> channel_;

 private:
  using Work = absl::FunctionRef<absl::Status()>;

  absl::StatusOr<SaveReport> Save();
  absl::Status OnAllRanks(Work work);
  absl::Status TakeFieldsOfRank0();
  absl::Status BeginFolder();
  absl::Status CreateFiles();
  absl::Status WritePieces();
  absl::Status WriteInPlace(const Staging::Chunk& chunk);
  absl::Status WritePieceFile(const Staging::Chunk& chunk);
  absl::Status Append(absl::string_view bytes, uint32_t crc32c);
  absl::StatusOr<WritableFile*> FileOf(int file);
  Manifest ManifestOf(const kernels::StepState& state) const;
  absl::StatusOr<Manifest> CreateManifest(const kernels::StepState& state);
  std::vector<PieceFile::Extent> ExtentsOf(int rank) const;

  bool in_place() const { return options_.mode == WriteMode::kInPlace; }
  // Commits the folder.
  bool leads() const { return folder_.has_value() && folder_->leads(); }
  std::string PathOf(const std::string& name) const {
    return absl::StrCat(PartPath(options_.root, iteration_, token_), "/", name);
  }
  // Of all files, with the index.
  int64_t bytes() const { return layout_.bytes() + static_cast<int64_t>(layout_.index().size()); }

  const SaverOptions options_;
  zero::ZeroOptimizer& zero_;
  SystemCalls& system_;
  int rank_ = 0;
  int ranks_ = 1;
  Layout layout_;
  std::vector<Piece> pieces_;
  std::unique_ptr<Staging> staging_;

  // Of the save in flight.
  std::thread coordinator_;
  std::atomic<bool> cancelled_ = false;
  std::chrono::steady_clock::time_point begin_;
  absl::Status begun_;
  Fields training_;
  Fields rates_;
  int64_t iteration_ = 0;
  std::string token_;
  std::optional<NewCheckpoint> folder_;
  // Of the pieces.
  std::vector<uint32_t> sums_;
  // Of kPieceFiles this rank's own; else those that it has open, and which one that is on other
  // ranks than 0. How much a piece file has, and its checksum.
  std::vector<WritableFile> files_;
  int open_ = -1;
  int64_t written_ = 0;
  uint32_t piece_file_sum_ = 0;

  device::Mutex mutex_;
  device::CondVar changed_;
  std::optional<absl::StatusOr<SaveReport>> report_ ABSL_GUARDED_BY(mutex_);
  bool works_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::Status Saver::Impl::Begin(const Fields& training) {
  if (in_flight()) return absl::FailedPreconditionError("checkpoint: a save is in flight");
  begun_ = staging_->Begin();
  if (absl::IsFailedPrecondition(begun_)) return begun_;
  begin_ = std::chrono::steady_clock::now();
  training_ = training;
  std::vector<Rate> rates;
  for (size_t g = 0; g < zero_.options().optimizer.groups.size(); ++g) {
    const optim::ParameterGroup& group = zero_.controller().group(static_cast<int>(g));
    rates.push_back({group.lr, group.schedule});
  }
  rates_ = RateFields(rates);
  cancelled_ = false;
  coordinator_ = device::StartThread([this] {
    absl::StatusOr<SaveReport> report = Save();
    // What others wait for must not wait for this save.
    const absl::Status ended = staging_->End();
    if (report.ok() && !ended.ok()) report = ended;
    // Files that are open are renamed, not removed, by some file systems.
    files_.clear();
    folder_.reset();
    const device::MutexLock lock(mutex_);
    report_ = std::move(report);
  });
  if (coordinator_.joinable()) return absl::OkStatus();
  const absl::Status refused = absl::ResourceExhaustedError("checkpoint: no thread can be started");
  channel_->Abort(refused);
  staging_->End().IgnoreError();
  return refused;
}

absl::StatusOr<std::optional<SaveReport>> Saver::Impl::Poll() {
  {
    const device::MutexLock lock(mutex_);
    if (!in_flight() || !report_.has_value()) return std::optional<SaveReport>();
  }
  BRIGADE_ASSIGN_OR_RETURN(SaveReport report, Wait());
  return std::optional<SaveReport>(std::move(report));
}

absl::StatusOr<SaveReport> Saver::Impl::Wait() {
  if (!in_flight()) return absl::FailedPreconditionError("checkpoint: no save is in flight");
  coordinator_.join();
  const device::MutexLock lock(mutex_);
  return *std::exchange(report_, std::nullopt);
}

// Runs `work` on every rank, each as long as it takes: ranks that have done theirs hear meanwhile
// that the others are there, and an error of one ends the work of all.
absl::Status Saver::Impl::OnAllRanks(Work work) {
  absl::Status status;
  {
    const device::MutexLock lock(mutex_);
    works_ = true;
  }
  std::thread worker = device::StartThread([&] {
    absl::Status done = work();
    const device::MutexLock lock(mutex_);
    status = std::move(done);
    works_ = false;
    changed_.SignalAll();
  });
  if (!worker.joinable()) {
    const device::MutexLock lock(mutex_);
    status = absl::ResourceExhaustedError("no thread can be started");
    works_ = false;
  }
  enum : int64_t { kWorks, kDone, kFailed };
  absl::Status exchanged;
  absl::Duration interval = kFirstInterval;
  while (true) {
    int64_t mine = kWorks;
    {
      device::MutexLock lock(mutex_);
      if (works_) changed_.WaitWithTimeout(mutex_, interval);
      if (!works_) mine = status.ok() ? kDone : kFailed;
    }
    const auto all = channel_->AllGatherHost({mine});
    exchanged = all.status();
    if (!all.ok()) break;
    if (std::count(all->begin(), all->end(), kFailed) > 0) cancelled_ = true;
    if (std::count(all->begin(), all->end(), kWorks) == 0) break;
    // Those that have done their work wait in the exchange for those that have not.
    interval = std::min(2 * interval, kLastInterval);
  }
  if (!exchanged.ok()) cancelled_ = true;
  if (worker.joinable()) worker.join();
  BRIGADE_RETURN_IF_ERROR(exchanged);
  const absl::Status agreed = AgreeOnStatus(status, *channel_);
  if (status.ok()) return agreed;
  return absl::Status(status.code(), absl::StrCat("rank ", rank_, ": ", status.message()));
}

absl::StatusOr<SaveReport> Saver::Impl::Save() {
  kernels::StepState state = {};
  BRIGADE_RETURN_IF_ERROR(OnAllRanks([&]() -> absl::Status {
    BRIGADE_RETURN_IF_ERROR(begun_);
    BRIGADE_ASSIGN_OR_RETURN(state, staging_->TakeState());
    // What cannot be loaded, and what cannot be written, is found before anything is.
    BRIGADE_RETURN_IF_ERROR(zero_.controller().CheckState(state));
    return ManifestText(ManifestOf(state)).status();
  }));
  const std::string mine(reinterpret_cast<const char*>(&state), sizeof(state));
  BRIGADE_ASSIGN_OR_RETURN(auto all, AllGatherBytes(mine + NewToken(), *channel_));
  for (int rank = 0; rank < ranks_; ++rank) {
    if (all[static_cast<size_t>(rank)].substr(0, sizeof(state)) ==
        all[0].substr(0, sizeof(state))) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint: rank ", rank, " is not at the step of rank 0"));
  }
  BRIGADE_RETURN_IF_ERROR(TakeFieldsOfRank0());
  iteration_ = state.iteration;
  token_ = all[0].substr(sizeof(state));

  sums_.assign(pieces_.size(), 0);
  open_ = -1;
  written_ = 0;
  piece_file_sum_ = 0;
  const absl::Status has_folder = OnAllRanks([&] { return BeginFolder(); });
  if (!has_folder.ok() && !in_place()) {
    // Where the ranks cannot speak with each other, the one that made the folder may have removed
    // it before this one's file was in it. No rank can have gone on to the commit.
    files_.clear();
    RemoveFolderWithFiles(system_, PartPath(options_.root, iteration_, token_)).IgnoreError();
  }
  BRIGADE_RETURN_IF_ERROR(has_folder);
  BRIGADE_RETURN_IF_ERROR(OnAllRanks([&] { return WritePieces(); }));
  BRIGADE_ASSIGN_OR_RETURN(const Manifest manifest, CreateManifest(state));
  BRIGADE_RETURN_IF_ERROR(OnAllRanks([&]() -> absl::Status {
    if (!leads()) return absl::OkStatus();
    BRIGADE_ASSIGN_OR_RETURN(const std::string text, ManifestText(manifest));
    return folder_->Commit(text);
  }));
  SaveReport report = {
      .iteration = iteration_, .path = CheckpointPath(options_.root, iteration_), .bytes = bytes()};
  report.older_removed = OnAllRanks([&]() -> absl::Status {
    if (options_.keep == 0 || !leads()) return absl::OkStatus();
    return RemoveOldCheckpoints(system_, options_.root, iteration_, options_.keep);
  });
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  return report;
}

// So that every rank that leads writes the same manifest.
absl::Status Saver::Impl::TakeFieldsOfRank0() {
  std::string text;
  absl::Status written;
  if (rank_ == 0) {
    absl::StatusOr<std::string> fields = ManifestText({.rates = rates_, .training = training_});
    written = fields.status();
    if (fields.ok()) text = *std::move(fields);
  }
  BRIGADE_RETURN_IF_ERROR(AgreeOnStatus(written, *channel_));
  BRIGADE_ASSIGN_OR_RETURN(const auto all, AllGatherBytes(text, *channel_));
  BRIGADE_ASSIGN_OR_RETURN(Manifest fields, ParseManifest(all[0]));
  rates_ = std::move(fields.rates);
  training_ = std::move(fields.training);
  return absl::OkStatus();
}

absl::Status Saver::Impl::BeginFolder() {
  if (!in_place()) {
    const int64_t own = BytesOf(ExtentsOf(rank_));
    BRIGADE_ASSIGN_OR_RETURN(auto folder,
                             NewCheckpoint::Join(system_, options_.root, iteration_, own, token_));
    folder_.emplace(std::move(folder));
    BRIGADE_ASSIGN_OR_RETURN(
        auto file, WritableFile::Create(system_, PathOf(PieceFileName(rank_, ranks_)), own));
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }
  if (rank_ != 0) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(
      auto folder, NewCheckpoint::Begin(system_, options_.root, iteration_, bytes(), token_));
  folder_.emplace(std::move(folder));
  return CreateFiles();
}

// With their headers; all ranks write the rest. They stay open, so that each is synced once.
absl::Status Saver::Impl::CreateFiles() {
  const auto create = [&](const std::string& name, int64_t bytes,
                          absl::string_view first) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(auto file, WritableFile::Create(system_, PathOf(name), bytes));
    files_.push_back(std::move(file));
    return files_.back().Write(first, 0);
  };
  for (const TensorFile& file : layout_.files()) {
    BRIGADE_RETURN_IF_ERROR(create(file.name, file.bytes, file.header));
  }
  const auto bytes = static_cast<int64_t>(layout_.index().size());
  return create(kWeightIndexName, bytes, layout_.index());
}

absl::Status Saver::Impl::WritePieces() {
  if (!in_place() && rank_ == 0) {
    for (const TensorFile& file : layout_.files()) {
      BRIGADE_RETURN_IF_ERROR(Append(file.header, Crc32c(file.header)));
    }
    BRIGADE_RETURN_IF_ERROR(Append(layout_.index(), Crc32c(layout_.index())));
  }
  for (int c = 0; c < staging_->chunks(); ++c) {
    // Another rank has failed, or this saver goes: OnAllRanks knows.
    if (cancelled_) return absl::OkStatus();
    BRIGADE_ASSIGN_OR_RETURN(const Staging::Chunk chunk, staging_->Take(c));
    BRIGADE_RETURN_IF_ERROR(in_place() ? WriteInPlace(chunk) : WritePieceFile(chunk));
    BRIGADE_RETURN_IF_ERROR(staging_->Release(c));
  }
  for (WritableFile& file : files_) BRIGADE_RETURN_IF_ERROR(file.Finish());
  files_.clear();
  return absl::OkStatus();
}

absl::Status Saver::Impl::WriteInPlace(const Staging::Chunk& chunk) {
  // Parts that follow each other in a file, and so in the chunk, are written at once.
  int64_t run_at = 0, run_bytes = 0, run_offset = 0;
  int run_file = -1;
  WritableFile* file = nullptr;
  const auto flush = [&]() -> absl::Status {
    if (run_bytes == 0) return absl::OkStatus();
    return file->Write({chunk.data + run_at, static_cast<size_t>(std::exchange(run_bytes, 0))},
                       run_offset);
  };
  for (const Staging::Part& part : chunk.parts) {
    const auto p = static_cast<size_t>(part.piece);
    const Piece& piece = pieces_[p];
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(piece.tensor)];
    const int64_t offset = tensor.offset + piece.offset + part.offset;
    if (tensor.file != run_file || offset != run_offset + run_bytes) {
      BRIGADE_RETURN_IF_ERROR(flush());
      BRIGADE_ASSIGN_OR_RETURN(file, FileOf(tensor.file));
      run_file = tensor.file;
      run_at = part.at;
      run_offset = offset;
    }
    sums_[p] = Crc32c({chunk.data + part.at, static_cast<size_t>(part.bytes)}, sums_[p]);
    run_bytes += part.bytes;
  }
  return flush();
}

absl::Status Saver::Impl::WritePieceFile(const Staging::Chunk& chunk) {
  int64_t bytes = 0;
  uint32_t sum = 0;
  for (const Staging::Part& part : chunk.parts) {
    const auto p = static_cast<size_t>(part.piece);
    const uint32_t of_part = Crc32c({chunk.data + part.at, static_cast<size_t>(part.bytes)});
    sums_[p] = CombineCrc32c(sums_[p], of_part, static_cast<uint64_t>(part.bytes));
    sum = CombineCrc32c(sum, of_part, static_cast<uint64_t>(part.bytes));
    bytes += part.bytes;
  }
  return Append({chunk.data, static_cast<size_t>(bytes)}, sum);
}

// To the piece file, bytes with this checksum.
absl::Status Saver::Impl::Append(absl::string_view bytes, uint32_t crc32c) {
  piece_file_sum_ = CombineCrc32c(piece_file_sum_, crc32c, bytes.size());
  const int64_t at = written_;
  written_ += static_cast<int64_t>(bytes.size());
  return files_.front().Write(bytes, at);
}

// One of the files that all ranks write: of rank 0 all are open; of others the one that they write
// now.
absl::StatusOr<WritableFile*> Saver::Impl::FileOf(int file) {
  if (rank_ == 0) return &files_[static_cast<size_t>(file)];
  if (file != open_) {
    if (!files_.empty()) BRIGADE_RETURN_IF_ERROR(files_.back().Finish());
    files_.clear();
    BRIGADE_ASSIGN_OR_RETURN(
        auto opened,
        WritableFile::Open(system_, PathOf(layout_.files()[static_cast<size_t>(file)].name)));
    files_.push_back(std::move(opened));
    open_ = file;
  }
  return &files_.back();
}

// What a rank's piece file holds, in this order: of rank 0 headers and index first.
std::vector<PieceFile::Extent> Saver::Impl::ExtentsOf(int rank) const {
  std::vector<PieceFile::Extent> extents;
  const auto files = static_cast<int>(layout_.files().size());
  if (rank == 0) {
    for (int f = 0; f < files; ++f) {
      const auto bytes = layout_.files()[static_cast<size_t>(f)].header.size();
      extents.push_back({f, 0, static_cast<int64_t>(bytes)});
    }
    extents.push_back({files, 0, static_cast<int64_t>(layout_.index().size())});
  }
  const size_t first = extents.size();
  for (const Piece& piece : layout_.PiecesOf(zero_.plan(), rank)) {
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(piece.tensor)];
    const int64_t offset = tensor.offset + piece.offset;
    if (extents.size() > first && extents.back().file == tensor.file &&
        extents.back().offset + extents.back().bytes == offset) {
      extents.back().bytes += piece.bytes;
    } else {
      extents.push_back({tensor.file, offset, piece.bytes});
    }
  }
  return extents;
}

// Without files.
Manifest Saver::Impl::ManifestOf(const kernels::StepState& state) const {
  return {.state = StateFields(state),
          .rates = rates_,
          .options = OptionFields(zero_.options()),
          .parameters = ParameterFields(zero_.plan().parameters()),
          .training = training_,
          .file_bytes = options_.file_bytes};
}

// From the checksums of all ranks' pieces.
absl::StatusOr<Manifest> Saver::Impl::CreateManifest(const kernels::StepState& state) {
  BRIGADE_ASSIGN_OR_RETURN(const auto tensors, TensorSums(layout_, zero_.plan(), sums_, *channel_));
  Manifest manifest = ManifestOf(state);
  if (!in_place()) {
    BRIGADE_ASSIGN_OR_RETURN(const auto sums, channel_->AllGatherHost({int64_t{piece_file_sum_}}));
    for (int rank = 0; rank < ranks_; ++rank) {
      manifest.pieces.push_back({.name = PieceFileName(rank, ranks_),
                                 .crc32c = static_cast<uint32_t>(sums[static_cast<size_t>(rank)]),
                                 .extents = ExtentsOf(rank)});
      manifest.pieces.back().bytes = BytesOf(manifest.pieces.back().extents);
    }
  }
  for (const TensorFile& file : layout_.files()) {
    Manifest::File& entry = manifest.files.emplace_back();
    entry.name = file.name;
    entry.bytes = file.bytes;
    entry.crc32c = Crc32c(file.header);
    for (int t = file.first; t < file.first + file.count; ++t) {
      const auto i = static_cast<size_t>(t);
      const Tensor& tensor = layout_.tensors()[i];
      entry.crc32c = CombineCrc32c(entry.crc32c, tensors[i], static_cast<uint64_t>(tensor.bytes));
      entry.tensors.push_back({zero_.plan().parameter(tensor.parameter).spec.name, tensors[i]});
    }
  }
  manifest.files.push_back({.name = kWeightIndexName,
                            .bytes = static_cast<int64_t>(layout_.index().size()),
                            .crc32c = Crc32c(layout_.index())});
  return manifest;
}

absl::StatusOr<std::unique_ptr<Saver>> Saver::Create(const SaverOptions& options,
                                                     zero::ZeroOptimizer& zero,
                                                     collectives::Communicator& communicator,
                                                     device::Context& context,
                                                     SystemCalls& system) {
  auto impl = std::make_unique<Impl>(options, zero, system);
  BRIGADE_RETURN_IF_ERROR(AgreeOnStatus(
      impl->Allocate(context, communicator.rank(), communicator.size()), communicator));
  const std::vector<int64_t> mine = {static_cast<int64_t>(options.mode), options.keep,
                                     options.file_bytes};
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, communicator.AllGatherHost(mine));
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == all[i % mine.size()]) continue;
    return absl::InvalidArgumentError(absl::StrCat("checkpoint: mode, keep or file_bytes of rank ",
                                                   i / mine.size(),
                                                   " are others than those of rank 0"));
  }
  BRIGADE_ASSIGN_OR_RETURN(impl->channel_, communicator.CreateHostChannel());
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
