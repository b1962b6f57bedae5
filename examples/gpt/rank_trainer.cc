#include "brigade/examples/gpt/rank_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/checkpoint/weights.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/file/file_store.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/clock.h"
#include "brigade/examples/gpt/trial.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/optim/schedule.h"
#include "brigade/optim/step_controller.h"
#include "brigade/recompute/planner.h"
#include "brigade/zero/plan/memory_model.h"

namespace brigade::gpt {
namespace {

using device::Purpose;
using precision::DType;

// Adds to a lack of memory what would need less of it.
absl::Status WithAdvice(const zero::ZeroOptions& options, const absl::Status& status) {
  // With files it may be the disk that is full.
  if (!absl::IsResourceExhausted(status) || options.offload.file_state()) return status;
  const bool has_all = options.stage == 3;
  const bool is_on_host =
      options.offload.enabled() && (!has_all || options.offload.parameters == device::Tier::kHost);
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; --offload=", has_all ? "all" : "optimizer",
                   is_on_host ? " --offload_to=file" : "", " keeps ",
                   has_all ? "weights and optimizer state" : "the optimizer state",
                   is_on_host ? " in a file" : " on the host, with --offload_to=file in a file",
                   options.stage == 0 ? ", from stage 1 on" : ""));
}

// Of offload or of the stash.
template <typename Movement>
void AddSince(const Movement& before, const Movement& now, Movement& sum) {
  sum.to_host += now.to_host - before.to_host;
  sum.from_host += now.from_host - before.from_host;
  sum.file_read += now.file_read - before.file_read;
  sum.file_written += now.file_written - before.file_written;
}

checkpoint::ModelPart PartOf(const PassShape& shape) {
  checkpoint::ModelPart part = {.shards = shape.shards()};
  // Else it is the whole, as it lies in memory too.
  if (shape.model.tensor_shards == 1) return part;
  for (int p = 0; p <= HeadParameter(shape.model, kFinalNormBias); ++p) {
    part.parameters.push_back(ShardOf(shape.model, p));
  }
  return part;
}

// RankTrainer::AddUp's.
constexpr collectives::CollectiveSignature kAddUp = {
    .kind = collectives::CollectiveKind::kAllReduce,
    .algorithm = collectives::ReduceOptions().algorithm,
    .dtype = DType::kFloat32,
    .count = 2};

// Calls visit(index of the group, communicator) for each group whose communicator no group before
// it has.
template <typename Visit>
void ForEachOwnGroup(const parallel::Grid& grid, Visit visit) {
  std::vector<const collectives::Communicator*> seen;
  for (const parallel::GridGroup each : parallel::kGridGroups) {
    collectives::Communicator* const group = grid.group(each);
    if (group == nullptr || std::find(seen.begin(), seen.end(), group) != seen.end()) continue;
    seen.push_back(group);
    visit(static_cast<size_t>(each), *group);
  }
}

}  // namespace

RankTrainer::RankTrainer(const Job& job, parallel::Grid& grid, device::Context& context,
                         device::Stream& compute, Recorder& recorder)
    : job_(job),
      grid_(grid),
      shape_(ShapeOf(job, grid.coordinates())),
      groups_{&grid.tensor(), &grid.context()},
      replica_(grid.replica()),
      context_(context),
      compute_(compute),
      recorder_(recorder),
      text_(static_cast<size_t>(job.model.context + 1)) {}

