// reference_peer MODE ARGUMENT: what reference.py compares with the reference. Texts come on stdin,
// each in hexadecimal on a line; the answer is a line of numbers with blanks between, or an error.
//   pieces PATTERN         where the pieces end that gpt2, llama3 or qwen2 cuts, in bytes
//   tokens tokenizer.json  ids, with special tokens in the text as tokens
//   text tokenizer.json    ids, with special tokens in the text as text
//   whole tokenizer.json   ids, with what stands around a text
//   decode tokenizer.json  the text of ids (on stdin, with blanks between), in hexadecimal
//   copy tokenizer.json    writes it again, to the path that is on stdin

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "brigade/data/tokenizers/split_pattern.h"
#include "brigade/data/tokenizers/tokenizer_json.h"

namespace brigade::data {
namespace {

std::string Pieces(SplitPattern pattern, const std::string& text) {
  std::vector<size_t> ends;
  for (size_t at = 0; at < text.size(); ends.push_back(at)) at = PieceEnd(pattern, text, at);
  return absl::StrJoin(ends, " ");
}

std::string Answer(const BpeTokenizer& tokenizer, const std::string& mode,
                   const std::string& line) {
  if (mode == "copy") return WriteTokenizerJson(tokenizer, line).ToString();
  std::vector<int32_t> ids;
  if (mode == "decode") {
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      int32_t id = -1;
      if (!absl::SimpleAtoi(word, &id)) return "no number";
      ids.push_back(id);
    }
    std::string text;
    const absl::Status status = tokenizer.Decode(ids, text);
    return status.ok() ? absl::BytesToHexString(text) : status.ToString();
  }
  if (mode == "whole") ids.assign(tokenizer.before_text().begin(), tokenizer.before_text().end());
  const absl::Status status =
      tokenizer.Encode(absl::HexStringToBytes(line),
                       mode == "text" ? SpecialText::kIsText : SpecialText::kIsToken, ids);
  if (!status.ok()) return status.ToString();
  if (mode == "whole") {
    ids.insert(ids.end(), tokenizer.after_text().begin(), tokenizer.after_text().end());
  }
  return absl::StrJoin(ids, " ");
}

int Run(const std::string& mode, const std::string& argument) {
  std::string line;
  if (mode == "pieces") {
    const SplitPattern pattern = argument == "gpt2"     ? SplitPattern::kGpt2
                                 : argument == "llama3" ? SplitPattern::kLlama3
                                                        : SplitPattern::kQwen2;
    while (std::getline(std::cin, line)) {
      std::cout << Pieces(pattern, absl::HexStringToBytes(line)) << "\n";
    }
    return 0;
  }
  const auto tokenizer = ReadTokenizerJson(argument);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 1;
  }
  while (std::getline(std::cin, line)) std::cout << Answer(**tokenizer, mode, line) << "\n";
  return 0;
}

}  // namespace
}  // namespace brigade::data

int main(int argc, char** argv) { return argc == 3 ? brigade::data::Run(argv[1], argv[2]) : 2; }
