#include "brigade/checkpoint/layout.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace brigade::checkpoint {
namespace {

using ::brigade::precision::DType;
using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

zero::Plan PlanOf(const zero::ModelSpec& model, int ranks, int64_t bucket_elements = 1 << 20) {
  return zero::Plan::Create(model, {.ranks = ranks, .bucket_elements = bucket_elements}).value();
}

zero::ModelSpec OneUnit(const std::vector<zero::ParameterSpec>& parameters) {
  return {{.name = "unit", .parameters = parameters}};
}

std::string Describe(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "tensor ", piece.tensor, " bucket ",
                    piece.bucket, " elements ", piece.slice.begin, "+", piece.slice.size, " bytes ",
                    piece.offset, "+", piece.bytes);
  }
  return text;
}

std::string Describe(const Layout& layout) {
  std::string text = absl::StrCat(layout.bytes(), "\n", layout.index(), "\n");
  for (const TensorFile& file : layout.files()) {
    absl::StrAppend(&text, file.name, " ", file.bytes, " ", file.first, "+", file.count, "\n",
                    file.header, "\n");
  }
  for (const Tensor& tensor : layout.tensors()) {
    absl::StrAppend(&text, tensor.parameter, " ", tensor.array, " ", precision::Name(tensor.dtype),
                    " ", tensor.file, " ", tensor.offset, "+", tensor.bytes, "\n");
  }
  return text;
}

TEST(LayoutTest, KnownPiecesOfOneParameter) {
  const zero::ModelSpec model = OneUnit({{.name = "w", .size = 100, .dtype = DType::kFloat32}});
  const int64_t buckets[] = {128, 128, 192, 256};
  const std::vector<std::vector<std::string>> pieces = {
      {"tensor 0 bucket 0 elements 0+100 bytes 0+400"},
      {"tensor 0 bucket 0 elements 0+64 bytes 0+256",
       "tensor 0 bucket 0 elements 0+36 bytes 256+144"},
      {"tensor 0 bucket 0 elements 0+64 bytes 0+256",
       "tensor 0 bucket 0 elements 0+36 bytes 256+144", ""},
      {"tensor 0 bucket 0 elements 0+64 bytes 0+256",
       "tensor 0 bucket 0 elements 0+36 bytes 256+144", "", ""}};
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const zero::Plan plan = PlanOf(model, ranks);
    ASSERT_THAT(plan.buckets(), SizeIs(1));
    EXPECT_EQ(plan.bucket(0).size, buckets[ranks - 1]);
    ASSERT_OK_AND_ASSIGN(const Layout layout, Layout::Create(plan.parameters(), 1));
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(Describe(layout.PiecesOf(plan, rank)),
                pieces[static_cast<size_t>(ranks - 1)][static_cast<size_t>(rank)])
          << rank << " of " << ranks;
    }
  }
}

// Buckets are filled in reverse order of use.
TEST(LayoutTest, KnownPiecesOfTwoParameters) {
  const zero::Plan plan =
      PlanOf(OneUnit({{.name = "first", .size = 100}, {.name = "second", .size = 100}}), 3);
  ASSERT_THAT(plan.buckets(), SizeIs(1));
  EXPECT_EQ(plan.bucket(0).size, 384);
  ASSERT_OK_AND_ASSIGN(const Layout layout, Layout::Create(plan.parameters(), 2));
  EXPECT_EQ(Describe(layout.PiecesOf(plan, 0)),
            "tensor 1 bucket 0 elements 0+100 bytes 0+400; "
            "tensor 3 bucket 0 elements 0+100 bytes 0+400");
  EXPECT_EQ(Describe(layout.PiecesOf(plan, 1)),
            "tensor 0 bucket 0 elements 0+100 bytes 0+400; "
            "tensor 2 bucket 0 elements 0+100 bytes 0+400");
  EXPECT_EQ(Describe(layout.PiecesOf(plan, 2)), "");
}

