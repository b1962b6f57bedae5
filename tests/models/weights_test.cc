// Reading and writing Hugging Face's files: names, types, what is missing, what is too much.

#include "brigade/models/weights.h"

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using checkpoint::WeightFiles;
using precision::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

struct Tensor {
  std::string name;
  std::string type;
  std::vector<uint64_t> shape;
  std::string data;
};

std::string Known(absl::string_view name) { return absl::StrCat(KnownAnswers(), "/", name); }

std::vector<Tensor> TensorsOf(const std::string& path) {
  const auto files = WeightFiles::Open(path);
  EXPECT_OK(files);
  std::vector<Tensor> tensors;
  for (const WeightFiles::Tensor& tensor : files->tensors()) {
    std::string data(static_cast<size_t>(tensor.bytes), '\0');
    EXPECT_OK(files->Read(tensor, 0, tensor.bytes, data.data()));
    tensors.push_back({tensor.name, tensor.type, tensor.shape, data});
  }
  return tensors;
}

class WeightsTest : public ::testing::Test {
 protected:
  WeightsTest() {
    root_ = absl::StrCat(::testing::TempDir(), "/",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }

  std::string Path(absl::string_view name) const { return absl::StrCat(root_, "/", name); }

  void Write(const std::string& name, const std::vector<Tensor>& tensors) {
    std::vector<checkpoint::TensorInfo> infos;
    std::string data;
    for (const Tensor& tensor : tensors) {
      infos.push_back({.name = tensor.name, .type = tensor.type, .shape = tensor.shape});
      data += tensor.data;
    }
    const auto header = checkpoint::MakeHeader(infos);
    ASSERT_OK(header);
    WriteText(name, *header + data);
  }
  void WriteText(const std::string& name, const std::string& text) {
    std::filesystem::remove(Path(name));
    auto file = checkpoint::WritableFile::Create(device::SystemCalls::Real(), Path(name), 0);
    ASSERT_OK(file);
    ASSERT_OK(file->Write(text, 0));
    ASSERT_OK(file->Finish());
  }

  // All weights of a model as it reads them from a path, in the type.
  std::vector<std::vector<double>> Load(const std::string& config_folder, const std::string& path,
                                        absl::Status& status, DType dtype = DType::kFloat32) {
    const auto config = ReadConfig(config_folder);
    EXPECT_OK(config);
    ModelLab lab(*config, {.dtype = dtype, .trains = false}, device::Cpu());
    status = LoadWeights(path, lab.model(), lab.arrays(), lab.context());
    std::vector<std::vector<double>> weights;
    for (int p = 0; status.ok() && p < lab.arrays().size(); ++p) {
      weights.push_back(lab.Read(lab.arrays().weights(p), lab.arrays().size_of(p)));
    }
    return weights;
  }
  std::vector<std::vector<double>> Loaded(const std::string& config_folder, const std::string& path,
                                          DType dtype = DType::kFloat32) {
    absl::Status status;
    auto weights = Load(config_folder, path, status, dtype);
    EXPECT_OK(status);
    EXPECT_FALSE(weights.empty());
    return weights;
  }
  absl::Status Refused(const std::string& config_folder, const std::string& path) {
    absl::Status status;
    Load(config_folder, path, status);
    return status;
  }

  std::string root_;
};

TEST_F(WeightsTest, NamesHaveAPrefixOrNone) {
  for (const auto& [name, prefix] :
       {std::pair<const char*, const char*>{"llama", "model."}, {"gpt2", "transformer."}}) {
    const auto wanted = Loaded(Known(name), Known(name));
    std::vector<Tensor> tensors = TensorsOf(Known(name) + "/model.safetensors");
    for (Tensor& tensor : tensors) tensor.name = absl::StrReplaceAll(tensor.name, {{prefix, ""}});
    Write("bare.safetensors", tensors);
    EXPECT_EQ(Loaded(Known(name), Path("bare.safetensors")), wanted);
    // Either all or none.
    tensors[0].name = prefix + tensors[0].name;
    Write("mixed.safetensors", tensors);
    EXPECT_THAT(Refused(Known(name), Path("mixed.safetensors")),
                StatusIs(kInvalid, AllOf(HasSubstr("mixed.safetensors"), HasSubstr("are missing"),
                                         HasSubstr("no parameters"))));
  }
}

TEST_F(WeightsTest, WhatOldVersionsWroteBesidesIsLeftOut) {
  const Tensor number = {"", "F32", {1}, std::string(4, '\0')};
  for (const auto& [name, more] :
       {std::pair<const char*, std::vector<std::string>>{
            "llama", {"model.layers.0.self_attn.rotary_emb.inv_freq"}},
        {"gpt2", {"transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"}}}) {
    const auto wanted = Loaded(Known(name), Known(name));
    std::vector<Tensor> tensors = TensorsOf(Known(name) + "/model.safetensors");
    for (const std::string& each : more) {
      tensors.push_back(number);
      tensors.back().name = each;
    }
    Write("more.safetensors", tensors);
    EXPECT_EQ(Loaded(Known(name), Path("more.safetensors")), wanted);
  }
}

TEST_F(WeightsTest, ATiedHeadMustBeTheEmbedding) {
  const auto wanted = Loaded(Known("gpt2"), Known("gpt2"));
  std::vector<Tensor> tensors = TensorsOf(Known("gpt2") + "/model.safetensors");
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == "transformer.wte.weight") {
      tensors.push_back(tensors[i]);
      tensors.back().name = "lm_head.weight";
      break;
    }
  }
  Write("same.safetensors", tensors);
  EXPECT_EQ(Loaded(Known("gpt2"), Path("same.safetensors")), wanted);
  tensors.back().data.back() ^= 1;
  Write("other.safetensors", tensors);
  EXPECT_THAT(Refused(Known("gpt2"), Path("other.safetensors")),
              StatusIs(kInvalid,
                       AllOf(HasSubstr("lm_head.weight"), HasSubstr("this is not the embedding"))));
}

