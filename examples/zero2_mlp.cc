// ZeRO-2 on a small multilayer perceptron: two linear layers with a ReLU between them, mean squared
// error, AdamW in fp32, ten epochs over a data set. Two ranks, threads of this process; each takes
// half of every batch, whose loss rank 0 prints, and keeps half of the optimizer state.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/linear.h"
#include "brigade/zero/zero_optimizer.h"

namespace {

namespace collectives = brigade::collectives;
namespace device = brigade::device;
namespace nn = brigade::nn;
namespace zero = brigade::zero;
using brigade::precision::DType;
using zero::Pass;

constexpr int kRanks = 2;
constexpr int kInputs = 4, kHidden = 64;
constexpr int kSamples = 1024, kRowsOfRank = 32, kEpochs = 10;
constexpr int64_t kFloat = sizeof(float);

// Units of the model, and its parameters.
enum { kFirst, kSecond };
enum { kFirstWeight, kFirstBias, kSecondWeight, kSecondBias };
const zero::ModelSpec kModel = {
    {"first", {{"first.weight", kHidden* kInputs}, {"first.bias", kHidden}}, {}},
    {"second", {{"second.weight", kHidden}, {"second.bias", 1}}, {}}};

// Samples x [kSamples, kInputs] of the function that is learnt, y [kSamples].
struct Data {
  std::vector<float> x, y;

  Data() : x(kSamples * kInputs), y(kSamples) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (float& value : x) value = uniform(random);
    for (int i = 0; i < kSamples; ++i) {
      const float* const row = &x[i * kInputs];
      y[i] = row[0] * row[1] + std::sin(2.0f * row[2]) - row[3];
    }
  }
};

// One rank: its layers, its batch and its optimizer.
class Trainer {
 public:
  Trainer(device::Context& context, collectives::Communicator& communicator)
      : context_(context), communicator_(communicator) {}

  absl::Status Create() {
    BRIGADE_ASSIGN_OR_RETURN(stream_, context_.CreateStream("compute"));
    zero::ZeroOptions options;
    options.stage = 2;
    options.dtype = DType::kFloat32;
    options.optimizer.groups = {{.lr = 3e-3, .weight_decay = 1e-4}};
    options.max_grad_norm = 1.0;
    BRIGADE_ASSIGN_OR_RETURN(
        zero_, zero::ZeroOptimizer::Create(kModel, options, communicator_, context_, *stream_));
    BRIGADE_ASSIGN_OR_RETURN(blas_, nn::Blas::Create(context_, /*workspace_bytes=*/0));
    BRIGADE_ASSIGN_OR_RETURN(
        auto workspace,
        nn::Workspace::Create(context_, DType::kFloat32, {.rows = kRowsOfRank, .sums = kHidden}));
    workspace_ = std::move(workspace);
    std::mt19937 random(2);
    return zero_->InitializeParameters([&](int parameter, absl::Span<float> values) {
      const float bound = 1.0f / std::sqrt(parameter < kSecondWeight ? kInputs : kHidden);
      std::uniform_real_distribution<float> uniform(-bound, bound);
      for (float& value : values) value = uniform(random);
      return absl::OkStatus();
    });
  }

  // One step on the samples that `order` names from `begin` on; adds to `loss_`.
  absl::Status Step(const Data& data, const int* order) {
    BRIGADE_RETURN_IF_ERROR(TakeBatch(data, order));
    BRIGADE_RETURN_IF_ERROR(Forward());
    BRIGADE_RETURN_IF_ERROR(Loss());
    BRIGADE_RETURN_IF_ERROR(Backward());
    return zero_->Step();
  }

  // Of all steps since the last call; waits for them.
  absl::StatusOr<float> MeanLoss() {
    BRIGADE_RETURN_IF_ERROR(communicator_.Synchronize(*stream_));
    return std::exchange(loss_, 0.0f) / static_cast<float>(std::exchange(steps_, 0));
  }

 private:
  absl::Status TakeBatch(const Data& data, const int* order) {
    return stream_->Enqueue(
        {"batch", {device::Writes(x_, sizeof(x_)), device::Writes(target_, sizeof(target_))}},
        [this, &data, order](device::ThreadPool&) {
          for (int i = 0; i < kRowsOfRank; ++i) {
            std::copy_n(&data.x[order[i] * kInputs], kInputs, &x_[i * kInputs]);
            target_[i] = data.y[order[i]];
          }
          return absl::OkStatus();
        });
  }

  nn::LinearInput First(const float* weight) const {
    return {DType::kFloat32, x_, weight, kRowsOfRank, kInputs, kHidden};
  }
  nn::LinearInput Second(const float* weight) const {
    return {DType::kFloat32, hidden_, weight, kRowsOfRank, kHidden, 1};
  }

  absl::Status Forward() {
    zero::UnitScope first(*zero_, kFirst, Pass::kForward);
    const auto* weight = first.weights<float>(kFirstWeight);
    const auto* bias = first.weights<float>(kFirstBias);
    BRIGADE_RETURN_IF_ERROR(first.status());
    BRIGADE_RETURN_IF_ERROR(nn::Linear(First(weight), bias, hidden_, *blas_, *stream_));
    BRIGADE_RETURN_IF_ERROR(first.Release());

    BRIGADE_RETURN_IF_ERROR(stream_->Enqueue({"relu", {device::Writes(hidden_, sizeof(hidden_))}},
                                             [this](device::ThreadPool&) {
                                               for (float& h : hidden_) h = std::max(h, 0.0f);
                                               return absl::OkStatus();
                                             }));

    zero::UnitScope second(*zero_, kSecond, Pass::kForward);
    weight = second.weights<float>(kSecondWeight);
    bias = second.weights<float>(kSecondBias);
    BRIGADE_RETURN_IF_ERROR(second.status());
    BRIGADE_RETURN_IF_ERROR(nn::Linear(Second(weight), bias, y_, *blas_, *stream_));
    return second.Release();
  }

