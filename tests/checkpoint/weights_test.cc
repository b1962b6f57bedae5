// Weights that other tools have written, in a file or several, and a training that begins with
// them.

#include "brigade/checkpoint/weights.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using ::testing::AllOf;
using testing::CrashFileSystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFolder[] = "/weights";
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

struct Tensor {
  std::string name;
  std::string type;
  std::vector<uint64_t> shape;
  std::string data;
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

class WeightsTest : public ::testing::Test {
 protected:
  WeightsTest() { EXPECT_EQ(disk.MakeFolder(kFolder, 0777), 0); }

  void Write(const std::string& name, const std::string& bytes) {
    auto file = WritableFile::Create(disk, PathOf(name), 0);
    ASSERT_OK(file);
    ASSERT_OK(file->Write(bytes, 0));
    ASSERT_OK(file->Finish());
  }
  void Write(const std::string& name, const std::vector<Tensor>& tensors) {
    std::vector<TensorInfo> infos;
    std::string data;
    for (const Tensor& each : tensors) {
      infos.push_back({.name = each.name, .type = each.type, .shape = each.shape});
      data += each.data;
    }
    Write(name, MakeHeader(infos).value() + data);
  }
  static std::string PathOf(const std::string& name) { return absl::StrCat(kFolder, "/", name); }

  CrashFileSystem disk;
};

const Tensor kA = {"a", "F32", {2}, BytesOf<float>({1, 2})};
const Tensor kB = {"b", "U8", {3}, "xyz"};

TEST_F(WeightsTest, ReadsAFileAFolderAndAnIndex) {
  Write("model.safetensors", std::vector<Tensor>{kA, kB});
  for (const std::string path : {kFolder, "/weights/model.safetensors"}) {
    const auto files = WeightFiles::Open(path, disk);
    ASSERT_OK(files);
    ASSERT_EQ(files->tensors().size(), 2u);
    const WeightFiles::Tensor* const b = files->Find("b");
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(b->type, "U8");
    EXPECT_THAT(b->shape, ElementsAre(3));
    char bytes[2] = {};
    ASSERT_OK(files->Read(*b, 1, 2, bytes));
    EXPECT_EQ(std::string(bytes, 2), "yz");
    EXPECT_EQ(files->Find("c"), nullptr);
  }
  Write("1.safetensors", std::vector<Tensor>{kA});
  Write("2.safetensors", std::vector<Tensor>{kB});
  Write("some.index.json",
        R"({
    "metadata": {"a": {"total_size": "no"}, "total_size": 11, "more": [[8, {"b": {}}]]},
    "weight_map": {"b": "2.safetensors", "a": "1.safetensors"}})");
  const auto files = WeightFiles::Open(PathOf("some.index.json"), disk);
  ASSERT_OK(files);
  EXPECT_EQ(files->tensors().size(), 2u);
  EXPECT_EQ(files->files()[1].path, PathOf("2.safetensors"));
  char bytes[3] = {};
  ASSERT_OK(files->Read(*files->Find("b"), 0, 3, bytes));
  EXPECT_EQ(std::string(bytes, 3), "xyz");
}

TEST_F(WeightsTest, SaysWhatIsNotThereOrNotClear) {
  EXPECT_THAT(WeightFiles::Open(kFolder, disk),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("neither model.safetensors nor")));
  EXPECT_THAT(WeightFiles::Open("/nothing", disk), StatusIs(absl::StatusCode::kNotFound));
  Write("model.safetensors", std::vector<Tensor>{kA});
  Write(kWeightIndexName, R"({"weight_map": {"a": "model.safetensors"}})");
  EXPECT_THAT(WeightFiles::Open(kFolder, disk), StatusIs(kInvalid, HasSubstr("name one of them")));
  Write("damaged.safetensors", "damaged");
  EXPECT_THAT(WeightFiles::Open(PathOf("damaged.safetensors"), disk),
              StatusIs(kInvalid, HasSubstr("/weights/damaged.safetensors: a file of 7 bytes")));
}

