// The program of data/README.md, on the lines of docs/data.md.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "brigade/data/loader.h"
#include "brigade/data/open.h"
#include "brigade/data/token_samples.h"
#include "brigade/tests/data/written.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade {
namespace {

// The JSON of the page.
std::string LinesOfPage() {
  std::ifstream file("docs/data.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const size_t begin = page.find("```json\n") + 8;
  return page.substr(begin, page.find("```", begin) - begin);
}

absl::Status Train(data::DataPosition position) {
  BRIGADE_ASSIGN_OR_RETURN(const auto tokenizer, data::OpenTokenizer("byte"));
  BRIGADE_ASSIGN_OR_RETURN(
      const data::OpenedData opened,
      data::OpenData({.path = "chats.jsonl", .context = 512, .pack = true}, *tokenizer));
  const auto samples = std::make_shared<data::TokenSamples>(opened.dataset, data::Pieces::kApart);
  BRIGADE_ASSIGN_OR_RETURN(
      const auto loader,
      data::Loader::Create(
          samples, {.batch = 16, .rank = {.rank = 0, .ranks = 2, .micro_batch = 4}}, position));
  BRIGADE_ASSIGN_OR_RETURN(const data::StepData* step, loader->Next());

  EXPECT_EQ(opened.dataset->size(), 1);
  EXPECT_EQ(step->samples, 1);
  EXPECT_EQ(step->micro_batches, 1);
  // "4", "Hello." and a text without its first byte; bytes have no token that ends them.
  EXPECT_EQ(step->counted, 1 + 6 + 27);
  EXPECT_EQ(step->of[0].counted, step->counted);
  return absl::OkStatus();
}

TEST(DataExampleTest, Runs) {
  const std::string folder = data::testing::Folder("example");
  data::testing::Write(folder + "/chats.jsonl", LinesOfPage());
  std::filesystem::current_path(folder);
  EXPECT_OK(Train({}));
}

}  // namespace
}  // namespace brigade