TEST_F(WeightsTest, AllThatIsWrongIsNamedAtOnce) {
  std::vector<Tensor> tensors = TensorsOf(Known("llama") + "/model.safetensors");
  std::vector<std::string> dropped;
  for (auto tensor = tensors.begin(); tensor != tensors.end();) {
    const bool drop = absl::StrContains(tensor->name, "layers.1.mlp.up_proj") ||
                      absl::StrContains(tensor->name, "model.norm");
    if (drop) dropped.push_back(tensor->name);
    tensor = drop ? tensors.erase(tensor) : tensor + 1;
  }
  ASSERT_EQ(dropped.size(), 2u);
  for (Tensor& tensor : tensors) {
    if (tensor.name == "model.layers.0.mlp.up_proj.weight") tensor.shape = {16, 20};
    if (tensor.name == "model.layers.0.mlp.gate_proj.weight") {
      tensor.type = "I32";
    }
  }
  tensors.push_back({"model.layers.2.extra", "F32", {1}, std::string(4, '\0')});
  Write("bad.safetensors", tensors);
  EXPECT_THAT(
      Refused(Known("llama"), Path("bad.safetensors")),
      StatusIs(
          kInvalid,
          AllOf(HasSubstr(Path("bad.safetensors")), HasSubstr("2 tensors are missing: "),
                HasSubstr("\"model.layers.1.mlp.up_proj.weight\""),
                HasSubstr("\"model.norm.weight\""),
                HasSubstr("1 tensor is no parameters: \"model.layers.2.extra\" in "),
                HasSubstr("\"model.layers.0.mlp.up_proj.weight\" in "),
                HasSubstr("is [16, 20] and not [20, 16]"),
                HasSubstr("\"model.layers.0.mlp.gate_proj.weight\" in "), HasSubstr("is I32"))));
  // Of another model there are more than are named.
  const absl::Status other = Refused(Known("llama"), Known("gpt2"));
  EXPECT_THAT(other,
              StatusIs(kInvalid, AllOf(HasSubstr("21 tensors are missing"), HasSubstr(", ..."))));
  EXPECT_LE(other.message().size(), 4000u);
}

