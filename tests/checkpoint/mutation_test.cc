// Files that are damaged at random, with checksums of the manifest that fit: loading gives an error
// or the same arrays, and so do the commands; weights of other tools, which have no checksums, give
// an error or what their files hold. All take memory in proportion to the files.

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/export.h"
#include "brigade/checkpoint/inspect.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/checkpoint/verify.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using collectives::Rank;
using testing::CrashFileSystem;
using testing::kRoot;
using testing::ToRoot;
using testing::TrainingFields;

// Of each kind of folder, and of weights.
int mutations = 3000;

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  uint64_t Below(uint64_t end) { return random_() % end; }

  std::string Mutated(std::string text) {
    for (uint64_t times = 1 + Below(3); times > 0; --times) Mutate(text);
    return text;
  }

 private:
  void Mutate(std::string& text) {
    if (text.empty()) text = "0";
    const size_t at = Below(text.size()), other = Below(text.size());
    const size_t count = std::min<size_t>(1 + Below(20), text.size() - at);
    switch (Below(7)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
        return;
      case 1:
        text[at] = static_cast<char>(Below(256));
        return;
      case 2:
        text.erase(at, count);
        return;
      case 3:
        text.insert(other, text.substr(at, count));
        return;
      case 4:
        text[at] = "\"\\{}[],:0-.eu"[Below(13)];
        return;
      default:
        MutateNumber(text, at);
    }
  }

  // The number at `at`, or after it.
  void MutateNumber(std::string& text, size_t at) {
    while (at < text.size() && !absl::ascii_isdigit(static_cast<unsigned char>(text[at]))) ++at;
    size_t end = at;
    while (end < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[end]))) ++end;
    if (at == end) return;
    const char* const values[] = {"0",          "1",          "2",
                                  "4096",       "2147483647", "4294967296",
                                  "1000000000", "-1",         "9223372036854775807",
                                  "1e9",        "0.5",        "18446744073709551615"};
    const uint64_t kind = Below(16);
    const std::string number = text.substr(at, end - at);
    std::string to = kind < 12 ? values[kind] : number;
    if (kind >= 12 && number.size() < 18) {
      to = absl::StrCat(std::strtoll(number.c_str(), nullptr, 10) +
                        (kind % 2 == 0 ? 1 : -1) * (kind < 14 ? 1 : 4));
    }
    text.replace(at, end - at, to);
  }

  std::mt19937_64 random_;
};

std::string WithSum(const std::string& manifest) {
  const std::string summed = manifest.substr(0, manifest.rfind(",\n\"crc32c\""));
  return absl::StrCat(summed,
                      absl::StrFormat(",\n\"crc32c\": \"%08x\"\n}\n", device::Crc32c(summed)));
}

void Replace(device::SystemCalls& system, const std::string& path, const std::string& content) {
  system.Unlink(path);
  auto file = WritableFile::Create(system, path, 0);
  ASSERT_OK(file);
  ASSERT_OK(file->Write(content, 0));
  ASSERT_OK(file->Finish());
}