absl::StatusOr<std::unique_ptr<RankTrainer>> RankTrainer::Create(const Job& job,
                                                                 parallel::Grid& grid,
                                                                 device::Context& context,
                                                                 device::Stream& compute,
                                                                 Recorder& recorder) {
  BRIGADE_RETURN_IF_ERROR(Validate(job.model));
  BRIGADE_RETURN_IF_ERROR(CheckLength(job.corpus, job.model.context));
  std::unique_ptr<RankTrainer> trainer(new RankTrainer(job, grid, context, compute, recorder));
  const PassShape& shape = trainer->shape_;
  BRIGADE_RETURN_IF_ERROR(Validate(shape));
  // The same on all ranks, or an error on all.
  BRIGADE_ASSIGN_OR_RETURN(const PassCosts costs, trainer->Costs());
  const recompute::Chain chain = ActivationChain(shape, costs);
  BRIGADE_ASSIGN_OR_RETURN(const recompute::Plan plan, PlanOf(chain, job.config.recompute));
  BRIGADE_ASSIGN_OR_RETURN(const recompute::Plan without, recompute::PlanNone(chain));
  BRIGADE_ASSIGN_OR_RETURN(trainer->schedule_, recompute::Place(chain, plan));
  trainer->summary_.activation_bytes = plan.peak_bytes;
  trainer->summary_.activation_bytes_without = without.peak_bytes;
  trainer->summary_.planned_time = plan.time;
  trainer->summary_.planned_time_without = without.time;
  zero::ZeroOptions options = job.config.zero;
  options.backward_units = trainer->schedule_.BackwardUses();
  const auto allocate = [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(
        trainer->zero_,
        zero::ZeroOptimizer::Create(SpecOf(job.model, shape.shards()), options, trainer->replica_,
                                    context, compute, {&grid.world()}));
    return trainer->Allocate();
  };
  BRIGADE_RETURN_IF_ERROR(WithAdvice(options, allocate()));
  BRIGADE_ASSIGN_OR_RETURN(
      trainer->checkpoints_,
      RankCheckpoints::Create(job, PartOf(shape), *trainer->zero_, grid.world(), context));
  BRIGADE_ASSIGN_OR_RETURN(trainer->start_, trainer->checkpoints_->Resume());
  if (!trainer->start_.is_resumed) BRIGADE_RETURN_IF_ERROR(trainer->Initialize());
  if (const device::FileStore* const file = trainer->zero_->file(); file != nullptr) {
    const zero::Movement moved = zero::MovementOfStep(trainer->zero_->plan(), options);
    trainer->start_.file = absl::StrCat("Each rank has a file of ", file->bytes(), " bytes in ",
                                        options.offload.file.directory, " (", file->description(),
                                        "). Of each rank ", zero::WearOf(moved.file_written), ".");
  }
  // The model is of what is left when parameters are in.
  context.memory_stats().ResetPeaks();
  context.host_memory_stats().ResetPeaks();
  return trainer;
}

absl::StatusOr<PassCosts> RankTrainer::Costs() {
  if (job_.config.recompute_times == RecomputeTimes::kOperations) {
    return CountOperations(shape_);
  }
  return AgreeOnCosts(MeasurePasses(job_, shape_, groups_, context_, compute_, recorder_),
                      grid_.world());
}

absl::Status RankTrainer::Initialize() {
  if (const std::string& weights = job_.checkpoints.weights; !weights.empty()) {
    return checkpoint::LoadWeights(weights, *zero_, grid_.world(), {}, device::SystemCalls::Real(),
                                   PartOf(shape_));
  }
  return zero_->InitializeParameters([&](int parameter, absl::Span<float> values) {
    InitializeParameter(job_.model, parameter, job_.seed, shape_.shards(), values);
    return absl::OkStatus();
  });
}

absl::Status RankTrainer::Allocate() {
  BRIGADE_ASSIGN_OR_RETURN(transformer_,
                           Transformer::Create(shape_, schedule_, context_, groups_, StashFile()));
  for (collectives::Communicator* const group : {&replica_, &grid_.world()}) {
    BRIGADE_RETURN_IF_ERROR(group->Reserve(kAddUp));
  }
  BRIGADE_ASSIGN_OR_RETURN(one_, context_.Allocate(2 * sizeof(float), Purpose::kScratch, "one"));
  BRIGADE_ASSIGN_OR_RETURN(auto host_one,
                           context_.AllocateHost(sizeof(float), device::Purpose::kScratch, "one"));
  host_one.as<float>()[0] = 1.0f;
  BRIGADE_RETURN_IF_ERROR(compute_.Copy(one_.data(), host_one.data(), sizeof(float)));
  for (StepInFlight& in_flight : steps_) {
    BRIGADE_ASSIGN_OR_RETURN(auto device,
                             context_.Allocate(StepBytes(), Purpose::kActivations, "batch"));
    BRIGADE_ASSIGN_OR_RETURN(
        auto host_in,
        context_.AllocateHost(StepBytes(), device::Purpose::kScratch, "batch to come"));
    BRIGADE_ASSIGN_OR_RETURN(
        auto host_out, context_.AllocateHost(StepBytes(), device::Purpose::kScratch, "losses"));
    BRIGADE_ASSIGN_OR_RETURN(auto computed, context_.CreateEvent("losses computed"));
    BRIGADE_ASSIGN_OR_RETURN(auto done, context_.CreateEvent("step done"));
    in_flight = {std::move(device), std::move(host_in), std::move(host_out), std::move(computed),
                 std::move(done)};
  }
  const optim::ParameterGroup& group = job_.config.zero.optimizer.groups[0];
  learning_rates_ = optim::LearningRates(group.schedule, group.lr);
  return compute_.Synchronize();
}