TEST(LayoutTest, KnownFiles) {
  const zero::Plan plan = PlanOf(OneUnit({{.name = "frozen", .size = 3, .trainable = false},
                                          {.name = "w", .size = 6, .shape = {2, 3}}}),
                                 1);
  ASSERT_OK_AND_ASSIGN(const Layout layout, Layout::Create(plan.parameters(), 2));
  ASSERT_THAT(layout.files(), SizeIs(2));
  // The wider type first.
  const auto header = [](const std::string& tensors) {
    const std::string json = R"({"__metadata__":{"format":"pt"},)" + tensors + "}";
    return json + std::string(4096 - 8 - json.size(), ' ');
  };
  EXPECT_EQ(layout.files()[0].name, "master-00001-of-00001.safetensors");
  EXPECT_EQ(layout.files()[0].header.substr(8),
            header(R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                   R"("frozen":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]})"));
  EXPECT_EQ(layout.files()[0].bytes, 4096 + 30);
  EXPECT_EQ(layout.files()[1].name, "moment1-00001-of-00001.safetensors");
  EXPECT_EQ(layout.files()[1].header.substr(8),
            header(R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})"));
  EXPECT_EQ(layout.bytes(), 2 * 4096 + 30 + 24);
  EXPECT_EQ(layout.index(), R"({
  "metadata": {"total_size": 30},
  "weight_map": {
    "w": "master-00001-of-00001.safetensors",
    "frozen": "master-00001-of-00001.safetensors"
  }
}
)");
}

// Everything that a layout promises by itself.
void CheckLayout(const Layout& layout, const std::vector<zero::Parameter>& parameters, int arrays,
                 int64_t file_bytes) {
  std::set<std::string> names;
  std::set<std::pair<int, int>> seen;
  size_t next = 0;
  int64_t bytes = 0;
  std::vector<int> files_of(static_cast<size_t>(arrays)), number_of(static_cast<size_t>(arrays));
  for (const TensorFile& file : layout.files()) {
    ASSERT_GT(file.count, 0);
    ++files_of[static_cast<size_t>(layout.tensors()[static_cast<size_t>(file.first)].array)];
  }
  for (size_t f = 0; f < layout.files().size(); ++f) {
    const TensorFile& file = layout.files()[f];
    EXPECT_TRUE(names.insert(file.name).second) << file.name;
    bytes += file.bytes;
    ASSERT_EQ(static_cast<size_t>(file.first), next);
    const int array = layout.tensors()[next].array;
    const auto a = static_cast<size_t>(array);
    EXPECT_EQ(file.name, absl::StrFormat("%s-%05d-of-%05d.safetensors",
                                         array == 0 ? "master" : absl::StrCat("moment", array),
                                         ++number_of[a], files_of[a]));
    ASSERT_OK_AND_ASSIGN(const uint64_t json_bytes,
                         ParseHeaderBytes(file.header, static_cast<uint64_t>(file.bytes)));
    ASSERT_EQ(file.header.size(), 8 + json_bytes);
    EXPECT_EQ(file.header.size() % 4096, 0u);
    ASSERT_OK_AND_ASSIGN(
        const SafetensorsHeader header,
        ParseHeader(absl::string_view(file.header).substr(8), static_cast<uint64_t>(file.bytes)));
    EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
    std::map<std::string, const TensorInfo*> infos;
    for (const TensorInfo& info : header.tensors) infos[info.name] = &info;
    ASSERT_EQ(infos.size(), static_cast<size_t>(file.count));
    int64_t at = static_cast<int64_t>(file.header.size()), last = 0;
    for (int t = 0; t < file.count; ++t, ++next) {
      const Tensor& tensor = layout.tensors()[next];
      const zero::ParameterSpec& spec = parameters[static_cast<size_t>(tensor.parameter)].spec;
      const bool is_master_type = spec.trainable;
      EXPECT_TRUE(seen.insert({tensor.array, tensor.parameter}).second);
      EXPECT_EQ(tensor.array, array);
      EXPECT_EQ(tensor.file, static_cast<int>(f));
      EXPECT_EQ(tensor.dtype, is_master_type ? DType::kFloat32 : *spec.dtype);
      EXPECT_EQ(tensor.offset, at);
      EXPECT_EQ(tensor.offset % precision::SizeOf(tensor.dtype), 0);
      EXPECT_EQ(tensor.bytes, spec.size * precision::SizeOf(tensor.dtype));
      at += tensor.bytes;
      last = std::max(last, tensor.bytes);
      ASSERT_EQ(infos.count(spec.name), 1u);
      const TensorInfo& info = *infos[spec.name];
      EXPECT_EQ(info.type, TypeName(tensor.dtype));
      EXPECT_EQ(info.shape, std::vector<uint64_t>(spec.shape.begin(), spec.shape.end()));
      EXPECT_EQ(header.data_begin + info.begin, static_cast<uint64_t>(tensor.offset));
      EXPECT_EQ(header.data_begin + info.end, static_cast<uint64_t>(at));
    }
    EXPECT_EQ(at, file.bytes);
    // Full, but not longer than it may be; a parameter that is longer itself is alone with those
    // that have no bytes.
    const int64_t data = file.bytes - static_cast<int64_t>(file.header.size());
    EXPECT_TRUE(data <= file_bytes || data == last) << data;
    if (number_of[a] < files_of[a]) {
      int64_t after = kMost;
      int first = std::numeric_limits<int>::max();
      const TensorFile& following = layout.files()[f + 1];
      for (int t = following.first; t < following.first + following.count; ++t) {
        const Tensor& tensor = layout.tensors()[static_cast<size_t>(t)];
        if (tensor.parameter < first) first = tensor.parameter, after = tensor.bytes;
      }
      EXPECT_GT(data + after, file_bytes);
    }
  }
  EXPECT_EQ(next, layout.tensors().size());
  EXPECT_EQ(bytes, layout.bytes());
  size_t tensors = 0;
  for (const zero::Parameter& parameter : parameters) {
    tensors += parameter.spec.trainable ? static_cast<size_t>(arrays) : 1;
  }
  EXPECT_EQ(layout.tensors().size(), tensors);

  const nlohmann::json index = nlohmann::json::parse(layout.index());
  EXPECT_EQ(index.size(), 2u);
  int64_t total = 0;
  const nlohmann::json& map = index.at("weight_map");
  EXPECT_EQ(map.size(), parameters.size());
  for (const Tensor& tensor : layout.tensors()) {
    if (tensor.array != 0) continue;
    total += tensor.bytes;
    EXPECT_EQ(map.at(parameters[static_cast<size_t>(tensor.parameter)].spec.name),
              layout.files()[static_cast<size_t>(tensor.file)].name);
  }
  EXPECT_EQ(index.at("metadata"), nlohmann::json({{"total_size", total}}));
}