// What two ranks save, in files of 1,300 bytes.
class Saved {
 public:
  explicit Saved(WriteMode mode) {
    options_.bucket_elements = 300;
    SaverOptions to_root = ToRoot(mode);
    to_root.file_bytes = 1300;
    collectives::OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = CreateZero(self);
      ASSERT_OK(InitializeToy(*zero));
      zero::ToyTrainer trainer(*zero, self);
      ASSERT_OK(trainer.Step());
      auto saver = Saver::Create(to_root, *zero, *self.communicator, *self.context, disk).value();
      ASSERT_OK(saver->Begin(TrainingFields()));
      ASSERT_OK(saver->Wait());
    });
    for (const auto& [path, content] : testing::FilesOf(disk, 1)) {
      if (absl::EndsWith(path, "/")) continue;
      whole[path] = content;
      paths_.push_back(path);
      bytes += static_cast<int64_t>(content.size());
    }
  }

  std::unique_ptr<zero::ZeroOptimizer> CreateZero(Rank& self) const {
    const zero::ModelSpec model = {
        {"a",
         {{"a.w", 300}, {"a.empty", 0}, {"a.frozen", 9, precision::DType::kFloat16, 0, false}}},
        {"b", {{"b.w", 40}}, {"a.w"}}};
    return zero::CreateZero(model, options_, self).value();
  }

  // Runs `use(path)` of each mutation, and of its memory returns the most.
  int64_t Mutate(absl::FunctionRef<void(const std::string& path)> use) {
    int64_t peak = 0;
    for (int i = 0; i < mutations && !::testing::Test::HasFatalFailure(); ++i) {
      Mutator mutator(static_cast<uint64_t>(i));
      // Every other one of the manifest.
      const bool of_manifest = i % 2 == 0;
      const std::string path = of_manifest ? manifest_path : paths_[mutator.Below(paths_.size())];
      const std::string& content = whole.at(path);
      // Of a file of numbers also in its header alone.
      const size_t head = of_manifest || mutator.Below(2) == 0
                              ? content.size()
                              : std::min<size_t>(content.size(), 300);
      std::string mutated = mutator.Mutated(content.substr(0, head)) + content.substr(head);
      if (path == manifest_path) mutated = WithSum(mutated);
      Replace(disk, path, mutated);
      SCOPED_TRACE(absl::StrCat("mutation ", i, " of ", path));
      const brigade::testing::PeakOfAllocations allocated;
      use(path);
      peak = std::max(peak, allocated.bytes());
      EXPECT_EQ(disk.open_files(), 0);
      Replace(disk, path, content);
    }
    return peak;
  }

  const std::string folder = CheckpointPath(kRoot, 1);
  const std::string manifest_path = absl::StrCat(folder, "/", kManifestName);
  CrashFileSystem disk;
  std::map<std::string, std::string> whole;
  int64_t bytes = 0;

 private:
  zero::ZeroOptions options_;
  std::vector<std::string> paths_;
};

TEST(MutationTest, LoadGivesAnErrorOrTheSameArrays) {
  for (const WriteMode mode : {WriteMode::kInPlace, WriteMode::kPieceFiles}) {
    Saved saved(mode);
    collectives::OnThreads({.size = 1}, [&](Rank& self) {
      auto zero = saved.CreateZero(self);
      const auto load = [&] {
        return Load(saved.folder, TrainingFields(), *zero, *self.communicator, {}, saved.disk);
      };
      ASSERT_OK(load());
      const auto state = zero::Capture(*zero, self).value();
      int refused = 0, taken = 0;
      const int64_t peak = saved.Mutate([&](const std::string& path) {
        if (!load().ok()) {
          ++refused;
          return;
        }
        ++taken;
        const auto now = zero::Capture(*zero, self).value();
        ASSERT_TRUE(now.arrays == state.arrays);
        if (path != saved.manifest_path) {
          ASSERT_TRUE(now == state);
        }
      });
      EXPECT_GT(refused, mutations / 2);
      EXPECT_GT(taken, 0);
      EXPECT_LT(peak, 8 * saved.bytes) << saved.bytes;
    });
  }
}

TEST(MutationTest, CommandsGiveAnErrorOrTheSameParameters) {
  constexpr int64_t kChunkBytes = 1000;
  constexpr char kFile[] = "/out.safetensors", kFolder[] = "/out";
  for (const WriteMode mode : {WriteMode::kInPlace, WriteMode::kPieceFiles}) {
    Saved saved(mode);
    const auto to_file = [&] {
      return ExportParameters(saved.folder, kFile, {.chunk_bytes = kChunkBytes}, saved.disk);
    };
    const auto to_folder = [&] {
      return ExportFolder(saved.folder, kFolder, kChunkBytes, saved.disk);
    };
    ASSERT_OK(to_file());
    const std::string parameters = saved.disk.All().at(kFile);
    saved.disk.Unlink(kFile);
    ASSERT_OK(to_folder());
    const auto files = saved.disk.All();
    ASSERT_OK(RemoveFolderWithFiles(saved.disk, kFolder));
    const size_t paths = saved.disk.All().size();
    int verified = 0, exported = 0, copied = 0, inspected = 0;
    const int64_t peak = saved.Mutate([&](const std::string&) {
      const auto report = Verify(saved.folder, {.chunk_bytes = kChunkBytes}, saved.disk);
      const bool is_whole = report.ok() && report->damages.empty();
      verified += is_whole;
      if (to_file().ok()) {
        ++exported;
        ASSERT_TRUE(saved.disk.All().at(kFile) == parameters);
        saved.disk.Unlink(kFile);
      } else {
        ASSERT_FALSE(is_whole);
      }
      if (to_folder().ok()) {
        ++copied;
        for (const auto& [path, content] : saved.disk.All()) {
          if (!absl::StartsWith(path, absl::StrCat(kFolder, "/")) || absl::EndsWith(path, "/") ||
              absl::EndsWith(path, kManifestName)) {
            continue;
          }
          // The manifest gives files their names.
          const auto same = files.find(path);
          ASSERT_TRUE(same == files.end() || content == same->second) << path;
        }
        ASSERT_OK(RemoveFolderWithFiles(saved.disk, kFolder));
      } else {
        ASSERT_FALSE(is_whole);
      }
      std::string text;
      inspected += Inspect(saved.folder, text, saved.disk).ok();
      ASSERT_EQ(saved.disk.All().size(), paths);
    });
    for (const int count : {verified, exported, copied, inspected}) {
      EXPECT_GT(count, 0);
      EXPECT_LT(count, mutations);
    }
    EXPECT_LT(peak, 8 * saved.bytes) << saved.bytes;
  }
}

