// A file of digests that is written, and read again.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/digests/digest_file.h"

int main() {
  namespace digests = brigade::digests;
  char folder[] = "/tmp/brigade_consumer_XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string path = std::string(folder) + "/digests";
  digests::DigestHeader header = {.tensors = {{}}, .run = "one rank"};
  header.tensors[0].name = "weight";
  const auto file = digests::DigestFile::Create(path, header, 0);
  if (!file.ok()) return 1;
  const digests::StepRecord record = {.step = 1, .gradients = {{}}, .weights = {{}}};
  const absl::Status written = (*file)->Write(record);
  const absl::StatusOr<digests::DigestLog> log = digests::ReadDigests(path);
  std::remove(path.c_str());
  rmdir(folder);
  std::printf("%s; %s\n", written.ToString().c_str(), log.status().ToString().c_str());
  return written.ok() && log.ok() && log->header.run == "one rank" && log->steps.size() == 1 &&
                 log->steps[0].step == 1
             ? 0
             : 1;
}
