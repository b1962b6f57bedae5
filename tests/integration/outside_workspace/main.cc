// One AdamW step from another workspace: gradients of +1 and -1 move every parameter by the
// learning rate, because the first step's bias corrections cancel the moments' decay.
#include "brigade/kernels/adam/adam.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/context.h"

namespace {

using brigade::device::Buffer;
using brigade::device::Context;
using brigade::device::Purpose;
using brigade::device::Stream;

constexpr int64_t kSize = 1000;
constexpr float kLearningRate = 0.125f;

template <typename T>
absl::StatusOr<Buffer> ToDevice(const std::vector<T>& host, Context& context, Stream& stream) {
  const int64_t bytes = static_cast<int64_t>(host.size() * sizeof(T));
  absl::StatusOr<Buffer> buffer = context.Allocate(bytes, Purpose::kScratch);
  if (!buffer.ok()) return buffer;
  if (absl::Status copied = stream.Copy(buffer->data(), host.data(), bytes); !copied.ok()) {
    return copied;
  }
  return buffer;
}

absl::StatusOr<std::vector<float>> OneStep(const std::vector<float>& gradients) {
  absl::StatusOr<std::unique_ptr<Context>> context = Context::Create({});
  if (!context.ok()) return context.status();
  absl::StatusOr<std::unique_ptr<Stream>> stream = (*context)->CreateStream("compute");
  if (!stream.ok()) return stream.status();

  brigade::kernels::AdamGroup group;
  const std::vector<brigade::kernels::StepState> state = {{.step = 1, .grad_multiplier = 1.0f}};
  const std::vector<brigade::kernels::GroupStep> group_steps = {
      {.lr = kLearningRate,
       .step_size = static_cast<float>(kLearningRate / (1 - group.beta1)),
       .inv_sqrt_correction = static_cast<float>(1 / std::sqrt(1 - group.beta2))}};

  const std::vector<float> ones(kSize, 1.0f);
  const std::vector<float> zeros(kSize, 0.0f);
  absl::StatusOr<Buffer> param = ToDevice(ones, **context, **stream);
  absl::StatusOr<Buffer> m = ToDevice(zeros, **context, **stream);
  absl::StatusOr<Buffer> v = ToDevice(zeros, **context, **stream);
  absl::StatusOr<Buffer> grad = ToDevice(gradients, **context, **stream);
  absl::StatusOr<Buffer> device_state = ToDevice(state, **context, **stream);
  absl::StatusOr<Buffer> device_steps = ToDevice(group_steps, **context, **stream);
  for (const auto* buffer : {&param, &m, &v, &grad, &device_state, &device_steps}) {
    if (!buffer->ok()) return buffer->status();
  }

  const brigade::kernels::AdamSegment segment = {.param = param->as<float>().data(),
                                                 .m = m->as<float>().data(),
                                                 .v = v->as<float>().data(),
                                                 .grad = grad->data(),
                                                 .param_copy = nullptr,
                                                 .size = kSize,
                                                 .group = 0};
  brigade::kernels::AdamOptions options;
  options.groups = {&group, 1};
  options.state = device_state->as<brigade::kernels::StepState>().data();
  options.group_steps = device_steps->as<brigade::kernels::GroupStep>().data();
  if (absl::Status status = brigade::kernels::Adam({&segment, 1}, options, **stream);
      !status.ok()) {
    return status;
  }

  std::vector<float> result(kSize);
  if (absl::Status status = (*stream)->Copy(result.data(), param->data(), param->bytes());
      !status.ok()) {
    return status;
  }
  if (absl::Status status = (*stream)->Synchronize(); !status.ok()) return status;
  return result;
}

}  // namespace

int main() {
  std::vector<float> gradients(kSize);
  for (int64_t i = 0; i < kSize; ++i) gradients[i] = i % 2 == 0 ? 1.0f : -1.0f;
  const absl::StatusOr<std::vector<float>> result = OneStep(gradients);
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  for (int64_t i = 0; i < kSize; ++i) {
    const float expected = 1.0f - kLearningRate * gradients[i];
    if (std::fabs((*result)[i] - expected) > 1e-6f) {
      std::fprintf(stderr, "parameter %d is %.9g, expected %.9g\n", static_cast<int>(i),
                   (*result)[i], expected);
      return 1;
    }
  }
  std::puts("one AdamW step from an outside workspace: ok");
}
