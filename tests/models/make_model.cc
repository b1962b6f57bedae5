// Makes a tiny Llama with random weights, as Hugging Face's files.

#include <cstdint>
#include <string>

#include "absl/flags/flag.h"
#include "brigade/device/command_line.h"
#include "brigade/models/weights.h"
#include "brigade/tests/models/lab.h"

ABSL_FLAG(std::string, out, "", "The folder that is made.");
ABSL_FLAG(int64_t, vocabulary, 256, "Tokens of the model.");
ABSL_FLAG(int64_t, positions, 256, "The longest text.");

namespace brigade::models {
namespace {

absl::Status Run() {
  DecoderConfig config = TinyLlama();
  config.vocabulary = absl::GetFlag(FLAGS_vocabulary);
  config.positions = absl::GetFlag(FLAGS_positions);
  config.rotary_scaling.reset();
  ModelLab lab(config, {.dtype = precision::DType::kFloat32, .trains = false}, device::Cpu());
  lab.Initialize(7, 20);
  return SaveWeights(absl::GetFlag(FLAGS_out), lab.model(), lab.arrays(), lab.context());
}

}  // namespace
}  // namespace brigade::models

int main(int argc, char** argv) {
  return brigade::device::RunProgram(argc, argv, "Makes a tiny Llama with random weights.",
                                     brigade::models::Run);
}
