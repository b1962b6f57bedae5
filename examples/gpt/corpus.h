#ifndef BRIGADE_EXAMPLES_GPT_CORPUS_H_
#define BRIGADE_EXAMPLES_GPT_CORPUS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace brigade::gpt {

// Bytes to train on, and others to judge by.
struct Corpus {
  std::string training;
  std::string held_out;
  // The origin of both texts, for the report.
  std::string description;
};

// The licences that every Debian has. Held out are Apache-2.0 and MPL-2.0, which share little text
// with the others. NotFound or InvalidArgument naming the folder or file.
absl::StatusOr<Corpus> ReadLicences(const std::string& folder = "/usr/share/common-licenses");

// Any file; the last tenth is held out, at most 64 KiB. NotFound, InvalidArgument if it is empty or
// no file, ResourceExhausted for more than a quarter of the machine's memory, or what the system
// says; naming it.
absl::StatusOr<Corpus> ReadCorpus(const std::string& path);

// How many texts of `context` bytes the held-out part has side by side.
inline int64_t HeldOutTexts(const Corpus& corpus, int64_t context) {
  return (static_cast<int64_t>(corpus.held_out.size()) - 1) / context;
}

// InvalidArgument unless both parts have a text of context + 1 bytes.
absl::Status CheckLength(const Corpus& corpus, int64_t context);

// Sample `sample` of step `step`: text.size() consecutive bytes from anywhere in the training part.
// Depends on nothing else, so that any number of ranks sees the same batch.
void SampleText(const Corpus& corpus, uint64_t seed, int64_t step, int64_t sample,
                absl::Span<uint8_t> text);

// The cross entropy in nats per byte, on the held-out part, of a model that counts in the training
// part what follows each `order - 1` bytes: a bigram model for 2, a trigram model for 3. Counts get
// 0.01 added, the best of 1, 0.1, 0.01, 0.001 for trigrams of the licences. Takes 4 * 256^order
// bytes.
double NgramLoss(const Corpus& corpus, int order);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_CORPUS_H_
