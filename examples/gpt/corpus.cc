#include "brigade/examples/gpt/corpus.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/random.h"

namespace brigade::gpt {
namespace {

constexpr const char* kHeldOutLicences[] = {"Apache-2.0", "MPL-2.0"};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a folder"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  if (bytes.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return bytes;
}

}  // namespace

absl::StatusOr<Corpus> ReadLicences(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    // Links are second names of others.
    if (entry.is_regular_file() && !entry.is_symlink()) paths.push_back(entry.path());
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat("no licence texts in \"", folder,
                                            "\": ", error.message(), "; name a text by --data"));
  }
  std::sort(paths.begin(), paths.end());
  Corpus corpus;
  int training = 0, held_out = 0;
  for (const std::filesystem::path& path : paths) {
    BRIGADE_ASSIGN_OR_RETURN(text, ReadFile(path.string()));
    const bool hold = std::find(std::begin(kHeldOutLicences), std::end(kHeldOutLicences),
                                path.filename()) != std::end(kHeldOutLicences);
    (hold ? held_out : training) += 1;
    (hold ? corpus.held_out : corpus.training) += text;
  }
  if (held_out != static_cast<int>(std::size(kHeldOutLicences)) || training == 0) {
    return absl::NotFoundError(absl::StrCat("\"", folder, "\" has not the licences of a Debian, ",
                                            kHeldOutLicences[0], " and ", kHeldOutLicences[1],
                                            " among them; name a text by --data"));
  }
  corpus.description = absl::StrCat(training, " licences (", corpus.training.size(),
                                    " bytes); held out: ", kHeldOutLicences[0], ", ",
                                    kHeldOutLicences[1], " (", corpus.held_out.size(), " bytes)");
  return corpus;
}

absl::StatusOr<Corpus> ReadCorpus(const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(text, ReadFile(path));
  const size_t held_out = text.size() / 10;
  Corpus corpus;
  corpus.held_out = text.substr(text.size() - held_out);
  corpus.training = std::move(text);
  corpus.training.resize(corpus.training.size() - held_out);
  corpus.description = absl::StrCat(path, " (", corpus.training.size(),
                                    " bytes); held out: its last ", held_out, " bytes");
  return corpus;
}

absl::Status CheckLength(const Corpus& corpus, int64_t context) {
  for (const std::string* part : {&corpus.training, &corpus.held_out}) {
    if (static_cast<int64_t>(part->size()) > context) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the text is too short: ", part == &corpus.training ? "training" : "held-out", " part has ",
        part->size(), " bytes; a context of ", context, " needs ", context + 1));
  }
  return absl::OkStatus();
}

void SampleText(const Corpus& corpus, uint64_t seed, int64_t step, int64_t sample,
                absl::Span<uint8_t> text) {
  Random random(seed, static_cast<uint64_t>(step) << 32 | static_cast<uint64_t>(sample));
  const uint64_t places = corpus.training.size() - text.size() + 1;
  std::memcpy(text.data(), corpus.training.data() + random.Next() % places, text.size());
}

double NgramLoss(const Corpus& corpus, int order) {
  constexpr double kAdded = 0.01;
  const auto context = static_cast<size_t>(order - 1);
  const auto key = [](const std::string& text, size_t begin, size_t size) {
    return text.substr(begin, size);
  };
  std::unordered_map<std::string, int64_t> contexts, grams;
  for (size_t i = context; i < corpus.training.size(); ++i) {
    ++contexts[key(corpus.training, i - context, context)];
    ++grams[key(corpus.training, i - context, context + 1)];
  }
  const auto count = [](const auto& counts, const std::string& of) {
    const auto found = counts.find(of);
    return found == counts.end() ? 0.0 : static_cast<double>(found->second);
  };
  double nats = 0;
  for (size_t i = context; i < corpus.held_out.size(); ++i) {
    nats -= std::log((count(grams, key(corpus.held_out, i - context, context + 1)) + kAdded) /
                     (count(contexts, key(corpus.held_out, i - context, context)) + 256 * kAdded));
  }
  return nats / static_cast<double>(corpus.held_out.size() - context);
}

}  // namespace brigade::gpt
