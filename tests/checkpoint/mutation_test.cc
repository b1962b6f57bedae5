// Files that are damaged at random, with checksums of the manifest that fit: loading gives an error
// or the same arrays, and takes no more memory than the files are large.

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
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

// Of each kind of folder.
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

TEST(MutationTest, GivesAnErrorOrTheSameArrays) {
  const zero::ModelSpec model = {
      {"a", {{"a.w", 300}, {"a.empty", 0}, {"a.frozen", 9, precision::DType::kFloat16, 0, false}}},
      {"b", {{"b.w", 40}}, {"a.w"}}};
  zero::ZeroOptions options;
  options.bucket_elements = 300;
  for (const WriteMode mode : {WriteMode::kInPlace, WriteMode::kPieceFiles}) {
    CrashFileSystem disk;
    SaverOptions to_root = ToRoot(mode);
    to_root.file_bytes = 1300;
    std::vector<std::string> files;
    std::string manifest_path, manifest;
    int64_t bytes = 0;
    // Two ranks' piece files.
    collectives::OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = CreateZero(model, options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      zero::ToyTrainer trainer(*zero, self);
      ASSERT_OK(trainer.Step());
      auto saver = Saver::Create(to_root, *zero, *self.communicator, *self.context, disk).value();
      ASSERT_OK(saver->Begin(TrainingFields()));
      ASSERT_OK(saver->Wait());
    });
    const auto whole = testing::FilesOf(disk, 1);
    for (const auto& [path, content] : whole) {
      if (absl::EndsWith(path, "/")) continue;
      bytes += static_cast<int64_t>(content.size());
      files.push_back(path);
      if (absl::EndsWith(path, "manifest.json")) {
        manifest_path = path;
        manifest = content;
      }
    }
    const std::string folder = CheckpointPath(kRoot, 1);
    collectives::OnThreads({.size = 1}, [&](Rank& self) {
      auto zero = CreateZero(model, options, self).value();
      ASSERT_OK(Load(folder, TrainingFields(), *zero, *self.communicator, {}, disk));
      const auto state = zero::Capture(*zero, self).value();
      int refused = 0, taken = 0;
      int64_t peak = 0;
      for (int i = 0; i < mutations; ++i) {
        Mutator mutator(static_cast<uint64_t>(i));
        // Every other one of the manifest.
        const bool of_manifest = i % 2 == 0;
        const std::string path = of_manifest ? manifest_path : files[mutator.Below(files.size())];
        const std::string& content = whole.at(path);
        // Of a file of numbers also in its header alone.
        const size_t head = of_manifest || mutator.Below(2) == 0
                                ? content.size()
                                : std::min<size_t>(content.size(), 300);
        const std::string rest = content.substr(head);
        std::string mutated = mutator.Mutated(content.substr(0, head)) + rest;
        if (path == manifest_path) mutated = WithSum(mutated);
        Replace(disk, path, mutated);
        const brigade::testing::PeakOfAllocations allocated;
        const auto loaded = Load(folder, TrainingFields(), *zero, *self.communicator, {}, disk);
        peak = std::max(peak, allocated.bytes());
        SCOPED_TRACE(absl::StrCat("mutation ", i, " of ", path));
        if (loaded.ok()) {
          ++taken;
          const auto now = zero::Capture(*zero, self).value();
          ASSERT_TRUE(now.arrays == state.arrays);
          if (path != manifest_path) {
            ASSERT_TRUE(now == state);
          }
        } else {
          ++refused;
        }
        ASSERT_EQ(disk.open_files(), 0);
        Replace(disk, path, content);
      }
      EXPECT_GT(refused, mutations / 2);
      EXPECT_GT(taken, 0);
      EXPECT_LT(peak, 8 * bytes) << bytes;
    });
  }
}

}  // namespace
}  // namespace brigade::checkpoint

// One argument: how many mutations.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1) brigade::checkpoint::mutations = std::atoi(argv[1]);
  return RUN_ALL_TESTS();
}