TEST_F(WeightsTest, EveryTypeBecomesTheTypeThatIsWanted) {
  const auto exact = Loaded(Known("llama"), Known("llama"), DType::kFloat64);
  const auto as = [&](DType dtype) {
    auto rounded = exact;
    precision::VisitFloat(dtype, [&](auto tag) {
      using T = decltype(tag);
      for (auto& weights : rounded) {
        for (double& weight : weights) {
          weight = static_cast<double>(static_cast<float>(T(static_cast<float>(weight))));
        }
      }
    });
    return rounded;
  };
  for (const DType in_file :
       {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    std::vector<Tensor> tensors = TensorsOf(Known("llama") + "/model.safetensors");
    for (Tensor& tensor : tensors) {
      std::string data;
      nn::VisitReal(in_file, [&](auto tag) {
        using T = decltype(tag);
        for (size_t i = 0; i < tensor.data.size(); i += 4) {
          float value;
          std::memcpy(&value, tensor.data.data() + i, 4);
          const T narrow = T(static_cast<nn::Wide<T>>(value));
          data.append(reinterpret_cast<const char*>(&narrow), sizeof(T));
        }
      });
      tensor.data = data;
      tensor.type = std::string(checkpoint::TypeName(in_file));
    }
    Write("typed.safetensors", tensors);
    const auto of_file = in_file == DType::kFloat64 ? exact : as(in_file);
    EXPECT_EQ(Loaded(Known("llama"), Path("typed.safetensors"), DType::kFloat64), of_file);
    EXPECT_EQ(Loaded(Known("llama"), Path("typed.safetensors"), in_file), of_file);
  }
  EXPECT_EQ(Loaded(Known("llama"), Known("llama"), DType::kBFloat16), as(DType::kBFloat16));
  EXPECT_EQ(Loaded(Known("llama"), Known("llama"), DType::kFloat16), as(DType::kFloat16));
}

TEST_F(WeightsTest, WhatIsSavedIsReadAgain) {
  for (const char* const name : {"llama_grouped", "llama_tied", "gpt2"}) {
    const auto wanted = Loaded(Known(name), Known(name));
    for (const int64_t most : {int64_t{1}, int64_t{3000}, int64_t{1} << 30}) {
      const std::string path = Path(absl::StrCat(name, "-", most));
      const auto config = ReadConfig(Known(name));
      ModelLab lab(*config, {.dtype = DType::kFloat32, .trains = false}, device::Cpu());
      ASSERT_OK(LoadWeights(Known(name), lab.model(), lab.arrays(), lab.context()));
      const SaveWeightsOptions options = {.most_file_bytes = most};
      ASSERT_OK(SaveWeights(path, lab.model(), lab.arrays(), lab.context(), options));
      EXPECT_EQ(std::filesystem::exists(path + "/model.safetensors.index.json"), most <= 3000);
      EXPECT_EQ(Loaded(path, path), wanted);
      EXPECT_THAT(SaveWeights(path, lab.model(), lab.arrays(), lab.context(), options),
                  StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(path)));
      EXPECT_THAT(SaveWeights(Path("new"), lab.model(), lab.arrays(), lab.context(),
                              {.most_file_bytes = 0}),
                  StatusIs(kInvalid, HasSubstr("most_file_bytes is 0")));
      EXPECT_THAT(SaveWeights(Path("no/where"), lab.model(), lab.arrays(), lab.context(), options),
                  StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/")));
    }
  }
  // Nothing is left beside them.
  size_t entries = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(root_)) ++entries;
  EXPECT_EQ(entries, 9u);
}

TEST_F(WeightsTest, AShortFileIsNamed) {
  std::filesystem::copy_file(Known("llama") + "/model.safetensors", Path("short.safetensors"));
  std::filesystem::permissions(Path("short.safetensors"), std::filesystem::perms::owner_all);
  std::filesystem::resize_file(Path("short.safetensors"), 9000);
  EXPECT_THAT(Refused(Known("llama"), Path("short.safetensors")),
              StatusIs(kInvalid, HasSubstr(Path("short.safetensors"))));
  EXPECT_THAT(Refused(Known("llama"), Path("nothing")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(Path("nothing"))));
}

}  // namespace
}  // namespace brigade::models
