#ifndef BRIGADE_DATA_OPEN_H_
#define BRIGADE_DATA_OPEN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "brigade/data/bad_data.h"
#include "brigade/data/dataset.h"
#include "brigade/data/line_sample.h"
#include "brigade/data/tokenizers/tokenizer.h"

namespace brigade::data {

// A data set as flags and configurations name it.
struct DataOptions {
  // Texts or JSON lines: a file that ends with .jsonl, or a folder in which all files do, is lines.
  std::string path = {};
  int64_t context = 0;
  // As in TextOptions and LineOptions.
  int64_t max_samples = 0;
  OnError on_error = OnError::kRefuse;
  // Of lines alone; with texts cutoff_len and pack are InvalidArgument.
  int64_t cutoff_len = 0;
  bool pack = false;
  // ChatTemplate::FromNameOrFile.
  std::string chat_template = "plain";
  LineKeys keys = {};
  // Of texts alone.
  bool separate_documents = false;
};

struct OpenedData {
  std::shared_ptr<const Dataset> dataset = nullptr;
  Skipped skipped = {};
  // "corpus/: 12 texts, 34567 tokens, 68 samples of 512 positions".
  std::string description = {};
};

// TextDataset or LineDataset. Their errors, and InvalidArgument for a folder that holds both kinds.
absl::StatusOr<OpenedData> OpenData(const DataOptions& options, const Tokenizer& tokenizer);

// "byte", or the path of a tokenizer.json. Errors name the path, and say what else there is.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& name_or_path);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_OPEN_H_
