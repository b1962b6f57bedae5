// Where two trainings differ first: bazel run //tools:first_difference -- a.digests b.digests

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "brigade/device/command_line.h"
#include "brigade/device/counted.h"
#include "brigade/device/status_macros.h"
#include "brigade/digests/digest_file.h"
#include "brigade/digests/first_difference.h"

ABSL_FLAG(std::string, dump_a, "",
          "the folder that the first run has written with --digest_dump, to find the element");
ABSL_FLAG(std::string, dump_b, "", "that of the second run");
ABSL_FLAG(int, most, 8, "elements that are shown, of those that differ");

namespace brigade::digests {
namespace {

constexpr int kAlike = 0, kWrong = 1, kDiffers = 2, kUnknown = 3;
constexpr char kAbout[] =
    "Names the first step, unit, tensor and element at which two trainings differ, from what "
    "--digest has written: first_difference A B. Ends with 0 if they are alike, 2 if they differ, "
    "3 if all steps are alike that both have, but others between them are in one file alone.";

absl::Status ShowElements(const Difference& difference, const DigestLog (&logs)[2],
                          const std::string (&folders)[2]) {
  BRIGADE_ASSIGN_OR_RETURN(const TensorDifference found,
                           CompareDumps(difference, logs, folders, absl::GetFlag(FLAGS_most)));
  const TensorName& tensor = logs[0].header.tensors[static_cast<size_t>(difference.tensor)];
  std::printf("%lld of its %lld elements differ, by %.9g at most:\n",
              static_cast<long long>(found.differing), static_cast<long long>(tensor.size),
              found.largest);
  for (const ElementDifference& each : found.first) {
    std::printf("  [%s]  %.9g (%#x)  against  %.9g (%#x)\n", absl::StrJoin(each.at, ", ").c_str(),
                each.values[0], each.bits[0], each.values[1], each.bits[1]);
  }
  std::printf("Both sides: %s\n            %s\n", found.paths[0].c_str(), found.paths[1].c_str());
  return absl::OkStatus();
}

// Whether the next word is the flag's value: --dump_a FOLDER.
bool TakesTheNextWord(absl::string_view flag) {
  if (absl::StrContains(flag, '=')) return false;
  flag.remove_prefix(absl::StartsWith(flag, "--") ? 2 : 1);
  const absl::CommandLineFlag* const found = absl::FindCommandLineFlag(flag);
  return found != nullptr && !found->IsOfType<bool>();
}

absl::StatusOr<int> Run(const std::vector<std::string>& paths) {
  if (paths.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("two files that --digest has written are compared, not ", paths.size()));
  }
  const std::string folders[2] = {device::FromUsersFolder(absl::GetFlag(FLAGS_dump_a)),
                                  device::FromUsersFolder(absl::GetFlag(FLAGS_dump_b))};
  if (folders[0].empty() != folders[1].empty()) {
    return absl::InvalidArgumentError("--dump_a and --dump_b go together");
  }
  if (absl::GetFlag(FLAGS_most) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--most is ", absl::GetFlag(FLAGS_most), "; it must be at least 1"));
  }
  DigestLog logs[2];
  for (size_t side = 0; side < 2; ++side) {
    BRIGADE_ASSIGN_OR_RETURN(logs[side], ReadDigests(device::FromUsersFolder(paths[side])));
    std::printf("%s: %s\n", paths[side].c_str(), logs[side].header.run.c_str());
  }
  BRIGADE_ASSIGN_OR_RETURN(const Compared compared, FirstDifference(logs[0], logs[1]));
  if (!compared.difference.has_value()) {
    std::printf("Alike in all %lld steps that both have.\n",
                static_cast<long long>(compared.steps));
    if (compared.alone == 0) return kAlike;
    std::printf(
        "%s between them in one file alone: a disk was full, or --digest_every another.\n",
        (device::Counted(compared.alone, "step") + (compared.alone == 1 ? " is" : " are")).c_str());
    return kUnknown;
  }
  const Difference& difference = *compared.difference;
  const auto step = static_cast<long long>(difference.step);
  if (difference.one_skips) {
    std::printf("Step %lld: one of the two skips it, for an overflow; the other does not.\n", step);
  }
  if (difference.tensor >= 0) {
    const TensorName& tensor = logs[0].header.tensors[static_cast<size_t>(difference.tensor)];
    std::printf("Step %lld, unit \"%s\", tensor %s [%s]: other %s.\n", step, tensor.unit.c_str(),
                tensor.name.c_str(), absl::StrJoin(tensor.shape, ", ").c_str(),
                difference.kind.c_str());
    std::printf("%zu of %zu tensors have other %s in this step.\n", difference.tensors.size(),
                logs[0].header.tensors.size(), difference.kind.c_str());
  }
  if (difference.step > difference.alike + 1) {
    std::printf("They may differ since step %lld: run both with --digest_every=1 to know.\n",
                static_cast<long long>(difference.alike) + 1);
  }
  if (difference.tensor >= 0 && folders[0].empty()) {
    std::printf(
        "For the element: run both with --digest_dump=FOLDER --digest_dump_step=%lld, and give the "
        "folders as --dump_a and --dump_b.\n",
        step);
  }
  if (!folders[0].empty()) BRIGADE_RETURN_IF_ERROR(ShowElements(difference, logs, folders));
  return kDiffers;
}

}  // namespace
}  // namespace brigade::digests

int main(int argc, char** argv) {
  using namespace brigade;
  // The words that are no flags are the files.
  std::vector<char*> flags = {argv[0]};
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    if (absl::StartsWith(argv[i], "-")) {
      flags.push_back(argv[i]);
      if (digests::TakesTheNextWord(argv[i]) && i + 1 < argc) flags.push_back(argv[++i]);
    } else {
      paths.emplace_back(argv[i]);
    }
  }
  int code = digests::kWrong;
  const int failed = device::RunProgram(static_cast<int>(flags.size()), flags.data(),
                                        digests::kAbout, [&]() -> absl::Status {
                                          BRIGADE_ASSIGN_OR_RETURN(code, digests::Run(paths));
                                          return absl::OkStatus();
                                        });
  return failed != 0 ? digests::kWrong : code;
}
