// verify and export: what they find, and what they write, of checkpoints in place and in pieces.

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/export.h"
#include "brigade/checkpoint/inspect.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/checkpoint/verify.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/saved_toy.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::AllOf;
using ::testing::Contains;
using testing::CrashFileSystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPath[] = "/r/step-00000003";
constexpr char kOut[] = "/out.safetensors";

struct Saved {
  Saved(WriteMode mode) : arrays(testing::SaveToy(disk, "/r", mode)) {}
  CrashFileSystem disk;
  testing::ToyArrays arrays;
};

// As long as the tests do not change it.
Saved& InPlace() {
  static auto& saved = *new Saved(WriteMode::kInPlace);
  return saved;
}
Saved& InPieces() {
  static auto& saved = *new Saved(WriteMode::kPieceFiles);
  return saved;
}
std::unique_ptr<CrashFileSystem> CopyOf(const Saved& saved) {
  return saved.disk.AfterCrash(CrashFileSystem::Data::kAll, CrashFileSystem::Names::kAll);
}

void Overwrite(CrashFileSystem& disk, const std::string& path, off_t offset,
               const std::string& bytes) {
  const int file = disk.Open(path, O_WRONLY, 0);
  ASSERT_EQ(disk.WriteAt(file, bytes.data(), bytes.size(), offset),
            static_cast<ssize_t>(bytes.size()))
      << path;
  disk.Close(file);
}

void Flip(CrashFileSystem& disk, const std::string& path, off_t offset) {
  const int file = disk.Open(path, O_RDONLY, 0);
  char byte = 0;
  ASSERT_EQ(disk.ReadAt(file, &byte, 1, offset), 1) << path;
  disk.Close(file);
  Overwrite(disk, path, offset, std::string(1, static_cast<char>(byte ^ 4)));
}

std::map<std::string, std::string> FilesUnder(const CrashFileSystem& disk,
                                              const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& [path, bytes] : disk.All()) {
    if (absl::StartsWith(path, folder)) files[path.substr(folder.size())] = bytes;
  }
  return files;
}

std::vector<std::string> Damages(CrashFileSystem& disk) {
  // Chunks that end amid elements of the toy's tensors.
  const auto report = Verify(kPath, {.chunk_bytes = 1000}, disk);
  return report.ok() ? report->damages : std::vector<std::string>{report.status().ToString()};
}

TEST(VerifyTest, AWholeCheckpointIsWhole) {
  for (Saved* const saved : {&InPlace(), &InPieces()}) {
    for (const int64_t chunk_bytes : {int64_t{8}, int64_t{1000}, kReadChunkBytes}) {
      int64_t last = 0;
      const auto report = Verify(kPath,
                                 {.chunk_bytes = chunk_bytes,
                                  .progress =
                                      [&](int64_t done, int64_t total) {
                                        EXPECT_GT(done, last);
                                        EXPECT_LE(done, total);
                                        last = done;
                                      }},
                                 saved->disk);
      ASSERT_OK(report);
      EXPECT_THAT(report->damages, IsEmpty());
      EXPECT_EQ(last, report->bytes);
      EXPECT_EQ(report->tensors, 11 + 2 * 10);
    }
  }
}

TEST(VerifyTest, FindsEachFlippedByte) {
  for (Saved* const saved : {&InPlace(), &InPieces()}) {
    const auto disk = CopyOf(*saved);
    for (const auto& [path, bytes] : saved->disk.All()) {
      if (!absl::StartsWith(path, absl::StrCat(kPath, "/")) || bytes.empty()) continue;
      for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 7) {
        Flip(*disk, path, static_cast<off_t>(at));
        EXPECT_THAT(Damages(*disk), Contains(HasSubstr(path))) << path << " " << at;
        Flip(*disk, path, static_cast<off_t>(at));
      }
    }
    EXPECT_THAT(Damages(*disk), IsEmpty());
  }
}