TEST_F(WeightsTest, RefusesAnIndexThatIsNotTrue) {
  Write("1", std::vector<Tensor>{kA});
  Write("2", std::vector<Tensor>{kB});
  Write("both", std::vector<Tensor>{kA, kB});
  const struct {
    std::string text;
    std::string why;
  } cases[] = {
      {R"({"weight_map": {"a": "1", "b": "1"}})", "\"b\" is not in \"1\""},
      {R"({"weight_map": {"a": "2", "b": "1"}})", "\"a\" is not in \"2\""},
      {R"({"weight_map": {"a": "1", "b": "2", "c": "2"}})", "\"c\" is not in \"2\""},
      {R"({"weight_map": {"a": "both"}})", "\"b\" of \"both\" is not in the index"},
      {R"({"weight_map": {"a": "1", "b": "both"}})", "\"a\" is in \"1\" and in \"both\""},
      {R"({"weight_map": {"a": "1", "a": "1"}})", "\"a\" is given twice"},
      {R"({"weight_map": {}, "weight_map": {}})", "\"weight_map\" is given twice"},
      {R"({"metadata": {}, "metadata": {}})", "\"metadata\" is given twice"},
      {R"({"metadata": {"total_size": 8, "total_size": 8}})", "\"total_size\" is given twice"},
      {R"({"weight_map": {"a": "../1"}})", "no name of a file"},
      {R"({"weight_map": {"a": "/1"}})", "no name of a file"},
      {R"({"weight_map": {"a": ""}})", "no name of a file"},
      {R"({"weight_map": {"a": 1}})", "the file of \"a\" is no text"},
      {R"({"weight_map": {"": "1"}})", "no name of a tensor"},
      {R"({"weight_map": {"a": "1"}, "metadata": {"total_size": 9}})", "8 bytes"},
      {R"({"weight_map": {"a": "1"}, "metadata": {"total_size": -8}})", "no number of bytes"},
      {R"({"weight_map": {"a": "1"}, "metadata": {"total_size": [8]}})", "no number of bytes"},
      {R"({"weight_map": {"a": ["1"]}})", "the file of \"a\" is no text"},
      {R"({"weight_map": {"a": "1"}, "metadata": 1})", "\"metadata\" is no object"},
      {R"({"weight_map": {"a": "1"}, "more": 1})", "\"more\" is not known"},
      {R"({"weight_map": []})", "\"weight_map\" is no object"},
      {"{}", "\"weight_map\" is missing"},
      {"[]", "the index is no object"},
      {"{", "not valid JSON"},
  };
  int number = 0;
  for (const auto& each : cases) {
    const std::string name = absl::StrCat(number++, ".json");
    Write(name, each.text);
    EXPECT_THAT(WeightFiles::Open(PathOf(name), disk),
                StatusIs(kInvalid, AllOf(HasSubstr(PathOf(name)), HasSubstr(each.why))))
        << each.text;
  }
}

TEST(WeightIndexTest, TakesMemoryInProportionToTheText) {
  const auto times = [](const std::string& text) {
    const brigade::testing::PeakOfAllocations peak;
    (void)ParseWeightIndex(text).ok();
    return static_cast<double>(peak.bytes()) / static_cast<double>(text.size());
  };
  std::string values = "[]";
  for (int i = 0; i < 100'000; ++i) values += ",{}";
  // The parser itself keeps brackets until the next string or number.
  EXPECT_LT(times("{\"metadata\": {\"a\": [" + values + "]}, \"weight_map\": {}}"), 4);
  EXPECT_LT(times("{\"weight_map\": [" + values + "]}"), 1);
  EXPECT_LT(times("{\"weight_map\": {\"a\": [" + values + "]}}"), 1);
  std::string keys = "\"weight_map\": {\"a\":\"1\"";
  for (int i = 0; i < 50'000; ++i) absl::StrAppend(&keys, ",\"", i, "\":\"1\"");
  EXPECT_LT(times("{" + keys + "}}"), 16);
}

// The toy's weights by a type, whose values they are rounded to.
std::vector<Tensor> ToyTensors(const std::string& type) {
  std::vector<Tensor> tensors;
  int p = 0;
  for (const zero::UnitSpec& unit : zero::ToyModel()) {
    for (const zero::ParameterSpec& spec : unit.parameters) {
      Tensor& tensor = tensors.emplace_back();
      tensor = {spec.name, type, {static_cast<uint64_t>(spec.size)}, ""};
      for (int64_t i = 0; i < spec.size; ++i) {
        const float value = zero::InitialWeight(p, i);
        const precision::DType dtype = *DTypeOf(type);
        precision::VisitAny(dtype, [&](auto tag) {
          tag = static_cast<decltype(tag)>(value);
          tensor.data.append(reinterpret_cast<const char*>(&tag), sizeof(tag));
        });
      }
      ++p;
    }
  }
  return tensors;
}

zero::ZeroOptions Options(int stage) {
  zero::ZeroOptions options;
  options.stage = stage;
  options.dtype = precision::DType::kBFloat16;
  options.bucket_elements = 1000;
  return options;
}

struct Loaded {
  // Of each rank.
  std::vector<absl::Status> statuses = std::vector<absl::Status>(3);
  std::vector<std::vector<float>> parameters = {};
};

class LoadWeightsTest : public WeightsTest {
 protected:
  Loaded Load(const LoadWeightsOptions& options = {}, int stage = 2) {
    Loaded loaded;
    OnThreads({.size = 3}, [&](Rank& self) {
      auto zero = CreateZero(zero::ToyModel(), Options(stage), self);
      ASSERT_OK(zero);
      absl::Status& status = loaded.statuses[static_cast<size_t>(self.rank)];
      status = LoadWeights(PathOf("model.safetensors"), **zero, *self.communicator, options, disk);
      auto values = Exported(**zero);
      ASSERT_OK(values);
      if (self.rank == 0) loaded.parameters = *std::move(values);
    });
    return loaded;
  }
  void ExpectRefused(const std::vector<Tensor>& tensors, const std::string& why) {
    disk.Unlink(PathOf("model.safetensors"));
    Write("model.safetensors", tensors);
    for (const absl::Status& status : Load().statuses) {
      EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(why)));
    }
  }
};

