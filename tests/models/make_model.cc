// make_model FOLDER VOCABULARY: a tiny Llama with random weights, as Hugging Face's files.

#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "brigade/models/weights.h"
#include "brigade/tests/models/lab.h"

namespace brigade::models {
namespace {

int Make(const char* folder, int64_t vocabulary) {
  DecoderConfig config = TinyLlama();
  config.vocabulary = vocabulary;
  config.positions = 256;
  // The reference rounds a table of its own.
  config.rotary_scaling.reset();
  ModelLab lab(config, {.dtype = precision::DType::kFloat32, .trains = false}, device::Cpu());
  lab.Initialize(7, 20);
  const absl::Status saved = SaveWeights(folder, lab.model(), lab.arrays(), lab.context());
  if (saved.ok()) return 0;
  std::fprintf(stderr, "%s\n", saved.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace brigade::models

int main(int argc, char** argv) {
  int64_t vocabulary = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[2], &vocabulary)) return 2;
  return brigade::models::Make(argv[1], vocabulary);
}