// The pieces of all ranks are each byte of each tensor once, in the order of ranks, and are where
// the plan says that the parameter is.
void CheckPieces(const Layout& layout, const zero::Plan& plan) {
  std::vector<int64_t> at(layout.tensors().size());
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    int last = -1;
    for (const Piece& piece : layout.PiecesOf(plan, rank)) {
      ASSERT_GT(piece.tensor, last);
      last = piece.tensor;
      const auto t = static_cast<size_t>(piece.tensor);
      const Tensor& tensor = layout.tensors()[t];
      const zero::Parameter& parameter = plan.parameter(tensor.parameter);
      const int64_t element = precision::SizeOf(tensor.dtype);
      EXPECT_EQ(piece.bucket, parameter.bucket);
      EXPECT_GT(piece.bytes, 0);
      EXPECT_EQ(piece.bytes, piece.slice.size * element);
      EXPECT_EQ(piece.offset, at[t]);
      at[t] += piece.bytes;
      const int64_t slice = plan.slice(plan.bucket(piece.bucket));
      EXPECT_GE(piece.slice.begin, 0);
      EXPECT_LE(piece.slice.begin + piece.slice.size, slice);
      EXPECT_EQ(rank * slice + piece.slice.begin, parameter.begin + piece.offset / element);
    }
  }
  for (size_t t = 0; t < at.size(); ++t) EXPECT_EQ(at[t], layout.tensors()[t].bytes) << t;
}

