#include "brigade/examples/gpt/corpus.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/random.h"

namespace brigade::gpt {
namespace {

constexpr const char* kHeldOutLicences[] = {"Apache-2.0", "MPL-2.0"};

// Judging by it takes a fraction of a second.
constexpr size_t kMaxHeldOutBytes = 64 << 10;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(auto bytes, device::ReadFile(path));
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
    BRIGADE_ASSIGN_OR_RETURN(auto text, ReadText(path.string()));
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
  BRIGADE_ASSIGN_OR_RETURN(auto text, ReadText(path));
  const size_t held_out = std::min(text.size() / 10, kMaxHeldOutBytes);
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
  nn::Random random(seed, static_cast<uint64_t>(step) << 32 | static_cast<uint64_t>(sample));
  const uint64_t places = corpus.training.size() - text.size() + 1;
  std::memcpy(text.data(), corpus.training.data() + random.Next() % places, text.size());
}

double NgramLoss(const Corpus& corpus, int order) {
  constexpr double kAdded = 0.01;
  const auto context = static_cast<size_t>(order - 1);
  // What follows the context, by the number that the bytes of both make.
  std::vector<uint32_t> grams(size_t{1} << (8 * order)), contexts(size_t{1} << (8 * context));
  const auto each_gram = [&](const std::string& text, const auto& visit) {
    size_t gram = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      gram = (gram << 8 | static_cast<uint8_t>(text[i])) % grams.size();
      if (i >= context) visit(gram);
    }
  };
  each_gram(corpus.training, [&](size_t gram) {
    ++grams[gram];
    ++contexts[gram >> 8];
  });
  double nats = 0;
  each_gram(corpus.held_out, [&](size_t gram) {
    nats -= std::log((grams[gram] + kAdded) / (contexts[gram >> 8] + 256 * kAdded));
  });
  return nats / static_cast<double>(corpus.held_out.size() - context);
}

}  // namespace brigade::gpt
