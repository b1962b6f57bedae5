#include "brigade/train/step_profiler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/collectives/call_marks.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/profile/ceilings.h"
#include "brigade/profile/collective_calls.h"
#include "brigade/profile/profile_text.h"
#include "brigade/profile/step_profile.h"
#include "brigade/train/times/pass_times.h"
#include "brigade/train/times/time_split.h"

namespace brigade::train {
namespace {

using device::TracedOperation;
using parallel::GridGroup;
using profile::Kind;
using profile::Pass;
using profile::Place;

// How many steps later all of a step has ended: the one behind it has been collected.
constexpr int64_t kStepsUntilEnded = 3;
// Of which rank 0 reads at once what they have told.
constexpr int kRanksOfAPiece = 8;

std::optional<Place> PlaceOf(absl::string_view name) {
  // A step begins outside the passes.
  if (IsStepMark(name) || IsStepEnd(name)) return Place();
  const std::optional<PassTimes::Place> mark = PassTimes::MarkOf(name);
  if (!mark.has_value()) return std::nullopt;
  if (mark->stage == PassTimes::kNone) return Place();
  switch (mark->part) {
    case PassPart::kForward:
      return Place{mark->stage, Pass::kForward};
    case PassPart::kBackward:
    case PassPart::kBackwardInput:
    case PassPart::kBackwardWeight:
      return Place{mark->stage, Pass::kBackward};
    default:
      return Place{mark->stage, Pass::kRecompute};
  }
}

Kind KindOf(const TracedOperation& operation) {
  // Of a pipeline, of those who cut the trace into steps, or of collectives: it does nothing.
  if (PassOfMark(operation.name).has_value() || IsStepMark(operation.name) ||
      IsStepEnd(operation.name) || collectives::CallMarkOf(operation.name).has_value() ||
      collectives::IsEndOfCall(operation.name)) {
    return Kind::kIdle;
  }
  switch (ActivityOf(operation)) {
    case Activity::kIdle:
      return Kind::kWait;
    case Activity::kCommunication:
      return Kind::kCollective;
    case Activity::kOptimizer:
      return Kind::kOptimizer;
    case Activity::kOtherCompute:
      break;
    case Activity::kGemm:
      // Sums of rows, before the products of attention's backward pass.
      if (operation.name == "attention_delta") break;
      return absl::StrContains(operation.name, "attention") ? Kind::kAttention : Kind::kProduct;
  }
  // Of engines of processes and of pipelines there are other events and operations of collectives.
  if (absl::StartsWith(operation.name, "collective")) return Kind::kCollective;
  return Kind::kOther;
}

}  // namespace

profile::TraceNames NamesOfTrace() {
  const auto kind = [](const TracedOperation& operation) {
    // What ranks between threads wait for before a collective is one, too.
    if (operation.kind == TracedOperation::Kind::kWait &&
        absl::StartsWith(operation.name, "collective")) {
      return Kind::kCollective;
    }
    return KindOf(operation);
  };
  return {PlaceOf, kind, IsStepMark, IsStepEnd};
}

absl::StatusOr<std::unique_ptr<StepProfiler>> StepProfiler::Create(const Accounts& accounts) {
  std::unique_ptr<StepProfiler> profiler(new StepProfiler(accounts));
  const profile::Options& options = profiler->options();
  const zero::ZeroOptions& zero = accounts.job.config.zero;
  collectives::Communicator& world = accounts.grid.world();
  absl::StatusOr<std::unique_ptr<device::TaskThread>> worker = device::TaskThread::Create();
  absl::Status status = worker.status();
  if (worker.ok()) profiler->worker_ = *std::move(worker);
  // Not only behind the step, which may come after hours.
  if (world.rank() == 0 && !options.output_file.empty()) {
    status.Update(device::FileReplacement::Begin(options.output_file).status());
  }
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(status, world));
  if (world.size() > 1) {
    BRIGADE_ASSIGN_OR_RETURN(profiler->channel_, world.CreateHostChannel());
  }
  BRIGADE_ASSIGN_OR_RETURN(
      profiler->ceilings_,
      profile::CeilingsOf(options.ceilings_file, accounts.job.config.zero.dtype,
                          {.reduction = zero.reduction, .algorithm = zero.algorithm}, world,
                          accounts.context, accounts.compute));
  if (options.peak_flops_per_second > 0) {
    profiler->ceilings_.flops_per_second = options.peak_flops_per_second;
    absl::StrAppend(&profiler->ceilings_.source, ", the peak of products as given");
  }
  accounts.books.summary().peak_flops_per_second = profiler->ceilings_.flops_per_second;
  return profiler;
}