std::vector<zero::ModelSpec> Models() {
  std::vector<zero::ModelSpec> models = {{}, OneUnit({}), OneUnit({{.name = "w"}})};
  for (const int64_t size : {1, 63, 64, 65, 127, 128, 129, 100'000}) {
    models.push_back(OneUnit({{.name = "w", .size = size}}));
    models.push_back(OneUnit({{.name = "w", .size = size, .dtype = DType::kFloat32}}));
    models.push_back(OneUnit({{.name = "w", .size = size, .trainable = false}}));
  }
  zero::ModelSpec all = {{.name = "embedding"}, {.name = "block"}, {.name = "head"}};
  int number = 0;
  for (const int64_t size : {65, 0, 1, 100, 64, 4096, 63, 30'000, 2, 0}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat32, DType::kFloat16}) {
      for (const bool trainable : {false, true}) {
        zero::ParameterSpec spec = {.name = absl::StrCat("p", number),
                                    .size = size,
                                    .dtype = dtype,
                                    .trainable = trainable};
        if (number % 3 == 0) spec.shape = {1, size, 1};
        all[static_cast<size_t>(number++ % 3)].parameters.push_back(spec);
      }
    }
  }
  all[2].tied = {all[0].parameters[0].name, all[0].parameters[1].name};
  all[1].tied = {all[0].parameters[1].name, all[0].parameters[7].name};
  models.push_back(all);
  for (zero::UnitSpec& unit : all) {
    for (zero::ParameterSpec& spec : unit.parameters) spec.trainable = false;
  }
  models.push_back(all);
  models.push_back(OneUnit({{.name = "\"quoted\"\\"},
                            {.name = "\n\t\x01\x7f", .size = 3},
                            {.name = "\xc3\xa9\xf0\x9f\x98\x80", .size = 5, .trainable = false},
                            {.name = "</script>,\":{", .size = 7},
                            {.name = " ", .size = 1}}));
  return models;
}

TEST(LayoutTest, AllOfEveryModelIsInThePiecesOnce) {
  for (const zero::ModelSpec& model : Models()) {
    for (const int arrays : {1, 2, 3}) {
      for (const int64_t file_bytes : {int64_t{1}, int64_t{400}, int64_t{20'000}, kMost}) {
        const zero::Plan one = PlanOf(model, 1);
        ASSERT_OK_AND_ASSIGN(const Layout layout,
                             Layout::Create(one.parameters(), arrays, file_bytes));
        CheckLayout(layout, one.parameters(), arrays, file_bytes);
        for (int ranks = 1; ranks <= 5; ++ranks) {
          for (const int64_t bucket_elements : {1, 200, 1 << 20}) {
            const zero::Plan plan = PlanOf(model, ranks, bucket_elements);
            ASSERT_OK_AND_ASSIGN(const Layout same,
                                 Layout::Create(plan.parameters(), arrays, file_bytes));
            EXPECT_EQ(Describe(same), Describe(layout));
            CheckPieces(same, plan);
          }
        }
        if (HasFailure()) return;
      }
    }
  }
}

// The model's parameters by turns, each unit of which has them in the reverse order, and the first
// one of the model on all stages.
std::vector<zero::ModelSpec> StagesOf(const zero::ModelSpec& model, size_t stages) {
  std::vector<zero::ModelSpec> all(stages);
  size_t number = 0;
  for (const zero::UnitSpec& unit : model) {
    for (zero::ModelSpec& stage : all) stage.push_back({.name = unit.name});
    for (const zero::ParameterSpec& spec : unit.parameters) {
      for (size_t s = 0; s < stages; ++s) {
        if (number > 0 && number % stages != s) continue;
        auto& parameters = all[s].back().parameters;
        parameters.insert(parameters.begin(), spec);
        parameters.front().counted = number % stages == s;
      }
      ++number;
    }
  }
  return all;
}

TEST(LayoutTest, AllOfEveryModelIsInThePiecesOfAllStagesOnce) {
  for (const zero::ModelSpec& model : Models()) {
    const zero::Plan whole = PlanOf(model, 1);
    ASSERT_OK_AND_ASSIGN(const Layout layout, Layout::Create(whole.parameters(), 3, 20'000));
    for (const size_t stages : {1, 2, 3}) {
      for (const int ranks : {1, 2, 3}) {
        // Of each tensor, the bytes of all pieces that are saved, and of all copies.
        std::vector<int64_t> saved(layout.tensors().size()), copied(saved.size());
        for (const zero::ModelSpec& stage : StagesOf(model, stages)) {
          const zero::Plan plan = PlanOf(stage, ranks, 200);
          for (int rank = 0; rank < ranks; ++rank) {
            for (const Piece& piece : layout.PiecesOf(plan, rank)) {
              const auto t = static_cast<size_t>(piece.tensor);
              const Tensor& tensor = layout.tensors()[t];
              int64_t& at = piece.is_saved ? saved[t] : copied[t];
              EXPECT_EQ(piece.offset, at % std::max<int64_t>(1, tensor.bytes));
              at += piece.bytes;
              const zero::Bucket& bucket = plan.bucket(piece.bucket);
              const int64_t element = rank * plan.slice(bucket) + piece.slice.begin;
              bool is_there = false;
              for (const zero::BucketEntry& entry : bucket.entries) {
                const std::string& name = plan.parameter(entry.parameter).spec.name;
                is_there =
                    is_there ||
                    (name == whole.parameter(tensor.parameter).spec.name &&
                     element == entry.range.begin + piece.offset / precision::SizeOf(tensor.dtype));
              }
              EXPECT_TRUE(is_there);
            }
          }
        }
        for (size_t t = 0; t < saved.size(); ++t) {
          const Tensor& tensor = layout.tensors()[t];
          EXPECT_EQ(saved[t], tensor.bytes);
          const auto copies = static_cast<int64_t>(tensor.parameter == 0 ? stages - 1 : 0);
          EXPECT_EQ(copied[t], copies * tensor.bytes);
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST(LayoutTest, EndsFilesAtParameters) {
  const auto files = [](const std::vector<int64_t>& sizes) {
    std::vector<zero::ParameterSpec> parameters;
    for (size_t i = 0; i < sizes.size(); ++i) {
      parameters.push_back({.name = absl::StrCat("w", i), .size = sizes[i]});
    }
    const zero::Plan plan = PlanOf(OneUnit(parameters), 1);
    const Layout layout = Layout::Create(plan.parameters(), 1, 400).value();
    std::vector<int> counts;
    for (const TensorFile& file : layout.files()) counts.push_back(file.count);
    return counts;
  };
  using Counts = std::vector<int>;
  EXPECT_EQ(files({50, 50, 1}), (Counts{2, 1}));
  EXPECT_EQ(files({50, 51}), (Counts{1, 1}));
  EXPECT_EQ(files({100, 0, 0, 1}), (Counts{3, 1}));
  // One that is larger has a file of its own.
  EXPECT_EQ(files({1, 1000, 1, 1}), (Counts{1, 1, 2}));
  EXPECT_EQ(files({1000, 1000}), (Counts{1, 1}));
  EXPECT_EQ(files({0, 1000}), (Counts{1, 1}));
  EXPECT_EQ(files({}), Counts{});
}

TEST(LayoutTest, WithoutParametersThereAreNoFiles) {
  ASSERT_OK_AND_ASSIGN(const Layout layout, Layout::Create({}, 3));
  EXPECT_THAT(layout.files(), SizeIs(0));
  EXPECT_EQ(layout.bytes(), 0);
  EXPECT_EQ(nlohmann::json::parse(layout.index()),
            nlohmann::json::parse(R"({"metadata": {"total_size": 0}, "weight_map": {}})"));
}

TEST(LayoutTest, WhatIsFrozenHasNoMoments) {
  const zero::Plan plan = PlanOf(OneUnit({{.name = "w", .size = 3, .trainable = false}}), 2);
  ASSERT_OK_AND_ASSIGN(const Layout layout, Layout::Create(plan.parameters(), 3));
  ASSERT_THAT(layout.files(), SizeIs(1));
  EXPECT_EQ(layout.files()[0].name, "master-00001-of-00001.safetensors");
  EXPECT_EQ(layout.bytes(), 4096 + 6);
}

TEST(LayoutTest, RefusesNamesThatSafetensorsCannotHave) {
  const auto expect = [](const std::string& name, const std::string& why) {
    const zero::Plan plan = PlanOf(OneUnit({{.name = "a", .size = 1}, {.name = name}}), 1);
    const absl::Status status = Layout::Create(plan.parameters(), 1).status();
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(why)));
  };
  expect("a\xff", "no UTF-8");
  expect("\xc3", "no UTF-8");
  expect("\xed\xa0\x80", "no UTF-8");
  expect("\xc0\x80", "no UTF-8");
  expect(std::string("a\0b", 3), "tensor \"a\\x00b\": a NUL in the name");
  expect("__metadata__", "tensor \"__metadata__\": the format's own name");
}

// Linear time in the number of parameters; quadratic would be minutes.
TEST(LayoutTest, TakesManyParameters) {
  constexpr int kParameters = 100'000;
  std::vector<zero::ParameterSpec> parameters;
  for (int i = 0; i < kParameters; ++i) {
    parameters.push_back({.name = absl::StrCat("transformer.h.", i, ".weight"), .size = 10});
  }
  for (const int64_t file_bytes : {int64_t{4000}, kMost}) {
    const zero::Plan plan = PlanOf(OneUnit(parameters), 5);
    ASSERT_OK_AND_ASSIGN(const Layout layout, Layout::Create(plan.parameters(), 3, file_bytes));
    EXPECT_THAT(layout.tensors(), SizeIs(3 * kParameters));
    EXPECT_THAT(layout.files(), SizeIs(file_bytes == kMost ? 3 : 3 * kParameters / 100));
    int64_t bytes = 0;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      for (const Piece& piece : layout.PiecesOf(plan, rank)) bytes += piece.bytes;
    }
    EXPECT_EQ(bytes, int64_t{3} * kParameters * 40);
  }
}

}  // namespace
}  // namespace brigade::checkpoint