  // The mean squared error, and its gradient times the loss scale.
  absl::Status Loss() {
    BRIGADE_RETURN_IF_ERROR(zero_->ScaleLoss(&one_, &scale_, 1, DType::kFloat32));
    return stream_->Enqueue(
        {"loss",
         {device::Reads(y_, sizeof(y_)), device::Reads(target_, sizeof(target_)),
          device::Reads(&scale_, kFloat), device::Writes(dy_, sizeof(dy_)),
          device::Writes(&loss_, kFloat)}},
        [this](device::ThreadPool&) {
          float sum = 0.0f;
          for (int i = 0; i < kRowsOfRank; ++i) {
            const float error = y_[i] - target_[i];
            sum += error * error;
            dy_[i] = 2.0f * error / kRowsOfRank * scale_;
          }
          loss_ += sum / kRowsOfRank;
          ++steps_;
          return absl::OkStatus();
        });
  }

  absl::Status Backward() {
    zero::UnitScope second(*zero_, kSecond, Pass::kBackward);
    const auto* weight = second.weights<float>(kSecondWeight);
    auto dweight = second.gradient(kSecondWeight), dbias = second.gradient(kSecondBias);
    BRIGADE_RETURN_IF_ERROR(second.status());
    BRIGADE_RETURN_IF_ERROR(
        nn::LinearBackward(Second(weight), dy_, {dhidden_}, {dweight.data, dweight.accumulate},
                           {dbias.data, dbias.accumulate}, *blas_, *workspace_, *stream_));
    BRIGADE_RETURN_IF_ERROR(second.Release());
    BRIGADE_RETURN_IF_ERROR(zero_->GradientsReady(kSecond));

    BRIGADE_RETURN_IF_ERROR(stream_->Enqueue(
        {"relu backward",
         {device::Reads(hidden_, sizeof(hidden_)), device::Writes(dhidden_, sizeof(dhidden_))}},
        [this](device::ThreadPool&) {
          for (int i = 0; i < kRowsOfRank * kHidden; ++i) {
            if (hidden_[i] == 0.0f) dhidden_[i] = 0.0f;
          }
          return absl::OkStatus();
        }));

    zero::UnitScope first(*zero_, kFirst, Pass::kBackward);
    weight = first.weights<float>(kFirstWeight);
    dweight = first.gradient(kFirstWeight), dbias = first.gradient(kFirstBias);
    BRIGADE_RETURN_IF_ERROR(first.status());
    BRIGADE_RETURN_IF_ERROR(
        nn::LinearBackward(First(weight), dhidden_, {}, {dweight.data, dweight.accumulate},
                           {dbias.data, dbias.accumulate}, *blas_, *workspace_, *stream_));
    BRIGADE_RETURN_IF_ERROR(first.Release());
    BRIGADE_RETURN_IF_ERROR(zero_->GradientsReady(kFirst));
    return zero_->FinishBackward();
  }

  device::Context& context_;
  collectives::Communicator& communicator_;
  float x_[kRowsOfRank * kInputs], hidden_[kRowsOfRank * kHidden], y_[kRowsOfRank];
  float target_[kRowsOfRank], dy_[kRowsOfRank], dhidden_[kRowsOfRank * kHidden];
  float one_ = 1.0f, scale_ = 0.0f, loss_ = 0.0f;
  int steps_ = 0;
  std::unique_ptr<nn::Blas> blas_;
  std::optional<nn::Workspace> workspace_;
  // After the memory that its work uses: it ends before the memory does.
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<zero::ZeroOptimizer> zero_;
};

absl::Status RunRank(int rank, collectives::ThreadGroup& group, const Data& data) {
  // The same order on all ranks; each takes its part of a batch.
  std::vector<int> order(kSamples);
  std::iota(order.begin(), order.end(), 0);
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create({.compute_threads = 1}));
  BRIGADE_ASSIGN_OR_RETURN(auto engine, group.Join(rank, *context));
  BRIGADE_ASSIGN_OR_RETURN(auto communicator,
                           collectives::Communicator::Create(std::move(engine), *context));
  Trainer trainer(*context, *communicator);
  BRIGADE_RETURN_IF_ERROR(trainer.Create());

  std::mt19937 random(3);
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random);
    for (int begin = rank * kRowsOfRank; begin < kSamples; begin += kRanks * kRowsOfRank) {
      BRIGADE_RETURN_IF_ERROR(trainer.Step(data, &order[begin]));
    }
    BRIGADE_ASSIGN_OR_RETURN(const float loss, trainer.MeanLoss());
    if (rank == 0) std::printf("epoch %2d: mean squared error %.4f\n", epoch, loss);
  }
  return absl::OkStatus();
}

absl::Status Run() {
  const Data data;
  BRIGADE_ASSIGN_OR_RETURN(auto group, collectives::ThreadGroup::Create({.size = kRanks}));
  std::vector<absl::Status> statuses(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { statuses[rank] = RunRank(rank, *group, data); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& status : statuses) BRIGADE_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