StepProfiler::~StepProfiler() {
  // Of a training that has failed: the other ranks may not come.
  if (channel_ != nullptr && worker_ != nullptr && !worker_->is_idle()) {
    channel_->Abort(absl::CancelledError("the training has ended"));
  }
}

std::vector<profile::Sent> StepProfiler::SentSoFar() const {
  const zero::Traffic traffic = of_.zero.traffic();
  const auto bytes = [](int64_t sent) { return static_cast<double>(sent); };
  std::vector<profile::Sent> sent = {{"gradients", bytes(traffic.gradients)},
                                     {"weights", bytes(traffic.parameters)},
                                     {"statistics", bytes(traffic.scalars)},
                                     {"tied gradients", bytes(traffic.tied)},
                                     {"gradients between groups", bytes(traffic.between)},
                                     {"weights of near ranks", bytes(traffic.near)},
                                     {"gradients between nodes", bytes(traffic.nodes)},
                                     {"sums between copies", bytes(of_.books.SentBetween())}};
  const GroupBytes groups = of_.books.SentInGroups();
  for (const GridGroup group : {GridGroup::kTensor, GridGroup::kContext, GridGroup::kPipeline}) {
    const auto g = static_cast<size_t>(group);
    // Where it is ZeRO's group as well, or that of tied weights, that is above.
    const bool is_zeros = of_.grid.group(group) == &of_.grid.replica();
    const bool is_tieds = of_.grid.group(group) == of_.grid.group(GridGroup::kTied);
    const int64_t zeros = is_zeros ? traffic.total() : is_tieds ? traffic.tied : 0;
    sent.push_back({absl::StrCat(std::string(parallel::Name(group)), " ranks"),
                    bytes(std::max<int64_t>(groups[g] - zeros, 0))});
  }
  return sent;
}

absl::Status StepProfiler::BeforeStep(int64_t step, Observer* observer) {
  const int64_t profiled = options().profile_step - 1;
  if (state_ == State::kDone || step < profiled) return absl::OkStatus();
  if (state_ == State::kBefore) {
    // A training that goes on behind it.
    if (step > profiled) {
      state_ = State::kDone;
      return absl::OkStatus();
    }
    of_.recorder.Watch(of_.context.name());
    marked_calls_.emplace(of_.context);
    sent_ = SentSoFar();
    state_ = State::kIn;
    return absl::OkStatus();
  }
  if (state_ == State::kBehind && step >= profiled + kStepsUntilEnded) Prepare();
  return state_ == State::kWorking && worker_->is_idle() ? Continue(observer) : absl::OkStatus();
}

absl::Status StepProfiler::AfterStep() {
  if (state_ != State::kIn) return absl::OkStatus();
  marked_calls_.reset();
  const std::vector<profile::Sent> now = SentSoFar();
  for (size_t i = 0; i < sent_.size(); ++i) sent_[i].bytes = now[i].bytes - sent_[i].bytes;
  state_ = State::kBehind;
  // A save or an evaluation may come before the next step.
  return MarkStepEnd(of_.compute);
}

absl::Status StepProfiler::AtRest(Observer* observer) {
  if (state_ == State::kBehind) Prepare();
  while (state_ == State::kWorking) {
    worker_->Wait();
    BRIGADE_RETURN_IF_ERROR(Continue(observer));
  }
  return absl::OkStatus();
}

