// The mixed-precision optimizer on tensors of one's own: fp16 weights and gradients, an fp32
// master, a dynamic loss scale, clipping, and a learning rate that warms up. The host waits once,
// at the end.
//
// Fits y = slope x + offset to the line 3 x - 1.5, from two micro-batches a step.

#include <cstdio>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/optim/mixed_precision_optimizer.h"
#include "brigade/precision/float16.h"

namespace {

namespace device = brigade::device;
namespace optim = brigade::optim;
using brigade::precision::DType;
using brigade::precision::Half;

constexpr char kHelp[] =
    "usage: mixed_precision\nFits a line in fp16 with the mixed-precision optimizer.\n";
constexpr int kSteps = 300;
constexpr float kInputs[] = {-1.0f, 2.0f};

absl::Status Train() {
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create({}));
  std::vector<Half> weights = {Half(0.0f), Half(0.0f)};  // slope and offset
  std::vector<Half> grad(2);
  const float one = 1.0f;
  float scaled = 0.0f;
  // After the memory that its work uses: when a function ends, the stream does before the memory.
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context->CreateStream("compute"));

  optim::MixedPrecisionOptions options;
  options.optimizer.groups = {
      {.lr = 0.1,
       .schedule = optim::WarmupCosineLR{.total_num_steps = kSteps, .warmup_num_steps = 10}}};
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.max_grad_norm = 1.0;
  options.micro_batches = 2;
  const optim::ParameterArrays line = {.name = "line",
                                       .weights = weights.data(),
                                       .grad = grad.data(),
                                       .size = 2,
                                       .weight_dtype = DType::kFloat16,
                                       .grad_dtype = DType::kFloat16};
  BRIGADE_ASSIGN_OR_RETURN(auto optimizer, optim::MixedPrecisionOptimizer::Create(
                                               {&line, 1}, options, *context, *stream));

  for (int step = 0; step < kSteps; ++step) {
    for (const float x : kInputs) {
      // What the backward pass begins with: 1 times the scale that the device knows.
      BRIGADE_RETURN_IF_ERROR(optimizer->ScaleLoss(&one, &scaled, 1, DType::kFloat32, *stream));
      BRIGADE_RETURN_IF_ERROR(stream->Enqueue(
          {"forward and backward",
           {device::Reads(weights.data(), 4), device::Reads(&scaled, 4),
            device::Writes(grad.data(), 4)}},
          [&weights, &grad, &scaled, x](device::ThreadPool&) {
            const float y = static_cast<float>(weights[0]) * x + static_cast<float>(weights[1]);
            const float slope = 2.0f * (y - (3.0f * x - 1.5f)) * scaled;  // of the squared error
            grad[0] = Half(slope * x);
            grad[1] = Half(slope);
            return absl::OkStatus();
          }));
      BRIGADE_RETURN_IF_ERROR(optimizer->AccumulateGradients(*stream));
    }
    BRIGADE_RETURN_IF_ERROR(optimizer->Step(*stream));
  }
  BRIGADE_RETURN_IF_ERROR(optimizer->RequestState(*stream));
  BRIGADE_RETURN_IF_ERROR(stream->Synchronize());
  BRIGADE_ASSIGN_OR_RETURN(const auto state, optimizer->TakeState());
  std::printf("slope %.2f, offset %.2f; %d of %d steps skipped, the loss scale is %g\n",
              static_cast<float>(weights[0]), static_cast<float>(weights[1]),
              kSteps - static_cast<int>(state->step), kSteps, state->loss_scale);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const bool help = argc == 2 && std::string_view(argv[1]) == "--help";
  if (argc > 1) std::fputs(kHelp, help ? stdout : stderr);
  if (argc > 1) return help ? 0 : 2;
  const absl::Status status = Train();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