nn::Texts RankTrainer::TextsOf(const StepInFlight& in_flight, int64_t micro_batch) const {
  return {in_flight.device.as<uint8_t>().data() + TextsOffset() +
              micro_batch * shape_.batch * text_bytes(),
          shape_.batch, shape_.positions(), std::ssize(shape_.runs())};
}

nn::DropoutMask RankTrainer::Dropout(int64_t micro_batch) const {
  const int64_t before = replica_.rank() * micro_batches() + micro_batch;
  return {.probability = job_.config.dropout,
          .seed = job_.seed,
          .step = &zero_->controller().state()->iteration,
          .first_element = before * shape_.rows() * job_.model.width};
}

double* RankTrainer::LossPartsOf(const StepInFlight& in_flight) {
  return reinterpret_cast<double*>(in_flight.device.as<uint8_t>().data() + LossPartsOffset());
}

float* RankTrainer::LossesOf(const StepInFlight& in_flight, int64_t micro_batch) const {
  return reinterpret_cast<float*>(in_flight.device.as<uint8_t>().data() + LossesOffset()) +
         micro_batch * shape_.rows();
}

void RankTrainer::CopyPart(const char* text, uint8_t* part) const {
  for (const parallel::PositionRun& run : shape_.runs()) {
    const auto bytes = static_cast<size_t>(run.count + 1);
    std::memcpy(part, text + run.global, bytes);
    part += bytes;
  }
}

void RankTrainer::SampleInto(int64_t step, int64_t sample, uint8_t* part) {
  SampleText(job_.corpus, job_.seed, step, sample, absl::MakeSpan(text_));
  CopyPart(reinterpret_cast<const char*>(text_.data()), part);
}

absl::Status RankTrainer::AddUp(float* sums, device::Stream& stream) {
  collectives::Communicator& world = grid_.world();
  if (&replica_ == &world) return world.AllReduce(sums, sums, 2, DType::kFloat32, {}, stream);
  BRIGADE_RETURN_IF_ERROR(replica_.AllReduce(sums, sums, 1, DType::kFloat32, {}, stream));
  return world.AllReduce(sums + 1, sums + 1, 1, DType::kFloat32, {}, stream);
}

absl::Status RankTrainer::Synchronize(device::Stream& stream) const {
  BRIGADE_RETURN_IF_ERROR(grid_.world().Synchronize(stream));
  return grid_.status();
}

absl::Status RankTrainer::EnqueueStep(int64_t step, bool stop) {
  StepInFlight& in_flight = steps_[static_cast<size_t>(step % kInFlight)];
  // The batch's samples, micro-batch by micro-batch, each data rank's side by side: which one has
  // which depends on their number, what the batch consists of does not.
  const int64_t samples = micro_batches() * shape_.batch;
  uint8_t* const texts = in_flight.host_in.as<uint8_t>().data() + TextsOffset();
  for (int64_t i = 0; i < samples; ++i) {
    SampleInto(step, grid_.coordinates().data * samples + i, texts + i * text_bytes());
  }
  const Sums mine = {0.0f, stop ? 1.0f : 0.0f};
  std::memcpy(in_flight.host_in.data(), &mine, sizeof(mine));
  auto* const sums = static_cast<float*>(in_flight.device.data());
  BRIGADE_RETURN_IF_ERROR(compute_.Copy(sums, in_flight.host_in.data(), sizeof(Sums)));
  BRIGADE_RETURN_IF_ERROR(compute_.Copy(in_flight.device.as<uint8_t>().data() + TextsOffset(),
                                        texts, samples * text_bytes()));

  float* const one = one_.as<float>().data();
  for (int64_t micro = 0; micro < micro_batches(); ++micro) {
    const nn::Texts of_micro = TextsOf(in_flight, micro);
    const nn::DropoutMask dropout = Dropout(micro);
    BRIGADE_RETURN_IF_ERROR(
        transformer_->Forward(of_micro, LossesOf(in_flight, micro), dropout, *zero_, compute_));
    BRIGADE_RETURN_IF_ERROR(zero_->ScaleLoss(one, one + 1, 1, DType::kFloat32));
    BRIGADE_RETURN_IF_ERROR(transformer_->Backward(of_micro, one + 1, dropout, *zero_, compute_));
    BRIGADE_RETURN_IF_ERROR(zero_->FinishBackward());
  }
  BRIGADE_RETURN_IF_ERROR(nn::MeanOfLosses(DType::kFloat32, LossesOf(in_flight, 0), losses(),
                                           LossPartsOf(in_flight), sums, compute_));
  BRIGADE_RETURN_IF_ERROR(compute_.Record(*in_flight.computed));

  BRIGADE_RETURN_IF_ERROR(zero_->Step());
  device::Stream& stream = zero_->step_stream();
  BRIGADE_RETURN_IF_ERROR(stream.Wait(*in_flight.computed));
  BRIGADE_RETURN_IF_ERROR(AddUp(sums, stream));
  BRIGADE_RETURN_IF_ERROR(stream.Copy(in_flight.host_out.data(), sums, sizeof(Sums)));
  BRIGADE_RETURN_IF_ERROR(zero_->controller().RequestState(stream));
  BRIGADE_RETURN_IF_ERROR(stream.Record(*in_flight.done));
  in_flight.step = step;
  return absl::OkStatus();
}