TEST(VerifyTest, NamesTheDamagedTensor) {
  auto disk = CopyOf(InPlace());
  const std::string path = absl::StrCat(kPath, "/moment2-00001-of-00005.safetensors");
  Flip(*disk, path, 4096);
  EXPECT_THAT(Damages(*disk),
              ElementsAre(AllOf(HasSubstr(path), HasSubstr(" has the checksum ")),
                          HasSubstr(absl::StrCat(path, ": tensor \"wte\" has the checksum "))));
  disk = CopyOf(InPieces());
  // The last bytes are those of rank 3's part of some tensor.
  const std::string piece = absl::StrCat(kPath, "/pieces-00003-of-00003.bin");
  const auto size = static_cast<off_t>(disk->All()[piece].size());
  Flip(*disk, piece, size - 1);
  EXPECT_THAT(Damages(*disk), AllOf(Contains(HasSubstr(piece)), Contains(HasSubstr(": tensor "))));
}

TEST(VerifyTest, FindsFilesThatAreMissingOrTooMuch) {
  const auto disk = CopyOf(InPlace());
  const std::string path = absl::StrCat(kPath, "/master-00002-of-00005.safetensors");
  const std::string more = absl::StrCat(kPath, "/more");
  ASSERT_EQ(disk->Rename(path, more), 0);
  EXPECT_THAT(Damages(*disk), ElementsAre(absl::StrCat(path, " is not there"),
                                          absl::StrCat(more, " is not in the manifest")));
  ASSERT_EQ(disk->Rename(more, path), 0);
  const auto size = static_cast<off_t>(disk->All()[path].size());
  Overwrite(*disk, path, size, "x");
  EXPECT_THAT(Damages(*disk),
              ElementsAre(absl::StrCat(path, " has ", size + 1, " bytes, and should have ", size)));
}

// The manifest says where each part is; no order of them is promised.
TEST(VerifyTest, TakesPieceFilesInAnyOrder) {
  const auto disk = CopyOf(InPieces());
  const std::string path = absl::StrCat(kPath, "/manifest.json");
  ASSERT_OK_AND_ASSIGN(Manifest manifest, ParseManifest(disk->All()[path]));
  std::reverse(manifest.pieces.begin(), manifest.pieces.end());
  ASSERT_OK_AND_ASSIGN(const std::string text, ManifestText(manifest));
  Overwrite(*disk, path, 0, text);
  EXPECT_THAT(Damages(*disk), IsEmpty());
}

// The second of two ranks has nothing of so few elements.
TEST(VerifyTest, APieceFileWithoutBytesIsLookedForToo) {
  CrashFileSystem disk;
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& self) {
    auto zero = zero::CreateZero({{"unit", {{.name = "w", .size = 3}}, {}}}, {}, self);
    ASSERT_OK(zero);
    ASSERT_OK(InitializeToy(**zero));
    auto saver = Saver::Create({.root = "/r", .mode = WriteMode::kPieceFiles}, **zero,
                               *self.communicator, *self.context, disk);
    ASSERT_OK(saver);
    ASSERT_OK((*saver)->Begin({}));
    ASSERT_OK((*saver)->Wait());
    ASSERT_OK(self.stream->Synchronize());
  });
  const std::string folder = "/r/step-00000000", path = folder + "/pieces-00002-of-00002.bin";
  const auto expect_damages = [&](const auto& damages) {
    const auto report = Verify(folder, {}, disk);
    ASSERT_OK(report);
    EXPECT_THAT(report->damages, damages);
  };
  ASSERT_EQ(disk.All().count(path), 1u);
  ASSERT_EQ(disk.All()[path], "");
  expect_damages(IsEmpty());
  Overwrite(disk, path, 0, "x");
  expect_damages(ElementsAre(path + " has 1 bytes, and should have 0"));
  ASSERT_EQ(disk.Unlink(path), 0);
  expect_damages(ElementsAre(path + " is not there"));
}

TEST(ExportTest, RefusesAHeaderThatHasChanged) {
  const auto disk = CopyOf(InPlace());
  const std::string path = absl::StrCat(kPath, "/master-00001-of-00005.safetensors");
  const size_t shape = disk->All()[path].find("[70,10]");
  ASSERT_NE(shape, std::string::npos);
  Overwrite(*disk, path, static_cast<off_t>(shape), "[10,70]");
  EXPECT_THAT(ExportParameters(kPath, kOut, {}, *disk),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr(absl::StrCat(path, ": the header is damaged"))));
}

