#include "brigade/benchmarks/collectives/sizes.h"

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/byte_count.h"

using brigade::device::ByteCount;

// Programs have defaults of their own: SetDefaultSizes.
ABSL_FLAG(ByteCount, min_bytes, {1},
          "smallest size, as 8, 64K, 1M or 1G; also -b and --minbytes, as in nccl-tests");
ABSL_FLAG(ByteCount, max_bytes, {1}, "largest size; also -e and --maxbytes");
ABSL_FLAG(int64_t, factor, 2, "from one size to the next; also -f and --stepfactor");
ABSL_FLAG(int, iterations, 0,
          "calls in a row that are timed as one; 0: as many as take long enough; also -n and "
          "--iters");

namespace brigade::benchmarks {
namespace {

struct Alias {
  absl::string_view letter, name, flag;
};
constexpr Alias kAliases[] = {{"-b", "--minbytes", "--min_bytes"},
                              {"-e", "--maxbytes", "--max_bytes"},
                              {"-f", "--stepfactor", "--factor"},
                              {"-n", "--iters", "--iterations"}};

std::string Translated(absl::string_view word) {
  for (const auto& [letter, name, flag] : kAliases) {
    if (word == letter || word == name) return std::string(flag);
    if (absl::StartsWith(word, absl::StrCat(name, "=")) ||
        absl::StartsWith(word, absl::StrCat(letter, "="))) {
      return absl::StrCat(flag, word.substr(word.find('=')));
    }
    // "-b8"; a word like -factor is a flag's name.
    if (absl::StartsWith(word, letter) && word[2] >= '0' && word[2] <= '9') {
      return absl::StrCat(flag, "=", word.substr(2));
    }
  }
  return std::string(word);
}

}  // namespace

NcclTestsArguments::NcclTestsArguments(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    words_.push_back(i == 0 ? argv[i] : Translated(argv[i]));
    pointers_.push_back(words_.back().data());
  }
  pointers_.push_back(nullptr);
}

void SetDefaultSizes(int64_t min_bytes, int64_t max_bytes, int64_t factor) {
  absl::SetFlag(&FLAGS_min_bytes, ByteCount{min_bytes});
  absl::SetFlag(&FLAGS_max_bytes, ByteCount{max_bytes});
  absl::SetFlag(&FLAGS_factor, factor);
}

absl::StatusOr<std::vector<int64_t>> SizesOfFlags() {
  const int64_t min = absl::GetFlag(FLAGS_min_bytes).value;
  const int64_t max = absl::GetFlag(FLAGS_max_bytes).value;
  const int64_t factor = absl::GetFlag(FLAGS_factor);
  if (factor < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--factor is ", factor, "; it must be 2 or more"));
  }
  if (min > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("--min_bytes is ", min, ", more than --max_bytes, ", max));
  }
  std::vector<int64_t> sizes = {min};
  while (sizes.back() <= max / factor) sizes.push_back(sizes.back() * factor);
  return sizes;
}

absl::StatusOr<int> IterationsOfFlags() {
  const int iterations = absl::GetFlag(FLAGS_iterations);
  if (iterations >= 0) return iterations;
  return absl::InvalidArgumentError(
      absl::StrCat("--iterations is ", iterations, "; it must be 0 or more"));
}

}  // namespace brigade::benchmarks
