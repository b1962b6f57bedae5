// reference_peer save FOLDER: saves the toy model as FOLDER/in_place/step-00000003, and in pieces
// as FOLDER/in_pieces/step-00000003, with FOLDER/expected, a line for each array of each parameter.
// reference_peer read PATH: a line for each tensor of weights.
//
// A line: a file's prefix or "-", the name, the type, the shape as 2x3, the bytes in hexadecimal.

#include <cstdio>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/checkpoint/saved_toy.h"

namespace brigade::checkpoint {
namespace {

template <typename Shape>
void Print(FILE* to, const std::string& prefix, const std::string& name, const std::string& type,
           const Shape& shape, const std::string& bytes) {
  std::fprintf(to, "%s\t%s\t%s\t%s\t%s\n", prefix.c_str(), name.c_str(), type.c_str(),
               absl::StrJoin(shape, "x").c_str(), absl::BytesToHexString(bytes).c_str());
}

int Save(const std::string& folder) {
  device::SystemCalls& real = device::SystemCalls::Real();
  testing::SaveToy(real, absl::StrCat(folder, "/in_pieces"), WriteMode::kPieceFiles);
  const testing::ToyArrays arrays =
      testing::SaveToy(real, absl::StrCat(folder, "/in_place"), WriteMode::kInPlace);
  FILE* const to = std::fopen(absl::StrCat(folder, "/expected").c_str(), "w");
  if (to == nullptr) return 1;
  for (size_t a = 0; a < arrays.size(); ++a) {
    size_t p = 0;
    for (const zero::UnitSpec& unit : testing::ToyWithShapes()) {
      for (const zero::ParameterSpec& spec : unit.parameters) {
        const std::vector<float>& values = arrays[a][p++];
        if (a > 0 && !spec.trainable) continue;
        std::string bytes;
        for (const float value : values) {
          const precision::Half half(value);
          bytes.append(spec.trainable ? reinterpret_cast<const char*>(&value)
                                      : reinterpret_cast<const char*>(&half),
                       spec.trainable ? sizeof(value) : sizeof(half));
        }
        Print(to, a == 0 ? "master" : absl::StrCat("moment", a), spec.name,
              spec.trainable ? "F32" : "F16",
              spec.shape.empty() ? std::vector<int64_t>{spec.size} : spec.shape, bytes);
      }
    }
  }
  return std::fclose(to) == 0 ? 0 : 1;
}

int Read(const std::string& path) {
  const auto weights = WeightFiles::Open(path);
  if (!weights.ok()) {
    std::fprintf(stderr, "%s\n", weights.status().ToString().c_str());
    return 1;
  }
  for (const WeightFiles::Tensor& tensor : weights->tensors()) {
    std::string bytes(static_cast<size_t>(tensor.bytes), '\0');
    if (!weights->Read(tensor, 0, tensor.bytes, bytes.data()).ok()) return 1;
    Print(stdout, "-", tensor.name, tensor.type, tensor.shape, bytes);
  }
  return 0;
}

}  // namespace
}  // namespace brigade::checkpoint

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string command = argv[1];
  return command == "save" ? brigade::checkpoint::Save(argv[2])
                           : brigade::checkpoint::Read(argv[2]);
}