TEST(ExportTest, WritesTheParametersInEachType) {
  for (Saved* const saved : {&InPlace(), &InPieces()}) {
    for (const std::optional<DType> dtype :
         {std::optional<DType>(), std::optional(DType::kFloat32), std::optional(DType::kFloat16),
          std::optional(DType::kBFloat16)}) {
      const auto disk = CopyOf(*saved);
      const auto report =
          ExportParameters(kPath, kOut, {.dtype = dtype, .chunk_bytes = 1000}, *disk);
      ASSERT_OK(report);
      EXPECT_EQ(report->tensors, 11);
      const auto weights = WeightFiles::Open(kOut, *disk);
      ASSERT_OK(weights);
      EXPECT_EQ(weights->files()[0].bytes, report->bytes);
      EXPECT_THAT(weights->files()[0].metadata, ElementsAre(std::pair("format", "pt")));
      size_t p = 0;
      for (const zero::UnitSpec& unit : testing::ToyWithShapes()) {
        for (const zero::ParameterSpec& spec : unit.parameters) {
          const WeightFiles::Tensor* const tensor = weights->Find(spec.name);
          ASSERT_NE(tensor, nullptr);
          const std::vector<int64_t> shape =
              spec.shape.empty() ? std::vector<int64_t>{spec.size} : spec.shape;
          EXPECT_EQ(std::vector<int64_t>(tensor->shape.begin(), tensor->shape.end()), shape);
          const DType type = dtype.value_or(spec.trainable ? DType::kFloat32 : DType::kFloat16);
          ASSERT_EQ(tensor->type, TypeName(type));
          std::string bytes(static_cast<size_t>(tensor->bytes), '\0'), wanted;
          ASSERT_OK(weights->Read(*tensor, 0, tensor->bytes, bytes.data()));
          for (const float value : saved->arrays[0][p]) {
            precision::VisitFloat(type, [&](auto tag) {
              tag = static_cast<decltype(tag)>(value);
              wanted.append(reinterpret_cast<const char*>(&tag), sizeof(tag));
            });
          }
          EXPECT_EQ(bytes, wanted) << spec.name;
          ++p;
        }
      }
    }
  }
}

TEST(ExportTest, ReplacesAFileOnlyByForceAndOutlivesACrash) {
  auto disk = CopyOf(InPlace());
  ASSERT_OK(ExportParameters(kPath, kOut, {}, *disk));
  const std::string first = disk->All()[kOut];
  EXPECT_THAT(ExportParameters(kPath, kOut, {.dtype = DType::kBFloat16}, *disk),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(kOut)));
  EXPECT_EQ(disk->All()[kOut], first);
  ASSERT_OK(ExportParameters(kPath, kOut, {.dtype = DType::kBFloat16, .force = true}, *disk));
  const std::string second = disk->All()[kOut];
  EXPECT_LT(second.size(), first.size());
  disk = disk->AfterCrash(CrashFileSystem::Data::kNone, CrashFileSystem::Names::kNone);
  EXPECT_EQ(disk->All()[kOut], second);
}

TEST(CommandsTest, ChunksThatCutElementsAreRefused) {
  const auto disk = CopyOf(InPlace());
  const auto before = disk->All();
  for (const int64_t chunk_bytes : {0, -8, 6}) {
    const auto refused =
        StatusIs(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("chunk_bytes is ", chunk_bytes, ", must be a multiple of 8 above 0"));
    EXPECT_THAT(ExportParameters(kPath, kOut, {.chunk_bytes = chunk_bytes}, *disk), refused);
    EXPECT_THAT(ExportFolder(kPath, "/r/out", chunk_bytes, *disk), refused);
    EXPECT_THAT(Verify(kPath, {.chunk_bytes = chunk_bytes}, *disk), refused);
  }
  EXPECT_EQ(disk->All(), before);
}

