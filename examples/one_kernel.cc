// One kernel: AdamW steps on a thousand parameters.
//
// Minimises (p - 3)^2 / 2, whose gradient is p - 3. Runs on the CPU; device::Cuda(0) in place of
// device::Cpu() runs the same program on a GPU.

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/adam/adam.h"

namespace {

namespace device = brigade::device;
namespace kernels = brigade::kernels;

constexpr char kHelp[] =
    "usage: one_kernel\nTakes 200 steps of AdamW on a thousand parameters, on the CPU.\n";
constexpr int64_t kSize = 1000;
constexpr int64_t kBytes = kSize * sizeof(float);

absl::Status Train() {
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create({.device = device::Cpu()}));
  const auto allocate = [&](device::Purpose purpose) { return context->Allocate(kBytes, purpose); };
  BRIGADE_ASSIGN_OR_RETURN(auto param, allocate(device::Purpose::kParameters));
  BRIGADE_ASSIGN_OR_RETURN(auto grad, allocate(device::Purpose::kGradients));
  BRIGADE_ASSIGN_OR_RETURN(auto m, allocate(device::Purpose::kOptimizerState));
  BRIGADE_ASSIGN_OR_RETURN(auto v, allocate(device::Purpose::kOptimizerState));
  std::vector<float> host(kSize);
  // After the memory that its work uses: when a function ends, the stream does before the memory.
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context->CreateStream("compute"));
  for (const auto* buffer : {&param, &m, &v}) {
    BRIGADE_RETURN_IF_ERROR(stream->FillBytes(buffer->data(), 0, kBytes));
  }

  const kernels::AdamGroup group = {.beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.0};
  const kernels::AdamSegment segment = {.param = param.as<float>().data(),
                                        .m = m.as<float>().data(),
                                        .v = v.as<float>().data(),
                                        .grad = grad.data(),
                                        .param_copy = nullptr,
                                        .size = kSize,
                                        .group = 0};
  for (int64_t step = 1; step <= 200; ++step) {
    // A model would compute the gradient on the device.
    BRIGADE_RETURN_IF_ERROR(stream->Copy(host.data(), param.data(), kBytes));
    BRIGADE_RETURN_IF_ERROR(stream->Synchronize());
    for (float& value : host) value -= 3.0f;
    BRIGADE_RETURN_IF_ERROR(stream->Copy(grad.data(), host.data(), kBytes));

    const float learning_rate = 0.1f;
    kernels::AdamOptions options;
    options.groups = {&group, 1};
    options.one_step = {.step = step, .lr = &learning_rate};
    BRIGADE_RETURN_IF_ERROR(kernels::Adam({&segment, 1}, options, *stream));
  }
  BRIGADE_RETURN_IF_ERROR(stream->Copy(host.data(), param.data(), kBytes));
  BRIGADE_RETURN_IF_ERROR(stream->Synchronize());
  std::printf("after 200 steps of AdamW parameter 0 is %.3f, and 3 is the minimum\n", host[0]);
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