absl::Status RankTrainer::Collect(StepInFlight& in_flight, Observer* observer) {
  if (in_flight.step < 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(in_flight.done->Synchronize());
  // On some engines the streams go on after a communicator's error, with what is no result.
  BRIGADE_RETURN_IF_ERROR(grid_.status());
  BRIGADE_ASSIGN_OR_RETURN(auto state, zero_->controller().TakeState());
  Sums sums;
  std::memcpy(&sums, in_flight.host_out.data(), sizeof(sums));
  stopped_ = stopped_ || sums.stop > 0;

  const int64_t now = SteadyNs();
  const double tokens = static_cast<double>(losses() * replica_.size());
  const auto updates = static_cast<size_t>(std::max<int64_t>(state->step, 1));
  const StepMetrics metrics = {
      .step = in_flight.step + 1,
      .seconds = 1e-9 * static_cast<double>(trained_ns_ + now - started_ns_),
      .loss = static_cast<double>(sums.loss) / replica_.size(),
      .tokens_per_second = tokens / (1e-9 * static_cast<double>(now - collected_ns_)),
      .loss_scale = static_cast<double>(state->loss_scale),
      .grad_norm = state->grad_norm,
      .learning_rate =
          static_cast<double>(learning_rates_[std::min(updates, learning_rates_.size()) - 1]),
      .skipped = state->skip != 0,
  };
  collected_ns_ = now;
  in_flight.step = -1;
  ++summary_.steps;
  if (observer != nullptr) BRIGADE_RETURN_IF_ERROR(observer->OnStep(metrics));
  if (state->stuck_at_minimum != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step ", metrics.step, ": gradients overflow although the loss scale is at its minimum, ",
        metrics.loss_scale));
  }
  if (!metrics.skipped && !std::isfinite(metrics.loss)) {
    return absl::OutOfRangeError(
        absl::StrCat("step ", metrics.step, ": the loss is ", metrics.loss));
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::CollectAll(Observer* observer) {
  // Oldest first.
  std::array<StepInFlight*, kInFlight> steps;
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = &steps_[i];
  std::sort(steps.begin(), steps.end(),
            [](StepInFlight* a, StepInFlight* b) { return a->step < b->step; });
  for (StepInFlight* in_flight : steps) BRIGADE_RETURN_IF_ERROR(Collect(*in_flight, observer));
  return absl::OkStatus();
}

absl::StatusOr<bool> RankTrainer::Train(Observer* observer, const std::atomic<bool>& stop) {
  if (observer != nullptr) BRIGADE_RETURN_IF_ERROR(observer->OnStart(start_));
  int64_t step = start_.step;
  // In the loop too, if it is due there.
  if (step == 0) BRIGADE_RETURN_IF_ERROR(EvaluateAndTell(0, observer));
  StartCounting();
  for (; step < job_.steps; ++step) {
    BRIGADE_RETURN_IF_ERROR(Collect(steps_[static_cast<size_t>(step % kInFlight)], observer));
    if (stopped_) break;
    if (step > 0 && job_.evaluate_every > 0 && step % job_.evaluate_every == 0) {
      BRIGADE_RETURN_IF_ERROR(CollectAll(observer));
      if (stopped_) break;
      BRIGADE_RETURN_IF_ERROR(StopCounting());
      BRIGADE_RETURN_IF_ERROR(EvaluateAndTell(step, observer));
      StartCounting();
    }
    BRIGADE_RETURN_IF_ERROR(checkpoints_->SaveIfDue(step, observer));
    BRIGADE_RETURN_IF_ERROR(EnqueueStep(step, stop.load(std::memory_order_relaxed)));
  }
  BRIGADE_RETURN_IF_ERROR(CollectAll(observer));
  BRIGADE_RETURN_IF_ERROR(StopCounting());
  if (!stopped_) BRIGADE_RETURN_IF_ERROR(EvaluateAndTell(step, observer));
  BRIGADE_RETURN_IF_ERROR(checkpoints_->SaveAtEnd(step, observer));
  return stopped_;
}

const device::FileOptions* RankTrainer::StashFile() const {
  const bool in_file = job_.config.recompute.stash == recompute::StashTier::kFile;
  return in_file ? &job_.config.zero.offload.file : nullptr;
}

recompute::StashMovement RankTrainer::Stashed() const {
  const recompute::Stash* const stash = transformer_->stash();
  return stash == nullptr ? recompute::StashMovement() : stash->movement();
}

void RankTrainer::StartCounting() {
  traffic_before_ = zero_->traffic();
  movement_before_ = zero_->movement();
  stash_before_ = Stashed();
  sent_before_ = SentInGroups();
  recorder_.Begin(context_.name());
  started_ns_ = collected_ns_ = SteadyNs();
}

absl::Status RankTrainer::StopCounting() {
  BRIGADE_RETURN_IF_ERROR(Synchronize(compute_));
  BRIGADE_RETURN_IF_ERROR(Synchronize(zero_->step_stream()));
  trained_ns_ += SteadyNs() - started_ns_;
  const Recording recording = recorder_.End(context_.name());
  summary_.time += recording.time;
  for (const PassSeconds& stage : recording.stages) summary_.passes += stage;
  const zero::Traffic now = zero_->traffic();
  summary_.traffic.gradients += now.gradients - traffic_before_.gradients;
  summary_.traffic.parameters += now.parameters - traffic_before_.parameters;
  summary_.traffic.scalars += now.scalars - traffic_before_.scalars;
  AddSince(movement_before_, zero_->movement(), summary_.movement);
  AddSince(stash_before_, Stashed(), summary_.stashed);
  const GroupBytes sent = SentInGroups();
  for (size_t g = 0; g < sent.size(); ++g) summary_.sent[g] += sent[g] - sent_before_[g];
  return absl::OkStatus();
}

absl::Status RankTrainer::EvaluateAndTell(int64_t step, Observer* observer) {
  BRIGADE_ASSIGN_OR_RETURN(auto loss, Evaluate());
  return observer == nullptr ? absl::OkStatus() : observer->OnEvaluation({step, loss});
}

// Texts side by side over the held-out part, dealt out to data ranks batch by batch. All ranks do
// as many passes; places beyond the end get the first text, whose loss is not counted.
absl::StatusOr<double> RankTrainer::Evaluate() {
  StepInFlight& in_flight = steps_[0];
  const std::string& held_out = job_.corpus.held_out;
  const int64_t context = job_.model.context;
  const int64_t texts = (static_cast<int64_t>(held_out.size()) - 1) / context;
  const int64_t batch = shape_.batch, before = grid_.coordinates().data * batch;
  uint8_t* const host = in_flight.host_in.as<uint8_t>().data() + TextsOffset();
  const auto* const losses = in_flight.host_out.as<float>().data();
  double sum = 0;
  for (int64_t first = before; first < texts + before; first += batch * grid_.shape().data) {
    for (int64_t i = 0; i < batch; ++i) {
      const int64_t text = first + i < texts ? first + i : 0;
      CopyPart(held_out.data() + text * context, host + i * text_bytes());
    }
    const nn::Texts on_device = TextsOf(in_flight, 0);
    BRIGADE_RETURN_IF_ERROR(
        compute_.Copy(const_cast<uint8_t*>(on_device.bytes), host, batch * text_bytes()));
    BRIGADE_RETURN_IF_ERROR(
        transformer_->Forward(on_device, LossesOf(in_flight, 0), {}, *zero_, compute_));
    BRIGADE_RETURN_IF_ERROR(compute_.Copy(in_flight.host_out.data(), LossesOf(in_flight, 0),
                                          on_device.rows() * int64_t{sizeof(float)}));
    BRIGADE_RETURN_IF_ERROR(Synchronize(compute_));
    const int64_t counted = std::clamp<int64_t>(texts - first, 0, batch) * shape_.positions();
    for (int64_t i = 0; i < counted; ++i) sum += static_cast<double>(losses[i]);
  }
  auto* const sums = static_cast<float*>(in_flight.device.data());
  auto* const host_sums = static_cast<float*>(in_flight.host_in.data());
  host_sums[0] = static_cast<float>(sum);
  BRIGADE_RETURN_IF_ERROR(compute_.Copy(sums, host_sums, sizeof(float)));
  BRIGADE_RETURN_IF_ERROR(replica_.AllReduce(sums, sums, 1, DType::kFloat32, {}, compute_));
  BRIGADE_RETURN_IF_ERROR(compute_.Copy(in_flight.host_out.data(), sums, sizeof(float)));
  BRIGADE_RETURN_IF_ERROR(Synchronize(compute_));
  return static_cast<double>(losses[0]) / static_cast<double>(texts * context);
}

GroupBytes RankTrainer::SentInGroups() const {
  GroupBytes sent = {};
  ForEachOwnGroup(grid_, [&](size_t g, const collectives::Communicator& group) {
    for (int to = 0; to < group.size(); ++to) sent[g] += group.sent_bytes(to);
  });
  return sent;
}

absl::StatusOr<GroupBytes> RankTrainer::SentInGroupsOfStep() {
  const zero::Plan& plan = zero_->plan();
  BRIGADE_ASSIGN_OR_RETURN(const zero::Traffic traffic,
                           zero::TrafficOfStep(plan, zero_->options(), replica_, {&grid_.world()}));
  BRIGADE_ASSIGN_OR_RETURN(const int64_t of_tensor,
                           SentInPasses(shape_, schedule_, groups_, &PassGroups::tensor));
  BRIGADE_ASSIGN_OR_RETURN(const int64_t of_context,
                           SentInPasses(shape_, schedule_, groups_, &PassGroups::context));
  GroupBytes sent = {};
  absl::Status status;
  ForEachOwnGroup(grid_, [&](size_t g, collectives::Communicator& group) {
    if (&group == groups_.tensor) sent[g] += micro_batches() * of_tensor;
    if (&group == groups_.context) sent[g] += micro_batches() * of_context;
    if (&group == &replica_) sent[g] += traffic.gradients + traffic.parameters;
    if (&group == &grid_.world()) sent[g] += traffic.scalars;
    const int64_t sums = (&group == &replica_ ? 1 : 0) + (&group == &grid_.world() ? 1 : 0);
    if (sums == 0) return;
    collectives::CollectiveSignature signature = kAddUp;
    signature.count = sums;
    const auto resolved = group.Resolve(signature);
    status.Update(resolved.status());
    if (!resolved.ok()) return;
    sent[g] += collectives::WireBytes(*resolved, group.rank(), group.size());
  });
  BRIGADE_RETURN_IF_ERROR(status);
  return sent;
}

absl::StatusOr<int64_t> RankTrainer::WorkspaceBytes() {
  const zero::Plan& plan = zero_->plan();
  const zero::ZeroOptions& options = zero_->options();
  int64_t bytes = 0;
  absl::Status status;
  ForEachOwnGroup(grid_, [&](size_t, collectives::Communicator& group) {
    collectives::Workspace workspace;
    const auto add = [&](const absl::StatusOr<collectives::Workspace>& needed) {
      status.Update(needed.status());
      if (needed.ok()) workspace = collectives::Max(workspace, *needed);
    };
    if (&group == groups_.tensor) {
      add(WorkspaceOfPasses(shape_, schedule_, groups_, &PassGroups::tensor));
    }
    if (&group == groups_.context) {
      add(WorkspaceOfPasses(shape_, schedule_, groups_, &PassGroups::context));
    }
    if (&group == &replica_)
      add(zero::WorkspaceOfStep(plan, options, group, zero::StepGroup::kReplicas));
    if (&group == &grid_.world()) {
      add(zero::WorkspaceOfStep(plan, options, group, zero::StepGroup::kWorld));
    }
    if (&group == &replica_ || &group == &grid_.world()) add(group.WorkspaceFor(kAddUp));
    bytes += workspace.bytes();
  });
  BRIGADE_RETURN_IF_ERROR(status);
  return bytes;
}

absl::StatusOr<RankSummary> RankTrainer::Summary() {
  RankSummary summary = summary_;
  checkpoints_->AddTo(summary);
  std::vector<zero::MemoryTerm> terms = zero::MemoryOf(zero_->plan(), zero_->options());
  BRIGADE_ASSIGN_OR_RETURN(const int64_t workspace_bytes, WorkspaceBytes());
  terms.push_back({device::Tier::kDevice, Purpose::kCommunication, "workspace of collectives",
                   workspace_bytes});
  for (int i = 0; i < device::kPurposes; ++i) {
    summary.memory[i] = context_.memory_stats().peak_bytes(static_cast<Purpose>(i));
    summary.memory_model[i] = zero::Total(terms, device::Tier::kDevice, static_cast<Purpose>(i));
    summary.host_memory[i] = context_.host_memory_stats().peak_bytes(static_cast<Purpose>(i));
    summary.host_memory_model[i] = zero::Total(terms, device::Tier::kHost, static_cast<Purpose>(i));
  }
  summary.host_memory_model[static_cast<int>(Purpose::kScratch)] += 2 * kInFlight * StepBytes();
  summary.file_bytes_model = zero::Total(terms, device::Tier::kFile);
  if (zero_->file() != nullptr) summary.file_bytes = zero_->file()->bytes();
  summary.memory_model[static_cast<int>(Purpose::kActivations)] +=
      Transformer::ActivationBytes(shape_, schedule_) + kInFlight * StepBytes();
  summary.memory_model[static_cast<int>(Purpose::kScratch)] +=
      nn::Blas::ScratchBytes(context_.device(), Layers::WorkspaceBytes(shape_)) +
      transformer_->layers().bytes() + one_.bytes();
  summary.movement_of_step = zero::MovementOfStep(zero_->plan(), zero_->options());
  summary.host_memory_model[static_cast<int>(Purpose::kActivations)] +=
      recompute::Stash::HostBytes(schedule_.written_bytes, StashFile());
  const int64_t stashed = micro_batches() * schedule_.WrittenBytes();
  summary.stashed_of_step = {.to_host = stashed, .from_host = stashed};
  if (StashFile() != nullptr) {
    summary.stashed_of_step.file_read = summary.stashed_of_step.file_written = stashed;
    summary.file_bytes_model += recompute::Stash::FileBytes(schedule_.written_bytes);
    summary.file_bytes += transformer_->stash()->file()->bytes();
  }
  BRIGADE_ASSIGN_OR_RETURN(
      summary.traffic_of_step,
      zero::TrafficOfStep(zero_->plan(), zero_->options(), replica_, {&grid_.world()}));
  BRIGADE_ASSIGN_OR_RETURN(summary.sent_of_step, SentInGroupsOfStep());
  for (const zero::Bucket& bucket : zero_->plan().buckets()) {
    summary.padded_bytes += bucket.bytes();
  }
  for (const zero::UnitSpec& unit : SpecOf(job_.model, shape_.shards())) {
    for (const zero::ParameterSpec& each : unit.parameters) summary.parameters += each.size;
  }
  return summary;
}

absl::StatusOr<std::vector<RankSummary>> RankTrainer::Gather(const RankSummary& mine) {
  collectives::Communicator& world = grid_.world();
  std::vector<RankSummary> all(static_cast<size_t>(world.size()));
  constexpr int64_t kBytes = sizeof(RankSummary);
  BRIGADE_ASSIGN_OR_RETURN(
      auto buffer, context_.Allocate(kBytes * world.size(), Purpose::kScratch, "summaries"));
  char* const data = static_cast<char*>(buffer.data());
  char* const own = data + world.rank() * kBytes;
  BRIGADE_RETURN_IF_ERROR(compute_.Copy(own, &mine, kBytes));
  BRIGADE_RETURN_IF_ERROR(world.AllGather(own, data, kBytes, DType::kUint8, {}, compute_));
  BRIGADE_RETURN_IF_ERROR(compute_.Copy(all.data(), data, kBytes * world.size()));
  BRIGADE_RETURN_IF_ERROR(Synchronize(compute_));
  return all;
}

}  // namespace brigade::gpt