TEST(MutationTest, WeightsOfOtherToolsGiveAnErrorOrWhatTheFilesHold) {
  CrashFileSystem disk;
  ASSERT_EQ(disk.MakeFolder("/w", 0777), 0);
  const std::string index = absl::StrCat("/w/", kWeightIndexName);
  std::map<std::string, std::string> whole = {
      {index, R"({
  "metadata": {"total_size": 27, "format": "pt"},
  "weight_map": {
    "a.w": "1.safetensors",
    "a.b": "1.safetensors",
    "b.w": "2.safetensors"
  }
})"},
      {"/w/1.safetensors", MakeHeader({{.name = "a.w", .type = "F32", .shape = {2, 2}},
                                       {.name = "a.b", .type = "F16", .shape = {2}}},
                                      {{"format", "pt"}})
                                   .value() +
                               "0123456789abcdefghij"},
      {"/w/2.safetensors",
       MakeHeader({{.name = "b.w", .type = "U8", .shape = {7}}}).value() + "ABCDEFG"}};
  const std::map<std::string, std::string> data = {
      {"a.w", "0123456789abcdef"}, {"a.b", "ghij"}, {"b.w", "ABCDEFG"}};
  std::vector<std::string> paths;
  int64_t bytes = 0;
  for (const auto& [path, content] : whole) {
    Replace(disk, path, content);
    paths.push_back(path);
    bytes += static_cast<int64_t>(content.size());
  }
  int refused = 0, taken = 0;
  int64_t peak = 0;
  for (int i = 0; i < mutations; ++i) {
    Mutator mutator(static_cast<uint64_t>(i));
    const std::string& path = i % 2 == 0 ? index : paths[mutator.Below(paths.size())];
    SCOPED_TRACE(absl::StrCat("mutation ", i, " of ", path));
    const std::string mutated = mutator.Mutated(whole[path]);
    Replace(disk, path, mutated);
    {
      const brigade::testing::PeakOfAllocations allocated;
      std::string text;
      const absl::Status inspected = Inspect("/w", text, disk);
      const auto files = WeightFiles::Open("/w", disk);
      ASSERT_EQ(inspected.ok(), files.ok());
      ++(files.ok() ? taken : refused);
      if (files.ok()) {
        for (const WeightFiles::Tensor& tensor : files->tensors()) {
          std::string values(static_cast<size_t>(tensor.bytes), '\0');
          ASSERT_OK(files->Read(tensor, 0, tensor.bytes, values.data()));
          // An index does not change what is in a file.
          if (path == index) {
            ASSERT_EQ(values, data.at(tensor.name));
          }
        }
      }
      peak = std::max(peak, allocated.bytes());
    }
    ASSERT_EQ(disk.open_files(), 0);
    Replace(disk, path, whole[path]);
  }
  EXPECT_GT(refused, mutations / 2);
  EXPECT_GT(taken, 0);
  EXPECT_LT(peak, 64 * bytes) << bytes;
}

}  // namespace
}  // namespace brigade::checkpoint

// One argument: how many mutations.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1) brigade::checkpoint::mutations = std::atoi(argv[1]);
  return RUN_ALL_TESTS();
}
