// ZeRO-2 on a small multilayer perceptron: two linear layers with a ReLU between them, mean squared
// error, AdamW in fp32, ten epochs over a data set. Two ranks, threads of this process: each takes
// half of every batch and keeps half of the optimizer state. Rank 0 prints the loss of its half.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
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

constexpr char kHelp[] = "usage: zero2_mlp\nTrains two layers with ZeRO-2 on two ranks.\n";
constexpr int kRanks = 2, kRows = 32, kSamples = 1024, kEpochs = 10, kSteps = kSamples / 64;
// Layer l has kWidths[l] inputs; it is unit l, of the parameters 2 l (weight) and 2 l + 1 (bias).
constexpr int kLayers = 2, kWidest = 64, kWidths[kLayers + 1] = {4, kWidest, 1};
using Array = float[kRows * kWidest];
const zero::ModelSpec kModel = {{"first", {{"first.weight", 64 * 4}, {"first.bias", 64}}, {}},
                                {"second", {{"second.weight", 64}, {"second.bias", 1}}, {}}};

// ReLU, where `to` is `of`, and its backward pass from the ReLU's result.
absl::Status Relu(const Array& of, Array& to, device::Stream& stream) {
  return stream.Enqueue({"relu", {device::Reads(of, sizeof(of)), device::Writes(to, sizeof(to))}},
                        [&](device::ThreadPool&) {
                          for (int i = 0; i < kRows * kWidest; ++i) to[i] *= of[i] > 0.0f;
                          return absl::OkStatus();
                        });
}

absl::Status RunRank(int rank, collectives::ThreadGroup& group) {
  // The inputs of layer l and their gradients; behind the last layer, its outputs.
  Array x[kLayers + 1] = {}, dx[kLayers + 1] = {};
  float data[kSamples][kWidths[0]], error[kRows] = {}, loss = 0.0f;
  std::mt19937 random(1);  // the same data on both ranks
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (auto& sample : data) std::generate_n(sample, kWidths[0], [&] { return uniform(random); });

  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create({.compute_threads = 1}));
  BRIGADE_ASSIGN_OR_RETURN(auto blas, nn::Blas::Create(*context, /*workspace_bytes=*/0));
  BRIGADE_ASSIGN_OR_RETURN(auto memory,
                           nn::Workspace::Create(*context, DType::kFloat32, {kRows, kWidest}));
  // After the memory that its work uses: when a function ends, the stream does before the memory.
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context->CreateStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(auto engine, group.Join(rank, *context));
  BRIGADE_ASSIGN_OR_RETURN(auto communicator,
                           collectives::Communicator::Create(std::move(engine), *context));
  zero::ZeroOptions options;
  options.stage = 2;
  options.dtype = DType::kFloat32;
  options.optimizer.groups = {{.lr = 3e-3, .weight_decay = 1e-4}};
  BRIGADE_ASSIGN_OR_RETURN(auto optimizer, zero::ZeroOptimizer::Create(
                                               kModel, options, *communicator, *context, *stream));
  BRIGADE_RETURN_IF_ERROR(optimizer->InitializeParameters([&](int p, absl::Span<float> values) {
    for (float& value : values) value = uniform(random) / std::sqrt(kWidths[p / 2]);
    return absl::OkStatus();
  }));

  for (int step = 0; step < kEpochs * kSteps; ++step) {
    const auto* const batch = data[(step % kSteps * kRanks + rank) * kRows];
    BRIGADE_RETURN_IF_ERROR(stream->Copy(x[0], batch, sizeof(data) / kSamples * kRows));
    for (int l = 0; l < kLayers; ++l) {
      zero::UnitScope layer(*optimizer, l, zero::Pass::kForward);
      const auto *weight = layer.weights<float>(2 * l), *bias = layer.weights<float>(2 * l + 1);
      BRIGADE_RETURN_IF_ERROR(layer.status());
      BRIGADE_RETURN_IF_ERROR(
          nn::Linear({DType::kFloat32, x[l], weight, kRows, kWidths[l], kWidths[l + 1]}, bias,
                     x[l + 1], *blas, *stream));
      BRIGADE_RETURN_IF_ERROR(layer.Release());
      if (l + 1 < kLayers) BRIGADE_RETURN_IF_ERROR(Relu(x[l + 1], x[l + 1], *stream));
    }
    BRIGADE_RETURN_IF_ERROR(stream->Enqueue(
        {"mean squared error",
         {device::Reads(x, sizeof(x)), device::Writes(error, sizeof(error)),
          device::Writes(&loss, sizeof(loss))}},
        [&](device::ThreadPool&) {
          for (int i = 0; i < kRows; ++i) {
            const float* const in = &x[0][i * kWidths[0]];
            error[i] = x[kLayers][i] - (in[0] * in[1] + std::sin(2.0f * in[2]) - in[3]);
            loss += error[i] * error[i];
            error[i] *= 2.0f / kRows;
          }
          return absl::OkStatus();
        }));
    // Times the loss scale, which the device knows.
    BRIGADE_RETURN_IF_ERROR(optimizer->ScaleLoss(error, dx[kLayers], kRows, DType::kFloat32));
    for (int l = kLayers - 1; l >= 0; --l) {
      zero::UnitScope layer(*optimizer, l, zero::Pass::kBackward);
      const auto* weight = layer.weights<float>(2 * l);
      const auto dweight = layer.gradient(2 * l), dbias = layer.gradient(2 * l + 1);
      BRIGADE_RETURN_IF_ERROR(layer.status());
      BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(
          {DType::kFloat32, x[l], weight, kRows, kWidths[l], kWidths[l + 1]}, dx[l + 1],
          {l > 0 ? dx[l] : nullptr}, {dweight.data, dweight.accumulate},
          {dbias.data, dbias.accumulate}, *blas, memory, *stream));
      BRIGADE_RETURN_IF_ERROR(layer.Release());
      BRIGADE_RETURN_IF_ERROR(optimizer->GradientsReady(l));
      if (l > 0) BRIGADE_RETURN_IF_ERROR(Relu(x[l], dx[l], *stream));
    }
    BRIGADE_RETURN_IF_ERROR(optimizer->FinishBackward());
    BRIGADE_RETURN_IF_ERROR(optimizer->Step());
    if ((step + 1) % kSteps != 0) continue;
    BRIGADE_RETURN_IF_ERROR(communicator->Synchronize(*stream));
    const float mean = std::exchange(loss, 0.0f) * kRanks / kSamples;
    if (rank == 0) std::printf("epoch %2d: mean squared error %.4f\n", (step + 1) / kSteps, mean);
  }
  return absl::OkStatus();
}

absl::Status Run() {
  BRIGADE_ASSIGN_OR_RETURN(auto group, collectives::ThreadGroup::Create({.size = kRanks}));
  absl::Status first, second;
  std::thread other([&] { second = RunRank(1, *group); });
  first = RunRank(0, *group);
  other.join();
  return first.ok() ? second : first;
}

}  // namespace

int main(int argc, char** argv) {
  const bool help = argc == 2 && std::string_view(argv[1]) == "--help";
  if (argc > 1) std::fputs(kHelp, help ? stdout : stderr);
  if (argc > 1) return help ? 0 : 2;
  const absl::Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
