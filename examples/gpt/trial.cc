#include "brigade/examples/gpt/trial.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/buffer.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/nn/dropout.h"
#include "brigade/nn/texts.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/schedule.h"
#include "brigade/train/times/pass_times.h"
#include "brigade/zero/step.h"

namespace brigade::gpt {
namespace {

using device::Purpose;

// Untuned.
constexpr int kPasses = 6;

// The stages of a model of one block.
enum Stage : uint8_t { kEmbeddingStage, kBlockStage, kHeadStage, kStages };

// Weights and gradients that no optimizer has. Values are as at the begin of a training, because
// what they are changes the time of some layers, and of products on some devices; but of large
// parameters they repeat.
class TrialParameters final : public zero::ParameterSource {
 public:
  static absl::StatusOr<std::unique_ptr<TrialParameters>> Create(const PassShape& shape,
                                                                 device::Context& context,
                                                                 device::Stream& stream) {
    const precision::DType dtype = shape.dtype;
    std::unique_ptr<TrialParameters> trial(new TrialParameters(dtype));
    for (const zero::UnitSpec& unit : SpecOf(shape.model, shape.shards())) {
      for (const zero::ParameterSpec& parameter : unit.parameters) {
        const int64_t bytes = parameter.size * precision::SizeOf(dtype);
        BRIGADE_ASSIGN_OR_RETURN(
            auto weights, context.Allocate(bytes, Purpose::kParameters, "weights of the trial"));
        BRIGADE_ASSIGN_OR_RETURN(
            auto gradients, context.Allocate(bytes, Purpose::kGradients, "gradients of the trial"));
        BRIGADE_RETURN_IF_ERROR(Fill(shape, static_cast<int>(trial->weights_.size()),
                                     parameter.size, static_cast<char*>(weights.data()), stream));
        trial->weights_.push_back(std::move(weights));
        trial->gradients_.push_back(std::move(gradients));
      }
    }
    return trial;
  }

  absl::Status Acquire(int, zero::Pass) override { return absl::OkStatus(); }
  absl::Status Release(int) override { return absl::OkStatus(); }
  absl::StatusOr<const void*> Weights(int parameter) const override {
    return weights_[static_cast<size_t>(parameter)].data();
  }
  precision::DType TypeOf(int) const override { return dtype_; }
  absl::StatusOr<zero::GradientTarget> Gradient(int unit, int parameter) override {
    // The head has written that of the tokens.
    return zero::GradientTarget{gradients_[static_cast<size_t>(parameter)].data(),
                                unit == kEmbeddingStage && parameter == kTokens};
  }
  absl::Status GradientsReady(int) override { return absl::OkStatus(); }

 private:
  explicit TrialParameters(precision::DType dtype) : dtype_(dtype) {}

  static absl::Status Fill(const PassShape& shape, int parameter, int64_t size, char* weights,
                           device::Stream& stream) {
    constexpr int64_t kMostDifferent = 1 << 20;
    std::vector<float> values(static_cast<size_t>(std::min(size, kMostDifferent)));
    InitializeParameter(shape.model, parameter, /*seed=*/1, shape.shards(), absl::MakeSpan(values));
    absl::Status status;
    const auto copy = [&](auto tag) {
      using T = decltype(tag);
      const std::vector<T> narrow(values.begin(), values.end());
      const auto count = static_cast<int64_t>(narrow.size());
      for (int64_t at = 0; at < size; at += count) {
        status.Update(stream.Copy(weights + at * int64_t{sizeof(T)}, narrow.data(),
                                  std::min(count, size - at) * int64_t{sizeof(T)}));
      }
      status.Update(stream.Synchronize());
    };
    if (!precision::VisitFloat(shape.dtype, copy)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a trial in ", std::string(precision::ShortName(shape.dtype))));
    }
    return status;
  }

  const precision::DType dtype_;
  // [parameter].
  std::vector<device::Buffer> weights_, gradients_;
};

// What passes read beside the weights, and write beside their gradients: in device memory.
class TrialBatch {
 public:
  static absl::StatusOr<std::unique_ptr<TrialBatch>> Create(const train::Job& job,
                                                            const Corpus& corpus,
                                                            const PassShape& shape,
                                                            device::Context& context,
                                                            device::Stream& stream) {
    const int64_t batch = shape.batch, pieces = std::ssize(shape.runs());
    const int64_t length = shape.positions() + pieces;
    std::unique_ptr<TrialBatch> trial(new TrialBatch);
    BRIGADE_ASSIGN_OR_RETURN(trial->texts_bytes_,
                             context.Allocate(batch * length, Purpose::kActivations, "texts"));
    BRIGADE_ASSIGN_OR_RETURN(trial->losses_, context.Allocate(shape.rows() * int64_t{sizeof(float)},
                                                              Purpose::kActivations, "losses"));
    BRIGADE_ASSIGN_OR_RETURN(trial->seed_,
                             context.Allocate(sizeof(float), Purpose::kScratch, "loss scale"));
    BRIGADE_ASSIGN_OR_RETURN(trial->step_,
                             context.Allocate(sizeof(int64_t), Purpose::kScratch, "step"));
    std::vector<uint8_t> texts(static_cast<size_t>(batch * length));
    for (int64_t i = 0; i < batch; ++i) {
      SampleText(corpus, job.seed, /*step=*/0, /*sample=*/i,
                 absl::MakeSpan(texts).subspan(static_cast<size_t>(i * length),
                                               static_cast<size_t>(length)));
    }
    const optim::LossScaler& scaler = job.config.zero.loss_scaler;
    const float seed =
        scaler.dynamic() ? std::ldexp(1.0f, scaler.initial_scale_power) : scaler.loss_scale;
    BRIGADE_RETURN_IF_ERROR(stream.Copy(trial->texts_bytes_.data(), texts.data(), batch * length));
    BRIGADE_RETURN_IF_ERROR(stream.Copy(trial->seed_.data(), &seed, sizeof(seed)));
    BRIGADE_RETURN_IF_ERROR(stream.FillBytes(trial->step_.data(), 0, sizeof(int64_t)));
    BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
    trial->texts_ = {trial->texts_bytes_.as<uint8_t>().data(), batch, shape.positions(), pieces};
    trial->dropout_ = {.probability = job.config.dropout,
                       .seed = job.seed,
                       .step = trial->step_.as<int64_t>().data()};
    return trial;
  }