TEST_F(LoadWeightsTest, ConvertsEachTypeInChunks) {
  for (const std::string type : {"F32", "F16", "BF16", "F64"}) {
    SCOPED_TRACE(type);
    disk.Unlink(PathOf("model.safetensors"));
    Write("model.safetensors", ToyTensors(type));
    for (int stage = 0; stage < zero::kStages; ++stage) {
      const Loaded loaded = Load({.chunk_bytes = 1000}, stage);
      for (const absl::Status& status : loaded.statuses) ASSERT_OK(status);
      int p = 0;
      for (const zero::UnitSpec& unit : zero::ToyModel()) {
        for (const zero::ParameterSpec& spec : unit.parameters) {
          for (int64_t i = 0; i < spec.size; ++i) {
            float wanted = zero::InitialWeight(p, i);
            precision::VisitFloat(*DTypeOf(type), [&](auto tag) {
              wanted = static_cast<float>(static_cast<decltype(tag)>(wanted));
            });
            // In the model's type.
            if (!spec.trainable) wanted = static_cast<float>(precision::BFloat16(wanted));
            ASSERT_EQ(loaded.parameters[static_cast<size_t>(p)][static_cast<size_t>(i)], wanted)
                << spec.name << " " << i;
          }
          ++p;
        }
      }
    }
  }
}

TEST_F(LoadWeightsTest, ErrorsAreAllRanks) {
  std::vector<Tensor> tensors = ToyTensors("F32");
  for (const absl::Status& status : Load().statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("model.safetensors")));
  }
  tensors[0].shape = {7, 100};
  ExpectRefused(tensors, "\"wte\" is [7, 100], the parameter [700]");
  tensors[0] = {"wte", "I32", {700}, std::string(2800, 'x')};
  ExpectRefused(tensors, "\"wte\" is I32");
  tensors = ToyTensors("F32");
  tensors.push_back({"more", "U8", {0}, ""});
  ExpectRefused(tensors, "1 tensors are no parameters: \"more\"");
  tensors.resize(3);
  ExpectRefused(tensors,
                "8 parameters are missing: \"h.0.b\", \"h.0.frozen\", \"h.1.w\", \"h.1.b\", "
                "\"h.1.unused\", ...");
}

TEST_F(LoadWeightsTest, TakesOtherNamesAndSomeWeights) {
  std::vector<Tensor> tensors = ToyTensors("F32");
  tensors.erase(tensors.begin());
  for (Tensor& tensor : tensors) tensor.name = "model." + tensor.name;
  tensors.push_back({"model.more", "U8", {1}, "x"});
  Write("model.safetensors", tensors);
  const Loaded loaded = Load({.name_in_files = [](const auto& name) { return "model." + name; },
                              .initialize_missing =
                                  [](int parameter, absl::Span<float> values) {
                                    EXPECT_EQ(parameter, 0);
                                    for (float& value : values) value = 3;
                                    return absl::OkStatus();
                                  },
                              .allow_unexpected = true});
  for (const absl::Status& status : loaded.statuses) ASSERT_OK(status);
  EXPECT_EQ(loaded.parameters[0], std::vector<float>(700, 3));
  EXPECT_EQ(loaded.parameters[1][5], zero::InitialWeight(1, 5));
}

}  // namespace
}  // namespace brigade::checkpoint