profile::RankStep StepProfiler::StepOf(const Recorder::Operations& operations) const {
  const std::string main(of_.compute.name());
  int64_t first = 0, last = 0;
  profile::StepMarks marks;
  for (const profile::StreamOperations& stream : operations.streams) {
    if (stream.operations.empty()) continue;
    first = first == 0 ? stream.operations.front().begin_ns
                       : std::min(first, stream.operations.front().begin_ns);
    last = std::max(last, stream.operations.back().end_ns);
    if (stream.stream == main) marks = profile::FindStep(stream, NamesOfTrace());
  }
  const int64_t begin_ns = marks.begin_ns.value_or(first), end_ns = marks.end_ns.value_or(last);
  return {.seconds = 1e-9 * static_cast<double>(end_ns - begin_ns),
          .units = of_.part.UnitsOfStep(),
          .rows = profile::RowsOf(operations.streams, main, begin_ns, end_ns, NamesOfTrace()),
          .main = main,
          .sent = sent_,
          .calls = profile::CallsOf(operations.streams),
          .ceilings = ceilings_,
          .dropped = operations.dropped};
}

void StepProfiler::Prepare() {
  state_ = State::kWorking;
  operations_ = of_.recorder.Watched(of_.context.name());
  const auto add = [this](auto piece) {
    pieces_.push_back([piece]() -> absl::Status {
      piece();
      return absl::OkStatus();
    });
  };
  add([this] { mine_ = StepOf(std::exchange(operations_, {})); });
  pieces_.push_back([this] { return Exchange(); });
  if (of_.grid.world().rank() != 0) return;
  for (int rank = 0; rank < of_.grid.world().size(); rank += kRanksOfAPiece) {
    pieces_.push_back([this, rank] { return ReadRanks(rank); });
  }
  add([this] { MergeSteps(); });
  add([this] { Write(); });
}

absl::Status StepProfiler::Continue(Observer* observer) {
  if (!worked_.ok()) state_ = State::kDone;
  BRIGADE_RETURN_IF_ERROR(worked_);
  if (pieces_.empty()) return Tell(observer);
  worker_->Start([this, piece = std::move(pieces_.front())] { worked_ = piece(); });
  pieces_.pop_front();
  return absl::OkStatus();
}

absl::Status StepProfiler::Exchange() {
  const std::string mine = profile::ToBytes(std::move(mine_));
  if (channel_ == nullptr) {
    told_ = {mine};
    return absl::OkStatus();
  }
  BRIGADE_ASSIGN_OR_RETURN(told_, collectives::AllGatherBytes(mine, *channel_));
  return absl::OkStatus();
}

absl::Status StepProfiler::ReadRanks(int first) {
  const auto end = std::min(static_cast<size_t>(first + kRanksOfAPiece), told_.size());
  for (auto rank = static_cast<size_t>(first); rank < end; ++rank) {
    BRIGADE_ASSIGN_OR_RETURN(profile::RankStep step, profile::RankStepFromBytes(told_[rank]));
    steps_.push_back(std::move(step));
  }
  return absl::OkStatus();
}

void StepProfiler::MergeSteps() {
  profile::Training training = of_.part.TrainingOfStep();
  training.step = options().profile_step;
  training.ranks = static_cast<int>(steps_.size());
  training.device = std::string(device::ToString(of_.context.device().kind));
  training.dtype = std::string(precision::ShortName(of_.job.config.zero.dtype));
  event_.profile = profile::Merge(training, steps_, options().recompute_fwd_factor);
}

void StepProfiler::Write() {
  std::string text = profile::ProfileText(event_.profile, options());
  const auto write = [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(device::FileReplacement file,
                             device::FileReplacement::Begin(options().output_file));
    file.Write(text);
    return file.Commit();
  };
  if (!options().output_file.empty()) trouble_ = write();
  if (options().output_file.empty() || !trouble_.ok()) event_.text = std::move(text);
}

absl::Status StepProfiler::Tell(Observer* observer) {
  state_ = State::kDone;
  if (of_.grid.world().rank() != 0) return absl::OkStatus();
  const double model = event_.profile.model_flops(/*causal=*/false);
  of_.books.summary().hardware_over_model =
      model > 0 ? event_.profile.hardware_flops(/*causal=*/false) / model : 1;
  if (observer == nullptr) return absl::OkStatus();
  if (!trouble_.ok()) BRIGADE_RETURN_IF_ERROR(observer->OnTrouble(trouble_));
  return observer->OnProfile(event_);
}

}  // namespace brigade::train