  absl::Status Pass(Transformer& transformer, zero::ParameterSource& parameters,
                    device::Stream& stream) {
    BRIGADE_RETURN_IF_ERROR(
        transformer.Forward({}, texts_, losses_.data(), dropout_, parameters, stream));
    BRIGADE_RETURN_IF_ERROR(
        transformer.Backward({}, texts_, seed_.as<float>().data(), dropout_, parameters, stream));
    return stream.Synchronize();
  }

 private:
  TrialBatch() = default;

  device::Buffer texts_bytes_, losses_, seed_, step_;
  nn::Texts texts_;
  nn::DropoutMask dropout_;
};

// 0 of none.
double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

absl::StatusOr<PassCosts> MeasurePasses(const train::Job& job, const Corpus& corpus,
                                        const PassShape& shape, const PassGroups& groups,
                                        device::Context& context, device::Stream& compute,
                                        train::Recorder& recorder) {
  PassShape one_block = shape;
  one_block.model.layers = 1;
  BRIGADE_ASSIGN_OR_RETURN(auto parameters, TrialParameters::Create(one_block, context, compute));
  BRIGADE_ASSIGN_OR_RETURN(auto trial,
                           TrialBatch::Create(job, corpus, one_block, context, compute));
  const recompute::Chain chain = ActivationChain(one_block);
  // Of each pass that counts its seconds, without what is made again; and its parts in units of
  // them, because what else the machine does meanwhile slows all parts down.
  std::vector<double> seconds, parts[kStages][train::kPassParts];
  for (const int option : {kSaveAttention, kSaveMiddle}) {
    BRIGADE_ASSIGN_OR_RETURN(const recompute::Plan plan,
                             recompute::PlanSelective(chain, {0, option, 0}));
    BRIGADE_ASSIGN_OR_RETURN(auto schedule, recompute::Place(chain, plan));
    BRIGADE_ASSIGN_OR_RETURN(
        auto transformer,
        Transformer::Create(one_block, PartPlan::Whole(one_block.model, std::move(schedule)),
                            context, groups));
    BRIGADE_RETURN_IF_ERROR(trial->Pass(*transformer, *parameters, compute));
    for (int pass = 0; pass < kPasses; ++pass) {
      recorder.Begin(context.name());
      const absl::Status status = trial->Pass(*transformer, *parameters, compute);
      const train::Recording recording = recorder.End(context.name());
      BRIGADE_RETURN_IF_ERROR(status);
      if (recording.stages.size() != kStages || recording.time.dropped > 0) {
        return absl::FailedPreconditionError("the recorder has not seen the passes of the trial");
      }
      train::PassSeconds all;
      for (const train::PassSeconds& stage : recording.stages) all += stage;
      seconds.push_back(all.once());
      for (size_t stage = 0; stage < kStages; ++stage) {
        for (size_t part = 0; part < train::kPassParts; ++part) {
          const double taken = recording.stages[stage].parts[part];
          if (taken > 0) parts[stage][part].push_back(taken / all.once());
        }
      }
    }
  }
  const double unit = Median(std::move(seconds));
  const auto cost = [&](Stage stage, train::PassPart part) {
    return unit * Median(std::move(parts[stage][static_cast<size_t>(part)]));
  };
  const auto costs = [&](Stage stage) -> StageTimes {
    return {cost(stage, train::PassPart::kForward), cost(stage, train::PassPart::kBackward)};
  };
  return PassCosts{.embedding = costs(kEmbeddingStage),
                   .block = costs(kBlockStage),
                   .head = costs(kHeadStage),
                   .pointwise = cost(kBlockStage, train::PassPart::kRecomputePointwise),
                   .middle = cost(kBlockStage, train::PassPart::kRecomputeMiddle),
                   .qkv = cost(kBlockStage, train::PassPart::kRecomputeQkv),
                   .expanded = cost(kBlockStage, train::PassPart::kRecomputeExpanded),
                   .attention = cost(kBlockStage, train::PassPart::kRecomputeAttention)};
}

absl::StatusOr<PassCosts> AgreeOnCosts(const PassCosts& mine,
                                       collectives::Communicator& communicator) {
  static_assert(std::is_trivially_copyable_v<PassCosts>);
  const std::string bytes(reinterpret_cast<const char*>(&mine), sizeof(PassCosts));
  BRIGADE_ASSIGN_OR_RETURN(const auto all, collectives::AllGatherBytes(bytes, communicator));
  PassCosts first;
  std::memcpy(&first, all[0].data(), sizeof(first));
  return first;
}

}  // namespace brigade::gpt