TEST(ExportTest, DamageLeavesNothing) {
  for (Saved* const saved : {&InPlace(), &InPieces()}) {
    const auto disk = CopyOf(*saved);
    const std::string path =
        absl::StrCat(kPath, saved == &InPlace() ? "/master-00001-of-00005.safetensors"
                                                : "/pieces-00001-of-00003.bin");
    const size_t size = disk->All()[path].size();
    // In place: the last element of the file's last tensor.
    if (saved == &InPieces()) {
      // Rank 1 owns the begin of the first bucket, whose parameters are masters.
      for (size_t at = 0; at < size; at += 1 + size / 50) {
        Flip(*disk, path, static_cast<off_t>(at));
      }
    } else {
      Flip(*disk, path, static_cast<off_t>(size) - 1);
    }
    const auto before = disk->All();
    EXPECT_THAT(ExportParameters(kPath, kOut, {}, *disk),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(kPath)));
    EXPECT_THAT(ExportFolder(kPath, "/r/out", 1000, *disk),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(kPath)));
    EXPECT_EQ(disk->All(), before);
  }
}

TEST(ExportTest, AnErrorOfEachCallLeavesNothing) {
  for (int64_t failing = 1;; ++failing) {
    const auto disk = CopyOf(InPieces());
    const auto before = disk->All();
    int64_t writes = 0;
    disk->set_fault([&](const std::string& call, const std::string&) {
      const bool changes = call == "write" || call == "sync data" || call == "rename";
      return changes && ++writes == failing ? EIO : 0;
    });
    const auto report = ExportParameters(kPath, kOut, {.chunk_bytes = 1000}, *disk);
    disk->set_fault(nullptr);
    if (writes < failing) {
      EXPECT_OK(report);
      EXPECT_GT(failing, 2);
      break;
    }
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(disk->All(), before);
  }
}

TEST(ExportTest, AFolderIsWhatASaveInPlaceIs) {
  auto disk = CopyOf(InPieces());
  ASSERT_OK(ExportFolder(kPath, "/r/out/", 1000, *disk));
  EXPECT_EQ(FilesUnder(*disk, "/r/out/"), FilesUnder(InPlace().disk, absl::StrCat(kPath, "/")));
  EXPECT_THAT(ExportFolder(kPath, "/r/out", 1000, *disk),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("/r/out")));
  const auto all = disk->All();
  disk = disk->AfterCrash(CrashFileSystem::Data::kNone, CrashFileSystem::Names::kNone);
  EXPECT_EQ(disk->All(), all);
}

TEST(InspectTest, ShowsCheckpointsAndWeights) {
  const auto disk = CopyOf(InPieces());
  std::string text;
  ASSERT_OK(Inspect(kPath, text, *disk));
  for (const char* const part :
       {"in piece files", "iteration                                3",
        "[5, 3, 100] float16, group 0", "[50] float16, frozen", "pieces-00003-of-00003.bin",
        "master-00001-of-00005.safetensors", "total: 11 parameters of 3887 elements"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  ASSERT_OK(ExportFolder(kPath, "/r/step-00000012", 1000, *disk));
  text.clear();
  ASSERT_OK(Inspect("/r", text, *disk));
  EXPECT_THAT(text, HasSubstr("in piece files\n/r/step-00000012: 11 parameters"));
  EXPECT_THAT(text, HasSubstr("in place  <- the newest\n"));
  ASSERT_OK(ExportParameters(kPath, kOut, {}, *disk));
  text.clear();
  ASSERT_OK(Inspect(kOut, text, *disk));
  EXPECT_THAT(text, HasSubstr("F16 [50] 100 bytes"));
  EXPECT_THAT(text, HasSubstr("total: 11 tensors, "));
  Flip(*disk, "/r/step-00000012/manifest.json", 100);
  text.clear();
  EXPECT_THAT(Inspect("/r", text, *disk),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/r/step-00000012")));
  EXPECT_THAT(text, HasSubstr("/r/step-00000012: damaged"));
}

}  // namespace
}  // namespace brigade::checkpoint
