// The header of a safetensors file, made and read.
#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "brigade/checkpoint/safetensors.h"

int main() {
  namespace checkpoint = brigade::checkpoint;
  const absl::StatusOr<std::string> header =
      checkpoint::MakeHeader({{.name = "w", .type = "F32", .shape = {2}, .begin = 0, .end = 8}});
  if (!header.ok()) return 1;
  const absl::StatusOr<checkpoint::SafetensorsHeader> read =
      checkpoint::ParseHeader(header->substr(8), header->size() + 8);
  std::printf("%s\n", read.status().ToString().c_str());
  return read.ok() && read->tensors.size() == 1 && read->tensors[0].name == "w" ? 0 : 1;
}
